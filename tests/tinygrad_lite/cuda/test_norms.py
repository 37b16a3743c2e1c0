"""Layer norm, RMS norm and linear maps on a GPU: what the comparison with their definitions does not cover."""

import numpy as np
import pytest

from tinygrad_lite import Tensor
from tinygrad_lite import functional as F
from tinygrad_lite.debug.anomaly import NonFiniteError, detect_anomaly
from tinygrad_lite.precision import bfloat16, precision

rng = np.random.default_rng(22)
norms = pytest.mark.parametrize("norm", [F.layer_norm, F.rms_norm], ids=["layer_norm", "rms_norm"])


def arrays(rows, width):
    shapes = [(rows, width), (width,), (6, width), (6,), (rows, 6)]
    return [rng.standard_normal(shape).astype("float32") for shape in shapes]


@norms
def test_the_residual_stream_stays_float32_and_activations_are_bfloat16(cuda, norm):
    x, gain, *_ = (Tensor(a, device=cuda, requires_grad=True) for a in arrays(3, 8))
    with precision("bfloat16"):
        h = norm(x, weight=gain)
        assert h.dtype == bfloat16()
        np.testing.assert_allclose(h.numpy().astype("float64"), norm(x.detach(), weight=gain).numpy(), rtol=2**-8)
        assert F.linear(h, Tensor.eye(8, device=cuda)).dtype == bfloat16()
        assert F.linear(x, Tensor.eye(8, device=cuda)).dtype == bfloat16()
        assert (x + h).dtype == np.float32
        (x + h).sum().backward()
    assert x.grad.dtype == np.float32


@norms
def test_nan_and_infinity_stay_in_their_row(cuda, norm):
    x, gain, *_ = arrays(40, 8)
    x[1, 2], x[2, 3] = np.nan, np.inf
    given = Tensor(x, device=cuda, requires_grad=True)
    y = norm(given, weight=Tensor(gain, device=cuda))
    y.sum().backward()
    for array in (y.numpy(), given.grad.numpy()):
        assert np.isnan(array).any(1).tolist() == [False, True, True, *[False] * 37]
        assert np.isfinite(array[[0, *range(3, 40)]]).all()


@pytest.mark.parametrize("mode", ["float32", "bfloat16"])
def test_gradients_are_added_to_existing_ones(cuda, mode):
    """A product may be added directly to an optimizer's memory, with the same result."""
    x, _, weight, bias, _ = arrays(5, 8)
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
