"""`layer_norm` on a GPU: one kernel forward; backward one, plus sums of columns, and one more for wide rows."""

from tinygrad_lite.cuda.columns import chunks_of, column_gradients
from tinygrad_lite.cuda.launch import are_known, blocks_of_rows, kernel, launch, launch_rows, pack
from tinygrad_lite.cuda.residual import empty_gradient, take_addends
from tinygrad_lite.device import xp_of
from tinygrad_lite.functional.layer_norm import check_norm, layer_norm_composed
from tinygrad_lite.precision import activation_type
from tinygrad_lite.tensor import Tensor, node

BLOCKS = 512  # at most, in the backward pass: 16 warps for each multiprocessor of a large GPU
MOST_OWN = 8  # packs whose sums a thread keeps in registers


def layer_norm_cuda(x: Tensor, *, weight: Tensor, bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """`layer_norm_composed` in one node; keeps x, and the mean and scale of each row."""
    if x.numel() == 0 or not are_known(x, weight, bias):
        return layer_norm_composed(x, weight=weight, bias=bias, eps=eps)  # mixed types, and empty tensors
    check_norm("layer_norm", x, weight, bias)
    shape, dtype, width, total = x.shape, x.dtype, x.shape[-1], weight.dtype  # total: the type of sums
    first, part, added = take_addends(x)
    first = xp_of(first).ascontiguousarray(first)
    xp, w, b, count = xp_of(first), weight.data, None if bias is None else bias.data, first.size // width
    y = xp.empty((count, width), activation_type(dtype))
    means, scales = xp.empty((count, 2), total), xp.empty(count, total)
    types = {"X": dtype, "Y": y.dtype, "P": dtype if part is None else part.dtype}
    forward = kernel("layer_norm", "layer_norm_forward", **types, PACK=pack(width, first, part, w, b))
    launch_rows(forward, count, width, first, part, added, w, b, eps, y, means, scales)
    parameters = (weight,) if bias is None else (weight, bias)
    rows, rounded = first if part is None else added, vars(x).get("rounded")

    def backward(dy, so_far):
        dy, so_far = xp.ascontiguousarray(dy), None if so_far is None else xp.ascontiguousarray(so_far)
        dx, copy = empty_gradient(xp, shape, dtype, rounded)
        packed = pack(width, dy, rows, w, so_far)
        own = -(-width // (32 * packed))  # packs of a row that a thread has
        fits, (blocks,), threads = own <= MOST_OWN, *blocks_of_rows(count)
        blocks, chunks = (min(blocks, BLOCKS),) * 2 if fits else (blocks, chunks_of(count))
        sums = xp.empty((chunks, 2 * width), total)
        to_x = kernel("layer_norm", "layer_norm_backward", **types, PACK=packed, OWN=own if fits else 0)
        launch(to_x, (blocks,), threads, count, width, dy, rows, w, means, scales, so_far, dx, copy, sums)
        if not fits:
            to_w = kernel("layer_norm", "layer_norm_backward_weight", **types, PACK=1)
            launch(to_w, (-(-width // 32), chunks), (32, 8), count, width, dy, rows, means, scales, sums)
        return dx, *column_gradients(sums[:, : width * len(parameters)], parameters)

    return node(y.reshape(shape), (x, *parameters), backward, "layer_norm", adds=True)
