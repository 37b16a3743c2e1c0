"""A network of one hidden layer that learns y = sin(2 x), and an activation with a wrong derivative."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tinygrad_lite import Tensor
from tinygrad_lite.tensor import node


def wrong_silu(x: Tensor) -> Tensor:
    """y = x s(x) with s(x) = 1 / (1 + e^-x); its derivative treats s(x) as if it were a constant."""
    s = 1 / (1 + np.exp(-x.data))

    def backward(dy):
        return (dy * s,)

    return node(x.data * s, (x,), backward, "wrong_silu")


def train(activation: Callable[[Tensor], Tensor], steps: int = 300, learning_rate: float = 0.02) -> list[float]:
    """Train by gradient descent; the mean squared error before every hundredth step, and at the end."""
    rng = np.random.default_rng(0)
    x = np.linspace(-3, 3, 50)[:, None]
    w1 = Tensor(rng.standard_normal((1, 20)), requires_grad=True)
    b1 = Tensor(rng.standard_normal(20), requires_grad=True)
    w2 = Tensor(0.2 * rng.standard_normal((20, 1)), requires_grad=True)
    losses = []
    for step in range(steps + 1):
        loss = ((activation(x @ w1 + b1) @ w2 - np.sin(2 * x)) ** 2).mean()
        if step % 100 == 0:
            losses.append(round(loss.item(), 3))
        loss.backward()
        for parameter in (w1, b1, w2):
            parameter.data -= learning_rate * parameter.grad.data
            parameter.grad = None
    return losses
