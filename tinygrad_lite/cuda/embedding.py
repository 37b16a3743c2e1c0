"""`embedding` on a GPU: the forward pass copies rows; the backward pass sorts them by token and sums them.

The tokens are not checked, because the host would have to wait for them: one that is not in the table yields a row of
NaN, so the loss becomes NaN, and gets no gradient.
"""

import numpy as np

from tinygrad_lite.cuda.launch import ROWS, kernel, launch, launch_rows, pack
from tinygrad_lite.device import Array, xp_of
from tinygrad_lite.functional.embedding import check_embedding, embedding_composed
from tinygrad_lite.tensor import Tensor, memory_to_write, node

SEGMENT = 32  # positions of the sorted list that a warp sums
MOST_COLUMNS = 32 * 65_535  # a grid has at most 65,535 blocks along y, and each takes at least 32 columns


def embedding_cuda(ids: Tensor, weight: Tensor) -> Tensor:
    """`embedding_composed` in one node; keeps the tokens."""
    check_embedding(ids, weight)
    if weight.dtype not in (np.float32, np.float64):
        return embedding_composed(ids, weight)
    xp, (rows, width) = weight.xp, weight.shape
    numbers = ids.data.astype(np.int64).reshape(-1)  # a copy: the caller may write into ids before backward
    table, count = xp.ascontiguousarray(weight.data), len(numbers)
    y = xp.empty((*ids.shape, width), weight.dtype)
    look_up = kernel("embedding", "embedding_forward", X=weight.dtype, PACK=pack(width, table, y), SEGMENT=SEGMENT)
    launch_rows(look_up, count, rows, width, numbers, table, y)

    def backward(dy):
        # The rows are added to the existing gradient: with a tied head, its product has just been written.
        out, add = memory_to_write(weight) if width <= MOST_COLUMNS else (None, False)
        table = sums_by_token(numbers, xp.ascontiguousarray(dy), rows, width, out, add)
        return (table if out is None else None,)

    return node(y, (weight,), backward, "embedding", linear=True)


def sums_by_token(ids: Array, dy: Array, rows: int, width: int, out: Array | None = None, add: bool = False) -> Array:
    """For each row of the table, the sum of dy over the positions of its token: ids (N,), dy (N, C) -> (rows, C).

    dy must be contiguous. The sums are written into `out` if that is given, or, with `add`, added to it.
    """
    xp, count = xp_of(dy), len(ids)
    if width > MOST_COLUMNS:
        parts = (xp.ascontiguousarray(dy[:, i : i + MOST_COLUMNS]) for i in range(0, width, MOST_COLUMNS))
        return xp.concatenate([sums_by_token(ids, part, rows, part.shape[1]) for part in parts], axis=1)
    table = xp.empty((rows, width), dy.dtype) if out is None else out
    if not add:
        table.fill(0)
    if count == 0:
        return table
    # With int32 there are half as many digits to sort by. (2^40, which is not in the table, then counts as 0; its loss
    # is NaN.)
    order = xp.argsort(ids.astype(np.int32) if rows < 2**31 else ids, kind="stable")
    ids = ids[order]
    segments = -(-count // SEGMENT)
    parts = xp.empty((segments, 2, width), dy.dtype)
    packed = pack(width, dy, table)
    add_up = kernel("embedding", "embedding_backward", X=dy.dtype, PACK=packed, SEGMENT=SEGMENT)
    blocks = -(-segments // ROWS), -(-width // (32 * packed))
    launch(add_up, blocks, (32, ROWS), count, rows, width, ids, order, dy, table, parts, add)
    join = kernel("embedding", "embedding_backward_runs", X=dy.dtype, PACK=1, SEGMENT=SEGMENT)
    launch(join, (segments, -(-width // 32)), (32, 8), count, rows, width, ids, parts, table, add)
    return table
