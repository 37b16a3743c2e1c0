"""SwiGLU and ReLU squared on a GPU."""

import math

import numpy as np
import pytest

from tinygrad_lite import Tensor
from tinygrad_lite import functional as F
from tinygrad_lite.cuda.linear import array_around
from tinygrad_lite.debug.gradcheck import gradcheck
from tinygrad_lite.functional.registry import REGISTRY
from tinygrad_lite.functional.relu_squared import relu_squared_composed
from tinygrad_lite.functional.swiglu import swiglu_composed
from tinygrad_lite.precision import bfloat16
from tinygrad_lite.transformer import FeedForward

rng = np.random.default_rng(33)
both = pytest.mark.parametrize("name", ["swiglu", "relu_squared"])


def leaf(array, device, dtype="float32"):
    return Tensor(np.asarray(array, dtype), device=device, requires_grad=True)


def inputs(name, device, *shape, dtype="float32"):
    return [leaf(rng.standard_normal(shape) * 2, device, dtype) for _ in range(2 if name == "swiglu" else 1)]


@both
def test_both_are_one_operation_with_the_right_gradients(cuda, name):
    operation, arguments = REGISTRY[name], inputs(name, cuda, 2, 3, 8, dtype="float64")
    assert operation(*arguments).op == name
    gradcheck(operation, arguments)


@both
@pytest.mark.parametrize("shape", [(1,), (3,), (255, 1), (2, 511), (2, 512), (2, 516), (3, 1028), (300, 20)])
def test_every_element_is_computed(cuda, name, shape):
    arguments = [leaf(np.full(shape, 0.7), cuda) for _ in inputs(name, cuda, 1)]
    y = REGISTRY[name](*arguments)
    y.sum().backward()
    expected = [Tensor([0.7], dtype="float64", requires_grad=True) for _ in arguments]
    z = REGISTRY[name].composed(*expected)
    z.backward(Tensor([1.0], dtype="float64"))
    np.testing.assert_allclose(y.numpy(), np.full(shape, z.item()), rtol=1e-6)
    for x, one in zip(arguments, expected, strict=True):
        np.testing.assert_allclose(x.grad.numpy(), np.full(shape, one.grad.item()), rtol=1e-6)


HALVES = {
    "halves of rows": lambda x: (x[..., :16], x[..., 16:32]),
    "between packs": lambda x: (x[..., 1:17], x[..., 18:34]),
    "one of each": lambda x: (x[..., 3:19], x[..., :16] * 1.0),
    "rows apart": lambda x: (x[::2, :, :16], x[1::2, :, 16:32]),
    "one row for all": lambda x: (x[:1, :1, :16].expand(4, 3, 16), x[..., 4:20]),
    "turned": lambda x: (x.transpose(0, 2)[:16], x.transpose(0, 2)[16:32]),
}


@pytest.mark.parametrize("halves", HALVES.values(), ids=HALVES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gate_and_up_may_lie_in_one_array(cuda, halves, dtype):
    joint, found = rng.standard_normal((4, 3, 35)).astype(dtype), []
    for device, version in (("cpu", swiglu_composed), (cuda, F.swiglu)):
        x = leaf(joint, device, dtype)
        y = version(*halves(x))
        y.backward(Tensor(np.sin(np.arange(y.numel())).reshape(y.shape).astype(dtype), device=device))
        found.append([y.numpy(), x.grad.numpy()])
    for expected, other in zip(*found, strict=True):
        np.testing.assert_allclose(other, expected, rtol=0, atol=1e-12 if dtype == "float64" else 3e-6)


@both
@pytest.mark.parametrize("width", [8, 7])
def test_bfloat16_is_rounded_once(cuda, name, width):
    arguments = inputs(name, cuda, 5, width)
    rounded = [x.cast(bfloat16()) for x in arguments]
    y = REGISTRY[name](*rounded)
    assert (y.dtype, y.op) == (bfloat16(), name)
    exact = [Tensor(x.numpy().astype("float64"), requires_grad=True) for x in rounded]
    z = REGISTRY[name].composed(*exact)
    np.testing.assert_allclose(y.numpy().astype("float64"), z.numpy(), rtol=2**-8)
    y.backward(y.detach())
    z.backward(Tensor(y.numpy().astype("float64")))
    for x, other in zip(arguments, exact, strict=True):
        np.testing.assert_allclose(x.grad.numpy(), other.grad.numpy(), rtol=2**-7, atol=1e-6)


@both
def test_an_array_may_begin_between_packs(cuda, name):
    whole = inputs(name, cuda, 17)
    found = REGISTRY[name](*(Tensor.wrap(x.data[1:]) for x in whole))
    np.testing.assert_allclose(found.numpy(), REGISTRY[name](*whole).numpy()[1:], rtol=1e-6)


def test_nan_is_passed_on_and_no_other_element_is_touched(cuda):
    x = leaf([math.nan, 1.0, -1.0, math.inf, -math.inf], cuda)
    y = F.relu_squared(x)
    y.backward(Tensor(np.ones(5, np.float32), device=cuda))
    np.testing.assert_array_equal(y.numpy(), [math.nan, 1, 0, math.inf, 0])
    np.testing.assert_array_equal(x.grad.numpy(), [math.nan, 2, 0, math.inf, 0])
    gate, up = leaf([1.0, math.nan, 1.0, 1.0], cuda), leaf([1.0, 1.0, math.nan, 1.0], cuda)
    z = F.swiglu(gate, up)
    z.sum().backward()
    assert np.isnan(z.numpy()).tolist() == [False, True, True, False]
    assert np.isnan(gate.grad.numpy()).tolist() == [False, True, True, False]
    assert np.isnan(up.grad.numpy()).tolist() == [False, True, False, False]


def test_an_infinite_gradient_does_not_pass_where_the_result_is_0(cuda):
    found = []
    for device, version in (("cpu", relu_squared_composed), (cuda, F.relu_squared)):
        x = leaf([-1.0, 0.0, 2.0], device)
        version(x).backward(Tensor(np.full(3, math.inf, np.float32), device=device))
        found.append(x.grad.tolist())
    assert found[0] == found[1] == [0.0, 0.0, math.inf]


def test_a_gate_far_below_or_above_zero_does_not_overflow(cuda):
    gate = leaf([-1000.0, -89.0, 0.0, 1000.0], cuda)
    y = F.swiglu(gate, leaf([3.0] * 4, cuda))
    y.sum().backward()
    np.testing.assert_allclose(y.numpy(), [0, 0, 0, 3000], atol=1e-30)
    np.testing.assert_allclose(gate.grad.numpy(), [0, 0, 1.5, 3], atol=1e-30)


def test_mixed_types_and_empty_tensors_run_the_reference_version(cuda):
    y = F.swiglu(leaf([1.0, 2.0], cuda), leaf([1.0, 2.0], cuda, "float64"))
    assert (y.dtype, y.op) == (np.float64, "mul")
    assert F.swiglu(leaf(np.ones((2, 0)), cuda), leaf(np.ones((2, 0)), cuda)).shape == (2, 0)
    assert F.relu_squared(leaf(np.ones((2, 0)), cuda)).shape == (2, 0)
    for call in (F.relu_squared, lambda half: F.swiglu(half, half)):
        with pytest.raises(TypeError, match="float16 is for storage only"):
            call(Tensor(np.ones(3, np.float16), device=cuda))
    with pytest.raises(ValueError, match=r"swiglu: gate and up must have one shape, not \(2,\) and \(1,\)"):
        F.swiglu(leaf([1.0, 2.0], cuda), leaf([1.0], cuda))


@pytest.mark.parametrize("activation", ["swiglu", "relu2"])
def test_the_feed_forward_layer_equals_that_of_the_cpu(cuda, activation):
    layer, x = FeedForward(4, 12, activation=activation).to("cpu", "float64"), rng.standard_normal((2, 3, 4))
    expected = layer(Tensor(x)).numpy()
    np.testing.assert_allclose(layer.to(cuda)(Tensor(x, device=cuda)).numpy(), expected, atol=1e-12)


def test_the_gradients_of_gate_and_up_lie_side_by_side(cuda):
    gate, up, dy = (Tensor(rng.standard_normal((2, 3, 8)).astype("float32"), device=cuda) for _ in range(3))
    d_gate, d_up = F.swiglu(gate.requires_grad_(), up.requires_grad_())._node.backward(dy.data)
    whole = array_around(d_gate, (2, 3, 16), 0)
    assert whole is not None
    assert array_around(d_up, (2, 3, 16), 8).data.ptr == whole.data.ptr
