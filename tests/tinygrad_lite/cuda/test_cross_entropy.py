"""Cross-entropy on a GPU: what the comparison of versions does not cover."""

import math

import numpy as np
import pytest

from tinygrad_lite import Tensor
from tinygrad_lite import functional as F
from tinygrad_lite.device import get_device
from tinygrad_lite.functional.cross_entropy import cross_entropy_composed
from tinygrad_lite.precision import bfloat16
from tinygrad_lite.tensor import node

rng = np.random.default_rng(11)


def loss_and_gradient(version, logits, targets, device, dy=None, dtype=None, **options):
    """The loss and its gradient on a device, as host arrays; of logits that are first cast, if a type is given."""
    logits = Tensor(logits).to(device).requires_grad_()
    logits = logits if dtype is None else logits.cast(dtype).retain_grad()
    y = version(logits, Tensor(targets).to(device), **options)
    y.backward(None if dy is None else Tensor(np.asarray(dy, y.dtype)).to(device))
    return y.numpy(), logits.grad.numpy()


def assert_as_composed(logits, targets, cuda, tolerance, **options):
    with np.errstate(all="ignore"):
        expected = loss_and_gradient(cross_entropy_composed, logits, targets, "cpu", **options)
    for mine, right in zip(loss_and_gradient(F.cross_entropy, logits, targets, cuda, **options), expected, strict=True):
        assert mine.dtype == right.dtype
        scale = np.abs(right[np.isfinite(right)]).max(initial=0.0)
        np.testing.assert_allclose(mine, right, rtol=0, atol=tolerance * scale)


# --- rows with gaps between them, and the gradient in the place of the logits -----------------------------------------


def padded(x, room, start=0):
    """Rows of `room` numbers, and x (..., V) in their columns from `start` on; all other columns are NaN."""
    width = x.shape[-1]
    memory = x.xp.empty((x.numel() // width, room), x.dtype)
    memory[...] = math.nan
    y = memory[:, start : start + width].reshape(x.shape)
    assert y.base is not None  # it is a view, as the result of a linear map is
    y[...] = x.data
    return memory, node(y, (x,), lambda dy: (dy,), "padded", linear=True, uses_result=False)


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
@pytest.mark.parametrize(("width", "room", "start"), [(5, 8, 0), (7, 64, 4), (259, 320, 1), (8, 9, 0), (128, 192, 0)])
def test_padded_rows_give_the_bytes_of_rows_without_gaps(width, room, start, kind, cuda):
    """Nothing outside [0, V) is read or written: it is NaN before and after."""
    kind = bfloat16() if kind == "bfloat16" else np.dtype(kind)
    given, targets = rng.standard_normal((2, 3, width)).astype("float32"), rng.integers(0, width, (2, 3))
    targets[0, 1] = -100
    found = []
    for with_gaps in (False, True):
        leaf = Tensor(given).to(cuda).requires_grad_()
        logits, memory = leaf.cast(kind), None
        if with_gaps:
            memory, logits = padded(logits, room, start)
        y = F.cross_entropy(logits, Tensor(targets).to(cuda), label_smoothing=0.1)
        y.backward()
        found.append((y.numpy(), leaf.grad.numpy()))
        if with_gaps:
            outside = get_device(cuda).to_host(memory).astype(np.float64)
            outside[:, start : start + width] = math.nan
            assert np.isnan(outside).all()
    # Packs and single numbers are added in another order.
    np.testing.assert_allclose(found[1][0], found[0][0], rtol=1e-6)
    np.testing.assert_allclose(found[1][1], found[0][1], rtol=2**-8 if kind == bfloat16() else 1e-6, atol=1e-9)


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_the_gradient_has_the_strides_of_the_logits_and_with_overwrite_their_memory(kind, cuda):
    leaf = Tensor(rng.standard_normal((2, 3, 5)).astype(np.float32)).to(cuda).requires_grad_()
    targets = Tensor(rng.integers(0, 5, (2, 3))).to(cuda)
    kind = bfloat16() if kind == "bfloat16" else np.dtype(kind)
    results = []
    for overwrite in (False, True):
        memory, logits = padded(leaf.cast(kind), 64)
        before = logits.numpy().copy()
        y = F.cross_entropy(logits, targets, overwrite=overwrite)
        (dz,) = y._node.backward(y.xp.ones((), y.dtype))
        assert dz.strides == logits.data.strides == (192 * kind.itemsize, 64 * kind.itemsize, kind.itemsize)
        assert (dz.data.ptr == memory.data.ptr) == overwrite
        results.append(get_device(cuda).to_host(dz))
        assert (logits.numpy() == (results[-1] if overwrite else before)).all()
    assert results[0].tobytes() == results[1].tobytes()


def test_the_logits_of_a_leaf_are_never_overwritten(cuda):
    leaf = Tensor(rng.standard_normal((3, 6)).astype(np.float32)).to(cuda).requires_grad_()
    before = leaf.numpy().copy()
    F.cross_entropy(leaf, Tensor([0, 1, 2]).to(cuda), overwrite=True).backward()
    np.testing.assert_array_equal(leaf.numpy(), before)


@pytest.mark.parametrize("at_once", [True, False])
def test_a_derivative_that_needs_overwritten_logits_refuses(cuda, at_once):
    x = Tensor(rng.standard_normal((2, 5)).astype(np.float32)).to(cuda).requires_grad_()
    logits = padded(x, 8)[1]
    squares = (logits * logits).sum()
    loss = F.cross_entropy(logits, Tensor([0, 1]).to(cuda), overwrite=True)
    if not at_once:
        squares = (logits * logits).sum()  # the logits are still there, but not after the backward pass
        loss.backward()
    with pytest.raises(RuntimeError, match="a value that 'mul' still needs was overwritten in place"):
        (squares + loss if at_once else squares).backward()


def test_large_logits_are_as_accurate_as_in_the_reference_version(cuda):
    logits = rng.standard_normal((5, 700)).astype(np.float32) + np.float32(1e4)
    assert_as_composed(logits, rng.integers(0, 700, 5), cuda, 2e-6, label_smoothing=0.2)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_nan_and_infinity_are_treated_as_in_the_reference_version(smoothing, cuda):
    logits = rng.standard_normal((7, 40)).astype(np.float32)
    logits[0, 3] = math.nan
    logits[1, 39] = math.inf
    logits[2, 5] = math.inf  # the target's
    logits[3, 5] = -math.inf  # the target's
    logits[4, 8:] = -math.inf  # all of some threads
    logits[5, :20] = -math.inf  # the first ones of each thread
    targets = np.full(7, 5)
    targets[5] = 30
    options = {"label_smoothing": smoothing, "reduction": "none", "dy": np.linspace(0.5, 2, 7)}
    assert_as_composed(logits, targets, cuda, 1e-6, **options)


def test_ignored_rows_are_not_read(cuda):
    logits = np.full((3, 50), math.nan, np.float32)
    logits[1] = 0.0
    y, d_logits = loss_and_gradient(F.cross_entropy, logits, [-100, 7, -100], cuda)
    assert y == pytest.approx(math.log(50))
    assert not d_logits[[0, 2]].any()
    np.testing.assert_allclose(d_logits[1], 1 / 50 - np.eye(50)[7], rtol=1e-5)


@pytest.mark.parametrize("bad", [5, -1, 2**40, -(2**40)])
def test_a_target_outside_the_vocabulary_makes_the_loss_nan(bad, cuda):
    logits, targets = rng.standard_normal((3, 5)).astype(np.float32), np.array([0, bad, 4])
    for reduction in ("mean", "sum"):
        assert np.isnan(loss_and_gradient(F.cross_entropy, logits, targets, cuda, reduction=reduction)[0])
    y, d_logits = loss_and_gradient(F.cross_entropy, logits, targets, cuda, reduction="none", dy=np.ones(3))
    assert np.isnan(y).tolist() == [False, True, False]
    assert np.isnan(d_logits).all(-1).tolist() == [False, True, False]


@pytest.mark.parametrize("width", [64, 65])
def test_bfloat16_logits_give_a_float32_loss_and_bfloat16_gradients(width, cuda):
    rounded = rng.standard_normal((6, width)).astype(bfloat16()).astype(np.float32)
    targets = rng.integers(0, width, 6)
    targets[2] = -100
    options = {"label_smoothing": 0.1}
    y, d_logits = loss_and_gradient(F.cross_entropy, rounded, targets, cuda, dtype=bfloat16(), **options)
    expected, d_expected = loss_and_gradient(cross_entropy_composed, rounded, targets, "cpu", **options)
    assert (y.dtype, d_logits.dtype) == (np.float32, bfloat16())
    np.testing.assert_allclose(y, expected, rtol=2e-6)
    np.testing.assert_allclose(d_logits.astype(np.float32), d_expected, rtol=2**-8, atol=1e-7)
