"""Checks of chapter 3."""

import math

import numpy as np

from tinygrad_lite import Tensor
from tinygrad_lite.debug.gradcheck import gradcheck


def _cubes(x):
    return float((x**3).sum())


def central(exercise):
    """Change one element of a copy by h, then by -h. The two results belong to places that are 2 h apart."""
    x = np.array([[0.5, -1.0, 2.0], [1.5, 0.0, -0.3]])
    before = x.copy()
    for h in (0.1, 0.01):
        slopes = exercise.central(_cubes, x, h)
        assert np.array_equal(x, before), "x has been changed"
        error = np.abs(slopes - 3 * x**2)
        # The error of a central difference of x^3 is h^2 exactly.
        assert (error < 1.001 * h**2).all(), (
            f"the slopes of x^3 at x = {x.tolist()} with h = {h} are {slopes.round(4).tolist()}: "
            f"the largest error is {error.max():.2g}, but with central differences it is {h**2:.2g}"
        )


def is_right(exercise):
    """Compare the shapes, then each difference with the largest slope of all. What is NaN <= 1? Is h large enough?"""
    rng = np.random.default_rng(0)
    x = rng.uniform(0.5, 1.5, (3, 3))
    x[1, 2] = 0.0  # where x^3 has the slope 0
    right = 3 * x**2

    def one_changed(change):
        gradient = right.copy()
        gradient[2, 0] = change(gradient[2, 0])
        return gradient

    wrong = {
        "has the wrong sign": -right,
        "is twice the right one": 2 * right,
        "is 0 everywhere": np.zeros_like(right),
        "is transposed": right.T,
        "is 0 in one place": one_changed(lambda value: 0.0),
        "is too large by 0.1 % in one place": one_changed(lambda value: value * 1.001),
        "is NaN in one place": one_changed(lambda value: math.nan),
        "is NaN everywhere": right * math.nan,
    }
    for scale in (1.0, 1e6, 1e-6):
        about = f"of {scale:g} times the sum of x^3"

        def f(x, scale=scale):
            return scale * _cubes(x)

        assert exercise.is_right(f, x, scale * right), f"the right gradient {about} is rejected"
        for name, gradient in wrong.items():
            assert not exercise.is_right(f, x, scale * gradient), f"a gradient {about} that {name} is accepted"
    assert exercise.is_right(lambda x: 7.0, x, np.zeros((3, 3))), "the gradient of a constant is rejected"
    assert not exercise.is_right(lambda x: 7.0, x, np.full((3, 3), 0.1)), (
        "0.1 is accepted as the gradient of a constant"
    )
    row = np.array([1.0, 2.0, 3.0])
    assert not exercise.is_right(lambda x: float((x * row).sum()), x, row), (
        "a gradient of shape (3,) is accepted for values of shape (3, 3)"
    )


def POWER(exercise):
    """Set the derivative with respect to h to zero, as in the chapter, and solve for h."""
    assert math.isclose(exercise.POWER, 1 / 2), f"the best h is not proportional to eps ** {exercise.POWER}"


def silu(exercise):
    """The product rule: the derivative of x times s, plus x times the derivative of s; all times dy, in a tuple."""
    values = [[-2.0, 0.0, 0.5], [1.0, 3.0, -0.7]]
    gradcheck(exercise.silu, [Tensor(values, dtype="float64", requires_grad=True)])
    results = []
    for version in (exercise.silu, Tensor.silu):  # the second is composed of primitives
        x = Tensor(values, requires_grad=True)
        dy = Tensor([[1.0, -2.0, 0.5], [3.0, 0.0, 1.0]])
        dy.data.flags.writeable = False  # it may be another node's gradient, too
        version(x).backward(dy)
        results.append(x.grad.numpy())
    assert np.allclose(*results, rtol=0, atol=1e-6), f"the gradient is {results[0]}, that of Tensor.silu {results[1]}"
