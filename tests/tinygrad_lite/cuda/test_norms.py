"""Norms, linear maps and residual sums on a GPU: what their definitions do not try; and the naive kernels."""

import numpy as np
import pytest

from tests.tinygrad_lite.cuda import attention_in_numpy as formula
from tests.tinygrad_lite.cuda.naive import attention_naive, layer_norm_naive, softmax_naive
from tinygrad_lite import Tensor
from tinygrad_lite import functional as F
from tinygrad_lite.cuda.residual import Sum
from tinygrad_lite.debug.anomaly import NonFiniteError, detect_anomaly
from tinygrad_lite.device import get_device
from tinygrad_lite.precision import bfloat16, precision

rng = np.random.default_rng(22)


def test_the_checking_mode_detects_a_broken_gradient(cuda):
    x = Tensor([[1e30, 1.0]], device=cuda)
    weight = Tensor([[1e-30, 0.0]], device=cuda, requires_grad=True)
    weight.grad = weight.detach().zeros_like()
    with detect_anomaly(), pytest.raises(NonFiniteError, match="the gradient of linear produced an infinity"):
        (F.linear(x, weight) * 1e30).backward()


# --- residual sums, computed by the norm that follows, or when they are read ----------------------------------


def layer_norm(x, gain, shift):
    return F.layer_norm(x, weight=gain, bias=shift)


def rms_norm(x, gain, shift):
    """RMS norm as if it had a shift."""
    return F.rms_norm(x, weight=gain)


def run(device, x, part, gain, shift, dy, ds, norm=layer_norm):
    """norm(x + part), with a gradient that comes past the norm too: results and gradients."""
    given = [Tensor(a, device=device, requires_grad=True) for a in (x, part, gain, shift)]
    flowing = given[1].linear(Tensor.eye(len(gain), dtype=given[1].dtype, device=device))  # bfloat16, if that is used
    total = F.residual(given[0], flowing)
    y = norm(total, given[2], given[3])
    dy, ds = Tensor(dy, device=device), Tensor(ds, device=device)
    ((y.cast(dy.dtype) * dy).sum() + (total * ds).sum()).backward()
    return [total, y] + [tensor.grad for tensor in given if tensor.grad is not None]


both_norms = pytest.mark.parametrize("norm", [layer_norm, rms_norm], ids=["layer_norm", "rms_norm"])


def addends(rows, width, dtype="float32"):
    shapes = [(rows, width), (rows, width), (width,), (width,), (rows, width), (rows, width)]
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


@pytest.mark.parametrize(("rows", "width", "dtype"), [(3, 5, "float64"), (300, 36, "float32")])
@both_norms
def test_results_and_gradients_equal_those_of_the_cpu(cuda, rows, width, dtype, norm):
    inputs = addends(rows, width, dtype)
    for expected, found in zip(run("cpu", *inputs, norm=norm), run(cuda, *inputs, norm=norm), strict=True):
        tolerance = (3e-5 if dtype == "float32" else 1e-12) * (np.abs(expected.numpy()).max() or 1)
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=0, atol=tolerance)


@pytest.mark.parametrize("width", [5, 36])
@both_norms
def test_a_bfloat16_part_is_added_in_float32_and_gets_a_bfloat16_gradient(cuda, width, norm):
    inputs = addends(40, width)
    exact = run("cpu", *(a.astype("float64") for a in inputs), norm=norm)
    with precision("bfloat16"):
        found = run(cuda, *inputs, norm=norm)
    assert (found[0].dtype, found[1].dtype) == (np.float32, bfloat16())
    for expected, other in zip(exact, found, strict=True):
        error = np.linalg.norm(other.numpy().astype("float64") - expected.numpy())
        assert error < 1e-2 * np.linalg.norm(expected.numpy())


def test_a_sum_that_no_norm_reads_is_computed_when_it_is_read(cuda):
    x, part, *_ = (Tensor(a, device=cuda) for a in addends(3, 8))
    total = F.residual(x, part)
    assert type(total) is Sum
    assert (total.shape, total.dtype, total.device, total.numel()) == ((3, 8), np.float32, cuda, 24)
    assert (total.numpy() == x.numpy() + part.numpy()).all()
    assert type(total) is Tensor


def test_overwriting_an_addend_before_the_sum_is_read_is_refused(cuda):
    x, part, *_ = (Tensor(a, device=cuda) for a in addends(3, 8))
    total = F.residual(x, part)
    x[0] = 0.0
    with pytest.raises(RuntimeError, match="overwritten in place before their sum was read"):
        total.numpy()


def test_observers_see_a_computed_sum_and_every_gradient_by_itself(cuda):
    inputs = addends(3, 8)
    with detect_anomaly():
        watched = run(cuda, *inputs)
    for one, other in zip(watched, run(cuda, *inputs), strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-5, atol=1e-5)


# --- the naive kernels, which equal the formulas in NumPy as the fast ones do ---------------------------------


@pytest.mark.parametrize(("rows", "width"), [(1, 1), (7, 33), (130, 36)])
def test_the_naive_layer_norm(cuda, rows, width):
    place, shapes = get_device(cuda), ((rows, width), (width,), (width,))
    x, weight, bias = (rng.standard_normal(shape) + 3 for shape in shapes)
    h = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 0.5)
    found = layer_norm_naive(*(place.from_host(a.astype(np.float32)) for a in (x, weight, bias)), 0.5)
    np.testing.assert_allclose(place.to_host(found), h * weight + bias, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("t", "s", "is_causal"), [(5, 8, True), (9, 4, True), (130, 130, False)])
def test_the_naive_softmax(cuda, t, s, is_causal):
    place, scores, ahead = get_device(cuda), 4 * rng.standard_normal((2, 3, t, s)), s - t if is_causal else s
    seen = np.arange(s) <= np.arange(t)[:, None] + ahead
    powers = np.where(seen, np.exp(scores), 0)
    expected = powers / np.maximum(powers.sum(-1, keepdims=True), 1e-300)  # a query that sees no key gets zeros
    found = place.to_host(softmax_naive(place.from_host(scores.astype(np.float32)), ahead))
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize(("t", "s", "width"), [(1, 33, 32), (70, 9, 64), (150, 210, 128)])
def test_the_naive_attention(cuda, t, s, width):
    place, arrays = get_device(cuda), formula.inputs(2, 1, t, s, width, "float32")
    given = (place.from_host(array) for array in (arrays.query, arrays.key, arrays.value))
    found = place.to_host(attention_naive(*given, width**-0.5))
    assert formula.relative_error(found, formula.attention(**vars(arrays), is_causal=True)["result"]) < 1e-6
