"""What all rows of a matrix share: sums of columns, and kernels that add a bias to every row."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

from tinygrad_lite.cuda.gemm import joined
from tinygrad_lite.cuda.launch import Kernel, kernel, launch, pack
from tinygrad_lite.device import Array, xp_of
from tinygrad_lite.precision import accumulation_type
from tinygrad_lite.tensor import Tensor, memory_to_write

CHUNKS = 128  # blocks that share the rows of the same columns
ROW_BLOCKS = 512  # at most, along y: enough for a large GPU (which allows 65,535)


def chunks_of(rows: int) -> int:
    """How many blocks share N rows, so that each of their 8 warps has at least 16 rows."""
    return max(1, min(CHUNKS, rows // 128))


def column_gradients(x: Array, parameters: Sequence[Tensor]) -> list[Array | None]:
    """The gradients of vectors that were added to all rows: the sums of the columns of x (N, sum of their lengths)."""
    return gradients_of(parameters, lambda place, out, add: column_sums(x[:, place], out, add))


def gradients_of(
    parameters: Sequence[Tensor], compute: Callable[[slice, Array | None, bool], Array]
) -> list[Array | None]:
    """The gradients of several parameters whose rows together form one array.

    An entry is None if the gradient is written into the memory of `.grad`, or if none is needed. The gradients of
    parameters that an optimizer has laid out one after the other are computed together.

    Args:
        compute: compute(rows, out, add) returns these rows of the array, written into `out` if that is not None, or,
            with `add`, added to it.
    """
    places = places_of(parameters)
    memories = [memory_to_write(p) if p.requires_grad else None for p in parameters]
    if all(memory is not None and memory[1] == memories[0][1] for memory in memories):
        whole = joined([array for array, _ in memories])
        if whole is not None:
            compute(slice(0, places[-1].stop), whole, memories[0][1])
            return [None] * len(parameters)
    found = [compute(place, *memory) if memory else None for place, memory in zip(places, memories, strict=True)]
    is_written = [memory is not None and memory[0] is not None for memory in memories]
    return [None if written else gradient for gradient, written in zip(found, is_written, strict=True)]


def places_of(weights: Sequence[Tensor]) -> list[slice]:
    """Where the rows of each are, if all are laid out one after the other."""
    ends = itertools.accumulate((weight.shape[0] for weight in weights), initial=0)
    return [slice(*pair) for pair in itertools.pairwise(ends)]


def column_sums(x: Array, out: Array | None = None, add: bool = False) -> Array:
    """(N, C) -> (C,), summed and returned in float32 (in float64 for float64).

    Args:
        x: rows that are contiguous, but may be padded.
        out: where to write the sums; a new array if it is not given.
        add: whether to add them to what is already there.
    """
    xp, (rows, width), total = xp_of(x), x.shape, accumulation_type(x.dtype)
    while True:
        chunks, packed = chunks_of(rows), pack_of_rows(x)
        is_last = chunks == 1
        sums = out[None] if is_last and out is not None else xp.empty((chunks, width), total)
        add_up = kernel("columns", "column_sums", X=x.dtype, PACK=packed)
        blocks = -(-width // (32 * packed)), chunks
        launch(add_up, blocks, (32, 8), rows, width, stride_of(x), x, sums, is_last and add)
        if is_last:
            return sums[0]
        x, rows = sums, chunks


def as_rows(x: Array) -> Array:
    """(..., V) -> (N, V) with contiguous rows that do not overlap: a view if possible, else a copy."""
    rows = x.reshape(-1, x.shape[-1] if x.ndim else 1)
    down, right = rows.strides
    if right == x.itemsize and down >= x.itemsize * rows.shape[1]:
        return rows
    return xp_of(x).ascontiguousarray(rows)


def stride_of(x: Array) -> int:
    """The distance from each row of a matrix to the next, in elements."""
    return x.strides[0] // x.itemsize


def pack_of_rows(x: Array, *others: Array) -> int:
    """`pack` for the rows of a matrix, which may be padded, and other arrays."""
    return pack(math.gcd(x.shape[1], stride_of(x)), x, *others)  # 4 divides both if it divides their gcd


def launch_matrix(function: Kernel, rows: int, packs: int, *arguments: Any) -> None:
    """Launch a kernel in which a thread takes one pack of several rows: x selects the pack, y the first row.

    Neighbouring threads take neighbouring packs, so their loads are coalesced. The number of rows and the number of
    packs in a row are the kernel's first arguments.
    """
    across, down = (32, 8) if rows >= 8 else (256, 1)
    blocks = -(-packs // across), min(-(-rows // down), ROW_BLOCKS)
    launch(function, blocks, (across, down), rows, packs, *arguments)
