"""Derivatives of numbers by machine: reverse-mode automatic differentiation, without arrays."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

ages = itertools.count()


class Number:
    """A number that remembers how it was computed.

    Attributes:
        value: the number.
        grad: dL/d(this number), once `L.backward()` has been called.
        parents: the numbers that it was computed from.
        derivative: takes dL/d(this number) and returns dL/d(parent) for each parent.
        age: how many numbers were made before it.
    """

    def __init__(
        self, value: float, parents: tuple[Number, ...] = (), derivative: Callable[[float], tuple] | None = None
    ) -> None:
        self.value, self.grad = value, 0.0
        self.parents, self.derivative = parents, derivative
        self.age = next(ages)

    def __repr__(self) -> str:
        return f"Number({self.value:g})"

    def __add__(self, other: Number | float) -> Number:
        other = as_number(other)
        return Number(self.value + other.value, (self, other), lambda dy: (dy, dy))

    def __mul__(self, other: Number | float) -> Number:
        other = as_number(other)
        return Number(self.value * other.value, (self, other), lambda dy: (dy * other.value, dy * self.value))

    def __pow__(self, power: float) -> Number:
        return Number(self.value**power, (self,), lambda dy: (dy * power * self.value ** (power - 1),))

    def exp(self) -> Number:
        y = math.exp(self.value)
        return Number(y, (self,), lambda dy: (dy * y,))

    def __neg__(self) -> Number:
        return self * -1

    def __sub__(self, other: Number | float) -> Number:
        return self + -as_number(other)

    def __truediv__(self, other: Number | float) -> Number:
        return self * as_number(other) ** -1

    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, other: float) -> Number:
        return as_number(other) - self

    def __rtruediv__(self, other: float) -> Number:
        return as_number(other) / self

    def backward(self) -> None:
        """Add dL/dx to x.grad for every number x that L, this number, was computed from.

        None of the computed numbers among them may already have a gradient, from another result that shares them: it
        would be passed on a second time.
        """
        self.grad += 1.0
        for number in sorted(ancestors(self), key=lambda number: number.age, reverse=True):
            if number.derivative is not None:
                for parent, gradient in zip(number.parents, number.derivative(number.grad), strict=True):
                    parent.grad += gradient


def as_number(x: Number | float) -> Number:
    """The operand as a Number; a plain number becomes one without parents."""
    return x if isinstance(x, Number) else Number(x)


def ancestors(number: Number) -> set[Number]:
    """The number itself and everything it was computed from."""
    found, waiting = set(), [number]
    while waiting:
        number = waiting.pop()
        if number not in found:
            found.add(number)
            waiting.extend(number.parents)
    return found
