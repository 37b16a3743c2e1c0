"""Softmax and its logarithm, composed from primitives.

softmax(x)_i = e^(x_i) / sum_j e^(x_j) turns any numbers (logits) into probabilities. Written so, e^1000 is
infinite. But numerator and denominator may both be divided by e^m, and with m = max(x) no exponent is above 0 and
the largest is exactly 0: nothing overflows, and the sum is at least 1.

A row of nothing but -inf (a query with nothing to attend to) has no distribution. Here it gives zeros, with zero
gradients, and not NaN; so does a mask over a whole row in attention. A row with +inf gives NaN, as in PyTorch.
"""

import math

from tinygrad_lite.spelling import spelled
from tinygrad_lite.tensor import Axis, Tensor


def _shift(x: Tensor, axis: Axis, op: str) -> Tensor:
    """The largest element along the axis, as a constant; 0 where it is -inf, since -inf - -inf is NaN."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{op}: needs a tensor; make one with Tensor(...)")
    if x.numel() == 0:  # no largest element, and nothing to shift
        return x.detach().sum(axis, keepdim=True)
    largest = x.detach().max(axis, keepdim=True)
    return largest.masked_fill(largest == -math.inf, 0.0)


@spelled
def softmax(x: Tensor, axis: int = -1) -> Tensor:
    """y_i = e^(x_i - m) / sum_j e^(x_j - m) with m = max(x), along an axis. Same shape as x.

    The shift m counts as a constant: it cancels out of y, so no gradient flows through it.

    >>> Tensor([1000.0, 1000.0]).softmax().tolist()
    [0.5, 0.5]
    """
    e = (x - _shift(x, axis, "softmax")).exp()
    total = e.sum(axis, keepdim=True)
    return e / total.masked_fill(total == 0.0, 1.0)


@spelled
def logsumexp(x: Tensor, axis: Axis = None, keepdim: bool = False) -> Tensor:
    """y = log(sum_j e^(x_j)) = m + log(sum_j e^(x_j - m)) with m = max(x), over the axes. -inf if all x are."""
    shift = _shift(x, axis, "logsumexp")
    shift = shift.masked_fill(shift == math.inf, 0.0)  # the sum is infinite then, and not NaN
    y = (x - shift).exp().sum(axis, keepdim=True).log() + shift
    return y if keepdim else y.reshape(x.sum(axis).shape)


@spelled
def log_softmax(x: Tensor, axis: int = -1) -> Tensor:
    """y_i = log softmax(x)_i = x_i - m - log(sum_j e^(x_j - m)) with m = max(x), along an axis.

    More exact than log(softmax(x)), which loses small probabilities, and than x_i - logsumexp(x): the difference of
    two large numbers, such as 10000 and 10000.69, has few right digits.
    """
    shifted = x - _shift(x, axis, "log_softmax")
    return shifted - shifted.exp().sum(axis, keepdim=True).log()
