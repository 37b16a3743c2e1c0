"""The operators and methods of a tensor: those that compute, and those that make tensors.

Most methods are functions defined elsewhere: `ops/` has those with a derivative of their own, `compositions.py` those
composed of them, `functional/` the heavy ones. All of them need the class `Tensor`, so the class gets its methods here,
in the last lines, when everything has been defined.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinygrad_lite import autograd, compositions, functional, ops, spelling
from tinygrad_lite.device import get_device, is_float, next_rng
from tinygrad_lite.ops.common import as_shape
from tinygrad_lite.ops.shapes import raw_index
from tinygrad_lite.tensor import Tensor


def _reflected(op: Callable[[Any, Any], Tensor]) -> Callable[[Tensor, Any], Tensor]:
    """The operator with the tensor on the right: Python computes 1 - x as x.__rsub__(1)."""
    return lambda self, other: op(other, self)


def _in_place(op: Callable[[Any, Any], Tensor], sign: str) -> Callable[[Tensor, Any], Tensor]:
    """x += y: a new tensor, as from x + y; but a parameter or a leaf that requires a gradient is written into."""

    def operator(self: Tensor, other: Any) -> Tensor:
        result = op(self, other)
        if not self._is_leaf or not (self.requires_grad or self._is_parameter):
            return result
        if autograd.grad_enabled:
            raise RuntimeError(
                f"x {sign} y: x is a leaf that requires a gradient: write into it under no_grad(), or make a new "
                f"tensor by x = x {sign[0]} y"
            )
        if result.shape != self.shape:
            raise ValueError(f"x {sign} y: the result has shape {result.shape}, x has {self.shape}")
        self[...] = result
        return self

    return operator


def _comparison(how: str) -> Callable[[Tensor, Any], Tensor]:
    """A comparison, by the name of NumPy's function."""
    return lambda self, other: ops.compare(self, other, how)


def _logical(how: str) -> Callable[[Tensor, Any], Tensor]:
    """A logical operator on truth values, by the name of NumPy's function."""
    return lambda self, other: ops.logical(self, other, how)


class Methods:
    """The operators and methods that `Tensor` gets."""

    # --- operators --------------------------------------------------------------------------------------------

    __add__, __radd__, __iadd__ = ops.add, _reflected(ops.add), _in_place(ops.add, "+=")
    __sub__, __rsub__, __isub__ = ops.sub, _reflected(ops.sub), _in_place(ops.sub, "-=")
    __mul__, __rmul__, __imul__ = ops.mul, _reflected(ops.mul), _in_place(ops.mul, "*=")
    __truediv__, __rtruediv__, __itruediv__ = ops.div, _reflected(ops.div), _in_place(ops.div, "/=")
    __floordiv__, __rfloordiv__ = ops.floordiv, _reflected(ops.floordiv)
    __mod__, __rmod__ = ops.mod, _reflected(ops.mod)
    __pow__, __rpow__ = ops.pow, _reflected(ops.pow)
    __matmul__, __rmatmul__ = ops.matmul, _reflected(ops.matmul)
    __neg__, __abs__ = ops.neg, ops.abs

    __eq__, __ne__ = _comparison("equal"), _comparison("not_equal")
    __lt__, __le__ = _comparison("less"), _comparison("less_equal")
    __gt__, __ge__ = _comparison("greater"), _comparison("greater_equal")
    __hash__ = object.__hash__  # by identity, not by values, so that tensors can be in sets and dicts

    __and__ = __rand__ = _logical("logical_and")
    __or__ = __ror__ = _logical("logical_or")
    __xor__ = __rxor__ = _logical("logical_xor")

    def __invert__(self) -> Tensor:
        """Logical not: true where this tensor is false or zero."""
        return ops.compare(self, 0, "equal")

    __getitem__ = ops.getitem

    def __setitem__(self, index: Any, value: Any) -> None:
        """Write into the tensor, in place. Only for constants, and for leaves under `no_grad()`.

        Gradients do not flow through a write; where they should, build a new tensor with `where` or `cat`. The write is
        counted, and a backward pass that still needs the old values raises an error.
        """
        if not self._is_leaf or (self.requires_grad and autograd.grad_enabled):
            raise RuntimeError(
                "cannot write into a tensor that gradients flow through: use where(), cat() or masked_fill(), "
                "or write into a leaf under no_grad()"
            )
        index = raw_index(index, self.xp)
        self.data[index] = value.data if isinstance(value, Tensor) else value
        self.mark_written()

    # --- functions, called with the tensor as their first argument --------------------------------------------

    # one element at a time
    abs = ops.abs
    cast = ops.cast
    clip = ops.clip
    clone = ops.clone
    cos = ops.cos
    dropout = functional.dropout
    erf = ops.erf
    exp = ops.exp
    gelu = functional.gelu
    log = ops.log
    masked_fill = compositions.masked_fill
    maximum = ops.maximum
    minimum = ops.minimum
    relu = ops.relu
    sigmoid = compositions.sigmoid
    sign = ops.sign
    silu = compositions.silu
    sin = ops.sin
    sqrt = ops.sqrt
    tanh = ops.tanh
    to = ops.to
    where = ops.where

    # reductions (axis: None for all, a number, or several)
    all = compositions.all
    any = compositions.any
    argmax = ops.argmax
    argmin = ops.argmin
    logsumexp = functional.logsumexp
    max = ops.max
    mean = compositions.mean
    min = ops.min
    prod = compositions.prod
    std = compositions.std
    sum = ops.sum
    var = compositions.var

    # shape
    cat = ops.cat
    chunk = compositions.chunk
    expand = ops.expand
    flatten = compositions.flatten
    flip = compositions.flip
    pad = ops.pad
    permute = ops.permute
    repeat = compositions.repeat
    reshape = ops.reshape
    split = compositions.split
    squeeze = compositions.squeeze
    stack = compositions.stack
    transpose = compositions.transpose
    unsqueeze = compositions.unsqueeze

    # picking elements
    gather = compositions.gather
    one_hot = compositions.one_hot
    tril = compositions.tril
    triu = compositions.triu

    # the chapters of functional/
    avg_pool2d = functional.avg_pool2d
    conv2d = functional.conv2d
    cross_entropy = functional.cross_entropy
    layer_norm = functional.layer_norm
    linear = functional.linear
    log_softmax = functional.log_softmax
    max_pool2d = functional.max_pool2d
    scaled_dot_product_attention = functional.scaled_dot_product_attention
    softmax = functional.softmax

    # --- creation (shapes as numbers or as one tuple) ---------------------------------------------------------

    @staticmethod
    def full(shape: Any, value: float, dtype: Any = None, device: str = "cpu", requires_grad: bool = False) -> Tensor:
        """A tensor filled with one value."""
        dtype = Tensor(value).dtype if dtype is None else dtype
        return Tensor.wrap(get_device(device).xp.full(shape, value, dtype)).requires_grad_(requires_grad)

    @staticmethod
    def zeros(*shape: Any, dtype: Any = np.float32, device: str = "cpu", requires_grad: bool = False) -> Tensor:
        """A tensor of zeros."""
        return Tensor.full(as_shape(shape), 0, dtype, device, requires_grad)

    @staticmethod
    def ones(*shape: Any, dtype: Any = np.float32, device: str = "cpu", requires_grad: bool = False) -> Tensor:
        """A tensor of ones."""
        return Tensor.full(as_shape(shape), 1, dtype, device, requires_grad)

    @staticmethod
    def arange(
        start: float,
        stop: float | None = None,
        step: float = 1,
        *,
        dtype: Any = None,
        device: str = "cpu",
        requires_grad: bool = False,
    ) -> Tensor:
        """start, start + step, ... up to but excluding stop; from 0 if only one number is given."""
        start, stop = (0, start) if stop is None else (start, stop)
        if dtype is None:
            dtype = np.int64 if all(isinstance(n, (int, np.integer)) for n in (start, stop, step)) else np.float32
        return Tensor.wrap(get_device(device).xp.arange(start, stop, step, dtype)).requires_grad_(requires_grad)

    @staticmethod
    def eye(
        rows: int,
        columns: int | None = None,
        *,
        dtype: Any = np.float32,
        device: str = "cpu",
        requires_grad: bool = False,
    ) -> Tensor:
        """Ones on the diagonal, zeros elsewhere; by default a square matrix, the identity."""
        return Tensor.wrap(get_device(device).xp.eye(rows, columns, dtype=dtype)).requires_grad_(requires_grad)

    @staticmethod
    def rand(*shape: Any, dtype: Any = np.float32, device: str = "cpu", requires_grad: bool = False) -> Tensor:
        """Random numbers, uniform in [0, 1); drawn on the host, so every device gets the same (see `manual_seed`)."""
        return _drawn("rand", "random", shape, dtype, device, requires_grad)

    @staticmethod
    def randn(*shape: Any, dtype: Any = np.float32, device: str = "cpu", requires_grad: bool = False) -> Tensor:
        """Random numbers, normal with mean 0 and variance 1; drawn on the host, like those of `rand`."""
        return _drawn("randn", "standard_normal", shape, dtype, device, requires_grad)

    def full_like(self, value: float, dtype: Any = None, requires_grad: bool = False) -> Tensor:
        """A tensor filled with one value, with this shape and device, and this dtype unless another is given."""
        return Tensor.full(self.shape, value, self.dtype if dtype is None else dtype, self.device, requires_grad)

    def zeros_like(self, dtype: Any = None, requires_grad: bool = False) -> Tensor:
        """Zeros with this shape and device, and this dtype unless another is given."""
        return self.full_like(0, dtype, requires_grad)

    def ones_like(self, dtype: Any = None, requires_grad: bool = False) -> Tensor:
        """Ones with this shape and device, and this dtype unless another is given."""
        return self.full_like(1, dtype, requires_grad)


def _drawn(stream: str, draw: str, shape: tuple, dtype: Any, device: str, requires_grad: bool) -> Tensor:
    """Random numbers by the method `draw` of a generator."""
    if not is_float(np.dtype(dtype)):
        raise TypeError(f"{stream}: draws fractions, which {np.dtype(dtype)} cannot hold: use a float dtype")
    numbers = getattr(next_rng(stream), draw)(as_shape(shape)).astype(dtype)
    return Tensor.wrap(get_device(device).from_host(numbers)).requires_grad_(requires_grad)


for _name, _method in list(vars(Methods).items()):
    if _name not in ("__dict__", "__doc__", "__module__", "__weakref__"):
        setattr(Tensor, _name, _method)
spelling.teach(Tensor, spelling.ACCEPTED_METHODS, spelling.METHODS_INSTEAD)
