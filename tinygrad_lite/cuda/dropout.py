"""`dropout` on a GPU: random numbers are computed where they are needed, and no mask is kept.

If the host generated them, as for the CPU, the GPU would wait for masks as large as the arrays. Here the host generates
a 64-bit key for each call, from the position in the run. Each thread computes from the key, the number of the training
step and the index of an element whether to keep it (philox.cuh). So a step that is run again drops the same elements,
on any GPU. They are not the ones that the CPU drops. As on the CPU, 16 bits decide each element, so p is rounded to a
multiple of 1/65536.

While a step is recorded as a graph (graph.py), `step_at` is an array with its number: every replay reads another one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tinygrad_lite.cuda.launch import are_known, launch_packs
from tinygrad_lite.device import Array, xp_of
from tinygrad_lite.functional.dropout import check_probability, dropout_composed
from tinygrad_lite.random import next_bits
from tinygrad_lite.tensor import Tensor, node

WORD = 0xFFFFFFFF
GROWTH = np.array([(n * 0x9E3779B9 & WORD, n * 0xBB67AE85 & WORD) for n in range(7)], np.uint32)
ROUND_KEYS = np.dtype([("at", np.uint32, (7, 2)), ("step_at", np.uint64), ("step", np.uint32)], align=True)

step_at: Array | None = None


def dropout_cuda(x: Tensor, p: float = 0.5) -> Tensor:
    """`dropout_composed` in one node that keeps only the key."""
    if p == 0 or not are_known(x):
        return dropout_composed(x, p)
    check_probability(p)
    mask = next_dropout(p)
    return node(dropped(x.data, mask), (x,), lambda dy: (dropped(dy, mask),), "dropout", linear=True)


def dropped(x: Array, mask: Dropout) -> Array:
    """x * mask / (1 - p)."""
    xp, shape = xp_of(x), x.shape
    x, y = xp.ascontiguousarray(x), xp.empty(shape, x.dtype)
    launch_packs("dropout", "dropout", (x, y), mask.round_keys, mask.drop_below, mask.keep_scale, X=x.dtype)
    return y


@dataclass(frozen=True)
class Dropout:
    """One dropout mask, as the kernels need it: they drop elements whose random bits are below `drop_below`."""

    round_keys: np.ndarray  # (1,), see `round_keys`
    drop_below: int
    keep_scale: float  # factor of the kept elements: 1 / (1 - p)


def next_dropout(p: float) -> Dropout:
    """The next dropout mask; for p = 0 one that drops nothing, without using a key."""
    if p == 0:
        return NOTHING
    return Dropout(round_keys(*next_bits("dropout")), min(round(p * 2**16), 2**16 - 1), 1 / (1 - p))


def round_keys(key: int, step: int = 0) -> np.ndarray:
    """The struct RoundKeys of philox.cuh, as an array of one element.

    Each of the seven rounds of Philox takes two words from a 64-bit key. They grow from round to round by the digits of
    the golden ratio and of the square root of 3.
    """
    words = np.array((key & WORD, key >> 32 & WORD), np.uint32) + GROWTH
    return np.array([(words, 0 if step_at is None else step_at.data.ptr, step & WORD)], ROUND_KEYS)


NOTHING = Dropout(round_keys(0), 0, 1.0)
