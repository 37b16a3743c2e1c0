"""Attention through a window, against attention with the whole mask, and what it saves."""

import numpy as np
import pytest

from extra.mixers.window import SINKS, WindowAttention
from tests.lively import gradients, lively
from tinygrad_lite import Tensor
from tinygrad_lite import functional as F

rng = np.random.default_rng(8)


@pytest.mark.parametrize("settings", [{}, {"n_kv_head": 1}])
@pytest.mark.parametrize("length", [1, 5, 6, 23])
def test_a_window_is_attention_with_a_mask(length, settings):
    attention = lively(lambda: WindowAttention(12, 2, window=5, **settings))
    x, weights = Tensor(rng.standard_normal((2, length, 12)), requires_grad=True), rng.standard_normal((2, length, 12))
    found = []
    behind = np.subtract.outer(np.arange(length), np.arange(length))
    seen = (behind >= 0) & ((behind < 5) | (np.arange(length) < SINKS))
    for mask, window in ((None, 5), (Tensor(seen), length + 1)):
        attention.window = window
        y = attention(x, mask=mask, is_causal=True)
        (y * Tensor(weights)).sum().backward()
        found.append({"y": y.numpy(), "x": x.grad.numpy()} | gradients(attention))
        x.grad = None
    for name, expected in found[1].items():
        np.testing.assert_allclose(found[0][name], expected, rtol=0, atol=1e-12, err_msg=name)
    attention.window = 5
    shown = attention.weights(x, is_causal=True).numpy()
    np.testing.assert_allclose(shown.sum(-1), 1)
    assert ((shown > 0) == seen).all()


@pytest.mark.parametrize("as_floats", [False, True])
def test_a_mask_of_queries_and_keys_hides_what_it_hides(as_floats):
    """Also if the last query sees everything."""
    attention = lively(lambda: WindowAttention(12, 2, window=5))
    x, behind = Tensor(rng.standard_normal((2, 17, 12))), np.subtract.outer(np.arange(17), np.arange(17))
    shown = (rng.random((17, 17)) < 0.7) | (behind == 0)
    shown[-1] = True
    near = (behind >= 0) & ((behind < 5) | (np.arange(17) < SINKS))
    found = []
    for window, seen in ((5, shown), (18, shown & near)):
        attention.window = window
        mask = np.where(seen, 0.0, -np.inf) if as_floats else seen
        found.append(attention(x, mask=Tensor(mask), is_causal=True).numpy())
    np.testing.assert_allclose(found[0], found[1], rtol=0, atol=1e-12)


def test_scores_grow_with_the_length_and_not_with_its_square(monkeypatch):
    attention, sizes = WindowAttention(8, 1, window=16), []
    compute = F.scaled_dot_product_attention

    def counting(query, key, value, mask, **settings):
        sizes[-1] += query.shape[2] * key.shape[2]
        return compute(query, key, value, mask, **settings)

    monkeypatch.setattr(F, "scaled_dot_product_attention", counting)
    for length in (64, 128, 256, 512):
        sizes.append(0)
        attention(Tensor(np.zeros((1, length, 8), np.float32)), is_causal=True)
    assert np.diff(sizes).tolist() == [n * 16 * (31 + SINKS) for n in (4, 8, 16)]
