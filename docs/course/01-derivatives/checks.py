"""Checks of chapter 1."""

import math

from engine import Number


def _slope(f, values, place, h=1e-6):
    """The slope of f with respect to one of its arguments, measured by two evaluations."""
    ends = []
    for change in (h, -h):
        moved = list(values)
        moved[place] += change
        ends.append(f(*map(Number, moved)).value)
    return (ends[0] - ends[1]) / (2 * h)


def _compare(f, *values):
    numbers = [Number(value) for value in values]
    f(*numbers).backward()
    for place, number in enumerate(numbers):
        right = _slope(f, values, place)
        assert math.isclose(number.grad, right, rel_tol=1e-5, abs_tol=1e-7), (
            f"with arguments {values}, the derivative with respect to argument {place + 1}: "
            f"yours is {number.grad:g}, it must be {right:.5g}, the measured slope"
        )


def quotient(exercise):
    """x / y is linear in x, with slope 1 / y. For y, write it as x * y**-1. Multiply both by dq."""
    _compare(exercise.quotient, 3.0, 4.0)
    _compare(exercise.quotient, -1.5, 0.5)


def relu(exercise):
    """Where x > 0 the function is x itself; elsewhere it is constant. The result is a tuple of one gradient."""
    _compare(exercise.relu, 2.0)
    _compare(exercise.relu, -2.0)
    x = Number(0.0)
    exercise.relu(x).backward()
    assert x.grad == 0, f"the derivative at the kink: yours is {x.grad:g}, it must be 0"


def SHARED(exercise):
    """c depends on a directly, and through b: multiply along each path, then add. b itself is a times a."""
    a = Number(2.0)
    b = a * a
    c = b * a + b
    c.backward()
    assert a.grad == exercise.SHARED, f"{exercise.SHARED} is not the derivative"


def backward(exercise):
    """Sort the ancestors by age, the newest first; give each parent what `derivative(grad)` returns for it."""
    a = Number(1.0)
    b = a + a
    c = b + b
    exercise.backward(c)
    assert a.grad == 4, f"in b = a + a; c = b + b, dc/da: yours is {a.grad:g}, it must be 4"
    x = Number(0.5)
    y = x
    for _ in range(60):  # a path for every subset of the steps: only one visit of each number is fast enough
        y = y * 0.5 + y * 0.5
    exercise.backward(y)
    assert x.grad == 1, f"through sixty steps y * 0.5 + y * 0.5, the derivative: yours is {x.grad:g}, it must be 1"
