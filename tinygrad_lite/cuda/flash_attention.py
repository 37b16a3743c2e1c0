"""Attention in bfloat16 without the (T, S) array of weights: less memory, and far fewer bytes to write and read.

The softmax of a row can be computed from its scores piece by piece. Let m be the largest score so far, z the sum of
e^(S - m) so far, and o the sum of e^(S - m) V so far. If m' is the largest score including the next piece, then

    z' = z e^(m - m') + sum e^(S - m')          o' = o e^(m - m') + sum e^(S - m') V

where the sums are over the next piece; in the end O = o / z. So no score has to leave the chip. The backward pass
recomputes the scores, and from them P = e^(S - L), with L = m + log z, the only number kept for each row.

dQ is a sum over keys, dK and dV are sums over queries. A block that takes some of the keys can sum its own dK and dV,
but all blocks would have to add to the same dQ, in no fixed order, and floats added in a different order give different
bytes. So dQ has a separate kernel, which computes the weights a third time: 7 products instead of 5, but the same bytes
in every run.

Reference: Dao et al. 2022 (arXiv:2205.14135), algorithms 1 and 4; Dao 2023 (arXiv:2307.08691) on the work of each warp.
"""

from collections.abc import Callable
from typing import Any

from tinygrad_lite.cuda.dropout import Dropout
from tinygrad_lite.cuda.launch import kernel, launch
from tinygrad_lite.device import Array, xp_of
from tinygrad_lite.tensor import Tensor

ROWS = 16  # queries (or keys) per warp
TILES = {32: (64, 32), 64: (64, 32), 128: (32, 16)}  # by width D: rows of a tile, forward and backward


def fits_flash_attention(query: Tensor, key: Tensor, mask: Tensor | None) -> bool:
    """Whether the kernels can handle this: D is one of TILES, and a mask is the same for all heads and queries."""
    by_sequence = mask is None or all(length == 1 for length in mask.shape[-3:-1])
    return query.shape[3] in TILES and query.numel() > 0 and key.numel() > 0 and by_sequence


def flash_attention(
    q: Array, k: Array, v: Array, scale: float, mask: Array | None, is_causal: bool, dropout: Dropout
) -> tuple[Array, Callable]:
    """The result (B, H, T, D), laid out as (B, T, H, D), and the function that maps its gradient to those of q, k, v.

    If T = S, the three gradients are views of one array (B, T, 3, H, D), the `base` of each, so that a joint projection
    to q, k and v can use it as the gradient of its result (B, T, 3 C).

    Args:
        q, k, v: (B, H, T or S, D) of bfloat16, in any layout; they are copied if their rows are not contiguous.
        scale: the factor of the scores, greater than 0.
        mask: truth values that broadcast to (B, 1, 1, S).
    """
    xp = xp_of(q)
    q, k, v = in_rows(q), in_rows(k), in_rows(v)
    (batch, heads, t, width), s = q.shape, k.shape[2]
    every_head, padded = batch * heads, -(-t // 128) * 128
    mask = None if mask is None else xp.broadcast_to(mask, (batch, 1, 1, s))
    given = [*laid(q), *laid(k), *laid(v), mask, *((0, 0) if mask is None else (mask.strides[0], mask.strides[3]))]
    ahead = s - t if is_causal else s  # query t sees the keys s <= t + ahead
    numbers = (heads, t, s, ahead, scale, dropout.round_keys, dropout.drop_below, dropout.keep_scale)
    tiles, has_dropout = dict(zip(("forward", "backward"), TILES[width], strict=True)), int(dropout.drop_below > 0)
    # Eight warps that share a tile read keys and values half as often as two groups of four, if there are enough
    # registers.
    warps = {"forward": 8 if t >= 128 and width <= 64 and not has_dropout else 4, "backward": 4}

    def run(way: str, name: str, length: int, *arguments: Any) -> None:
        """Launch a kernel for this many queries or keys."""
        function = kernel(f"flash_{way}", name, WIDTH=width, TILE=tiles[way], WARPS=warps[way], DROPOUT=has_dropout)
        launch(function, (every_head, -(-length // (ROWS * warps[way]))), (32 * warps[way],), *arguments)

    out = xp.empty((batch, t, heads, width), q.dtype)
    logs = xp.empty((every_head, padded), "float32")
    run("forward", "flash_forward", t, *given, out, logs, *numbers)

    def backward(dy: Array) -> tuple[Array, Array, Array]:
        dy = in_rows(dy)
        row_sums = xp.empty((every_head, padded), "float32")
        run("backward", "flash_row_sums", t, *laid(dy), out, row_sums, heads, t)
        if t == s:
            joint = xp.empty((batch, t, 3, heads, width), q.dtype)
            dq, dk, dv = (joint[:, :, i] for i in range(3))
        else:
            dq, dk, dv = (xp.empty((batch, length, heads, width), q.dtype) for length in (t, s, s))
        stride = dq.strides[1] // dq.dtype.itemsize  # from row to row, in all three
        known = [*given, *laid(dy), logs, row_sums]
        run("backward", "flash_backward_query", t, *known, dq, stride, *numbers)
        run("backward", "flash_backward_key_value", s, *known, dk, dv, stride, *numbers)
        return tuple(x.swapaxes(1, 2) for x in (dq, dk, dv))

    return out.swapaxes(1, 2), backward


def in_rows(x: Array) -> Array:
    """The array, or a copy if its rows are not contiguous or do not begin at multiples of 16 bytes."""
    begins = [stride for stride, length in zip(x.strides[:-1], x.shape[:-1], strict=True) if length > 1]
    fits = x.strides[-1] == x.dtype.itemsize and all(place % 16 == 0 for place in (x.data.ptr, *begins))
    return x if fits else xp_of(x).ascontiguousarray(x)


def laid(x: Array) -> list[Any]:
    """An array, and its strides in elements: from sequence to sequence, from head to head, from row to row."""
    return [x, *(stride // x.dtype.itemsize for stride in x.strides[:-1])]
