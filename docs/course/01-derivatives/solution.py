"""Solutions of chapter 1."""

from engine import Number, ancestors


def quotient(x: Number, y: Number) -> Number:
    """q = x / y as one operation, where engine.py uses two, ** and *. From dq = dL/dq, return dL/dx and dL/dy."""
    return Number(x.value / y.value, (x, y), lambda dq: (dq / y.value, -dq * x.value / y.value**2))


def relu(x: Number) -> Number:
    """max(x, 0). At the kink, x = 0, the derivative is taken to be 0."""
    return Number(max(x.value, 0.0), (x,), lambda dy: (dy if x.value > 0 else 0.0,))


# c = b * a + b with b = a^2. Through b: dc/db * db/da = (a + 1) * 2a = 12; directly: dc/da = b = 4.
SHARED = 16


def backward(result: Number) -> None:
    """What `result.backward()` does: ancestors(result) is the set of all numbers in the graph, in no order."""
    result.grad += 1.0
    for number in sorted(ancestors(result), key=lambda number: number.age, reverse=True):
        if number.derivative is not None:
            for parent, gradient in zip(number.parents, number.derivative(number.grad), strict=True):
                parent.grad += gradient
