"""`scaled_dot_product_attention` on a GPU: products by cuBLAS, and between them a kernel for mask, softmax, dropout.

The weights P are a (T, S) array for each head, and most of the time goes into writing and reading them. If attention is
causal, the queries are taken in blocks, and each block is multiplied by only the keys that it can see: this saves
almost half the work and half the memory. In bfloat16, flash_attention.py usually does without that array.
"""

from collections.abc import Callable

import numpy as np

from tinygrad_lite.cuda.dropout import Dropout, next_dropout
from tinygrad_lite.cuda.flash_attention import fits_flash_attention, flash_attention
from tinygrad_lite.cuda.gemm import TYPES, gemm, laid_out
from tinygrad_lite.cuda.launch import kernel, launch_rows, pack
from tinygrad_lite.device import Array, xp_of
from tinygrad_lite.functional.attention import check_attention, scale_of_scores, scaled_dot_product_attention_composed
from tinygrad_lite.precision import activation_type
from tinygrad_lite.tensor import Tensor, node

QUERIES = 256  # queries in a causal block


def scaled_dot_product_attention_cuda(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    *,
    is_causal: bool = False,
    dropout_p: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    """`scaled_dot_product_attention_composed` in one node, in blocks of queries or by flash_attention.py.

    Dropout drops different weights from those dropped on the CPU: see dropout.py.
    """
    is_added = mask is not None and mask.dtype != np.bool_
    if is_added or query.dtype.char not in TYPES or query.dtype != key.dtype or key.dtype != value.dtype:
        # masks that are added, and mixed types
        y = scaled_dot_product_attention_composed(
            query, key, value, mask, is_causal=is_causal, dropout_p=dropout_p, scale=scale
        )
        return y.cast(activation_type(query.dtype)) if is_added and query.dtype == value.dtype else y
    check_attention(query, key, value, mask, dropout_p)
    given, kind = query.dtype, activation_type(query.dtype)
    q, k, v = (x.data.astype(kind, copy=False) for x in (query, key, value))
    factor = float(scale_of_scores(query, scale))
    use_flash = kind.char == "E" and factor > 0 and fits_flash_attention(query, key, mask)
    version, mask = flash_attention if use_flash else attention_by_blocks, None if mask is None else mask.data
    y, backward = version(q, k, v, factor, mask, is_causal, next_dropout(dropout_p))

    def backward_as_given(dy):
        return tuple(gradient.astype(given, copy=False) for gradient in backward(dy))

    return node(y, (query, key, value), backward_as_given, "scaled_dot_product_attention")


def attention_by_blocks(
    q: Array, k: Array, v: Array, scale: float, mask: Array | None, is_causal: bool, dropout: Dropout
) -> tuple[Array, Callable]:
    """The result (B, H, T, D), and the function that maps its gradient to those of q, k and v; keeps the weights P.

    Args:
        q, k, v: (B, H, T or S, D) of one float type, in any layout.
        scale: the factor of the scores.
        mask: truth values that broadcast to (B, H, T, S).
    """
    xp, kind = xp_of(q), q.dtype
    # cuBLAS needs the same distance from each head to the next, across sequences too. Heads sliced from (B, T, C) do
    # not have it, and each of the products below would copy them.
    q, k, v = (laid_out(x)[0] for x in (q, k, v))
    (batch, heads, t, width), s = q.shape, k.shape[2]
    ahead = s - t if is_causal else s  # query t sees the keys s <= t + ahead
    mask = None if mask is None else xp.broadcast_to(mask, (batch, heads, t, s))
    out = xp.empty((batch, heads, t, width), kind)
    blocks = causal_blocks(t, s) if is_causal else [(slice(0, t), s)]
    weights = []  # P, block by block
    for rows, end in blocks:
        p = gemm(q[:, :, rows], k[:, :, :end].swapaxes(-1, -2), scale=scale)  # S, which becomes P
        gemm(softmax(p, rows.start, t, s, ahead, mask, dropout), v[:, :, :end], out=out[:, :, rows])
        weights.append(p)

    def backward(dy: Array) -> tuple[Array, Array, Array]:
        dy = laid_out(dy)[0]
        dq = xp.empty(q.shape, kind)
        total = np.float32 if kind.char == "E" and len(blocks) > 1 else kind  # the type of sums over blocks
        dk, dv = xp.empty(k.shape, total), xp.empty(v.shape, total)
        # The last block sees all keys. It comes first and writes the sums, to which the others then add.
        for (rows, end), p in zip(reversed(blocks), reversed(weights), strict=True):
            ds = gemm(dy[:, :, rows], v[:, :, :end].swapaxes(-1, -2))  # dP, which becomes dS
            softmax_backward(p, ds, rows.start, ahead, dropout)
            is_later = rows.stop < t
            gemm(p.swapaxes(-1, -2), dy[:, :, rows], out=dv[:, :, :end], add=is_later)
            gemm(ds.swapaxes(-1, -2), q[:, :, rows], out=dk[:, :, :end], scale=scale, add=is_later)
            gemm(ds, k[:, :, :end], out=dq[:, :, rows], scale=scale)
        return dq, dk, dv

    return out, backward


def softmax(scores: Array, first: int, t: int, s: int, ahead: int, mask: Array | None, dropout: Dropout) -> Array:
    """Turn the scores (B, H, rows, keys) of the queries from `first` on into P, in place; returns P with dropout."""
    batch, heads, length, width = scores.shape
    dropped = xp_of(scores).empty(scores.shape, scores.dtype) if dropout.drop_below else None
    function = kernel("softmax", "softmax_forward", X=scores.dtype, PACK=pack(width, scores, dropped))
    strides = (0, 0, 0, 0) if mask is None else mask.strides  # a truth value has one byte
    launch_rows(
        function, batch * heads * length, scores, dropped, mask, *strides, heads, t, s, first, length, width, ahead,
        dropout.round_keys, dropout.drop_below, dropout.keep_scale,
    )  # fmt: skip
    return scores if dropped is None else dropped


def softmax_backward(weights: Array, d_weights: Array, first: int, ahead: int, dropout: Dropout) -> None:
    """Turn dP (B, H, rows, keys) into dS, in place; with dropout, also P into P with dropout."""
    batch, heads, length, width = weights.shape
    function = kernel("softmax", "softmax_backward", X=weights.dtype, PACK=pack(width, weights, d_weights))
    launch_rows(function, batch * heads * length, weights, d_weights, length, first, width, ahead, dropout.keep_scale)


def causal_blocks(t: int, s: int) -> list[tuple[slice, int]]:
    """The queries of each block, and the number of keys that the last of them can see."""
    stops = [min(start + QUERIES, t) for start in range(0, max(t, 1), QUERIES)]
    return [(slice(start, stop), max(0, stop + s - t)) for start, stop in zip([0, *stops], stops, strict=False)]
