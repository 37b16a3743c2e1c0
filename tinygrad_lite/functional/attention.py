"""Scaled dot-product attention: each query gets a mean of all values, weighted by how well it matches their keys.

    S = Q K^T / sqrt(D)      how well query t matches key s         (T, S)
    P = softmax(S)           row by row: the weights of query t     (T, S)
    O = P V                  the weighted mean of the values        (T, D)

for each sequence of the batch (B) and each head (H). On the right are the shapes, for T queries and S keys and values
of D numbers each. (The matrix S of scores and the size S are different things.) A dot product of two vectors of D
independent numbers of mean 0 and variance 1 has variance D; dividing by sqrt(D) keeps the softmax from saturating. A
mask sets scores to -inf where attention is not allowed (never to a large finite number, which a learned score could
exceed), so P is exactly 0 there. A query that may attend to no key gets O = 0.

Gradients, with dO = dL/dO and so on. For a product Z = X Y, dX = dZ Y^T and dY = X^T dZ (see `ops.matmul`), so

    dV = P^T dO                          dP = dO V^T                       from O = P V
    dQ = dS K / sqrt(D)                  dK = dS^T Q / sqrt(D)             from S = Q K^T / sqrt(D)

Between them is the softmax: in each row, P_j = e^(S_j) / sum_k e^(S_k). By the quotient rule, the derivative of P_j
with respect to S_i is P_i - P_i^2 if i = j, and -P_j P_i otherwise (see softmax.py). Summed over all P_j,

    dS_i = dP_i P_i - sum_j dP_j P_j P_i                                   in one row
    dS   = P * (dP - rowsum(dP * P))                                       in all rows

The row sum needs no (T, S) array: for query t it is sum_j (dO_t . V_j) P_tj = dO_t . O_t, so rowsum(dP * P) =
rowsum(dO * O). With dropout, P is multiplied by a mask M after the softmax: O = (P * M) V, dV = (P * M)^T dO,
dP = (dO V^T) * M, and the row sum is the same.

Reference: Vaswani et al. 2017, section 3.2.1, eq. 1 (arXiv:1706.03762). The row-sum identity is used in Dao et al.
2022, appendix B.2 (arXiv:2205.14135).
"""

import functools
import math

import numpy as np

from tinygrad_lite.device import is_float
from tinygrad_lite.functional.dropout import check_probability, dropout_composed, keep_mask
from tinygrad_lite.functional.registry import ReferenceAndFused
from tinygrad_lite.functional.softmax import row_sums, softmax_composed
from tinygrad_lite.tensor import Tensor, node


def scaled_dot_product_attention_composed(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    *,
    is_causal: bool = False,
    dropout_p: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    """softmax(Q K^T / sqrt(D)) V.

    Args:
        query: (B, H, T, D).
        key, value: (B, H, S, D).
        mask: truth values that broadcast to (B, H, T, S), True where query t may attend to key s; or floats, which are
            added to the scores (-inf hides a key), and which may be learned.
        is_causal: query t sees only the keys s <= t + S - T. The last query sees all of them, so the rule also holds
            when T new positions follow S - T cached ones (torch aligns the first query with the first key instead).
        dropout_p: probability of dropping a weight after the softmax.
        scale: the factor of the scores Q K^T; None: 1 / sqrt(D).
    Returns: (B, H, T, D).
    Raises: ValueError if shapes, mask or probability do not fit.
    """
    check_attention(query, key, value, mask, dropout_p)
    scores = query @ key.transpose(-2, -1) * scale_of_scores(query, scale)
    if is_causal:
        t, s = scores.shape[-2:]
        seen = Tensor.ones(t, s, dtype=np.bool_, device=query.device).tril(s - t)
        scores = scores.masked_fill(~seen, -math.inf)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == np.bool_ else scores + mask.cast(scores.dtype)
    return weighted(dropout_composed(softmax_composed(scores), dropout_p), value)


def weighted(weights: Tensor, values: Tensor) -> Tensor:
    """weights (..., T, S) @ values (..., S, D), where a weight of 0 hides any value: 0 times infinity would be NaN.

    On a GPU, where looking for infinite values would mean waiting for them, it is just the product.
    """
    if values.device != "cpu" or not (bad := ~np.isfinite(values.data)).any():
        return weights @ values
    y = weights @ values.masked_fill(Tensor(bad), 0.0)
    for s in np.flatnonzero(np.moveaxis(bad, -2, 0).reshape(bad.shape[-2], -1).any(1)):
        weight, value = weights[..., s : s + 1], Tensor(bad[..., s : s + 1, :]).where(values[..., s : s + 1, :], 0.0)
        y = y + (weight != 0).where(weight * value, 0.0)
    return y


def scale_of_scores(query: Tensor, scale: float | None) -> float:
    """The factor of the scores, with the meaning of None resolved. Raises: TypeError for a tensor."""
    if isinstance(scale, Tensor):
        raise TypeError("attention: scale is a number; a tensor that is learned belongs in the queries: query * scale")
    return 1 / math.sqrt(query.shape[-1]) if scale is None else scale


def check_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout_p: float) -> None:
    """Raise ValueError if shapes, mask or probability do not fit."""
    q, k, v = query.shape, key.shape, value.shape
    if len(q) != 4 or len(k) != 4 or k != v or q[:2] != k[:2] or q[3] != k[3]:
        raise ValueError(f"attention: query (B, H, T, D), key and value (B, H, S, D) do not fit: {q}, {k}, {v}")
    if q[3] == 0:
        raise ValueError(f"attention: queries and keys of width 0 have nothing to compare: {q}, {k}")
    if mask is not None:
        scores = (*q[:3], k[2])
        if mask.dtype != np.bool_ and not is_float(mask.dtype):
            raise ValueError(f"attention: mask must hold truth values or floats, not {mask.dtype}; write ids != pad")
        if mask.ndim > 4 or any(m not in (1, n) for m, n in zip(mask.shape[::-1], scores[::-1], strict=False)):
            raise ValueError(f"attention: a mask of shape {mask.shape} does not broadcast to (B, H, T, S) = {scores}")
    check_probability(dropout_p)


# --- the fused version: a first reader may stop here -----------------------------------------------------------

ROW_BLOCK = 64  # queries in a causal block
SCORES = 1 << 17  # scores computed at a time: 512 KiB in float32
MODERATE = 40.0  # e^40 and e^-40 are far inside the range of float32, and so are sums of them


def scaled_dot_product_attention_fused(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    *,
    is_causal: bool = False,
    dropout_p: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    """`scaled_dot_product_attention_composed` in one node that keeps P.

    It computes a few sequences at a time, so that their scores stay in the processor's cache. If attention is causal,
    it takes the queries in blocks of rows, and for each block computes and keeps only the scores of the keys that it
    can see: for T much longer than a block this saves almost half of the work and of the memory.

    A softmax subtracts each row's largest score only to keep the exponential from overflowing. If all scores are
    moderate, as they nearly always are, nothing can overflow, and checking this is far cheaper than finding the maximum
    of each row.
    """
    is_added = mask is not None and mask.dtype != np.bool_
    if is_added or query.dtype.kind != "f" or query.dtype != key.dtype or key.dtype != value.dtype:
        return scaled_dot_product_attention_composed(
            query, key, value, mask, is_causal=is_causal, dropout_p=dropout_p, scale=scale
        )
    check_attention(query, key, value, mask, dropout_p)
    q, k, v = query.data, key.data, value.data
    batch, heads, t, width = q.shape
    s, is_finite = k.shape[2], np.isfinite(v).all()
    scale = q.dtype.type(scale_of_scores(query, scale))
    hidden = None if mask is None else np.broadcast_to(~mask.data, (batch, heads, t, s))
    kept = keep_mask((batch, heads, t, s), dropout_p) if dropout_p else None
    rest = q.dtype.type(1 / (1 - dropout_p))  # M is the mask times this
    weights = []  # P, block by block, without the keys that no query of the block can see
    # Laid out as (B, T, H, D), so that joining the heads afterwards needs no copy.
    out = np.empty((batch, t, heads, width), q.dtype).swapaxes(1, 2)
    blocks = list(_blocks(batch, heads, t, s, is_causal))

    for b, rows, end in blocks:
        p = (q[b, :, rows] * scale) @ k[b, :, :end].swapaxes(-1, -2)
        is_moderate = _is_moderate(p)
        if is_causal:
            _hide_future(p, rows.start + s - t, is_moderate)
        if hidden is not None:
            np.copyto(p, -np.inf, where=hidden[b, :, rows, :end])
        _softmax_in_place(p, is_moderate, may_be_empty=hidden is not None or s < t or not is_moderate)
        weights.append(p)
        dropped = p if kept is None else p * (kept[b, :, rows, :end] * rest)
        if is_finite:
            np.matmul(dropped, v[b, :, :end], out=out[b, :, rows])
        else:
            out[b, :, rows] = weighted(Tensor.wrap(dropped), Tensor.wrap(v[b, :, :end])).data

    def backward(d_out):
        dq, dk, dv = np.empty_like(q), np.zeros_like(k), np.zeros_like(v)
        dots = np.vecdot(d_out, out)[..., None]  # rowsum(dO * O)
        for (b, rows, end), p in zip(blocks[::-1], weights[::-1], strict=True):  # the last block sees all keys
            do = d_out[b, :, rows]
            ds = do @ v[b, :, :end].swapaxes(-1, -2)  # dP, which the next lines turn into dS in place
            dropped = p
            if kept is not None:
                m = kept[b, :, rows, :end] * rest
                ds *= m
                dropped = np.multiply(p, m, out=m)
            _add_product(dropped, do, dv[b, :, :end], is_first=end == s)
            ds -= dots[b, :, rows]
            ds *= p
            ds *= scale
            np.matmul(ds, k[b, :, :end], out=dq[b, :, rows])
            _add_product(ds, q[b, :, rows], dk[b, :, :end], is_first=end == s)
        return dq, dk, dv

    return node(out, (query, key, value), backward, "scaled_dot_product_attention")


def _blocks(batch: int, heads: int, t: int, s: int, is_causal: bool):
    """For each block: its sequences, its queries, and how many keys they can see."""
    size = ROW_BLOCK if is_causal else t
    sequences = max(1, SCORES // max(1, heads * min(size, t) * s))
    for first in range(0, batch, sequences):
        for start in range(0, t, max(1, size)):
            stop = min(t, start + size)
            seen = max(0, stop + s - t) if is_causal else s
            yield slice(first, first + sequences), slice(start, stop), seen


def _add_product(x: np.ndarray, y: np.ndarray, to: np.ndarray, is_first: bool) -> None:
    """Add X^T Y to an array, or write it there if it is the first."""
    if is_first:
        np.matmul(x.swapaxes(-1, -2), y, out=to)
    else:
        to += x.swapaxes(-1, -2) @ y


def _is_moderate(scores: np.ndarray) -> bool:
    """Whether all scores are moderate, and hence the largest in each row."""
    return scores.size > 0 and bool(scores.min() > -MODERATE and scores.max() < MODERATE)  # False if one is NaN


def _hide_future(scores: np.ndarray, offset: int, is_moderate: bool) -> None:
    """Set scores[..., i, j] to -inf for j > i + offset: key j comes after the query in row i."""
    first = max(0, offset)  # all rows see the keys before it
    added = _minus_inf_above_diagonal(scores.shape[-2], scores.shape[-1] - first, offset - first, scores.dtype)
    if is_moderate:  # adding is faster, but would turn an infinite score into NaN
        scores[..., first:] += added
    else:
        np.copyto(scores[..., first:], -np.inf, where=added < 0)


@functools.lru_cache(maxsize=16)
def _minus_inf_above_diagonal(rows: int, columns: int, offset: int, dtype: np.dtype) -> np.ndarray:
    """0, and -inf where j > i + offset."""
    return np.where(np.arange(columns) > np.arange(rows)[:, None] + offset, -np.inf, 0).astype(dtype)


def _softmax_in_place(scores: np.ndarray, is_moderate: bool, may_be_empty: bool) -> None:
    """Softmax over the last axis; rows that are entirely -inf (`may_be_empty` if there can be any) become zeros."""
    if scores.shape[-1] == 0:
        return
    if not is_moderate:  # moderate rows are not shifted here either, so that no row depends on the others
        largest = scores.max(-1, keepdims=True)
        largest[(np.abs(largest) < MODERATE) | (largest == -np.inf)] = 0
        scores -= largest
    np.exp(scores, out=scores)
    total = row_sums(scores)
    if may_be_empty:
        total[total == 0] = 1
    scores *= 1 / total


# A call runs one of the versions: registry.py decides which.
scaled_dot_product_attention = ReferenceAndFused(
    scaled_dot_product_attention_composed, cpu=scaled_dot_product_attention_fused, cuda="tinygrad_lite.cuda.attention"
)
