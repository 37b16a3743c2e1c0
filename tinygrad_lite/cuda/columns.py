"""Sums of columns: the gradient of anything that is added to every row, such as a bias."""

from __future__ import annotations

from tinygrad_lite.cuda.launch import kernel, launch
from tinygrad_lite.cuda.precision import accumulation_type
from tinygrad_lite.device import Array, xp_of

CHUNKS = 64  # blocks that share the rows of one strip of columns


def chunks_of(rows: int) -> int:
    """How many blocks share N rows, so that each of their 8 warps has at least 16."""
    return max(1, min(CHUNKS, rows // 128))


def column_sums(x: Array) -> Array:
    """(N, C) -> (C,), summed and returned in float32 (in float64 for float64)."""
    xp, (rows, width) = xp_of(x), x.shape
    total = accumulation_type(x.dtype)
    while True:
        chunks = chunks_of(rows)
        sums = xp.empty((chunks, width), total)
        strips = -(-width // 32)
        launch(kernel("columns", "column_sums", X=x.dtype), (strips, chunks), (32, 8), x, sums, rows, width)
        if chunks == 1:
            return sums[0]
        x, rows = sums, chunks
