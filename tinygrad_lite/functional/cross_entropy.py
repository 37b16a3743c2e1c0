"""Cross-entropy: how surprised the model is by the token that really comes next, in nats.

    l = -log softmax(z)_t = logsumexp(z) - z_t        z: logits (V,), t: the target

Gradient of one position, with q = softmax(z):

    dl/dz_v = d logsumexp(z) / dz_v - [v = t] = q_v - [v = t]              [v = t] is 1 if v = t, else 0

because d/dz_v log(sum_j e^(z_j)) = e^(z_v) / sum_j e^(z_j). The gradient is the predicted probability minus the target
probability: the prettiest gradient of all.

A target can also be a distribution: instead of one token t, probabilities w_v of all tokens. The loss is the mean of
the losses of all tokens, weighted by these probabilities, and so is its gradient:

    l = -sum_v w_v log q_v = W logsumexp(z) - sum_v w_v z_v        dl/dz_v = W q_v - w_v        W = sum_v w_v, usually 1

The token t is the distribution w_v = [v = t]. Label smoothing mixes the target with the uniform distribution 1/V: for a
token, w_v = (1 - e) [v = t] + e / V. In distillation, w is what another model predicts (Hinton et al. 2015).

Positions whose target is `ignore_index` (padding) count neither in the loss nor in the mean. The mean over no
positions at all is 0 here (torch gives NaN).

**Yes or no.** A question with two answers needs one logit x, for "yes"; for "no" it is 0. With p = 1 / (1 + e^-x) and
the answer t, which is 1 or 0 or a probability,

    l = -t log p - (1 - t) log(1 - p) = log(1 + e^x) - t x                 dl/dx = p - t

since log p = x - log(1 + e^x) and log(1 - p) = -log(1 + e^x). No p is rounded to 0 or 1 before its logarithm is taken.

References: label smoothing in Szegedy et al. 2016, section 7 (arXiv:1512.00567), and Vaswani et al. 2017, section
5.4 (arXiv:1706.03762); Hinton, Vinyals, Dean 2015, "Distilling the Knowledge in a Neural Network" (arXiv:1503.02531),
at temperature 1; the formula is torch.nn.functional.cross_entropy's.
"""

import numpy as np

from tinygrad_lite.device import is_float
from tinygrad_lite.functional.registry import ReferenceAndFused
from tinygrad_lite.functional.softmax import log_softmax_composed
from tinygrad_lite.ops.common import as_tensors
from tinygrad_lite.tensor import Tensor, node, respelled


def cross_entropy_composed(
    logits: Tensor,
    targets: Tensor,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
    overwrite: bool = False,
) -> Tensor:
    """-log softmax(logits) at the targets, in nats per target token.

    Args:
        logits: (..., V) float tensor: the classes are the last axis; in torch they are axis 1.
        targets: (...) integers in [0, V), or ignore_index; or (N, V) or (V,) floats, the probabilities of all tokens.
        ignore_index: the target that marks a position to ignore; with probabilities no position can be ignored, and 0
            or more is refused, as in torch.
        label_smoothing: the share e of the target probability that is spread evenly over all V tokens, in [0, 1].
        reduction: "mean" over the positions that are not ignored, "sum", or "none".
        overwrite: whether the logits, if they are the result of an operation that does not need them, may be
            overwritten: with a large vocabulary, they are the largest array of all. Only the fused version does this.
    Returns: a scalar; for "none" (...), with 0 at ignored positions.
    Raises: ValueError if shapes, types or options do not fit, or if a target is outside the vocabulary. (On a GPU the
        targets are not checked, because the host would have to wait for them: the fused version's loss is then NaN.)
    """
    check_cross_entropy(logits, targets, ignore_index, label_smoothing, reduction)
    log_probs = log_softmax_composed(logits)
    if is_float(targets.dtype):
        losses = -(log_probs * (targets * (1 - label_smoothing) + label_smoothing / logits.shape[-1])).sum(-1)
        counts = Tensor.ones(*losses.shape, dtype=np.bool_, device=logits.device)
    else:
        counts = targets.cast(np.int64) != ignore_index
        safe_targets = targets.masked_fill(~counts, 0)
        losses = -log_probs.gather(-1, safe_targets.unsqueeze(-1)).squeeze(-1)
        if label_smoothing > 0:
            losses = losses * (1 - label_smoothing) - log_probs.mean(-1) * label_smoothing
    losses = losses.masked_fill(~counts, 0.0)
    if reduction == "none":
        return losses
    total = losses.sum()
    return total / counts.sum().maximum(1).cast(total.dtype) if reduction == "mean" else total


def check_cross_entropy(
    logits: Tensor, targets: Tensor, ignore_index: int, label_smoothing: float, reduction: str
) -> None:
    """Raise ValueError if shapes, types or options do not fit or, on the CPU, a target is outside the vocabulary."""
    check_reduction("cross_entropy", reduction)
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"cross_entropy: label_smoothing must be in [0, 1], not {label_smoothing}")
    if not is_float(logits.dtype):
        raise ValueError(f"cross_entropy: logits must be floats, not {logits.dtype}")
    is_distribution = is_float(targets.dtype) and targets.shape == logits.shape
    if logits.ndim == 0 or (targets.shape != logits.shape[:-1] and not is_distribution):
        raise ValueError(f"cross_entropy: logits {logits.shape} need targets {logits.shape[:-1]}, not {targets.shape}")
    if logits.ndim > 2 and (is_distribution or logits.shape[1] == logits.shape[-1]):
        unclear = (
            f"cross_entropy: the classes of logits {logits.shape} could be the last axis, as here, or axis 1, as in"
        )
        flat = "targets.flatten(0, -2)" if is_distribution else "targets.flatten()"
        raise ValueError(f"{unclear} torch: write logits.flatten(0, -2) and {flat}")
    if logits.shape[-1] == 0:
        raise ValueError(f"cross_entropy: logits {logits.shape} have no token to choose from")
    if is_distribution and ignore_index >= 0:
        raise ValueError(f"cross_entropy: ignore_index {ignore_index} is a token, but the targets are probabilities")
    if targets.dtype.kind not in "iu" and not is_distribution:
        raise ValueError(
            f"cross_entropy: targets must be integers, not {targets.dtype}, or probabilities of shape {logits.shape}"
        )
    if targets.device == "cpu" and not is_distribution:  # on a GPU, checking would make the host wait
        vocab_size, numbers = logits.shape[-1], targets.data
        bad = numbers[((numbers < 0) | (numbers >= vocab_size)) & (numbers != ignore_index)]
        if bad.size:
            raise ValueError(f"cross_entropy: target {bad[0]} is outside the vocabulary of {vocab_size} tokens")


def check_reduction(op: str, reduction: str) -> None:
    """Raise ValueError unless it is one of the three."""
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"{op}: reduction must be 'mean', 'sum' or 'none', not {reduction!r}")


def binary_cross_entropy_with_logits(logits=None, targets=None, *more, reduction: str = "mean", **names) -> Tensor:
    """log(1 + e^x) - t x for each logit x and answer t, in nats per answer.

    Computed as (1 - t) x - min(x, 0) + log(1 + e^-|x|), which does not overflow.

    Args:
        logits: float tensor of any shape.
        targets: the answers, numbers from 0 to 1, of the same shape.
        reduction: "mean", "sum", or "none".
    Returns: a scalar; for "none" the shape of the logits.
    Raises: ValueError if shapes or reduction do not fit.
    """
    check_reduction("binary_cross_entropy_with_logits", reduction)
    *given, _ = respelled(binary_cross_entropy_with_logits, more, names, logits, targets, reduction)
    (logits, targets), _ = as_tensors(tuple(given), 0, "binary_cross_entropy_with_logits")
    if logits.shape != targets.shape:
        raise ValueError(f"binary_cross_entropy_with_logits: logits {logits.shape} do not fit targets {targets.shape}")
    losses = logits * (1 - targets) - logits.minimum(0) + (1 + (-logits.abs()).exp()).log()
    return losses if reduction == "none" else getattr(losses, reduction)()


# --- the fused version: a first reader may stop here -----------------------------------------------------------

BLOCK = 1 << 18  # elements of a block of rows: 1 MiB in float32


def cross_entropy_fused(
    logits: Tensor,
    targets: Tensor,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
    overwrite: bool = False,
) -> Tensor:
    """`cross_entropy_composed` in one node that computes the gradient in the forward pass.

    A copy of the logits, or with `overwrite` the logits themselves, becomes the gradient, one block of rows at a time,
    so only one array of that size is kept instead of several.
    """
    if targets.requires_grad or (is_float(targets.dtype) and targets.dtype != logits.dtype):
        settings = {"ignore_index": ignore_index, "label_smoothing": label_smoothing, "reduction": reduction}
        return cross_entropy_composed(logits, targets, **settings)
    check_cross_entropy(logits, targets, ignore_index, label_smoothing, reduction)
    shape, vocab_size, dtype = logits.shape, logits.shape[-1], logits.dtype
    rows, is_distribution = logits.data.reshape(-1, vocab_size), is_float(targets.dtype)
    flat_targets = targets.data.reshape(-1, vocab_size) if is_distribution else targets.data.reshape(-1)
    counts = np.ones(len(rows), np.bool_) if is_distribution else flat_targets != ignore_index
    if overwrite and not logits._is_leaf:
        d_rows = rows
        logits.mark_written()  # so that a derivative that needs them raises an error
    else:
        d_rows = np.empty_like(rows)
    losses = np.empty(len(rows), dtype)
    smooth = label_smoothing / vocab_size
    # Row by row, d_rows becomes q - w.
    block = max(1, BLOCK // vocab_size)
    for start in range(0, len(rows), block):
        part = slice(start, start + block)
        z, weight = d_rows[part], 1.0  # W
        np.subtract(rows[part], rows[part].max(-1, keepdims=True), out=z)
        if is_distribution:
            w = (1 - label_smoothing) * flat_targets[part]
            weight, loss = w.sum(-1) + label_smoothing, np.vecdot(w, np.where(w == 0, 0, z) if smooth else z)
        else:
            at = np.arange(len(z)), np.where(counts[part], flat_targets[part], 0)
            loss = (1 - label_smoothing) * z[at]
        if smooth:
            loss += smooth * z.sum(-1)
        np.exp(z, out=z)
        total = z.sum(-1)
        losses[part] = weight * np.log(total) - loss
        z *= (weight / total)[:, None]
        if is_distribution:
            z -= w
        else:
            z[at] -= 1 - label_smoothing
        z -= smooth
    if not counts.all():
        losses[~counts] = 0
        d_rows[~counts] = 0
    divisor = dtype.type(max(counts.sum(), 1) if reduction == "mean" else 1)

    def backward(dy):
        factor = dy.reshape(-1, 1) if reduction == "none" else dy / divisor
        # In place: the graph is walked only once, so q - w is not needed again.
        return (np.multiply(d_rows, factor, out=d_rows).reshape(shape),)

    y = losses.reshape(shape[:-1]) if reduction == "none" else losses.sum() / divisor
    used = (logits,) if d_rows is rows else ()  # q - w is in an array of its own, or in the logits' array
    return node(y, (logits,), backward, "cross_entropy", uses=used, uses_result=False)


cross_entropy = ReferenceAndFused(
    cross_entropy_composed, cpu=cross_entropy_fused, cuda="tinygrad_lite.cuda.cross_entropy"
)
