"""Softmax: a row of arbitrary numbers (logits) becomes a row of probabilities.

    y_i = e^(x_i) / Z    Z = sum_j e^(x_j)

Computed literally, this overflows: e^1000 is infinite. But numerator and denominator may both be divided by e^m. With
m = max(x) no exponent is above 0 and the largest is exactly 0: nothing overflows, and the sum is at least 1. The shift
m cancels out of y, so it is treated as a constant and no gradient flows through it.

Gradient, with dy = dL/dy, and [i = j] for 1 if i = j, else 0:

    dy_j/dx_i = ([i = j] e^(x_j) Z - e^(x_j) e^(x_i)) / Z^2 = y_j ([i = j] - y_i)        quotient rule
    dx_i      = sum_j dy_j dy_j/dx_i = y_i (dy_i - sum_j dy_j y_j)

In words: subtract from dy its mean under the probabilities y, then weight by y. These dx sum to 0, because adding the
same number to all x_i does not change y.

The logarithm l = log y is an operation of its own, because log(softmax(x)) loses small probabilities:

    l_i       = x_i - log Z
    dl_j/dx_i = [i = j] - y_i                            d log Z / dx_i = e^(x_i) / Z = y_i
    dx_i      = sum_j dl_j dl_j/dx_i = dl_i - y_i sum_j dl_j

A row that is entirely -inf (a query with nothing to attend to) has no distribution. Here softmax gives zeros for it,
with zero gradients, instead of NaN; attention with a fully masked row does the same. A row with +inf gives NaN, as in
PyTorch.
"""

import math

import numpy as np

from tinygrad_lite.device import Array
from tinygrad_lite.functional.registry import ReferenceAndFused
from tinygrad_lite.tensor import Axis, Tensor, node, respelled


def softmax_composed(x: Tensor, axis: int = -1) -> Tensor:
    """y_i = e^(x_i - m) / sum_j e^(x_j - m) with m = max(x), along an axis. Same shape as x.

    >>> Tensor([1000.0, 1000.0]).softmax().tolist()
    [0.5, 0.5]
    """
    e = (x - _shift(x, axis)).exp()
    total = e.sum(axis, keepdim=True)
    return e / total.masked_fill(total == 0.0, 1.0)


def log_softmax_composed(x: Tensor, axis: int = -1) -> Tensor:
    """y_i = log softmax(x)_i = x_i - m - log(sum_j e^(x_j - m)) with m = max(x), along an axis.

    More accurate than log(softmax(x)), which loses small probabilities, and than x_i - logsumexp(x): the difference of
    two large numbers, such as 10000 and 10000.69, has few correct digits.
    """
    shifted = x - _shift(x, axis)
    return shifted - shifted.exp().sum(axis, keepdim=True).log()


def logsumexp(x: Tensor | None = None, axis: Axis = None, *more, keepdim: bool = False, **names) -> Tensor:
    """y = log(sum_j e^(x_j)) = m + log(sum_j e^(x_j - m)) with m = max(x), over the axes. -inf if all x are."""
    x, axis, keepdim = respelled(logsumexp, more, names, x, axis, keepdim)
    if not isinstance(x, Tensor):
        raise TypeError("logsumexp: needs a tensor as x; make one with Tensor(...)")
    shift = _shift(x, axis)
    shift = shift.masked_fill(shift == math.inf, 0)  # the sum is infinite then, and not NaN
    y = (x - shift).exp().sum(axis, keepdim=True).log() + shift
    return y if keepdim else y.reshape(x.sum(axis).shape)


def _shift(x: Tensor, axis: Axis) -> Tensor:
    """The largest element along the axis, as a constant; 0 where it is -inf, since -inf - -inf is NaN."""
    if x.numel() == 0:  # there is no largest element, and nothing to shift
        return x.detach().sum(axis, keepdim=True)
    largest = x.detach().amax(axis, keepdim=True)
    return largest.masked_fill(largest == -math.inf, 0)


# --- the fused versions: along the last axis -------------------------------------------------------------------


def softmax_fused(x: Tensor, axis: int = -1) -> Tensor:
    """`softmax_composed` in one node that keeps only y."""
    if not _has_rows(x, axis):
        return softmax_composed(x, axis)
    y = _shifted(x.data)
    np.exp(y, out=y)
    total = row_sums(y)
    y /= np.where(total == 0, 1, total)

    def backward(dy):
        dx = dy - np.vecdot(dy, y)[..., None]
        dx *= y
        return (dx,)

    return node(y, (x,), backward, "softmax", uses=())


def log_softmax_fused(x: Tensor, axis: int = -1) -> Tensor:
    """`log_softmax_composed` in one node; keeps e^(x - m) and its sums."""
    if not _has_rows(x, axis):
        return log_softmax_composed(x, axis)
    y = _shifted(x.data)
    e = np.exp(y)
    total = row_sums(e)
    y -= np.log(total)

    def backward(dy):
        # In place: the graph is walked only once, so e is not needed again.
        np.multiply(e, row_sums(dy) / total, out=e)
        return (np.subtract(dy, e, out=e),)

    return node(y, (x,), backward, "log_softmax", linear=True)


def _has_rows(x: Tensor, axis: int) -> bool:
    """Whether the distributions are rows of floats: the axis is the last one, and there are numbers in it."""
    return x.dtype.kind == "f" and x.numel() > 0 and x.ndim > 0 and axis in (-1, x.ndim - 1)


def _shifted(x: Array) -> Array:
    """Each row minus its largest element, or minus 0 where that is -inf."""
    largest = x.max(-1, keepdims=True)
    return x - np.where(largest == -np.inf, 0, largest)


def row_sums(x: Array) -> Array:
    """The sum of each row, as a product with ones: the BLAS library adds short rows faster than np.sum."""
    return (x @ np.ones(x.shape[-1], x.dtype))[..., None]


softmax = ReferenceAndFused(softmax_composed, cpu=softmax_fused)
log_softmax = ReferenceAndFused(log_softmax_composed, cpu=log_softmax_fused)
