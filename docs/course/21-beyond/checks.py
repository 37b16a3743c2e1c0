"""Checks of chapter 21."""

import functools

import numpy as np
from compare import same

from extra.mixers.long_conv import long_conv
from extra.mixers.mixers import by_steps
from tinygrad_lite import Tensor

_same = functools.partial(same, atol=1e-8)


def window_mask(exercise):
    """No query sees a later key. Of the others it sees those that are less than `window` behind it, and the first."""
    for steps, window, sinks in ((6, 3, 0), (8, 2, 2), (5, 9, 1), (4, 1, 0)):
        right = [[s <= t and (t - s < window or s < sinks) for s in range(steps)] for t in range(steps)]
        _same(exercise.window_mask(steps, window, sinks), right, f"{steps} steps, window {window}, {sinks} sinks")


def convolve(exercise):
    """The product of the transforms of x and h, both padded with zeros to 2 T, transformed back; the first T."""
    rng = np.random.default_rng(0)
    for steps in (1, 5, 8):
        x, h = rng.standard_normal((2, steps))
        right = long_conv(Tensor(x[None, :, None]), Tensor(h[:, None])).numpy()[0, :, 0]
        _same(exercise.convolve(x, h), right, f"{steps} steps")


def _example(seed, steps, width):
    rng = np.random.default_rng(seed)
    return *rng.standard_normal((3, steps, width)), rng.uniform(0.5, 1, steps), rng.standard_normal((width, width))


def _right(q, k, v, a, state):
    parts = (Tensor(x[None, None]) for x in (q, k, v, np.log(a), state))
    return [found.numpy()[0, 0] for found in by_steps(*parts)]


def remember(exercise):
    """In each step the state first decays, then the pair is added, and only then is it asked."""
    for steps, width in ((1, 3), (7, 4)):
        q, k, v, a, _ = _example(1, steps, width)
        right, _ = _right(q, k, v, a, np.zeros((width, width)))
        _same(exercise.remember(q, k, v, a), right, f"{steps} steps")


def next_chunk(exercise):
    """The scores q k^T, times A_t / A_s where s <= t, on the values; and q_t asks the old state, times A_t."""
    for steps, width in ((1, 3), (7, 4)):
        example = _example(2, steps, width)
        for found, right, what in zip(
            exercise.next_chunk(*example), _right(*example), ("results", "state"), strict=True
        ):
            _same(found, right, f"the {what} of {steps} steps")
