"""`linear` on a GPU: the products by cuBLAS, the bias by a kernel."""

from __future__ import annotations

from tinygrad_lite.cuda.columns import column_sums
from tinygrad_lite.cuda.gemm import gemm
from tinygrad_lite.cuda.launch import are_known, kernel, launch_elements, pack
from tinygrad_lite.cuda.precision import activation_type
from tinygrad_lite.device import Array
from tinygrad_lite.functional.linear import check_linear, linear_composed
from tinygrad_lite.tensor import Tensor, memory_to_write, node


def linear_cuda(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`linear_composed` in one node."""
    if x.ndim < 2 or x.numel() == 0 or weight.numel() == 0 or not are_known(x, weight, bias):
        return linear_composed(x, weight, bias)  # vectors, empty tensors, and mixed types
    check_linear(x, weight, bias)
    xp, shape = x.xp, x.shape
    before, x_needs, w_needs = x.dtype, x.requires_grad, weight.requires_grad
    rows = xp.ascontiguousarray(x.data).reshape(-1, shape[-1])
    # If the products are bfloat16, x and weight are rounded once for both passes.
    rows, w = (factor.astype(activation_type(before), copy=False) for factor in (rows, weight.data))
    y = gemm(rows, w.T)
    if bias is not None:
        add_bias(y, bias.data)

    def backward(dy):
        dy = xp.ascontiguousarray(dy).reshape(-1, len(w))
        dx = gemm(dy, w, dtype=before).reshape(shape) if x_needs else None
        # cuBLAS can add the product to the weight's gradient itself: writing a large product, reading it again with the
        # sum and writing the sum takes longer. But then no observer could see the product.
        memory, add = memory_to_write(weight) if w_needs else (None, False)
        dw = None
        if memory is not None:
            gemm(dy.T, rows, out=memory, add=add)
        elif w_needs:
            dw = gemm(dy.T, rows, dtype=weight.dtype)
        return (dx, dw) if bias is None else (dx, dw, column_sums(dy))

    parents = (x, weight) if bias is None else (x, weight, bias)
    return node(y.reshape(*shape[:-1], len(w)), parents, backward, "linear", uses_result=False)


def add_bias(y: Array, bias: Array) -> None:
    """y += bias, in place, for y (N, C) and bias (C,)."""
    packed = pack(y.shape[1], y, bias)
    function = kernel("bias", "add_bias", X=y.dtype, PACK=packed)
    launch_elements(function, y.size // packed, y.shape[1] // packed, y, bias)
