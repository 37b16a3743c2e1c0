"""`rms_norm` on a GPU: one kernel forward, one backward, and two more for the gradient of the weight."""

import math

from tinygrad_lite.cuda.columns import chunks_of, column_gradients
from tinygrad_lite.cuda.launch import are_known, kernel, launch, pack
from tinygrad_lite.cuda.residual import empty_gradient, take_addends
from tinygrad_lite.device import Array, xp_of
from tinygrad_lite.functional.layer_norm import check_norm
from tinygrad_lite.functional.rms_norm import rms_norm_composed
from tinygrad_lite.precision import accumulation_type, activation_type
from tinygrad_lite.tensor import Tensor, node

THREADS = 128  # per block


def rms_norm_cuda(x: Tensor, *, weight: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """`rms_norm_composed` in one node; keeps x, and the scale of each row."""
    if x.numel() == 0 or not are_known(x, weight):
        return rms_norm_composed(x, weight=weight, eps=eps)  # mixed types, and empty tensors
    check_norm("rms_norm", x, weight)
    shape = x.shape
    first, part, added = take_addends(x)
    xp, rows, rounded = xp_of(first), as_rows(first), vars(x).get("rounded")
    groups, heads, width = rows.shape
    outer, inner = (stride // rows.itemsize for stride in rows.strides[:2])
    count, w = groups * heads, None if weight is None else weight.data
    layout = (heads, width, outer, inner)
    y, total = xp.empty(shape, activation_type(rows.dtype)), accumulation_type(rows.dtype)
    scales = xp.empty(count, total)
    types = {"X": rows.dtype, "Y": y.dtype, "P": rows.dtype if part is None else part.dtype}

    def launch_rows(name: str, arrays: tuple[Array | None, ...], *arguments: Array | float | None) -> None:
        """Launch a kernel in which LANES threads take one row; `arrays` are the arguments that are read in packs."""
        packed = pack(math.gcd(width, outer, inner), *arrays)
        lanes = next(n for n in (8, 16, 32) if n >= min(width // packed, 32))
        function = kernel("rms_norm", name, **types, PACK=packed, LANES=lanes)
        at_once = THREADS // lanes
        launch(function, (-(-count // at_once),), (lanes, at_once), count, *layout, *arguments)

    launch_rows("rms_norm_forward", (rows, part, w, y), rows, part, added, w, eps, y, scales)
    if part is not None:
        rows = as_rows(added)

    def backward(dy, so_far):
        dy, so_far = xp.ascontiguousarray(dy), None if so_far is None else xp.ascontiguousarray(so_far)
        dx, copy = empty_gradient(xp, shape, rows.dtype, rounded)
        launch_rows("rms_norm_backward", (dy, rows, w, so_far), dy, rows, w, scales, so_far, dx, copy)
        if w is None:
            return (dx,)
        chunks = chunks_of(groups)
        sums = xp.empty((chunks, width), total)
        to_w = kernel("rms_norm", "rms_norm_backward_weight", **types, PACK=1, LANES=32)
        launch(to_w, (-(-width // 32), chunks), (32, 8), groups, *layout, dy, rows, scales, sums)
        return dx, *column_gradients(sums, [weight])

    return node(y, (x,) if weight is None else (x, weight), backward, "rms_norm", adds=True)


def as_rows(x: Array) -> Array:
    """x (..., C) as (N, H, C) with contiguous rows: a view if two strides can describe it, else a copy.

    A contiguous array has H = 1. Heads (B, T, H, D) inside longer rows (B, T, 3 C) need both strides.
    """
    rows = x.reshape(-1, 1, x.shape[-1]) if x.ndim < 3 or x.flags.c_contiguous else x.reshape(-1, *x.shape[-2:])
    return rows if rows.strides[-1] == rows.itemsize else xp_of(x).ascontiguousarray(rows)
