"""What is the same for all rows of a matrix: sums of columns, and kernels that add a bias to every row."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tinygrad_lite.cuda.launch import kernel, launch, pack
from tinygrad_lite.cuda.precision import accumulation_type
from tinygrad_lite.device import Array, xp_of

CHUNKS = 128  # blocks that share the rows of one strip of columns
ROW_BLOCKS = 512  # at most, along y: enough for a large GPU (which allows 65,535)


def chunks_of(rows: int) -> int:
    """How many blocks share N rows, so that each of their 8 warps has at least 16."""
    return max(1, min(CHUNKS, rows // 128))


def column_sums(x: Array) -> Array:
    """(N, C) -> (C,), summed and returned in float32 (in float64 for float64).

    This is the gradient of anything that is added to every row, such as a bias. The rows of x must be contiguous, but
    may be padded.
    """
    xp, (rows, width) = xp_of(x), x.shape
    total = accumulation_type(x.dtype)
    while True:
        chunks, packed = chunks_of(rows), pack_of_rows(x)
        sums = xp.empty((chunks, width), total)
        add_up = kernel("columns", "column_sums", X=x.dtype, PACK=packed)
        launch(add_up, (-(-width // (32 * packed)), chunks), (32, 8), rows, width, stride_of(x), x, sums)
        if chunks == 1:
            return sums[0]
        x, rows = sums, chunks


def as_rows(x: Array) -> Array:
    """(..., V) -> (N, V), where the numbers of a row are neighbours and rows do not overlap: a view, or else a copy."""
    rows = x.reshape(-1, x.shape[-1])
    down, right = rows.strides
    if right == x.itemsize and down >= x.itemsize * x.shape[-1]:
        return rows
    return xp_of(x).ascontiguousarray(rows)


def stride_of(x: Array) -> int:
    """The distance from each row of a matrix to the next, in elements."""
    return x.strides[0] // x.itemsize


def pack_of_rows(x: Array, *others: Array) -> int:
    """`pack` for the rows of a matrix, which may be padded, and other arrays."""
    return pack(math.gcd(x.shape[1], stride_of(x)), x, *others)  # 4 divides both if it divides their gcd


def launch_matrix(function: Callable, rows: int, packs: int, *arguments: Any) -> None:
    """Launch a kernel in which each thread takes one pack of several rows: x selects the pack, y the first row.

    Neighbouring threads take neighbouring packs, so their loads are coalesced. The numbers of rows and of packs in a
    row are the kernel's first arguments.
    """
    across, down = (32, 8) if rows >= 8 else (256, 1)
    blocks = -(-packs // across), min(-(-rows // down), ROW_BLOCKS)
    launch(function, blocks, (across, down), rows, packs, *arguments)
