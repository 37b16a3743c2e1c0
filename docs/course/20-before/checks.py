"""Checks of chapter 20."""

import functools

import numpy as np
from compare import same

from extra.mixers.lstm import lstm
from extra.mixers.rnn import rnn
from tinygrad_lite import Tensor
from tinygrad_lite import functional as F

_same = functools.partial(same, atol=1e-8)


def states(exercise):
    """Begin with zeros; every step uses the state of the previous step, and all of them are the result."""
    rng = np.random.default_rng(0)
    for steps, width in ((1, 3), (6, 4)):
        x, w = rng.standard_normal((steps, width)), rng.standard_normal((width, width))
        _same(exercise.states(x, w), rnn(Tensor(x[None]), Tensor(w)).numpy()[0], f"{steps} steps")


def back_through_time(exercise):
    """Starting from the last step: dz = (dh + what the next step says) (1 - h^2); dW += dz h_(t-1)^T; next, W^T dz."""
    rng = np.random.default_rng(1)
    for steps in (1, 2, 7):
        x, dh = rng.standard_normal((2, steps, 3))
        w = Tensor(rng.standard_normal((3, 3)), requires_grad=True)
        (rnn(Tensor(x[None]), w)[0] * Tensor(dh)).sum().backward()
        _same(exercise.back_through_time(x, w.numpy().copy(), dh), w.grad.numpy(), f"{steps} steps")


def lstm_step(exercise):
    """Sigmoid for the gates i, f and o, tanh for g; c = f c + i g, and h = o tanh(c) with the new c."""
    rng = np.random.default_rng(2)
    x, w, h, c = rng.standard_normal(12), rng.standard_normal((12, 3)), *rng.standard_normal((2, 3))
    right = lstm(Tensor(x[None, None]), Tensor(w), Tensor(np.concatenate([h, c])[None])).numpy()[0, 0]
    found = exercise.lstm_step(x, w, h, c)
    _same(found[0], right[:3], "the state")
    _same(found[1], right[3:], "the cell")


def look_back(exercise):
    """Softmax over the scores of the text alone; the mean is weighted by it. Large scores must not overflow."""
    rng = np.random.default_rng(3)
    for length, size in ((5, 1.0), (3, 1.0), (1, 1.0), (4, 400.0)):
        h, memory = size * rng.standard_normal(4), rng.standard_normal((5, 4))
        right = np.zeros(5)
        right[:length] = F.softmax(Tensor(memory[:length] @ h)).numpy()
        weights, mean = exercise.look_back(h, memory, length)
        _same(weights, right, f"the weights on {length} positions")
        _same(mean, right @ memory, f"the mean of {length} positions")
