"""`cross_entropy` on a GPU: the logits are read once in the forward pass and once in the backward pass.

For each row, only the largest logit and 1 / sum of e^(z - max) are kept. Backward recomputes the probabilities, because
on a GPU computation is cheaper than memory. The rows of the logits need not be adjacent: if a vocabulary has an odd
size, padded rows begin at addresses from which the kernels and cuBLAS can load several numbers at once.
"""

import numpy as np

from tinygrad_lite.cuda.columns import as_rows, stride_of
from tinygrad_lite.cuda.launch import are_known, kernel, launch, launch_rows, pack
from tinygrad_lite.functional.cross_entropy import check_cross_entropy, cross_entropy_composed
from tinygrad_lite.precision import accumulation_type
from tinygrad_lite.tensor import Tensor, node

THREADS = 1024  # in the single block that sums the losses


def cross_entropy_cuda(
    logits: Tensor,
    targets: Tensor,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
    overwrite: bool = False,
) -> Tensor:
    """`cross_entropy_composed` in one node; keeps the logits, and two numbers for each of their rows.

    With `overwrite`, the backward pass writes the gradient over the logits. The loss of bfloat16 logits is float32. The
    targets are not checked: one outside the vocabulary makes the loss NaN.
    """
    check_cross_entropy(logits, targets, ignore_index, label_smoothing, reduction)
    if not are_known(logits) or logits.numel() == 0 or targets.dtype.kind not in "iu":
        settings = {"ignore_index": ignore_index, "label_smoothing": label_smoothing, "reduction": reduction}
        return cross_entropy_composed(logits, targets, **settings)
    xp, shape, width = logits.xp, logits.shape, logits.shape[-1]
    rows = as_rows(logits.data)
    stride = stride_of(rows)
    overwrite = overwrite and not logits._is_leaf
    if overwrite:
        logits.mark_written()  # so that a derivative that needs them raises an error
    wanted = xp.ascontiguousarray(targets.data.reshape(-1).astype(np.int64))
    count, total = len(rows), accumulation_type(logits.dtype)
    sizes = (count, width, stride)
    losses, largest, scales = (xp.empty(count, total) for _ in range(3))
    how = (wanted, ignore_index, label_smoothing)
    types = {"X": rows.dtype, "PACK": pack(stride, rows)}
    launch_rows(kernel("cross_entropy", "cross_entropy_forward", **types), *sizes, rows, *how, losses, largest, scales)
    if reduction == "none":
        y, divisor = losses.reshape(shape[:-1]), None
    else:
        y, divisor = xp.empty((), total), xp.empty((), total)
        add_up = kernel("cross_entropy", "cross_entropy_total", **types)
        launch(add_up, (1,), (THREADS,), count, losses, wanted, ignore_index, reduction == "mean", y, divisor)

    def backward(dy):
        d_rows = rows if overwrite else xp.empty((count, stride), rows.dtype)[:, :width]
        if overwrite:
            logits.mark_written()  # again, because operations after the loss could still use the logits
        to_logits = kernel("cross_entropy", "cross_entropy_backward", X=rows.dtype, PACK=pack(stride, rows, d_rows))
        launch_rows(to_logits, *sizes, rows, *how, largest, scales, xp.ascontiguousarray(dy), divisor, d_rows)
        return (d_rows.reshape(shape),)

    return node(y, (logits,), backward, "cross_entropy")
