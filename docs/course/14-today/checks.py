"""Checks of chapter 14, by the project's own functions."""

import functools

import numpy as np
from compare import same

from tinygrad_lite import Tensor, functional, manual_seed, optim
from tinygrad_lite.transformer import FeedForward

_rng = np.random.default_rng(0)


_same = functools.partial(same, rtol=1e-9, atol=1e-12)


def rms_norm(exercise):
    """Take the mean over the last axis only, and keep that axis, so that the division broadcasts."""
    x = _rng.normal(size=(3, 5)) * [[1.0], [100.0], [0.001]]
    _same(exercise.rms_norm(x), functional.rms_norm(Tensor(x)).numpy(), "the norm of three vectors")
    _same(exercise.rms_norm(x[0], eps=1.0), functional.rms_norm(Tensor(x[0]), eps=1.0).numpy(), "with eps = 1")


def swiglu(exercise):
    """Both products of x have the shape (..., F). Only the first goes through silu; a matrix (F, C) acts as x @ w.T."""
    manual_seed(0)
    part = FeedForward(4, 8, activation="swiglu", bias=False).to("cpu", np.float64)
    for shape in ((4,), (2, 3, 4)):
        x = _rng.normal(size=shape)
        weights = [matrix.weight.numpy() for matrix in (part.gate, part.up, part.down)]
        answer = exercise.swiglu(x, *weights)
        _same(answer, part(Tensor(x)).numpy(), f"for x of the shape {shape}, the result")


def rotary(exercise):
    """Split x into its two halves, which are the first and the second coordinates of all points."""
    x, frequencies = _rng.normal(size=8), np.array([1.0, 0.3, 0.1, 0.01])
    for position in (0, 1, 50):
        right = functional.rotary(Tensor(x.reshape(1, 1, 1, 8)), Tensor([position]), tuple(frequencies.tolist()))
        _same(
            exercise.rotary(x, position, frequencies), right.numpy().reshape(8), f"at position {position}, the result"
        )


def trapezoid(exercise):
    """The line goes through (plateau * steps, peak) and (steps, 0); before it, the rate is the peak."""
    for steps, plateau in ((1400, 0.4), (100, 0.0)):
        for step in (0, 1, steps // 2, steps - 1, steps):
            right = optim.trapezoid(step, 0.02, 0, steps, 0.0, plateau)
            answer = exercise.trapezoid(step, 0.02, steps, plateau)
            same(answer, right, f"at step {step} of {steps}, with a plateau of {plateau}")
