"""Exercises of chapter 1: every ... is a blank to fill in."""

from engine import Number, ancestors


def quotient(x: Number, y: Number) -> Number:
    """q = x / y as one operation, where engine.py uses two, ** and *. From dq = dL/dq, return dL/dx and dL/dy."""
    return Number(x.value / y.value, (x, y), lambda dq: ...)


def relu(x: Number) -> Number:
    """max(x, 0). At the kink, x = 0, the derivative is taken to be 0."""
    return Number(max(x.value, 0.0), (x,), lambda dy: ...)


# With a = 2, b = a * a and c = b * a + b: what is dc/da? Add up the paths from c to a, with pencil and paper.
SHARED = ...


def backward(result: Number) -> None:
    """What `result.backward()` does: ancestors(result) is the set of all numbers in the graph, in no order."""
    result.grad += 1.0
    ...
