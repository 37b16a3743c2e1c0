"""Chapter 1's Number with an array as its value: reverse-mode automatic differentiation over NumPy."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

ages = itertools.count()


class TinyTensor:
    """An array that remembers how it was computed.

    Attributes:
        value: the array, of any shape.
        grad: dL/d(each element), an array of the same shape, once `L.backward()` has been called.
        parents: the tensors that it was computed from.
        derivative: takes dL/d(this tensor) and returns dL/d(parent) for each parent, in the parent's shape.
        age: how many tensors were made before it.
    """

    def __init__(
        self, value: Any, parents: tuple[TinyTensor, ...] = (), derivative: Callable[[np.ndarray], tuple] | None = None
    ) -> None:
        self.value = np.asarray(value, dtype=np.float64)
        self.grad = np.zeros_like(self.value)
        self.parents, self.derivative = parents, derivative
        self.age = next(ages)

    def __add__(self, other: TinyTensor) -> TinyTensor:
        a, b = self.value, other.value
        return TinyTensor(a + b, (self, other), lambda dy: (unbroadcast(dy, a.shape), unbroadcast(dy, b.shape)))

    def __mul__(self, other: TinyTensor) -> TinyTensor:
        a, b = self.value, other.value
        return TinyTensor(a * b, (self, other), lambda dy: (unbroadcast(dy * b, a.shape), unbroadcast(dy * a, b.shape)))

    def __matmul__(self, other: TinyTensor) -> TinyTensor:
        """The product of two matrices."""
        x, w = self.value, other.value
        return TinyTensor(x @ w, (self, other), lambda dy: (dy @ w.T, x.T @ dy))

    def tanh(self) -> TinyTensor:
        y = np.tanh(self.value)
        return TinyTensor(y, (self,), lambda dy: (dy * (1 - y * y),))

    def sum(self) -> TinyTensor:
        """The sum of all elements, an array with no axes."""
        shape = self.value.shape
        return TinyTensor(self.value.sum(), (self,), lambda dy: (np.broadcast_to(dy, shape),))

    def reshape(self, *shape: int) -> TinyTensor:
        before = self.value.shape
        return TinyTensor(self.value.reshape(shape), (self,), lambda dy: (dy.reshape(before),))

    @property
    def T(self) -> TinyTensor:
        return TinyTensor(self.value.T, (self,), lambda dy: (dy.T,))

    def backward(self) -> None:
        """Add dL/dx to x.grad for every tensor x that L, this tensor of one number, was computed from."""
        self.grad += 1.0
        for tensor in sorted(ancestors(self), key=lambda tensor: tensor.age, reverse=True):
            if tensor.derivative is not None:
                for parent, gradient in zip(tensor.parents, tensor.derivative(tensor.grad), strict=True):
                    assert gradient.shape == parent.value.shape, (gradient.shape, parent.value.shape)
                    parent.grad += gradient


def unbroadcast(dy: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The gradient of a tensor of this shape that was stretched to the shape of dy: the sum over what was stretched."""
    dy = dy.sum(axis=tuple(range(dy.ndim - len(shape))))  # axes that NumPy added on the left
    stretched = tuple(axis for axis, size in enumerate(shape) if size == 1)
    return dy.sum(axis=stretched, keepdims=True)


def ancestors(tensor: TinyTensor) -> set[TinyTensor]:
    """The tensor itself and everything it was computed from."""
    found, waiting = set(), [tensor]
    while waiting:
        tensor = waiting.pop()
        if tensor not in found:
            found.add(tensor)
            waiting.extend(tensor.parents)
    return found
