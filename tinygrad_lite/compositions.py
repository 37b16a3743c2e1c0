"""The other methods of a tensor, which are composed of primitives and so need no derivatives of their own.

Each function is also a method: `mean(x, axis)` is `x.mean(axis)`. The chain rule differentiates them all.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tinygrad_lite import ops
from tinygrad_lite.device import is_float, sum_over
from tinygrad_lite.errors import counted
from tinygrad_lite.ops.common import as_axes, as_shape, as_tensor, as_tensors, category, one_axis, silent
from tinygrad_lite.tensor import Axis, Tensor, respelled

# --- one element at a time ------------------------------------------------------------------------------------


def silu(x: Tensor) -> Tensor:
    """x * sigmoid(x), also called swish (Ramachandran et al. 2017, arXiv:1710.05941)."""
    return x * x.sigmoid()


def masked_fill(x: Tensor, mask: Tensor, value: float) -> Tensor:
    """This tensor with `value` wherever the mask is true."""
    y = ops.where(as_tensor(mask, x), value, x)
    if category(y.dtype) > category(x.dtype):
        raise TypeError(f"masked_fill: a tensor of {x.dtype} cannot hold {value}: write x.cast('{y.dtype}') first")
    return y


# --- reductions (axis: None for all, a number, or several) ----------------------------------------------------


def mean(x: Tensor, axis: Axis = None, *more, keepdim: bool = False, **names) -> Tensor:
    """The sum over the axes, divided by the number of summed elements."""
    axis, keepdim = respelled(mean, more, names, axis, keepdim) if more or names else (axis, keepdim)
    total = ops.sum(x, axis, keepdim=keepdim)
    return total / (x.numel() / total.numel() if total.numel() else 1.0)


@silent
def centred(x: Tensor, axis: Axis = None) -> Tensor:
    """x - mean(x) over the axes, with an error of its own size, however large the mean is.

    The mean is rounded to its own size. So the differences, themselves exact where x is close to it, have a mean, too.
    It is subtracted without an operation: to a derivative it is a constant, 0 but for the rounding. If all x are equal,
    the differences are a few units in the last place, their sum is exact, and the result is 0.
    """
    y = x - mean(x, axis, keepdim=True)
    rest = sum_over(y.data, as_axes(axis, x.ndim, "mean"), keepdims=True)
    y.data -= rest / (y.numel() / max(rest.size, 1) or 1)
    return y


def var(x: Tensor, axis: Axis = None, *more, keepdim: bool = False, correction: int | None = 1, **names) -> Tensor:
    """Mean squared distance from the mean; divides by n - correction, as torch and tinygrad do."""
    axis, keepdim, correction = respelled(var, more, names, axis, keepdim, correction)
    distance = centred(x, axis)
    total = ops.sum(distance * distance, axis, keepdim=keepdim)
    return total / max(x.numel() / max(total.numel(), 1) - (1 if correction is None else correction), 0.0)


def std(x: Tensor, axis: Axis = None, *more, keepdim: bool = False, correction: int = 1, **names) -> Tensor:
    """The square root of the variance. Its gradient where all elements are equal is 0 (PyTorch's choice)."""
    axis, keepdim, correction = respelled(std, more, names, axis, keepdim, correction)
    variance = x.var(axis, keepdim=keepdim, correction=correction)
    flat = variance == 0  # there the slope of the root is infinite
    return variance.masked_fill(flat, 1.0).sqrt().masked_fill(flat, 0.0)


def prod(x: Tensor, axis: Axis = None, *more, keepdim: bool = False, **names) -> Tensor:
    """The product over the axes, 1 if there are no elements. Integers are multiplied as int64.

    One half is multiplied by the other until one factor is left. So each factor's gradient is the product of all the
    others, without a division, and is correct even where a factor is 0.
    """
    axis, keepdim = respelled(prod, more, names, axis, keepdim)
    x = x if is_float(x.dtype) else ops.cast(x, np.int64)
    axes = as_axes(axis, x.ndim, "prod")
    kept = [i for i in range(x.ndim) if i not in axes]
    y = x.permute(*kept, *axes).reshape(*(x.shape[i] for i in kept), math.prod(x.shape[i] for i in axes))
    while y.shape[-1] != 1:
        y = y.pad([(0, 0)] * len(kept) + [(0, y.shape[-1] % 2 or 2 * (y.shape[-1] == 0))], value=1)
        half = y.shape[-1] // 2
        y = y[..., :half] * y[..., half:]
    return y.reshape([1 if i in axes else size for i, size in enumerate(x.shape)]) if keepdim else y.squeeze(-1)


def any(x: Tensor, axis: Axis = None, *more, keepdim: bool = False, **names) -> Tensor:
    """Whether any element is true (or nonzero), over the axes."""
    axis, keepdim = respelled(any, more, names, axis, keepdim)
    return (x != 0).sum(axis, keepdim=keepdim) > 0


def all(x: Tensor, axis: Axis = None, *more, keepdim: bool = False, **names) -> Tensor:
    """Whether every element is true (or nonzero), over the axes."""
    axis, keepdim = respelled(all, more, names, axis, keepdim)
    return (x == 0).sum(axis, keepdim=keepdim) == 0


# --- shape ----------------------------------------------------------------------------------------------------


def transpose(x: Tensor, axis0: int | None = None, axis1: int | None = None, *more, **names) -> Tensor:
    """Swap two axes; for a matrix they need not be named."""
    axis0, axis1 = respelled(transpose, more, names, axis0, axis1) if more or names else (axis0, axis1)
    if axis0 is None or axis1 is None:
        if x.ndim != 2 or axis0 is not axis1:
            axes = counted(x.ndim, "axis", "axes")
            raise ValueError(f"transpose: name two of {axes}, as in x.transpose(0, 1); x.T reverses all of them")
        axis0, axis1 = 0, 1
    axes = list(range(x.ndim))
    axis0, axis1 = one_axis(axis0, len(axes), "transpose"), one_axis(axis1, len(axes), "transpose")
    axes[axis0], axes[axis1] = axis1, axis0
    return ops.permute(x, axes)


def flatten(x: Tensor, start_axis: int = 0, end_axis: int = -1, *more, **names) -> Tensor:
    """Join the axes from start_axis to end_axis, both included, into one."""
    start, end = (one_axis(a, max(x.ndim, 1), "flatten") for a in respelled(flatten, more, names, start_axis, end_axis))
    if start > end:
        raise ValueError(f"flatten: the first axis, {start}, comes after the last, {end}")
    return ops.reshape(x, *x.shape[:start], math.prod(x.shape[start : end + 1]), *x.shape[end + 1 :])


def squeeze(x: Tensor, axis: Axis = None, *more, **names) -> Tensor:
    """The tensor without its axes of size 1; if axes are given, only those among them are removed."""
    axes = as_axes(*respelled(squeeze, more, names, axis), x.ndim, "squeeze")
    return ops.reshape(x, tuple(size for i, size in enumerate(x.shape) if i not in axes or size != 1))


def unsqueeze(x: Tensor, axis: int | None = None, *more, **names) -> Tensor:
    """The tensor with a new axis of size 1 at this position."""
    axis = one_axis(*respelled(unsqueeze, more, names, axis), x.ndim + 1, "unsqueeze")
    return ops.reshape(x, *x.shape[:axis], 1, *x.shape[axis:])


def stack(*tensors: Tensor, axis: int = 0, **names) -> Tensor:
    """This tensor and others of the same shape, joined along a new axis."""
    tensors, axis = as_tensors(tensors, *respelled(stack, (), names, axis), "stack")
    return ops.cat(*(tensor.unsqueeze(axis) for tensor in tensors), axis=axis)


def split(x: Tensor, sizes: int | Sequence[int] = 0, axis: int = 0, *more, **names) -> tuple[Tensor, ...]:
    """Consecutive pieces along an axis: all of one size (the last may be smaller), or of the sizes given."""
    sizes, axis = respelled(split, more, names, sizes, axis)
    axis = one_axis(axis, x.ndim, "split")
    length = x.shape[axis]
    if isinstance(sizes, (int, np.integer)):
        if sizes < 1:
            raise ValueError(f"split: pieces of size {sizes} never fill an axis of {length}: use a size of 1 or more")
        sizes = [min(sizes, length - start) for start in range(0, max(length, 1), sizes)]
    if min(sizes, default=0) < 0:
        raise ValueError(f"split: no piece may have a negative size, as in {list(sizes)}")
    if sum(sizes) != length:
        raise ValueError(f"split: sizes {list(sizes)} add up to {sum(sizes)}, the axis has {length}")
    before, pieces = (slice(None),) * axis, zip(sizes, itertools.accumulate(sizes), strict=True)
    return tuple(x[(*before, slice(end - size, end))] for size, end in pieces)


def unbind(x: Tensor, axis: int = 0, *more, **names) -> tuple[Tensor, ...]:
    """The slices along an axis, which is removed: the rows of a matrix, or with axis=1 its columns."""
    axis = one_axis(*respelled(unbind, more, names, axis), x.ndim, "unbind")
    return tuple(x[(*(slice(None),) * axis, i)] for i in range(x.shape[axis]))


def chunk(x: Tensor, count: int = 0, axis: int = 0, *more, **names) -> tuple[Tensor, ...]:
    """At most `count` consecutive pieces along an axis, all of one size except the last, as in torch."""
    count, axis = respelled(chunk, more, names, count, axis)
    axis = one_axis(axis, x.ndim, "chunk")
    if count < 1:
        raise ValueError(f"chunk: there cannot be {count} pieces: use a count of 1 or more")
    return x.split(max(-(-x.shape[axis] // count), 1), axis)


def flip(x: Tensor, axis: Axis = None, *more, **names) -> Tensor:
    """The elements in reverse order along the axes."""
    axes = as_axes(*respelled(flip, more, names, axis), x.ndim, "flip")
    return x[tuple(slice(None, None, -1 if i in axes else 1) for i in range(x.ndim))]


def repeat(x: Tensor, *times: Any) -> Tensor:
    """The whole tensor repeated along each axis, like torch's repeat and NumPy's tile.

    >>> Tensor([1, 2]).repeat(2, 2).tolist()
    [[1, 2, 1, 2], [1, 2, 1, 2]]
    """
    times = as_shape(times)
    if len(times) < x.ndim or min(times, default=0) < 0:
        axes = counted(x.ndim, "axis", "axes")
        raise ValueError(f"repeat: needs a number of at least 0 for each of {axes}, not {times}")
    sizes = (1,) * (len(times) - x.ndim) + x.shape
    pairs = [pair for size, n in zip(sizes, times, strict=True) for pair in ((1, size), (n, size))]
    shape = [size * n for size, n in zip(sizes, times, strict=True)]
    return x.reshape(sum(pairs[::2], ())).expand(sum(pairs[1::2], ())).reshape(shape)


# --- sums of products -----------------------------------------------------------------------------------------


def einsum(equation: str, *operands: Tensor) -> Tensor:
    """Products of one or two tensors, summed over the axes whose letters the result lacks, in Einstein notation.

    Each letter names an axis; without "->" the result has the letters that occur once, in alphabetical order. Letters
    in both tensors and in the result number a batch of matrix products; letters in both tensors only are summed over.

    >>> x, y = Tensor([[1, 2], [3, 4]]), Tensor([[1, 0], [1, 1]])
    >>> Tensor.einsum("ij,jk->ik", x, y).tolist() == (x @ y).tolist()
    True
    """
    left, arrow, result = equation.replace(" ", "").partition("->")
    names, (operands, _) = left.split(","), as_tensors(operands, 0, "einsum")
    if not arrow:
        result = "".join(sorted(n for n in left if n.isalpha() and left.count(n) == 1))
    sizes = {n: size for part, x in zip(names, operands, strict=False) for n, size in zip(part, x.shape, strict=False)}
    shapes = [tuple(sizes.get(n) for n in part) for part in names]  # the tensors' shapes, if all letters fit
    odd = [part for part in (*names, result) if len({*part}) < len(part) or not (part or "i").isalpha()]
    if odd or len(names) > 2 or shapes != [x.shape for x in operands] or {*result} - {*sizes}:
        raise ValueError(f"einsum: {equation!r} does not fit one or two tensors of shape {[x.shape for x in operands]}")
    a, b = (*names, "")[:2]
    batch, summed = [n for n in a if n in b and n in result], [n for n in a if n in b and n not in result]
    rows, columns = [n for n in a if n in result and n not in b], [n for n in b if n in result and n not in a]

    def laid_out(x: Tensor, names: str, *groups: Sequence[str]) -> Tensor:
        """x with its axes in this order, those in a group joined; summed over the axes in no group."""
        order = [n for group in groups for n in group]
        if gone := tuple(i for i, n in enumerate(names) if n not in order):
            x, names = x.sum(gone), "".join(n for n in names if n in order)
        return x.permute([names.index(n) for n in order]).reshape([math.prod(sizes[n] for n in g) for g in groups])

    z = laid_out(operands[0], a, *batch, rows, summed)
    if len(names) == 2:
        z = z @ laid_out(operands[1], b, *batch, summed, columns)
    order = [*batch, *rows, *columns]
    return z.reshape([sizes[n] for n in order]).permute([order.index(n) for n in result])


# --- picking elements -----------------------------------------------------------------------------------------


def gather(x: Tensor, axis: int | None = None, index: Any = None, *more, **names) -> Tensor:
    """out[i][j][k] = x[i][index[i][j][k]][k] for axis 1, and likewise for other axes."""
    axis, index = respelled(gather, more, names, axis, index)
    axis, index = one_axis(axis, x.ndim, "gather"), as_tensor(index, x)
    if index.ndim != x.ndim:
        raise ValueError(f"gather: index has {counted(index.ndim, 'axis', 'axes')}, the tensor has {x.ndim}")
    if index.device == "cpu" and (bad := index.data[index.data < 0]).size:
        raise IndexError(f"gather: position {bad[0]} does not exist: they count from 0 to {x.shape[axis] - 1}")
    # Each broadcasts against the index: it has an axis of size 1 for every one that follows.
    places = [Tensor.arange(n, device=x.device).reshape(-1, *[1] * (x.ndim - i - 1)) for i, n in enumerate(index.shape)]
    places[axis] = index
    return x[tuple(places)]


def one_hot(x: Tensor, num_classes: int) -> Tensor:
    """(...) integers -> (..., num_classes) float32 with a 1 at each integer's position and 0 elsewhere.

    Raises: ValueError if a number is not in [0, num_classes). (On a GPU, where the host would have to wait for the
        numbers, its row is all 0 instead.)
    """
    if x.dtype.kind not in "iu":
        raise ValueError(f"one_hot: needs integers, not {x.dtype}")
    if x.device == "cpu" and (bad := x.data[(x.data < 0) | (x.data >= num_classes)]).size:
        raise ValueError(f"one_hot: {bad[0]} is not one of {num_classes} classes, 0 to {num_classes - 1}")
    return (x.unsqueeze(-1) == Tensor.arange(num_classes, device=x.device)).cast(np.float32)


def tril(x: Tensor, diagonal: int = 0) -> Tensor:
    """The lower triangle of the last two axes; zero above the given diagonal."""
    return x.masked_fill(~_triangle(x, diagonal, "tril"), False)


def triu(x: Tensor, diagonal: int = 0) -> Tensor:
    """The upper triangle of the last two axes; zero below the given diagonal."""
    return x.masked_fill(_triangle(x, diagonal - 1, "triu"), False)


def _triangle(x: Tensor, diagonal: int, op: str) -> Tensor:
    """True at row i, column j where j <= i + diagonal."""
    if x.ndim < 2:
        raise ValueError(f"{op}: a tensor of shape {x.shape} has no triangle: two axes are needed")
    i, j = (Tensor.arange(n, device=x.device) for n in x.shape[-2:])
    return j <= i.unsqueeze(1) + diagonal
