"""The naive kernels equal the formulas in NumPy, as the fast ones do (test_definitions.py, test_flash_attention.py)."""

import numpy as np
import pytest

from tests.tinygrad_lite.cuda.naive import layer_norm_naive, softmax_naive
from tinygrad_lite.device import get_device

rng = np.random.default_rng(31)


@pytest.mark.parametrize(("rows", "width"), [(1, 1), (5, 4), (7, 33), (130, 36), (3, 132), (2, 1029)])
@pytest.mark.parametrize("eps", [1e-5, 0.5])
def test_layer_norm(cuda, rows, width, eps):
    place, shapes = get_device(cuda), ((rows, width), (width,), (width,))
    x, weight, bias = (rng.standard_normal(shape) + 3 for shape in shapes)
    h = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + eps)
    found = layer_norm_naive(*(place.from_host(a.astype(np.float32)) for a in (x, weight, bias)), eps)
    np.testing.assert_allclose(place.to_host(found), h * weight + bias, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("t", "s"), [(1, 1), (5, 8), (8, 8), (33, 33), (40, 132), (9, 4), (130, 130)])
@pytest.mark.parametrize("is_causal", [True, False])
def test_softmax(cuda, t, s, is_causal):
    place, scores, ahead = get_device(cuda), 4 * rng.standard_normal((2, 3, t, s)), s - t if is_causal else s
    seen = np.arange(s) <= np.arange(t)[:, None] + ahead
    powers = np.where(seen, np.exp(scores), 0)
    expected = powers / np.maximum(powers.sum(-1, keepdims=True), 1e-300)  # a query that sees no key gets zeros
    found = place.to_host(softmax_naive(place.from_host(scores.astype(np.float32)), ahead))
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6)
    assert not found[..., ~seen].any()
