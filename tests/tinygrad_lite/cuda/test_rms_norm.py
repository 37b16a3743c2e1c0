"""RMS norm on a GPU: odd widths, heads inside longer rows, bfloat16, and the gradient that is added to dx."""

import numpy as np
import pytest

from tests.tinygrad_lite.functional.test_registry import assert_close, outcome
from tinygrad_lite import Tensor
from tinygrad_lite import functional as F
from tinygrad_lite.debug.gradcheck import gradcheck
from tinygrad_lite.functional.rms_norm import rms_norm_composed
from tinygrad_lite.precision import bfloat16, precision

rng = np.random.default_rng(31)


def leaf(array, device, dtype="float32"):
    return Tensor(np.asarray(array, dtype), device=device, requires_grad=True)


@pytest.mark.parametrize("has_weight", [True, False])
@pytest.mark.parametrize(
    ("rows", "width"), [(1, 1), (2, 3), (5, 4), (33, 32), (7, 33), (300, 36), (17, 64), (9, 128), (9, 256), (3, 1028)]
)
def test_all_widths_are_divided_among_threads(cuda, rows, width, has_weight):
    arrays = {"x": rng.standard_normal((rows, width)), "weight": rng.standard_normal(width) if has_weight else None}
    expected = outcome(rms_norm_composed, arrays, np.float64)
    assert_close(outcome(F.rms_norm, arrays, np.float64, device=cuda), expected, 1e-12)


def test_it_is_one_operation_with_the_right_gradients(cuda):
    x, weight = leaf(rng.standard_normal((3, 2, 8)), cuda, "float64"), leaf(rng.standard_normal(8), cuda, "float64")
    assert F.rms_norm(x, weight=weight).op == "rms_norm"
    gradcheck(lambda x, weight: F.rms_norm(x, weight=weight), [x, weight])
    gradcheck(F.rms_norm, [x])


HEADS = {  # (B, T, H, D) heads inside a joint array, of which no copy is needed but for the last two
    "queries": lambda joint: joint[..., :24].reshape(2, 5, 3, 8),
    "keys": lambda joint: joint[..., 24:40].reshape(2, 5, 2, 8),
    "some positions": lambda joint: joint[:, 1:4, 4:20].reshape(2, 3, 2, 8),
    "every second number": lambda joint: joint[..., ::2].reshape(2, 5, 3, 8),
    "heads first": lambda joint: joint.reshape(2, 5, 6, 8).transpose(1, 2),
}


@pytest.mark.parametrize("select", HEADS.values(), ids=HEADS)
@pytest.mark.parametrize("width", [48, 51])
def test_heads_may_lie_inside_longer_rows(cuda, select, width):
    joint = rng.standard_normal((2, 5, width))[..., :48]
    found = []
    for device, version in (("cpu", rms_norm_composed), (cuda, F.rms_norm)):
        x, weight = leaf(joint, device, "float64"), leaf(np.linspace(1, 2, 8), device, "float64")
        whole = Tensor(np.zeros((2, 5, width)), device=device)
        whole.data[..., :48] = x.data
        x = Tensor.wrap(whole.data[..., :48]).requires_grad_()
        y = version(select(x), weight=weight)
        y.backward(Tensor(np.sin(np.arange(y.numel())).reshape(y.shape), device=device))
        found.append([y.numpy(), x.grad.numpy(), weight.grad.numpy()])
    for expected, other in zip(*found, strict=True):
        np.testing.assert_allclose(other, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("has_weight", [True, False])
def test_bfloat16_has_small_errors(cuda, has_weight):
    """The result is rounded once, by at most 2^-9 of a number; x, its gradient and the weight's are float32."""
    x, dy = rng.standard_normal((40, 64)), rng.standard_normal((40, 64))
    arrays = {"x": x} | ({"weight": rng.standard_normal(64)} if has_weight else {})
    exact = {name: Tensor(a, requires_grad=True) for name, a in arrays.items()}
    expected = F.rms_norm(**exact)
    expected.backward(Tensor(dy))
    with precision("bfloat16"):
        inputs = {name: leaf(a, cuda) for name, a in arrays.items()}
        y = F.rms_norm(**inputs)
        assert y.dtype == bfloat16()
        y.backward(Tensor(dy, device=cuda).cast(y.dtype))
    np.testing.assert_allclose(y.numpy().astype("float64"), expected.numpy(), rtol=2**-8)
    for one, other in zip(exact.values(), inputs.values(), strict=True):
        assert other.grad.dtype == np.float32
        largest = np.abs(one.grad.numpy()).max()
        np.testing.assert_allclose(other.grad.numpy(), one.grad.numpy(), rtol=0, atol=2**-8 * largest)


def test_queries_in_bfloat16_stay_bfloat16(cuda):
    heads = Tensor(rng.standard_normal((2, 3, 2, 32)), device=cuda).cast(bfloat16())
    weight = leaf(np.linspace(0.5, 1, 32), cuda)
    y = F.rms_norm(heads, weight=weight)
    assert (y.dtype, y.op) == (bfloat16(), "rms_norm")
    exact = F.rms_norm(Tensor(heads.numpy().astype("float64")), weight=Tensor(weight.numpy().astype("float64")))
    np.testing.assert_allclose(y.numpy().astype("float64"), exact.numpy(), rtol=2**-8)
    y.cast("float32").sum().backward()
    assert weight.grad.dtype == np.float32


def test_eps_may_be_an_integer(cuda):
    """A kernel reads a `double`: the bits of an integer would mean another number."""
    x = rng.standard_normal((4, 8))
    expected = F.rms_norm(Tensor(x), eps=1).numpy()
    np.testing.assert_allclose(F.rms_norm(Tensor(x, device=cuda), eps=1).numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("start", range(4))
def test_a_weight_may_begin_at_any_address(cuda, start):
    """An optimizer stores parameters one after the other, so they need not begin at a multiple of 16 bytes."""
    x, weight = rng.standard_normal((4, 8)), rng.standard_normal(8)
    flat = Tensor(np.r_[np.zeros(start), weight].astype("float32"), device=cuda)
    y = F.rms_norm(Tensor(x.astype("float32"), device=cuda), weight=flat[start:])
    np.testing.assert_allclose(y.numpy(), F.rms_norm(Tensor(x), weight=Tensor(weight)).numpy(), rtol=1e-5, atol=1e-6)


def test_nan_and_infinity_stay_in_their_row(cuda):
    x = rng.standard_normal((40, 8))
    x[1, 2], x[2, 3] = np.nan, np.inf
    given = leaf(x, cuda)
    y = F.rms_norm(given, weight=Tensor(np.ones(8, "float32"), device=cuda))
    y.sum().backward()
    is_finite = np.arange(40) > 2
    is_finite[0] = True
    for array in (y.numpy(), given.grad.numpy()):
        assert np.isfinite(array[is_finite]).all()
        assert np.isnan(array[1]).all()
        assert np.isnan(array[2]).any()


def test_mixed_types_run_the_reference_version(cuda):
    x, weight = leaf(rng.standard_normal((2, 4)), cuda), leaf(np.ones(4), cuda, "float64")
    y = F.rms_norm(x, weight=weight)
    assert (y.dtype, y.op) == (np.float64, "mul")
    assert F.rms_norm(leaf(np.ones((0, 4)), cuda)).shape == (0, 4)
    with pytest.raises(TypeError, match="float16 is for storage only"):
        F.rms_norm(Tensor(np.ones((2, 4), "float16"), device=cuda))
    with pytest.raises(ValueError, match=r"rms_norm: weight has shape \(5,\), x \(2, 4\) needs \(4,\)"):
        F.rms_norm(x, weight=leaf(np.ones(5), cuda))
