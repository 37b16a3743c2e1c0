"""`dropout` on a GPU: random numbers are made where they are needed, and no mask is kept.

Drawing them on the host, as the CPU does, would leave the GPU waiting for masks as large as the arrays. Here the host
draws 64 bits for each call, the key, from the same position in the run. From it and an element's number, each thread
computes whether the element is kept (philox.cuh). So a step that is run again drops the same elements, on any GPU; but
they are others than on the CPU, where also p is rounded to 1/65536, here to 1/2^32.
"""

from __future__ import annotations

from dataclasses import dataclass

from tinygrad_lite.cuda.launch import are_known, kernel, launch_elements, pack
from tinygrad_lite.device import Array, next_bits, xp_of
from tinygrad_lite.functional.dropout import check_probability, dropout_composed
from tinygrad_lite.tensor import Tensor, node


def dropout_cuda(x: Tensor, p: float = 0.5) -> Tensor:
    """`dropout_composed` in one node that keeps the key alone."""
    if p == 0 or not are_known(x):
        return dropout_composed(x, p)
    check_probability(p)
    key = next_bits("dropout")

    def backward(dy):
        return (dropped(dy, key, p),)

    return node(dropped(x.data, key, p), (x,), backward, "dropout", linear=True)


def dropped(x: Array, key: int, p: float) -> Array:
    """x * mask / (1 - p), with the mask of this key."""
    xp, shape = xp_of(x), x.shape
    x, y = xp.ascontiguousarray(x), xp.empty(shape, x.dtype)
    packed = pack(x.size, x, y)
    function = kernel("dropout", "dropout", X=x.dtype, PACK=packed)
    launch_elements(function, x.size // packed, x, y, key, round(p * 2**32), 1 / (1 - p))
    return y


@dataclass(frozen=True)
class Dropout:
    """One draw of dropout, as attention's kernels need it: elements whose random word is below `drop_below` go."""

    key: int
    drop_below: int
    keep_scale: float  # for those that stay: 1 / (1 - p)


def draw_dropout(p: float) -> Dropout:
    """The next draw; nothing is drawn for p = 0, and then nothing is dropped."""
    if p == 0:
        return Dropout(0, 0, 1.0)
    return Dropout(next_bits("dropout"), min(round(p * 2**32), 2**32 - 1), 1 / (1 - p))
