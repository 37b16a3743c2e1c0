"""`rotary` on a GPU: one kernel, which reads the positions itself, so that Python does not wait for them."""

import functools
import math
from typing import Any

import numpy as np

from tinygrad_lite.cuda.launch import are_known, kernel, launch_elements, pack
from tinygrad_lite.device import Array, xp_of
from tinygrad_lite.functional.rotary import check_rotary, rotary_composed
from tinygrad_lite.tensor import Tensor, node


def rotary_cuda(x: Tensor, positions: Tensor, frequencies: tuple[float, ...]) -> Tensor:
    """`rotary_composed` in one node; keeps the positions."""
    if x.numel() == 0 or not are_known(x):
        return rotary_composed(x, positions, frequencies)
    check_rotary(x, positions, frequencies)
    places = x.xp.ascontiguousarray(positions.data.astype(np.int64, copy=False))

    def backward(dy):
        return rotated(dy, places, frequencies, -1.0), None

    # The positions are a parent, although they have no gradient, so that overwriting them before backward is an error.
    return node(rotated(x.data, places, frequencies, 1.0), (x, positions), backward, "rotary", uses_result=False)


def rotated(x: Array, positions: Array, frequencies: tuple[float, ...], direction: float) -> Array:
    """x (B, T, H, D), rotated by direction * positions * frequencies; only its last axis must be contiguous."""
    xp, (batch, length, heads, width) = xp_of(x), x.shape
    if x.strides[-1] != x.itemsize:
        x = xp.ascontiguousarray(x)
    strides = [stride // x.itemsize for stride in x.strides[:-1]]
    y, half = xp.empty(x.shape, x.dtype), width // 2
    packed = pack(math.gcd(half, *strides), x, y)
    launch_elements(
        kernel("rotary", "rotary", X=x.dtype, PACK=packed), batch * length * half // packed, length, heads, half,
        *strides, x, positions, length * (positions.ndim - 1), on_gpu(frequencies, xp), direction, y,
    )  # fmt: skip
    return y


@functools.lru_cache(maxsize=8)
def on_gpu(frequencies: tuple[float, ...], xp: Any) -> Array:
    """The frequencies in turns, modulo 1 and in units of 2^-64, as an array, which is sent to the GPU once."""
    turns = [int(float(frequency) / math.tau % 1 * 2**64) % 2**64 for frequency in frequencies]
    return xp.asarray(np.array(turns, np.uint64).view(np.int64))
