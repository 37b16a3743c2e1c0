"""Rotary positions on a GPU: any layout, distant positions, bfloat16, and positions that the host never reads."""

import numpy as np
import pytest

from tests.tinygrad_lite.functional.test_registry import assert_close, outcome
from tinygrad_lite import Tensor, device
from tinygrad_lite import functional as F
from tinygrad_lite.debug.gradcheck import gradcheck
from tinygrad_lite.functional.rotary import rotary_composed
from tinygrad_lite.precision import bfloat16
from tinygrad_lite.transformer import rotary_frequencies

rng = np.random.default_rng(32)


@pytest.mark.parametrize("by_row", [True, False])
@pytest.mark.parametrize("width", [2, 6, 8, 32, 64, 80, 128])
def test_all_widths_and_forms_of_positions(cuda, width, by_row):
    positions = rng.integers(0, 5000, (3, 7) if by_row else 7)
    arguments = {"x": rng.standard_normal((3, 7, 5, width)), "positions": positions}
    arguments |= {"frequencies": rotary_frequencies(width)}
    expected = outcome(rotary_composed, arguments, np.float64)
    assert_close(outcome(F.rotary, arguments, np.float64, device=cuda), expected, 1e-12)


def test_it_is_one_operation_with_the_right_gradient(cuda):
    x = Tensor(rng.standard_normal((2, 3, 2, 8)), device=cuda, requires_grad=True)
    positions = Tensor(np.array([[0, 5, 9], [3, 3, 70]]), device=cuda)
    assert F.rotary(x, positions, rotary_frequencies(8)).op == "rotary"
    gradcheck(lambda x: F.rotary(x, positions, rotary_frequencies(8)), [x])


@pytest.mark.parametrize("position", [100_003, 2**31 + 5])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_distant_positions_are_accurate(cuda, dtype, position):
    """In float32 alone, angles of 100,000 radians would be off by 0.004."""
    x = rng.standard_normal((1, 1, 2, 64)).astype(dtype)
    expected = rotary_composed(Tensor(x.astype(np.float64)), Tensor([position]), rotary_frequencies(64)).numpy()
    found = F.rotary(Tensor(x, device=cuda), Tensor([position], device=cuda), rotary_frequencies(64)).numpy()
    # In float64, an angle of 100,000 radians has 11 digits behind the point.
    tolerance = 2e-6 if dtype == "float32" else 1e-15 * position
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)


LAYOUTS = {
    "heads inside longer rows": lambda joint: joint[..., :48].reshape(2, 5, 3, 16),
    "the second part of them": lambda joint: joint[..., 48:80].reshape(2, 5, 2, 16),
    "between packs": lambda joint: joint[..., 1:33].reshape(2, 5, 2, 16),
    "heads first": lambda joint: joint[..., :80].reshape(2, 5, 5, 16).transpose(1, 2)[:, :, :5],
    "backwards": lambda joint: joint[..., :48].reshape(2, 5, 3, 16)[::-1, ::-1, ::-1],
    "every second number": lambda joint: joint[..., :64:2].reshape(2, 5, 2, 16),
    "one row for all": lambda joint: joint[:1, :, :32].reshape(1, 5, 2, 16).expand(4, 5, 2, 16),
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_inputs_and_gradients_may_have_any_layout(cuda, layout, dtype):
    joint, frequencies, found = rng.standard_normal((2, 5, 83)).astype(dtype), rotary_frequencies(16), []
    for name, version in (("cpu", rotary_composed), (cuda, F.rotary)):
        x = Tensor(joint, device=name, requires_grad=True)
        heads = layout(x)
        y = version(heads, Tensor(np.arange(3, 8), device=name), frequencies).transpose(1, 2)
        factor = np.cos(np.arange(y.numel())).reshape(y.shape).astype(dtype)
        y.backward(Tensor(factor, device=name))  # arrives at the rotation with its axes swapped, as from attention
        found.append([y.numpy(), x.grad.numpy()])
    for expected, other in zip(*found, strict=True):
        np.testing.assert_allclose(other, expected, rtol=0, atol=1e-12 if dtype == "float64" else 2e-6)


@pytest.mark.parametrize("width", [64, 6])
def test_bfloat16_is_rounded_once(cuda, width):
    numbers = rng.standard_normal((2, 9, 3, width)).astype(bfloat16())
    x = Tensor(numbers.astype("float32"), device=cuda, requires_grad=True)
    positions, frequencies = np.arange(1000, 1009), rotary_frequencies(width)
    y = F.rotary(x.cast(bfloat16()), Tensor(positions, device=cuda), frequencies)
    assert (y.dtype, y.op) == (bfloat16(), "rotary")
    y.backward(y.detach())
    exact = rotary_composed(Tensor(numbers.astype("float64")), Tensor(positions), frequencies).numpy()
    np.testing.assert_allclose(y.numpy().astype("float64"), exact, rtol=2**-8, atol=1e-6)
    # Rotated back, the numbers are those of the beginning, after two roundings.
    np.testing.assert_allclose(x.grad.numpy(), numbers.astype("float32"), rtol=0, atol=0.02 * np.abs(exact).max())


@pytest.mark.parametrize("kind", ["int32", "uint16", "int64"])
def test_positions_of_any_integer_type(cuda, kind):
    x = rng.standard_normal((1, 4, 1, 6))
    places = np.array([7, 0, 300, 2])
    expected = rotary_composed(Tensor(x), Tensor(places), (1.0, 0.3, 0.01)).numpy()
    found = F.rotary(Tensor(x, device=cuda), Tensor(places.astype(kind), device=cuda), (1.0, 0.3, 0.01))
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-13)


def test_the_host_reads_no_positions(cuda, monkeypatch):
    """Reading one would block until all queued work is done."""
    x = Tensor(rng.standard_normal((2, 3, 2, 8)), device=cuda, requires_grad=True)
    positions = Tensor(np.arange(3), device=cuda)
    array_type = type(x.data)
    for name in ("__int__", "__float__", "__bool__", "__index__", "max", "item", "tolist", "get"):
        monkeypatch.setattr(array_type, name, lambda *_: pytest.fail("a number was read"), raising=False)
    there = device.get_device(cuda)
    monkeypatch.setattr(type(there), "to_host", lambda *_: pytest.fail("an array was read"), raising=False)
    F.rotary(x, positions, rotary_frequencies(8)).sum().backward()
    assert x.grad.shape == x.shape


def test_positions_that_are_overwritten_before_backward_are_an_error(cuda):
    x = Tensor(rng.standard_normal((1, 3, 1, 4)), device=cuda, requires_grad=True)
    positions = Tensor(np.arange(3), device=cuda)
    y = F.rotary(x, positions, (1.0, 0.1)).sum()
    positions[0] = 5
    with pytest.raises(RuntimeError, match="a value that 'rotary' still needs was overwritten"):
        y.backward()


def test_nan_stays_in_its_pair(cuda):
    x = rng.standard_normal((1, 2, 2, 8)).astype("float32")
    x[0, 1, 0, 2] = np.nan
    y = F.rotary(Tensor(x, device=cuda), Tensor([4, 5], device=cuda), rotary_frequencies(8)).numpy()
    assert np.argwhere(np.isnan(y)).tolist() == [[0, 1, 0, 2], [0, 1, 0, 6]]


def test_inputs_that_do_not_fit_are_refused(cuda):
    x = Tensor(np.ones((2, 3, 1, 6)), device=cuda)
    with pytest.raises(ValueError, match=r"do not fit: \(2, 3, 1, 6\) and \(2,\)"):
        F.rotary(x, Tensor([0, 1], device=cuda), (1.0, 0.1, 0.01))
    with pytest.raises(ValueError, match="positions must be integers, not float32"):
        F.rotary(x, Tensor([0.0, 1.0, 2.0], device=cuda), (1.0, 0.1, 0.01))
    with pytest.raises(TypeError, match="float16 is for storage only"):
        F.rotary(Tensor(np.ones((2, 3, 1, 2), "float16"), device=cuda), Tensor([0, 1, 2], device=cuda), (1.0,))
