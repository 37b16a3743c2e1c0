"""Root-mean-square normalisation: divide the vector at each position by its root mean square, then scale it.

    v = mean(x^2)    r = 1 / sqrt(v + eps)    h = x r    y = h * w

over the last axis, of C numbers; every h has length sqrt(C). This is layer normalisation without the mean: it saves two
of five passes over the data, and models learn just as well. The gain w is optional, because the linear map that follows
can learn it too.

Gradients, with dy = dL/dy:

    dw = sum over rows of dy * h
    dh = dy * w                                              the gradient that reaches h

h depends on x directly, and through v:

    dr/dx_i   = -r^3 x_i / C                                 because dv/dx_i = 2 x_i / C
    dh_j/dx_i = r [i = j] - r^3 x_i x_j / C                  product rule on x r
              = r ([i = j] - h_i h_j / C)
    dx_i      = sum_j dh_j dh_j/dx_i = r (dh_i - h_i mean(dh * h))

In words: subtract from dh its component along h, because making x longer or shorter does not change h.

Reference: Zhang, Sennrich 2019, eq. 4 (arXiv:1910.07467); eps is added to the mean square, as in torch and Llama.
"""

import numpy as np

from tinygrad_lite.device import sum_over
from tinygrad_lite.functional.layer_norm import check_norm, determines_h, h_of
from tinygrad_lite.functional.registry import ReferenceAndFused
from tinygrad_lite.tensor import Tensor, node


def rms_norm_composed(x: Tensor, *, weight: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """Divide the last axis by its root mean square, then scale.

    y = x / sqrt(mean(x^2) + eps) * weight

    Args:
        x: (..., C) float tensor.
        weight: (C,) learned gain, or None.
        eps: added to the mean square, in units of x squared; avoids division by 0.
    Returns: (..., C), dtype of x.
    Raises: ValueError if weight is not (C,).
    Reference: Zhang, Sennrich 2019, eq. 4 (arXiv:1910.07467).
    """
    check_norm("rms_norm", x, weight)
    h = x / ((x * x).mean(-1, keepdim=True) + eps).sqrt()
    return h if weight is None else h * weight


def rms_norm_fused(x: Tensor, *, weight: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """`rms_norm_composed` in one node; keeps y and r for the backward pass, or h and r: see `layer_norm_fused`."""
    is_mixed = weight is not None and weight.dtype != x.dtype
    if x.dtype not in (np.float32, np.float64) or x.numel() == 0 or x.ndim == 0 or is_mixed:
        return rms_norm_composed(x, weight=weight, eps=eps)
    check_norm("rms_norm", x, weight)
    shape, width, w = x.shape, x.shape[-1], None if weight is None else weight.data
    rows = x.data.reshape(-1, width)
    r = 1 / np.sqrt(np.vecdot(rows, rows) / width + eps)
    h = rows * r[:, None]
    gives_h = w is None or determines_h(w)
    y = h if w is None else np.multiply(h, w, out=h if gives_h else None)
    kept = y if gives_h else h

    def backward(dy, so_far):
        dy = dy.reshape(-1, width)
        if w is None:  # h is the result, which others may hold, so it must not change
            dx = kept * (np.vecdot(dy, kept) / -width)[:, None]
            dx += dy
        else:
            h = h_of(kept, w) if gives_h else kept
            dx = dy * h  # dx only at the end: the same memory holds dy * h, then dh, then dx
            dw = sum_over(dx, (0,))
            along_h = (dx @ w) / width  # mean(dh * h)
            np.multiply(dy, w, out=dx)  # dh
            np.multiply(h, along_h[:, None], out=h)  # the graph is walked only once, so h is not needed again
            dx -= h
        dx *= r[:, None]
        dx = dx.reshape(shape)
        if so_far is not None:
            dx += so_far
        return (dx,) if w is None else (dx, dw)

    parents = (x,) if weight is None else (x, weight)
    return node(y.reshape(shape), parents, backward, "rms_norm", uses=parents[1:], uses_result=gives_h, adds=True)


rms_norm = ReferenceAndFused(rms_norm_composed, cpu=rms_norm_fused, cuda="tinygrad_lite.cuda.rms_norm")
