"""Exclusive attention: what a head returns, without its component along the value of its own position.

    y_t = sum_(s <= t) P_ts v_s            attention
    z_t = y_t - a_t v_t                    a_t = y_t . v_t / (v_t . v_t)

The residual connection carries past attention what is known at a position. So attention need only fetch what is known
elsewhere, and a head that finds nothing there can look at its own position, from which nothing is taken.

Gradient, with dz = dL/dz and b_t = dz_t . v_t / (v_t . v_t):

    dy_t = dz_t - b_t v_t            the same projection
    dv_t = -a_t dy_t - b_t z_t       v_t decides which component is removed

Where v is 0 there is no direction; a small number in the denominator avoids 0/0.

Reference: Zhai 2026 (arXiv:2603.09078).
"""

from typing import Any

import numpy as np

from extra.mixers.rnn import same_floats
from tinygrad_lite.functional.registry import ReferenceAndFused
from tinygrad_lite.tensor import Tensor, node
from tinygrad_lite.transformer import MIXERS, OF_ATTENTION, MultiHeadAttention, kept_by_attention, self_attention

SMALLEST = 1e-6  # added to v . v


def exclude_composed(y: Tensor, v: Tensor) -> Tensor:
    """y (..., D) without its component along v, of the same shape."""
    return y - (y * v).sum(-1, keepdim=True) / ((v * v).sum(-1, keepdim=True) + SMALLEST) * v


def exclude_fused(y: Tensor, v: Tensor) -> Tensor:
    """`exclude_composed` in one node, which keeps v, the result, and two numbers of each vector."""
    if not same_floats(y, v) or y.shape != v.shape:
        return exclude_composed(y, v)
    squares = np.vecdot(v.data, v.data) + v.dtype.type(SMALLEST)
    a = (np.vecdot(y.data, v.data) / squares)[..., None]
    z = y.data - a * v.data

    def backward(dz):
        b = (np.vecdot(dz, v.data) / squares)[..., None]
        dy = dz - b * v.data
        return dy, -a * dy - b * z

    return node(z, (y, v), backward, "exclude", uses=(v,))


exclude = ReferenceAndFused(exclude_composed, cpu=exclude_fused)


class ExclusiveAttention(MultiHeadAttention):
    """Self-attention that takes nothing along a position's own value; in `weights`, its weight is 0."""

    def _attend_in_groups(self, query: Tensor, key: Tensor, value: Tensor, *more: Any) -> Tensor:
        y = super()._attend_in_groups(query, key, value, *more)
        return exclude(y, self._grouped(value[:, :, value.shape[2] - query.shape[2] :]))  # queries are the last places


MIXERS["exclusive"] = MIXERS["attention"]._replace(
    make=lambda c: self_attention(c, ExclusiveAttention),
    kept=lambda c: kept_by_attention(c) + c.n_head * c.head_width,
    reads=OF_ATTENTION,
)
