"""SwiGLU, ReLU squared and GELU on a GPU: what the comparison with their definitions does not cover."""

import math

import numpy as np
import pytest

from tinygrad_lite import Tensor
from tinygrad_lite import functional as F
from tinygrad_lite.cuda.linear import array_around
from tinygrad_lite.debug.anomaly import NonFiniteError, detect_anomaly
from tinygrad_lite.functional.registry import composed
from tinygrad_lite.precision import bfloat16, precision

rng = np.random.default_rng(33)
forms = pytest.mark.parametrize("approximate", ["none", "tanh"])


def leaf(array, device, dtype="float32"):
    return Tensor(np.asarray(array, dtype), device=device, requires_grad=True)


def test_an_infinite_gradient_does_not_pass_where_the_result_is_0(cuda):
    found = []
    for device, version in (("cpu", F.relu_squared.composed), (cuda, F.relu_squared)):
        x = leaf([-1.0, 0.0, 2.0], device)
        version(x).backward(Tensor(np.full(3, math.inf, np.float32), device=device))
        found.append(x.grad.tolist())
    assert found[0] == found[1] == [0.0, 0.0, math.inf]


def test_the_gradients_of_gate_and_up_lie_side_by_side(cuda):
    gate, up, dy = (Tensor(rng.standard_normal((2, 3, 8)).astype("float32"), device=cuda) for _ in range(3))
    d_gate, d_up = F.swiglu(gate.requires_grad_(), up.requires_grad_())._node.backward(dy.data)
    whole = array_around(d_gate, (2, 3, 16), 0)
    assert whole is not None
    assert array_around(d_up, (2, 3, 16), 8).data.ptr == whole.data.ptr


# --- GELU, alone and after a linear map -------------------------------------------------------------------------------


def test_linear_gelu_is_a_product_and_one_operation(cuda):
    x, weight, bias = leaf(np.ones((2, 3)), cuda), leaf(np.ones((4, 3)), cuda), leaf(np.ones(4), cuda)
    y = F.linear_gelu(x, weight, bias)
    product, second = y._node.parents
    assert (y.op, product.op, second) == ("gelu", "linear", bias._node)
    assert product.parents == (x._node, weight._node)
    assert F.gelu(x).op == "gelu"
    with composed():
        assert F.linear_gelu(x, weight, bias).op == F.gelu(x).op == "add"


@forms
@pytest.mark.parametrize("width", [8, 7])
@pytest.mark.parametrize("with_bias", [True, False])
def test_bfloat16_rounds_to_eight_bits(cuda, approximate, width, with_bias):
    """Activations are rounded once per product and once per GELU, each by at most 2^-9 of a number."""
    arrays = [rng.standard_normal((2, 9, 16)), rng.standard_normal((width, 16)) / 4, rng.standard_normal(width)]
    arrays = arrays if with_bias else arrays[:2]
    names, dy = ("x", "weight", "bias"), rng.standard_normal((2, 9, width))
    exact = [Tensor(a, requires_grad=True) for a in arrays]
    F.linear_gelu(*exact, approximate=approximate).backward(Tensor(dy))
    with precision("bfloat16"):
        inputs = [leaf(a, cuda) for a in arrays]
        y = F.linear_gelu(*inputs, approximate=approximate)
        assert y.dtype == bfloat16()
        y.backward(Tensor.wrap(Tensor(dy.astype(np.float32), device=cuda).data.astype(bfloat16())))
    expected = F.linear_gelu(*exact, approximate=approximate).numpy()
    np.testing.assert_allclose(y.numpy().astype(np.float64), expected, rtol=0, atol=0.02 * np.abs(expected).max())
    for name, x, other in zip(names, inputs, exact, strict=False):
        largest = np.abs(other.grad.numpy()).max()
        assert x.grad.dtype == np.float32
        np.testing.assert_allclose(x.grad.numpy(), other.grad.numpy(), rtol=0, atol=0.02 * largest, err_msg=name)


def test_tf32_and_float32_differ_only_in_the_product(cuda):
    x, weight, bias = (leaf(rng.standard_normal(shape), cuda) for shape in ((5, 64), (8, 64), (8,)))
    exact = F.linear_gelu(x, weight, bias).numpy()
    with precision("tf32"):
        rounded = F.linear_gelu(x, weight, bias)
        product = F.linear(x, weight)
    assert rounded.dtype == np.float32
    assert 0 < np.abs(rounded.numpy() - exact).max() < 0.1
    np.testing.assert_allclose(F.gelu(product + bias).numpy(), rounded.numpy(), rtol=0, atol=1e-6)


def test_the_checking_mode_names_the_callers_line(cuda):
    x, weight = leaf([[1e38, 1e38]], cuda), leaf([[1e38, 1e38]], cuda)
    with detect_anomaly(), pytest.raises(NonFiniteError, match=r"test_activations\.py:\d+ \(`F.linear_gelu"):
        F.linear_gelu(x, weight, leaf([0.0], cuda))
