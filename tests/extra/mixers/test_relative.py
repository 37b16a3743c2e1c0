"""Positions in the scores of attention, and codes of positions, against their formulas."""

import numpy as np
import pytest

from extra.gpt.config import GPTConfig
from extra.mixers.relative import REACH, ALiBi, Shaw
from gpt.model import GPT
from tests.lively import lively
from tinygrad_lite import Tensor, no_grad
from tinygrad_lite.debug.gradcheck import gradcheck
from tinygrad_lite.transformer import POSITION_CODES

rng = np.random.default_rng(6)


@pytest.mark.parametrize(("queries", "keys"), [(5, 5), (2, 9), (1, 30), (24, 24)])
def test_what_is_added_is_that_of_the_papers(queries, keys):
    q = rng.standard_normal((2, 4, queries, 6))
    lines = ALiBi(4)(Tensor(q), keys).numpy()
    shaw = lively(lambda: Shaw(6, 0.3))
    vectors, found = shaw.vectors.numpy(), shaw(Tensor(q), keys).numpy()
    for t in range(queries):
        for s in range(keys - queries + t + 1):
            distance = keys - queries + t - s
            np.testing.assert_allclose(lines[:, t, s], [-distance / 4**head for head in (1, 2, 3, 4)])
            np.testing.assert_allclose(found[:, :, t, s], 0.3 * q[:, :, t] @ vectors[min(distance, REACH)], rtol=1e-12)


def test_gradients_of_the_vectors():
    shaw, q = lively(lambda: Shaw(3, 0.5)), Tensor(rng.standard_normal((1, 2, 4, 3)), requires_grad=True)
    weights = Tensor(rng.standard_normal((1, 2, 4, 6)))
    gradcheck(lambda q, vectors: (shaw(q, 6) * weights).sum(), [q, shaw.vectors])


@pytest.mark.parametrize("positions", ["alibi", "shaw"])
def test_only_distances_count(positions):
    """The same tokens behind different beginnings, of which an attention with one layer sees nothing but padding."""
    model = lively(lambda: GPT(GPTConfig(11, 40, 1, 2, 8, positions=positions))).eval()
    text = rng.integers(0, 11, 12)
    (alone, _), (padded, _) = model.start([text]), model.start([text, rng.integers(0, 11, 30)])
    np.testing.assert_allclose(padded[0], alone[0], rtol=0, atol=1e-12)
    with no_grad():
        one, other = (model(Tensor(row[None])).numpy()[0, -1] for row in (text, text[[1, 0, *range(2, 12)]]))
    assert np.abs(one - other).max() > 1e-4


def test_codes_that_are_added():
    assert POSITION_CODES["index"](5, 3).tolist() == [[t, 0, 0] for t in range(5)]
    assert POSITION_CODES["binary"](9, 4)[[3, 4, 8]].tolist() == [[1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    assert POSITION_CODES["binary"](2, 80).sum() == 1  # wider than any number has digits
