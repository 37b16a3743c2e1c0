"""Scaled dot-product attention: every query looks at all keys and takes a weighted mean of their values.

    S = Q K^T / sqrt(D)      how well query t fits key s            (T, S)
    P = softmax(S)           row by row: where query t looks        (T, S)
    O = P V                  the mean of the values, weighted       (T, D)

for each sequence of the batch (B) and each head (H). A dot product of two vectors of D independent numbers of mean 0
and variance 1 has variance D; dividing by sqrt(D) keeps the softmax from saturating. A mask sets S to -inf where
looking is not allowed (never to a large finite number, which a learned score could outgrow), so P is exactly 0 there. A
query that may look nowhere gets O = 0.

Gradients, with dO = dL/dO:

    dV = P^T dO                          dP = dO V^T                       from O = P V
    dS = P * (dP - rowsum(dP * P))                                         softmax, row by row:
                                         dP_j/dS_i = P_j ([i = j] - P_i)
    dQ = dS K / sqrt(D)                  dK = dS^T Q / sqrt(D)             from S

and rowsum(dP * P) needs no (T, S) array: sum_j P_tj (dO_t . V_j) = dO_t . O_t = rowsum(dO * O). With dropout, P is
multiplied by a mask M after the softmax: O = (P * M) V, dV = (P * M)^T dO, dP = (dO V^T) * M, and the row sum is the
same.

The fused version works on a few sequences at a time so that their scores stay in the cache, and keeps their P for the
backward pass. If attention is causal, it takes the queries in blocks of rows, and multiplies and keeps for each only
the keys that it can see: for T much longer than a block that saves almost half of the work and of the memory.

A softmax takes each row's largest score off, but only to keep e^S from overflowing. Where all scores are moderate, as
they nearly always are, there is nothing to keep off, and finding one maximum of all is far cheaper than one per row.

Reference: Vaswani et al. 2017, section 3.2.1, eq. 1 (arXiv:1706.03762). The row-sum identity is used in Dao et al.
2022, appendix B.2 (arXiv:2205.14135).
"""

import math

import numpy as np

from tinygrad_lite.functional.dropout import check_probability, dropout_composed, keep_mask
from tinygrad_lite.functional.registry import ReferenceAndFused
from tinygrad_lite.functional.softmax import softmax_composed
from tinygrad_lite.tensor import Tensor, node

ROW_BLOCK = 64  # queries that share one causal block
SCORES = 1 << 17  # scores handled at a time: 512 KiB in float32
MODERATE = 40.0  # e^40 and e^-40 are far inside the range of float32, and so are sums of them


def scaled_dot_product_attention_composed(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    is_causal: bool = False,
    dropout_p: float = 0.0,
) -> Tensor:
    """softmax(Q K^T / sqrt(D)) V.

    Args:
        query: (B, H, T, D).
        key, value: (B, H, S, D).
        mask: truth values that broadcast to (B, H, T, S); True where query t may look at key s.
        is_causal: query t sees the keys s <= t + S - T only: the last query sees all, so the rule also holds
            when T new positions follow S - T cached ones (torch aligns the first query instead).
        dropout_p: probability of dropping a weight after the softmax.
    Returns: (B, H, T, D).
    Raises: ValueError if shapes do not fit.
    """
    check_attention(query, key, value, mask, dropout_p)
    scores = query @ key.transpose(-2, -1) * (1 / math.sqrt(query.shape[-1]))
    if is_causal:
        t, s = scores.shape[-2:]
        seen = Tensor.ones(t, s, dtype=np.bool_, device=query.device).tril(s - t)
        scores = scores.masked_fill(~seen, -math.inf)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return dropout_composed(softmax_composed(scores), dropout_p) @ value


def scaled_dot_product_attention_fused(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    is_causal: bool = False,
    dropout_p: float = 0.0,
) -> Tensor:
    """The same in one node; see the top of this file for the derivation."""
    if query.dtype.kind != "f" or query.dtype != key.dtype or key.dtype != value.dtype:
        return scaled_dot_product_attention_composed(query, key, value, mask, is_causal, dropout_p)  # mixed types
    check_attention(query, key, value, mask, dropout_p)
    q, k, v = query.data, key.data, value.data
    batch, heads, t, width = q.shape
    s = k.shape[2]
    scale = q.dtype.type(1 / math.sqrt(width))
    hidden = None if mask is None else np.broadcast_to(~mask.data, (batch, heads, t, s))
    kept = keep_mask((batch, heads, t, s), dropout_p) * q.dtype.type(1 / (1 - dropout_p)) if dropout_p else None
    weights = []  # P, block by block: what causality hides is not there at all
    # Laid out as (B, T, H, D), so that joining the heads afterwards needs no copy.
    out = np.empty((batch, t, heads, width), q.dtype).swapaxes(1, 2)
    blocks = list(_blocks(batch, heads, t, s, is_causal))

    with np.errstate(all="ignore"):
        for b, rows, end in blocks:
            p = (q[b, :, rows] * scale) @ k[b, :, :end].swapaxes(-1, -2)
            is_moderate = _is_moderate(p)
            if is_causal:
                _hide_future(p, rows.start + s - t, is_moderate)
            if hidden is not None:
                np.copyto(p, -np.inf, where=hidden[b, :, rows, :end])
            _softmax_in_place(p, is_moderate, may_be_empty=hidden is not None or s < t)
            weights.append(p)
            dropped = p if kept is None else p * kept[b, :, rows, :end]
            np.matmul(dropped, v[b, :, :end], out=out[b, :, rows])

    def backward(d_out):
        dq, dk, dv = np.empty_like(q), np.zeros_like(k), np.zeros_like(v)
        row_sums = np.vecdot(d_out, out)[..., None]
        for (b, rows, end), p in zip(blocks, weights, strict=True):
            do = d_out[b, :, rows]
            ds = do @ v[b, :, :end].swapaxes(-1, -2)  # dP, and then in place
            dropped = p
            if kept is not None:
                ds *= kept[b, :, rows, :end]
                dropped = p * kept[b, :, rows, :end]
            dv[b, :, :end] += dropped.swapaxes(-1, -2) @ do
            ds -= row_sums[b, :, rows]
            ds *= p
            ds *= scale
            np.matmul(ds, k[b, :, :end], out=dq[b, :, rows])
            dk[b, :, :end] += ds.swapaxes(-1, -2) @ q[b, :, rows]
        return dq, dk, dv

    return node(out, (query, key, value), backward, "scaled_dot_product_attention")


def _blocks(batch: int, heads: int, t: int, s: int, is_causal: bool):
    """(sequences, query rows, number of keys they may see) of each block of work."""
    size = ROW_BLOCK if is_causal else t
    sequences = max(1, SCORES // max(1, heads * min(size, t) * s))
    for first in range(0, batch, sequences):
        for start in range(0, t, max(1, size)):
            stop = min(t, start + size)
            yield (
                slice(first, first + sequences),
                slice(start, stop),
                max(0, stop + s - t) if is_causal else s,
            )


def _is_moderate(scores: np.ndarray) -> bool:
    """Whether every row's largest score is moderate, because all scores are."""
    return scores.size > 0 and bool(scores.min() > -MODERATE and scores.max() < MODERATE)  # not if one is NaN


def _hide_future(scores: np.ndarray, offset: int, is_moderate: bool) -> None:
    """Set scores[..., i, j] to -inf for j > i + offset: key j comes after the query in row i."""
    rows, keys = scores.shape[-2:]
    first = max(0, offset + 1)
    future = np.arange(first, keys) > np.arange(rows)[:, None] + offset
    if is_moderate:  # adding is faster, but would make NaN of infinity
        scores[..., first:] += np.where(future, -np.inf, 0).astype(scores.dtype)
    else:
        np.copyto(scores[..., first:], -np.inf, where=future)


def _softmax_in_place(scores: np.ndarray, is_moderate: bool, may_be_empty: bool) -> None:
    """Softmax over the last axis; rows of nothing but -inf (only if they may occur) become zeros."""
    if scores.shape[-1] == 0:
        return
    if not is_moderate:  # of these rows, too, the moderate ones stay as they are: no row depends on what others see
        largest = scores.max(-1, keepdims=True)
        largest[(np.abs(largest) < MODERATE) | (largest == -np.inf)] = 0
        scores -= largest
    np.exp(scores, out=scores)
    total = (scores @ np.ones(scores.shape[-1], scores.dtype))[..., None]  # NumPy's sum is slow on short rows
    if may_be_empty:
        total[total == 0] = 1
    scores *= 1 / total


def check_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout_p: float) -> None:
    """Raise ValueError if shapes, mask or probability do not fit."""
    q, k, v = query.shape, key.shape, value.shape
    if len(q) != 4 or len(k) != 4 or k != v or q[:2] != k[:2] or q[3] != k[3]:
        raise ValueError(f"attention: query (B, H, T, D), key and value (B, H, S, D) do not fit: {q}, {k}, {v}")
    if q[3] == 0:
        raise ValueError(f"attention: queries and keys of width 0 have nothing to compare: {q}, {k}")
    if mask is not None:
        scores = (*q[:3], k[2])
        if mask.dtype != np.bool_:
            raise ValueError(f"attention: mask must hold truth values, not {mask.dtype}; compare, as in ids != pad")
        if mask.ndim > 4 or any(m not in (1, n) for m, n in zip(mask.shape[::-1], scores[::-1], strict=False)):
            raise ValueError(f"attention: a mask of shape {mask.shape} does not broadcast to (B, H, T, S) = {scores}")
    check_probability(dropout_p)


scaled_dot_product_attention = ReferenceAndFused(
    scaled_dot_product_attention_composed, cpu=scaled_dot_product_attention_fused, cuda="tinygrad_lite.cuda.attention"
)
