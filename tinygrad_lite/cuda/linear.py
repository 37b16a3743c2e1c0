"""`linear` on a GPU: the products by cuBLAS, the bias by a kernel."""

from __future__ import annotations

import numpy as np

from tinygrad_lite import anomaly
from tinygrad_lite.cuda.columns import column_sums
from tinygrad_lite.cuda.gemm import as_bfloat16, gemm
from tinygrad_lite.cuda.launch import kernel, launch_elements, pack
from tinygrad_lite.cuda.precision import flowing
from tinygrad_lite.device import Array, is_float
from tinygrad_lite.functional.linear import check_linear, linear_composed
from tinygrad_lite.tensor import Tensor, node


def linear_cuda(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`linear_composed` in one node."""
    total = np.float64 if x.dtype == np.float64 else np.float32  # the type of the parameters
    mixed = not is_float(x.dtype) or any(p is not None and p.dtype != total for p in (weight, bias))
    if x.ndim < 2 or x.numel() == 0 or weight.numel() == 0 or mixed:
        return linear_composed(x, weight, bias)  # vectors, no numbers at all, and mixed types
    check_linear(x, weight, bias)
    xp, shape = x.xp, x.shape
    rows, w = xp.ascontiguousarray(x.data).reshape(-1, shape[-1]), weight.data
    before, x_needs, w_needs = rows.dtype, x.requires_grad, weight.requires_grad
    if flowing(before) != before or before != total:  # products of bfloat16: round once, for both passes
        rows, w = as_bfloat16(rows), as_bfloat16(w)
    y = gemm(rows, w.T)
    if bias is not None:
        add_bias(y, bias.data)

    def backward(dy):
        dy = xp.ascontiguousarray(dy).reshape(-1, len(w))
        dx = gemm(dy, w, dtype=before).reshape(shape) if x_needs else None
        dw = None
        if gradient_memory(weight) is not None:
            gemm(dy.T, rows, out=gradient_memory(weight), add=True)
        elif w_needs:
            dw = gemm(dy.T, rows, dtype=total)
        return (dx, dw) if bias is None else (dx, dw, column_sums(dy))

    parents = (x, weight) if bias is None else (x, weight, bias)
    return node(y.reshape(*shape[:-1], len(w)), parents, backward, "linear")


def gradient_memory(parameter: Tensor) -> Array | None:
    """The memory in which the gradients of a parameter are summed up, if there is one: a product may go there at once.

    This is what happens to a gradient that is handed back, too; but for a large matrix writing it, and then reading it
    and the sum and writing the sum, takes longer than the product. Not in the checking mode, which looks at each.
    """
    is_leaf = parameter._backward is None and parameter.requires_grad
    return parameter.grad.data if is_leaf and parameter.grad is not None and not anomaly.checking else None


def add_bias(y: Array, bias: Array) -> None:
    """y += bias, in place, for y (N, C) and bias (C,)."""
    packed = pack(y.shape[1], y, bias)
    function = kernel("bias", "add_bias", X=y.dtype, PACK=packed)
    launch_elements(function, y.size // packed, y.shape[1] // packed, y, bias)
