"""The affine map of every layer: y = x W^T + b.

    x: (..., C_in)    W: (C_out, C_in), one row per output    b: (C_out,)    y: (..., C_out)

All axes of x except the last merely number its N rows: y[n,o] = sum_i x[n,i] W[o,i] + b[o]. Hence, with dy = dL/dy,

    dx[n,i] = sum_o dy[n,o] W[o,i]        dx = dy W
    dW[o,i] = sum_n dy[n,o] x[n,i]        dW = dy^T x
    db[o]   = sum_n dy[n,o]               b is added to every row

Reference: W is laid out as in torch.nn.Linear.
"""

import numpy as np

from tinygrad_lite.device import sum_over
from tinygrad_lite.functional.registry import ReferenceAndFused
from tinygrad_lite.tensor import Tensor, memory_to_write, node


def linear_composed(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """y = x W^T + b.

    Args:
        x: (..., C_in) float tensor.
        weight: (C_out, C_in).
        bias: (C_out,) or None.
    Returns: (..., C_out).
    Raises: ValueError if the shapes do not fit.
    """
    check_linear(x, weight, bias)
    y = x @ weight.transpose()
    return y if bias is None else y + bias


def check_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    """Raise ValueError if the shapes do not fit."""
    if len(weight.shape) != 2 or x.shape[-1:] != weight.shape[1:]:
        raise ValueError(f"linear: x (..., C_in) and weight (C_out, C_in) do not fit: {x.shape} and {weight.shape}")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"linear: weight {weight.shape} needs a bias of shape {weight.shape[:1]}, not {bias.shape}")


def linears_composed(x: Tensor, weights: list[Tensor], biases: list[Tensor | None]) -> list[Tensor]:
    """[linear(x, weight, bias), ...] for several weights and as many biases: maps that one product may compute."""
    return [linear(x, weight, bias) for weight, bias in zip(weights, biases, strict=True)]


# --- the fused version: a first reader may stop here -----------------------------------------------------------


FEW = 32  # rows, up to which W xᵀ is faster than x Wᵀ: by a fifth for four rows


def linear_fused(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`linear_composed` in one node, with all rows in one (N, C_in) matrix.

    NumPy's product of a 3-D array with a matrix calls the BLAS library once per sequence; one large product is about a
    quarter faster. The gradient of a learned matrix is written directly where its optimizer wants it: an intermediate
    array would be as large as the matrix, which is the largest array of all if the vocabulary is large.
    """
    if x.ndim < 2 or x.numel() == 0 or any(p is not None and p.dtype != x.dtype for p in (weight, bias)):
        return linear_composed(x, weight, bias)  # vectors, empty tensors, and mixed types
    check_linear(x, weight, bias)
    rows, w = x.data.reshape(-1, x.shape[-1]), weight.data
    x_shape, x_needs, w_needs = x.shape, x.requires_grad, weight.requires_grad
    y = rows @ w.T if len(rows) > FEW else np.ascontiguousarray((w @ rows.T).T)
    if bias is not None:
        y += bias.data
    if not w_needs:
        rows = None  # only dW needs them

    def backward(dy):
        nonlocal rows
        dy, dx, dw = dy.reshape(y_rows_shape), None, None
        memory, holds_gradient = memory_to_write(weight) if w_needs else (None, False)
        if memory is not None:
            add_product(memory, dy.T, rows, holds_gradient)
        elif w_needs:
            dw = dy.T @ rows
        rows = None  # the graph is walked only once, so dx may take its memory
        if x_needs:
            dx = (dy @ w).reshape(x_shape)
        return (dx, dw) if bias is None else (dx, dw, sum_over(dy, (0,)))

    y_rows_shape = y.shape
    parents = (x, weight) if bias is None else (x, weight, bias)
    return node(y.reshape(*x_shape[:-1], w.shape[0]), parents, backward, "linear", uses_result=False)


BLOCK = 1 << 20  # elements of a product that is added: 4 MiB in float32


def add_product(out: np.ndarray, a: np.ndarray, b: np.ndarray, add: bool) -> None:
    """out = a b, or out += a b, which takes memory for a block of rows at a time."""
    if not add:
        np.matmul(a, b, out=out)
        return
    size = max(1, BLOCK // b.shape[1])
    for start in range(0, len(out), size):
        out[start : start + size] += a[start : start + size] @ b


linear = ReferenceAndFused(linear_composed, cpu=linear_fused, cuda="tinygrad_lite.cuda.linear")
linears = ReferenceAndFused(linears_composed, cuda="tinygrad_lite.cuda.linear")
