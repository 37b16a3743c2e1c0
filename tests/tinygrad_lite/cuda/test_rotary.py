"""Rotary positions on a GPU: any layout, distant positions, bfloat16, and positions that the host never reads."""

import numpy as np
import pytest

from tinygrad_lite import Tensor, device
from tinygrad_lite import functional as F
from tinygrad_lite.functional.rotary import rotary_composed
from tinygrad_lite.transformer import rotary_frequencies

rng = np.random.default_rng(32)


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
