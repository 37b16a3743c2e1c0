"""The fast kernels equal the naive ones, and these the formulas in NumPy."""

import numpy as np
import pytest

from tests.tinygrad_lite.cuda.naive import layer_norm_naive, softmax_naive
from tinygrad_lite import Tensor
from tinygrad_lite import functional as F
from tinygrad_lite.cuda.attention import softmax
from tinygrad_lite.cuda.dropout import next_dropout
from tinygrad_lite.device import get_device

rng = np.random.default_rng(31)


@pytest.mark.parametrize(("rows", "width"), [(1, 1), (5, 4), (7, 33), (130, 36), (3, 132), (2, 1029)])
@pytest.mark.parametrize("eps", [1e-5, 0.5])
def test_layer_norm_equals_the_naive_kernel(cuda, rows, width, eps):
    x, weight, bias = (rng.standard_normal(shape) for shape in ((rows, width), (width,), (width,)))
    x += 3
    h = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + eps)
    given, gain, shift = (Tensor(a.astype(np.float32), device=cuda) for a in (x, weight, bias))
    naive = get_device(cuda).to_host(layer_norm_naive(given.data, gain.data, shift.data, eps))
    fast = F.layer_norm(given, weight=gain, bias=shift, eps=eps).numpy()
    np.testing.assert_allclose(naive, h * weight + bias, rtol=0, atol=1e-5)
    np.testing.assert_allclose(fast, naive, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("t", "s"), [(1, 1), (5, 8), (8, 8), (33, 33), (40, 132), (9, 4), (130, 130)])
@pytest.mark.parametrize("is_causal", [True, False])
def test_softmax_equals_the_naive_kernel(cuda, t, s, is_causal):
    scores = 4 * rng.standard_normal((2, 3, t, s))
    ahead = s - t if is_causal else s
    seen = np.arange(s) <= np.arange(t)[:, None] + ahead
    powers = np.where(seen, np.exp(scores), 0)
    expected = powers / np.maximum(powers.sum(-1, keepdims=True), 1e-300)  # a query that sees no key gets zeros
    on_device = Tensor(scores.astype(np.float32), device=cuda).data
    naive = softmax_naive(on_device, ahead)
    fast = softmax(on_device, 0, t, s, ahead, None, next_dropout(0.0))  # in place
    naive, fast = map(get_device(cuda).to_host, (naive, fast))
    np.testing.assert_allclose(naive, expected, rtol=0, atol=2e-6)
    np.testing.assert_allclose(fast, naive, rtol=0, atol=1e-6)
    assert not fast[..., ~seen].any()
    assert not naive[..., ~seen].any()
