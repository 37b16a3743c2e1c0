"""Layer norm and linear maps on a GPU: odd widths, views, many rows, and bfloat16."""

import numpy as np
import pytest

from tinygrad_lite import Tensor
from tinygrad_lite import functional as F
from tinygrad_lite.debug.anomaly import NonFiniteError, detect_anomaly
from tinygrad_lite.precision import bfloat16, precision

rng = np.random.default_rng(22)


def arrays(rows, width, dtype="float32"):
    shapes = [(rows, width), (width,), (width,), (6, width), (6,), (rows, 6)]
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def run(device, x, gain, shift, weight, bias, dy, with_bias=True):
    """A layer norm and a linear map: the result, and the gradients of x and of all parameters."""
    given = [Tensor(a, device=device, requires_grad=True) for a in (x, gain, shift, weight, bias)]
    h = F.layer_norm(given[0], weight=given[1], bias=given[2] if with_bias else None)
    y = F.linear(h, given[3], given[4] if with_bias else None)
    y.backward(Tensor(dy, device=device).cast(y.dtype))
    return [y] + [tensor.grad for tensor in given if tensor.grad is not None]


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize(("rows", "width"), [(1, 1), (2, 3), (5, 4), (7, 33), (300, 36), (9, 256)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_results_and_gradients_equal_those_of_the_cpu(cuda, rows, width, dtype, with_bias):
    inputs = arrays(rows, width, dtype)
    here, there = run("cpu", *inputs, with_bias=with_bias), run(cuda, *inputs, with_bias=with_bias)
    for expected, found in zip(here, there, strict=True):
        scale = np.abs(expected.numpy()).max() or 1
        tolerance = (3e-5 if dtype == "float32" else 1e-12) * scale
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=0, atol=tolerance)


@pytest.mark.parametrize(("mode", "error"), [("tf32", 2e-3), ("bfloat16", 1e-2)])
def test_coarser_products_have_small_errors(cuda, mode, error):
    inputs = arrays(40, 64)
    exact = run("cpu", *(a.astype("float64") for a in inputs))
    with precision(mode):
        found = run(cuda, *inputs)
        assert found[0].dtype == (bfloat16() if mode == "bfloat16" else np.float32)
    assert all(gradient.dtype == np.float32 for gradient in found[1:])
    errors = [
        np.linalg.norm(other.numpy().astype("float64") - expected.numpy()) / np.linalg.norm(expected.numpy())
        for expected, other in zip(exact, found, strict=True)
    ]
    assert max(errors) < error
    assert errors[0] > 1e-5  # it is really coarser


def test_the_residual_stream_stays_float32_and_activations_are_bfloat16(cuda):
    x, gain, *_ = (Tensor(a, device=cuda, requires_grad=True) for a in arrays(3, 8))
    with precision("bfloat16"):
        h = F.layer_norm(x, weight=gain)
        assert h.dtype == bfloat16()
        assert F.linear(h, Tensor.eye(8, device=cuda)).dtype == bfloat16()
        assert F.linear(x, Tensor.eye(8, device=cuda)).dtype == bfloat16()
        assert (x + h).dtype == np.float32
        (x + h).sum().backward()
    assert x.grad.dtype == np.float32


def test_rows_need_not_be_contiguous(cuda):
    x, gain, shift, weight, bias, _ = arrays(8, 12)
    turned = np.ascontiguousarray(x.T)
    norm = dict(zip(("weight", "bias"), on(cuda, gain, shift), strict=True))
    whole = F.linear(F.layer_norm(Tensor(x, device=cuda), **norm), *on(cuda, weight, bias))
    parts = F.linear(F.layer_norm(Tensor(turned, device=cuda).T, **norm), *on(cuda, weight, bias))
    assert (whole.numpy() == parts.numpy()).all()
    part = F.layer_norm(Tensor(x, device=cuda)[1::2], **norm)
    assert (part.numpy() == F.layer_norm(Tensor(x[1::2], device=cuda), **norm).numpy()).all()


def test_parameters_may_begin_at_any_address(cuda):
    """An optimizer stores parameters one after the other, so they need not begin at a multiple of 16 bytes."""
    x, gain, *_ = arrays(4, 8)
    for start in range(4):
        flat = Tensor(np.r_[np.zeros(start, "float32"), gain], device=cuda)
        y = F.layer_norm(Tensor(x, device=cuda), weight=flat[start:])
        expected = F.layer_norm(Tensor(x), weight=Tensor(gain))
        np.testing.assert_allclose(y.numpy(), expected.numpy(), atol=1e-6)


def on(device, *arrays):
    return [Tensor(array, device=device) for array in arrays]


def test_nan_and_infinity_stay_in_their_row(cuda):
    x, gain, shift, *_ = arrays(4, 8)
    x[1, 2], x[2, 3] = np.nan, np.inf
    given, weight, bias = on(cuda, x, gain, shift)
    y = F.layer_norm(given, weight=weight, bias=bias).numpy()
    assert np.isnan(y[1:3]).all()
    assert np.isfinite(y[[0, 3]]).all()


@pytest.mark.parametrize("mode", ["float32", "bfloat16"])
def test_gradients_are_added_to_existing_ones(cuda, mode):
    """A product may be added directly to an optimizer's memory, with the same result."""
    x, _, _, weight, bias, _ = arrays(5, 8)
    found = []
    for start in (None, 0.0, 3.0):
        parameter = Tensor(weight, device=cuda, requires_grad=True)
        if start is not None:
            parameter.grad = parameter.detach().full_like(start)
        with precision(mode):
            for _ in range(2):
                F.linear(Tensor(x, device=cuda), parameter, Tensor(bias, device=cuda)).cast("float32").sum().backward()
        found.append(parameter.grad.numpy() - (start or 0))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)
    np.testing.assert_allclose(found[2], found[0], rtol=1e-5)
    assert np.abs(found[0]).max() > 0.1


def test_the_checking_mode_detects_a_broken_gradient(cuda):
    x = Tensor([[1e30, 1.0]], device=cuda)
    weight = Tensor([[1e-30, 0.0]], device=cuda, requires_grad=True)
    weight.grad = weight.detach().zeros_like()
    with detect_anomaly(), pytest.raises(NonFiniteError, match="the gradient of linear produced an infinity"):
        (F.linear(x, weight) * 1e30).backward()


def test_float16_is_for_storage_only_here_too(cuda):
    x, gain, _, weight, _, _ = arrays(3, 8)
    half = Tensor(x.astype("float16"), device=cuda)
    for call in (
        lambda: F.layer_norm(half, weight=Tensor(gain, device=cuda)),
        lambda: F.linear(half, *on(cuda, weight.astype("float16"))),
    ):
        with pytest.raises(TypeError, match="float16 is for storage only"):
            call()
