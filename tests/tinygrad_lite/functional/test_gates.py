"""SwiGLU and ReLU squared, the activations that came after GELU."""

import numpy as np
import pytest

from tests.tinygrad_lite.functional.version_cases import both_versions
from tinygrad_lite import Tensor
from tinygrad_lite import functional as F

pytestmark = [pytest.mark.every_device, pytest.mark.emulated_by_default]

rng = np.random.default_rng(6)


@both_versions(F.relu_squared)
def test_relu_squared_by_hand(version):
    x = Tensor([-2.0, 0.0, 0.5, 3.0], requires_grad=True)
    y = version(x)
    y.sum().backward()
    assert y.tolist() == [0.0, 0.0, 0.25, 9.0]
    assert x.grad.tolist() == [0.0, 0.0, 1.0, 6.0]


@both_versions(F.swiglu)
def test_a_gate_may_be_closed_half_open_or_open(version):
    """Far below 0 the result is 0; at 0 too, but with slope 1/2; far above it is gate times up. No overflow."""
    gate = Tensor([-1000.0, 0.0, 1000.0], requires_grad=True)
    y = version(gate, Tensor([3.0, 3.0, 3.0]))
    y.sum().backward()
    assert y.tolist() == [0.0, 0.0, 3000.0]
    assert gate.grad.tolist() == [0.0, 1.5, 3.0]
