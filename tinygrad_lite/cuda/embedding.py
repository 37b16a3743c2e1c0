"""`embedding` on a GPU: rows are copied, and in backward sorted by their token and added up in float32.

Nobody looks at the tokens here (the host would have to wait for them): one that is not in the table gives a row of NaN,
which the loss will show, and gets no gradient.
"""

from __future__ import annotations

import numpy as np

from tinygrad_lite.cuda.launch import ROWS, kernel, launch, launch_rows, pack
from tinygrad_lite.device import Array, xp_of
from tinygrad_lite.functional.embedding import check_embedding, embedding_composed
from tinygrad_lite.tensor import Tensor, node

SEGMENT = 32  # places of the sorted list that a warp adds up


def embedding_cuda(weight: Tensor, ids: Tensor) -> Tensor:
    """`embedding_composed` in one node; keeps the tokens."""
    check_embedding(weight, ids)
    if weight.dtype not in (np.float32, np.float64):
        return embedding_composed(weight, ids)
    xp, (rows, width) = weight.xp, weight.shape
    numbers = ids.data.astype(np.int64).reshape(-1)  # a copy: the caller may write into ids before backward
    table, count = xp.ascontiguousarray(weight.data), len(numbers)
    y = xp.empty((*ids.shape, width), weight.dtype)
    look_up = kernel("embedding", "embedding_forward", X=weight.dtype, PACK=pack(width, table, y), SEGMENT=SEGMENT)
    launch_rows(look_up, count, rows, width, numbers, table, y)

    def backward(dy):
        return (sums_by_token(numbers, xp.ascontiguousarray(dy), rows, width),)

    return node(y, (weight,), backward, "embedding", linear=True)


def sums_by_token(ids: Array, dy: Array, rows: int, width: int) -> Array:
    """For each of so many tokens the sum of its rows of dy: (N,) and (N, C) in rows of neighbours -> (rows, C)."""
    xp, count = xp_of(dy), len(ids)
    table = xp.zeros((rows, width), dy.dtype)
    if count == 0:
        return table
    order = xp.argsort(ids, kind="stable")
    ids = ids[order]
    segments = -(-count // SEGMENT)
    parts = xp.empty((segments, 2, width), dy.dtype)
    packed = pack(width, dy)
    add_up = kernel("embedding", "embedding_backward", X=dy.dtype, PACK=packed, SEGMENT=SEGMENT)
    blocks = -(-segments // ROWS), -(-width // (32 * packed))
    launch(add_up, blocks, (32, ROWS), count, rows, width, ids, order, dy, table, parts)
    join = kernel("embedding", "embedding_backward_runs", X=dy.dtype, PACK=1, SEGMENT=SEGMENT)
    launch(join, (segments, -(-width // 32)), (32, 8), count, rows, width, ids, parts, table)
    return table
