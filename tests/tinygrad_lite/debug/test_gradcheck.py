"""`gradcheck` detects wrong derivatives and accepts right ones."""

import numpy as np
import pytest

from tinygrad_lite import Tensor
from tinygrad_lite.debug.gradcheck import GradientError, gradcheck
from tinygrad_lite.tensor import node

pytestmark = pytest.mark.every_device


def leaf(values, **options):
    return Tensor(values, dtype="float64", requires_grad=True, **options)


def cube_with(backward):
    """x^3 with the given derivative, backward(dy, a)."""

    def fn(x):
        a = x.data
        return node(a**3, (x,), lambda dy: (backward(dy, a),), "cube")

    return fn


right_cube = cube_with(lambda dy, a: dy * 3 * a**2)
wrong_cube = cube_with(lambda dy, a: dy * 2 * a**2)


@pytest.mark.parametrize("directions", [0, 3])
def test_right_derivatives_pass_and_wrong_ones_fail(directions, device):
    x = Tensor([[0.5, -1.0], [2.0, 1.5]], dtype="float64", device=device, requires_grad=True)
    assert gradcheck(right_cube, [x], directions=directions) < 1e-8
    with pytest.raises(GradientError, match=r"input 0 at .*: backward says .*, the central difference .*allowed 1e-06"):
        gradcheck(wrong_cube, [x], directions=directions)


def test_the_message_names_input_place_and_both_numbers():
    def fn(x, y):
        return x * cube_with(lambda dy, a: dy * Tensor([3.0, 0.0], dtype="float64").data * a**2)(y)

    with pytest.raises(GradientError) as caught:
        gradcheck(fn, [leaf([1.0, 1.0]), leaf([1.0, 2.0])])
    assert str(caught.value).startswith("input 1 at (1,): backward says 0, the central difference 1")
    assert isinstance(caught.value, AssertionError)


@pytest.mark.parametrize("slip", [1e-5, -1e-5])
def test_an_error_in_the_fifth_digit_is_detected(slip):
    with pytest.raises(GradientError):
        gradcheck(cube_with(lambda dy, a: dy * 3 * a**2 * (1 + slip)), [leaf([1.0, 2.0])])
    assert gradcheck(cube_with(lambda dy, a: dy * 3 * a**2 * (1 + slip)), [leaf([1.0])], tolerance=1e-4) > 5e-6


def test_unused_scalar_empty_and_constant_inputs_are_accepted():
    x, y, empty, weight = leaf(2.0), leaf([1.0]), leaf(np.zeros((0, 3))), Tensor([1, 2, 3])
    assert gradcheck(lambda x, y, empty, weight: x * x * weight, [x, y, empty, weight]) < 1e-8
    assert weight.grad is None


def test_inputs_and_graph_are_left_unchanged():
    x = leaf([0.1, 0.2, 0.3])
    before = x.numpy().tobytes()
    x.grad = Tensor([9.0, 9.0, 9.0], dtype="float64")
    weight = leaf([2.0])
    gradcheck(lambda x: x.exp() * x * weight, [x])
    assert x.numpy().tobytes() == before
    assert x.requires_grad
    assert x.grad.tolist() == [9.0, 9.0, 9.0]
    assert weight.grad is None


def test_only_float64_leaves_are_accepted():
    with pytest.raises(TypeError, match="gradcheck: input 1 must be a float64 leaf"):
        gradcheck(lambda x, y: x * y, [leaf([1.0]), Tensor([1.0], requires_grad=True)])
    with pytest.raises(TypeError, match="gradcheck: input 0 must be a float64 leaf"):
        gradcheck(lambda x: x * x, [leaf([1.0]) * 2])
