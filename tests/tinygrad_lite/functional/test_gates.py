"""SwiGLU and ReLU squared, the activations that came after GELU."""

import numpy as np
import pytest

from tinygrad_lite import Tensor
from tinygrad_lite import functional as F
from tinygrad_lite.functional.relu_squared import relu_squared_composed
from tinygrad_lite.functional.swiglu import swiglu_composed

rng = np.random.default_rng(6)


@pytest.mark.parametrize("version", [relu_squared_composed, F.relu_squared], ids=["composed", "fused"])
def test_relu_squared_by_hand(version):
    x = Tensor([-2.0, 0.0, 0.5, 3.0], requires_grad=True)
    y = version(x)
    y.sum().backward()
    assert y.tolist() == [0.0, 0.0, 0.25, 9.0]
    assert x.grad.tolist() == [0.0, 0.0, 1.0, 6.0]


@pytest.mark.parametrize("version", [swiglu_composed, F.swiglu], ids=["composed", "fused"])
def test_a_gate_is_shut_half_open_or_open(version):
    """Far below 0 nothing passes; at 0 nothing does, but with slope 1/2; far above, gate times up. No overflow."""
    gate = Tensor([-1000.0, 0.0, 1000.0], requires_grad=True)
    y = version(gate, Tensor([3.0, 3.0, 3.0]))
    y.sum().backward()
    assert y.tolist() == [0.0, 0.0, 3000.0]
    assert gate.grad.tolist() == [0.0, 1.5, 3.0]


def test_gate_and_up_of_two_shapes():
    with pytest.raises(ValueError, match=r"swiglu: gate and up must have one shape, not \(2,\) and \(1,\)"):
        F.swiglu(Tensor([1.0, 2.0]), Tensor([1.0]))


@pytest.mark.torch
def test_torch_agrees():
    torch = pytest.importorskip("torch")
    arrays = rng.standard_normal((2, 3, 5)) * 4
    gate, up = (Tensor(x, requires_grad=True) for x in arrays)
    theirs = [torch.tensor(x, requires_grad=True) for x in arrays]
    y = F.swiglu(gate, F.relu_squared(up))
    expected = torch.nn.functional.silu(theirs[0]) * torch.nn.functional.relu(theirs[1]).square()
    y.sum().backward()
    expected.sum().backward()
    np.testing.assert_allclose(y.numpy(), expected.detach().numpy(), rtol=1e-13, atol=1e-13)
    for x, x_theirs in zip((gate, up), theirs, strict=True):
        np.testing.assert_allclose(x.grad.numpy(), x_theirs.grad.numpy(), rtol=1e-12, atol=1e-13)
