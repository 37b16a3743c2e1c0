"""Layer normalisation: every position's vector gets mean 0 and variance 1, then a learned scale and shift.

    m = mean(x)    v = mean((x - m)^2)    r = 1 / sqrt(v + eps)    h = (x - m) r    y = h * w + b

over the last axis, of C numbers. The gradients, with dy = dL/dy:

    dw = sum over rows of dy * h           db = sum over rows of dy
    dh = dy * w                            the gradient that reaches h

h depends on x directly, through m and through v. Write u = x - m, so that h = u r and du_j/dx_i = [i = j] - 1/C, where
[i = j] is 1 if i = j, else 0.

    dr/dx_i   = -r^3 u_i / C                                 because v = mean(u^2), and the sum of u is 0
    dh_j/dx_i = r ([i = j] - 1/C) - r^3 u_i u_j / C          product rule on u r
              = r ([i = j] - 1/C - h_i h_j / C)
    dx_i      = sum_j dh_j dh_j/dx_i = r (dh_i - mean(dh) - h_i mean(dh * h))

In words: subtract from dh its mean and its component along h, because moving x in either of these two directions
leaves h unchanged.

Reference: Ba, Kiros, Hinton 2016, eq. 4 (arXiv:1607.06450); the variance divides by C, not C - 1, as in torch.
"""

import numpy as np

from tinygrad_lite.compositions import centred
from tinygrad_lite.device import sum_over
from tinygrad_lite.functional.registry import ReferenceAndFused
from tinygrad_lite.tensor import Tensor, node


def layer_norm_composed(x: Tensor, *, weight: Tensor, bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """Normalise the last axis to mean 0 and variance 1, then scale and shift.

    y = (x - mean) / sqrt(var + eps) * weight + bias,   var divides by C, not C - 1

    Args:
        x: (..., C) float tensor.
        weight, bias: (C,) learned gain and shift; bias may be None.
        eps: added to the variance, in units of x squared; avoids division by 0.
    Returns: (..., C), dtype of x.
    Raises: ValueError if weight or bias is not (C,).
    Reference: Ba, Kiros, Hinton 2016, eq. 4 (arXiv:1607.06450); biased variance as in torch.
    """
    check_norm("layer_norm", x, weight, bias)
    u = centred(x, -1)
    variance = (u * u).mean(-1, keepdim=True)
    y = u / (variance + eps).sqrt() * weight
    return y if bias is None else y + bias


def check_norm(op: str, x: Tensor, weight: Tensor | None, bias: Tensor | None = None) -> None:
    """Raise ValueError if weight and bias do not fit the width of x."""
    for name, parameter in (("weight", weight), ("bias", bias)):
        if parameter is not None and parameter.shape != x.shape[-1:]:
            raise ValueError(f"{op}: {name} has shape {parameter.shape}, x {x.shape} needs {x.shape[-1:]}")


# --- the fused version: a first reader may stop here -----------------------------------------------------------


def layer_norm_fused(x: Tensor, *, weight: Tensor, bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """`layer_norm_composed` in one node; keeps y and r for the backward pass.

    The next layer keeps y too, so it costs no memory, and h is recovered as (y - b) / w. Only if a gain is too close to
    0 for that is h kept instead.
    """
    if x.dtype.kind != "f" or x.numel() == 0 or any(p is not None and p.dtype != x.dtype for p in (weight, bias)):
        return layer_norm_composed(x, weight=weight, bias=bias, eps=eps)  # mixed types, and empty tensors
    check_norm("layer_norm", x, weight, bias)
    shape, width, w, b = x.shape, x.shape[-1], weight.data, None if bias is None else bias.data
    rows = x.data.reshape(-1, width)
    # Row means as a product with a constant vector: the BLAS library adds short rows faster than np.mean does.
    averaging = np.full(width, 1 / width, rows.dtype)
    m = rows.dot(averaging)
    h = rows - m[:, None]
    r = 1 / np.sqrt(np.vecdot(h, h) * averaging[0] + eps)
    if (far := np.abs(m) * r > 1).any():  # a mean above the deviation, beside which its rounding counts: see `centred`
        h -= np.where(far, h.sum(1) / width, 0)[:, None]
        r = 1 / np.sqrt(np.vecdot(h, h) * averaging[0] + eps)
    h *= r[:, None]
    gives_h = determines_h(w, b)
    y = np.multiply(h, w, out=h if gives_h else None)
    if b is not None:
        y += b
    kept = y if gives_h else h

    def backward(dy, so_far):
        dy = dy.reshape(-1, width)
        h = h_of(kept, w, b) if gives_h else kept
        dx = dy * h  # dx only at the end: the same memory holds dy * h, then dh, then dx
        dw = sum_over(dx, (0,))
        along_h = dx.dot(w) * averaging[0]  # mean(dh * h)
        np.multiply(dy, w, out=dx)  # dh
        dx -= dx.dot(averaging)[:, None]
        np.multiply(h, along_h[:, None], out=h)  # the graph is walked only once, so h is not needed again
        dx -= h
        dx *= r[:, None]
        dx = dx.reshape(shape)
        if so_far is not None:
            dx += so_far
        return (dx, dw) if b is None else (dx, dw, sum_over(dy, (0,)))

    parents = (x, weight) if bias is None else (x, weight, bias)
    return node(y.reshape(shape), parents, backward, "layer_norm", uses=parents[1:], uses_result=gives_h, adds=True)


def determines_h(w: np.ndarray, b: np.ndarray | None = None) -> bool:
    """Whether h follows from y = h w + b: (y - b) / w has a rounding error of (|h| + 2 |b / w|) 2^-24 in float32."""
    size = np.abs(w)
    return bool(size.min() > 1e-6) and (b is None or bool((np.abs(b) <= 4 * size).all()))


def h_of(y: np.ndarray, w: np.ndarray, b: np.ndarray | None = None) -> np.ndarray:
    """h = (y - b) / w, in an array of its own."""
    return y / w if b is None else (y - b) / w


layer_norm = ReferenceAndFused(layer_norm_composed, cpu=layer_norm_fused, cuda="tinygrad_lite.cuda.layer_norm")
