"""`linear` on a GPU: the products by cuBLAS, the bias by a kernel; and several linear maps of one input as one product.

In bfloat16, weights stay float32 and are rounded for the products: once for each version of them, or, if an optimizer
has just written them, by its kernel (adamw.cu).

If an optimizer has laid out the weights of queries, keys and values one after the other (memory.py), they are the rows
of one matrix, and so are their gradients. One large product then does the work of three; and the gradient of the input
is one product too, instead of a sum of three in bfloat16.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tinygrad_lite.autograd import observers
from tinygrad_lite.cuda.columns import (
    as_rows,
    column_gradients,
    gradients_of,
    launch_matrix,
    pack_of_rows,
    places_of,
    stride_of,
)
from tinygrad_lite.cuda.gemm import gemm, joined
from tinygrad_lite.cuda.launch import are_known, kernel
from tinygrad_lite.device import Array, xp_of
from tinygrad_lite.functional.linear import check_linear, linear_composed, linears_composed
from tinygrad_lite.precision import activation_type
from tinygrad_lite.tensor import Tensor, node

ALIGNED, PADDED = 8, 64  # elements: fast cuBLAS kernels need rows of a multiple of 8; padding makes it one of 64


def linear_cuda(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`linear_composed` in one node."""
    if x.ndim < 2 or x.numel() == 0 or weight.numel() == 0 or not are_known(x, weight, bias):
        return linear_composed(x, weight, bias)  # vectors, empty tensors, and mixed types
    check_linear(x, weight, bias)
    return joint_linear(x, [weight], [] if bias is None else [bias])


def linears_cuda(x: Tensor, weights: list[Tensor], biases: list[Tensor | None]) -> list[Tensor]:
    """`linears_composed` in one product, if all maps have a bias or none has."""
    for weight, bias in zip(weights, biases, strict=True):
        check_linear(x, weight, bias)
    shifts = [bias for bias in biases if bias is not None]
    is_joint = len(shifts) in (0, len(weights)) and all(weight.numel() for weight in weights)
    if x.ndim < 2 or x.numel() == 0 or not is_joint or not are_known(x, *weights, *shifts):
        return linears_composed(x, weights, biases)
    arrived: set[int] = set()
    y = joint_linear(x, weights, shifts, arrived)
    return [columns_of(y, place, arrived) for place in places_of(weights)]


def joint_linear(
    x: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor], arrived: set[int] | None = None
) -> Tensor:
    """The results of several linear maps side by side: (..., C) -> (..., sum of all C_out), in one node.

    Args:
        arrived: the first columns of the results whose gradients have arrived when backward gets here; None: all.
    """
    xp, shape, before = x.xp, x.shape, x.dtype
    x_needs, places = x.requires_grad, places_of(weights)
    # If the products are bfloat16, x is rounded once for both passes.
    rows = xp.ascontiguousarray(x.data).reshape(-1, shape[-1]).astype(activation_type(before), copy=False)
    matrices = [in_precision(weight) for weight in weights]
    whole = joined(matrices)
    factors = matrices if whole is None else [whole]

    def parts(y: Array) -> list[Array]:
        """The columns of each factor's product."""
        return [y] if len(factors) == 1 else [y[:, place] for place in places]

    width = places[-1].stop
    padded = empty_rows(rows, width)
    y = padded[:, :width]
    is_odd = padded.shape[1] > width and weights[0]._gradient_memory is not None
    wider = with_rows_after(factors[0], padded.shape[1]) if is_odd else None
    if wider is not None:
        gemm(rows, wider.T, out=padded)
    else:
        for part, factor in zip(parts(y), factors, strict=True):
            gemm(rows, factor.T, out=part)
    if biases:
        shifts = [bias.data for bias in biases]
        shift = joined(shifts)
        add_bias(y, xp.concatenate(shifts) if shift is None else shift)

    def backward(dy):
        dy, dx = as_rows(dy), None
        for place in places:
            if arrived is not None and place.start not in arrived:
                dy[:, place] = 0
        if x_needs:
            dx = xp.empty(rows.shape, before)
            if wider is not None and dy.data.ptr == y.data.ptr and dy.strides == y.strides:
                padded[:, width:] = 0  # beside the gradient, which the loss has written over y
                gemm(padded, wider, out=dx)
            else:
                for i, (part, factor) in enumerate(zip(parts(dy), factors, strict=True)):
                    gemm(part, factor, out=dx, add=i > 0)
            dx = dx.reshape(shape)
        # cuBLAS can add the product to the existing gradient: writing a large product, reading it again with the sum
        # and writing the sum takes longer. (An observer, which wants to see it, prevents this: `memory_to_write`.)
        kind = weights[0].dtype
        dw = gradients_of(weights, lambda place, out, add: gemm(dy[:, place].T, rows, out, kind, add=add))
        return dx, *dw, *(column_gradients(dy, biases) if biases else ())

    return node(y.reshape(*shape[:-1], y.shape[1]), (x, *weights, *biases), backward, "linear", uses_result=False)


def columns_of(y: Tensor, place: slice, arrived: set[int]) -> Tensor:
    """Some columns of a joint result. The gradients of all of them are collected in one array, without any addition."""
    xp, shape, dtype = y.xp, y.shape, y.dtype

    def backward(dy, so_far):
        if observers:  # each wants the gradient of this part alone, and they are summed
            arrived.update(range(shape[-1]))
            whole = xp.zeros(shape, dtype)
        else:
            arrived.add(place.start)
            whole = array_around(dy, shape, place.start) if so_far is None else so_far
            if whole is None:
                whole = xp.empty(shape, dtype)
        part = whole[..., place]
        if part.data.ptr != dy.data.ptr or part.strides != dy.strides:  # unless it is there already
            part[...] = dy
        return (whole,)

    return node(y.data[..., place], (y,), backward, "columns", view=True, adds=True)


def array_around(part: Array, shape: tuple[int, ...], start: int) -> Array | None:
    """The array of this shape whose columns from `start` on are `part`; None if `part` is not such a view.

    Flash attention writes the gradients of queries, keys and values side by side.
    """
    base = part.base
    if base is None or base.size != math.prod(shape) or base.dtype != part.dtype:
        return None
    whole = base.reshape(shape)
    is_part = whole.data.ptr + start * part.dtype.itemsize == part.data.ptr and whole.strides == part.strides
    return whole if is_part else None


def in_precision(weight: Tensor) -> Array:
    """A weight's array for products: a bfloat16 copy, made once for each version of the weight, if that is in use."""
    given = weight.dtype
    kind = activation_type(given)
    if kind == given:
        return weight.data
    known = vars(weight).get("_copy")
    if known is None or known.of is not weight.data or known.version[0] != weight.version:
        known = weight._copy = Copy(weight.data, weight.data.astype(kind), [weight.version])
    return known.array


@dataclass(frozen=True)
class Copy:
    """A bfloat16 copy of a weight.

    Attributes:
        of: the array that was copied.
        array: the copy.
        version: a list of the weight's version at that time; copies that an optimizer writes together share it.
    """

    of: Array
    array: Array
    version: list[int]


def copy_of(memory: Any) -> Copy | None:
    """A copy of all parameters of an optimizer's memory, where `in_precision` finds its parts; None if not in use.

    It is the one that the memory has, if nothing but the optimizer has written into the parameters since.
    """
    values, known, kind = memory.values, memory.rounded, activation_type(memory.values.dtype)
    if kind == values.dtype:
        return None
    if known is None or known.version[0] != values.version:
        known = Copy(values.data, values.data.astype(kind), [values.version])
        for name, place in memory.places.items():
            parameter = memory.named[name]
            parameter._copy = Copy(parameter.data, known.array[place].reshape(parameter.shape), known.version)
    return known


def empty_rows(x: Array, width: int) -> Array:
    """An array for a product (N, width), of the type of x.

    cuBLAS has fast kernels only for rows that begin at multiples of 16 bytes. With a vocabulary of 50,257 they do not,
    so the array is wider.
    """
    padded = width if width % ALIGNED == 0 else -(-width // PADDED) * PADDED
    return xp_of(x).empty((len(x), padded), x.dtype)


def with_rows_after(matrix: Array, rows: int) -> Array | None:
    """A matrix with more rows: whatever follows it in the array that it is part of; None if that is too short.

    cuBLAS may choose slower kernels for 50,257 rows than for 50,304. In an optimizer's memory, the rows after a table
    are other parameters; their results are not used.
    """
    base = matrix.base
    if base is None or base.ndim != 1:
        return None
    begin = (matrix.data.ptr - base.data.ptr) // base.itemsize
    end = begin + rows * matrix.shape[1]
    return base[begin:end].reshape(rows, -1) if end <= base.size else None


def add_bias(y: Array, bias: Array) -> None:
    """y += bias, in place, for y (N, C), whose rows may be padded, and bias (C,)."""
    (rows, width), packed = y.shape, pack_of_rows(y, bias)
    launch_matrix(kernel("bias", "add_bias", X=y.dtype, PACK=packed), rows, width // packed, stride_of(y), y, bias)
