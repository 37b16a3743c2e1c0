"""`layer_norm` on a GPU: forward in one kernel, backward in three."""

from __future__ import annotations

from tinygrad_lite.cuda.columns import chunks_of, column_sums
from tinygrad_lite.cuda.launch import are_known, kernel, launch, launch_rows, pack
from tinygrad_lite.cuda.precision import activation_type
from tinygrad_lite.functional.layer_norm import check_layer_norm, layer_norm_composed
from tinygrad_lite.tensor import Tensor, node


def layer_norm_cuda(x: Tensor, weight: Tensor, bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """`layer_norm_composed` in one node; keeps x, and the mean and scale of each row."""
    if x.numel() == 0 or not are_known(x, weight, bias):
        return layer_norm_composed(x, weight, bias, eps)  # mixed types, and empty tensors
    check_layer_norm(x, weight, bias)
    xp, shape, width, total = x.xp, x.shape, x.shape[-1], weight.dtype  # total: the type of sums
    rows = xp.ascontiguousarray(x.data).reshape(-1, width)
    w, b, count = weight.data, None if bias is None else bias.data, len(rows)
    y = xp.empty(rows.shape, activation_type(x.dtype))
    means, scales = xp.empty(count, total), xp.empty(count, total)
    types = {"X": rows.dtype, "Y": y.dtype}
    forward = kernel("layer_norm", "layer_norm_forward", **types, PACK=pack(width, rows, w, b))
    launch_rows(forward, count, width, rows, w, b, eps, y, means, scales)

    def backward(dy):
        dy = xp.ascontiguousarray(dy).reshape(-1, width)
        dx = xp.empty(rows.shape, rows.dtype)
        to_x = kernel("layer_norm", "layer_norm_backward", **types, PACK=pack(width, dy, rows, w))
        launch_rows(to_x, count, width, dy, rows, w, means, scales, dx)
        chunks = chunks_of(count)
        sums = xp.empty((chunks, 2 * width), total)
        to_w = kernel("layer_norm", "layer_norm_backward_weight", **types, PACK=1)
        launch(to_w, (-(-width // 32), chunks), (32, 8), count, width, dy, rows, means, scales, sums)
        d_parameters = column_sums(sums)
        dx, dw = dx.reshape(shape), d_parameters[:width]
        return (dx, dw) if bias is None else (dx, dw, d_parameters[width:])

    return node(y.reshape(shape), (x, weight) if bias is None else (x, weight, bias), backward, "layer_norm")
