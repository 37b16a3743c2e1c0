"""The operators and methods of a tensor: those that compute, and those that make tensors.

Most methods are functions defined elsewhere: `ops/` has those with a derivative of their own, `compositions.py` those
composed of them, `functional/` the heavy ones. All of them need the class `Tensor`, so the class gets its methods here,
in the last lines, when everything has been defined.
"""

import math
from collections.abc import Callable
from sys import getrefcount
from typing import Any

import numpy as np

from tinygrad_lite import autograd, compositions, ops
from tinygrad_lite.device import get_device, is_float, positions
from tinygrad_lite.ops.common import as_constant, as_shape, category, unbroadcast
from tinygrad_lite.ops.shapes import raw_index
from tinygrad_lite.random import next_rng
from tinygrad_lite.tensor import Tensor, check_fits, check_one_device, node, noted, respelled


def _operator(op: Callable[[Any, Any], Tensor], sign: str) -> tuple[Callable, Callable, Callable]:
    """An operator in its three forms: x - y; with the tensor on the right, since Python calls x.__rsub__(1); x -= y."""
    return op, lambda self, other: op(other, self), _in_place(op, sign)


def _in_place(op: Callable[[Any, Any], Tensor], sign: str) -> Callable[[Tensor, Any], Tensor]:
    """x += y: x + y is written into x, so every name for x sees it, and so do views."""

    def operator(self: Tensor, other: Any) -> Tensor:
        result, what, instead = op(self, other), f"x {sign} y", f"write x = x {sign[:-1]} y"
        if result.shape != self.shape:
            raise ValueError(f"{what}: the result has shape {result.shape}, x has {self.shape}: {instead}")
        if category(result.dtype) > category(self.dtype):
            raise TypeError(f"{what}: the result is {result.dtype}, and x holds {self.dtype}: {instead}")
        check_fits(result, self.dtype, what)
        result = result.cast(self.dtype)
        carries = _check_write(self, result, what, instead)
        self.data[...] = result.data
        self.mark_written()
        if carries:
            _take_node(self, result)
        return self

    return operator


def _check_write(x: Tensor, value: Tensor, what: str, instead: str) -> bool:
    """Whether a write into x changes where its gradient goes. Raises: RuntimeError if a gradient would be lost."""
    is_stretched = any(stride == 0 and size > 1 for stride, size in zip(x.data.strides, x.shape, strict=True))
    if x.numel() and (is_stretched or not getattr(x.data.flags, "writeable", True)):  # CuPy has no such flag
        raise RuntimeError(f"{what}: elements of an expanded tensor share their memory: write into x.clone()")
    if not autograd.builds_graph() or not (x.requires_grad or value.requires_grad):
        return False
    if x._is_parameter or (x.requires_grad and x._is_leaf):
        raise RuntimeError(f"{what}: x is a leaf that requires a gradient: write into it under no_grad(), or {instead}")
    # The counter of writes is shared by everything that uses this memory: views of x, and derivatives that need its
    # values. With x alone it has two references, x and the argument of this call. (ndarray.resize checks likewise.)
    if getrefcount(x._version) > 2:
        raise RuntimeError(f"{what}: a view of x, or a derivative, still needs the values it has: {instead}")
    return True


def _take_node(x: Tensor, result: Tensor) -> None:
    """Give x, into whose memory a result was written, the place of that result in the graph."""
    # `retain_grad` is about the new value; a value without a gradient has no node.
    if x._node is not None and result._node is not None and result._node.keep is None:
        result._node.keep, x._node.keep = x._node.keep, None
    x._node, x.op = result._node, result.op


def _called(how: str) -> Callable[[Tensor, Any], Tensor]:
    """A comparison, or a logical operator on truth values, by the name of NumPy's function."""
    op = ops.logical if how.startswith("logical") else ops.compare
    return lambda self, other: op(self, other, how)


# NumPy's names of the operators, for arrays on their left.
_OPERATORS = {"add": ops.add, "subtract": ops.sub, "multiply": ops.mul, "divide": ops.div, "power": ops.pow}
_OPERATORS |= {"floor_divide": ops.floordiv, "remainder": ops.mod, "matmul": ops.matmul}
_COMPARISONS = {name: _called(name) for name in "equal not_equal less less_equal greater greater_equal".split()}
_OPERATORS |= _COMPARISONS
_OPERATORS |= {f"bitwise_{name}": _called(f"logical_{name}") for name in ("and", "or", "xor")}


class _AskedByNumPy:
    """`Tensor.__array_ufunc__`. NumPy looks it up in the class, and gets a function; CuPy asks a tensor, and gets None.

    None sends `array + tensor` to `Tensor.__radd__`, which is all that CuPy can do.
    """

    def __get__(self, x: Tensor | None, owner: type) -> Callable | None:
        return _answer_numpy if x is None or x.device == "cpu" else None


def _answer_numpy(x: Tensor, function: Any, method: str, *inputs: Any, **options: Any) -> Tensor:
    """What NumPy calls for a tensor next to an array: operators are ours, its other functions are refused."""
    name = function.__name__
    if method == "__call__" and not options and name in _OPERATORS:
        return _OPERATORS[name](*inputs)
    ours = "x -= y, or x.data -= y.data" if "out" in options else f"np.{name}(x.numpy())"
    raise TypeError(f"np.{name}: NumPy knows no gradients: write {f'x.{name}() or ' if hasattr(x, name) else ''}{ours}")


class Methods:
    """The operators and methods that `Tensor` gets."""

    # --- operators --------------------------------------------------------------------------------------------

    __add__, __radd__, __iadd__ = _operator(ops.add, "+=")
    __sub__, __rsub__, __isub__ = _operator(ops.sub, "-=")
    __mul__, __rmul__, __imul__ = _operator(ops.mul, "*=")
    __truediv__, __rtruediv__, __itruediv__ = _operator(ops.div, "/=")
    __floordiv__, __rfloordiv__, __ifloordiv__ = _operator(ops.floordiv, "//=")
    __mod__, __rmod__, __imod__ = _operator(ops.mod, "%=")
    __pow__, __rpow__, __ipow__ = _operator(ops.pow, "**=")
    __matmul__, __rmatmul__, __imatmul__ = _operator(ops.matmul, "@=")
    __and__, __rand__, __iand__ = _operator(_called("logical_and"), "&=")
    __or__, __ror__, __ior__ = _operator(_called("logical_or"), "|=")
    __xor__, __rxor__, __ixor__ = _operator(_called("logical_xor"), "^=")
    __neg__, __abs__ = ops.neg, ops.abs

    __eq__, __ne__, __lt__, __le__, __gt__, __ge__ = _COMPARISONS.values()
    __hash__ = object.__hash__  # by identity, not by values, so that tensors can be in sets and dicts

    __invert__ = ops.invert

    __getitem__ = ops.getitem

    def __setitem__(self, index: Any, value: Any) -> None:
        """Write into the tensor, in place: y = x, but y[index] = value.

        dL/d(value) is dL/dy[index], and dL/dx is dL/dy with 0 at index. So what is written keeps its gradient; only a
        leaf that requires one may not be written into, except under `no_grad()`, where nothing is differentiated.
        The write is counted, and a backward pass that still needs the old values raises an error.
        """
        instead = "collect the parts in a list and use stack() or cat(), or use where()"
        given, value = value, value if isinstance(value, Tensor) else as_constant(value, self)
        check_one_device((self, value), "x[i] = y")
        noted(self, value)
        if value.dtype != self.dtype:
            check_fits(given, self.dtype, "x[i] = y")
            value = ops.cast(value, self.dtype)
        carries = _check_write(self, value, "x[i] = y", instead)
        try:
            index = raw_index(index, self.xp, copy=carries)
            if carries and any(getattr(part, "ndim", 0) for part in index):
                places = positions(index, self.shape, self.xp)
                if self.xp.unique(places).size < places.size:
                    raise ValueError(f"a position occurs twice in i, so y would lose gradients: {instead}")
            shape = inner = value.shape
            while inner[:1] == (1,):  # as a value, (1, 1, H) is the same as (H,)
                inner = inner[1:]
            self.data[index] = value.data.reshape(inner)
        except (IndexError, ValueError) as error:
            raise type(error)(f"x[i] = y: {error} (a tensor of shape {self.shape})") from None
        self.mark_written()
        if carries:

            def backward(dy):
                dx = dy.copy()
                dx[index] = 0
                return dx, unbroadcast(dy[index], inner).reshape(shape)

            _take_node(self, node(self.data, (self, value), backward, "setitem", view=True))

    __array_ufunc__ = _AskedByNumPy()

    # --- functions, called with the tensor as their first argument: imported into a class, they are methods ------
    # isort: off

    # one element at a time
    from tinygrad_lite.compositions import masked_fill, silu
    from tinygrad_lite.functional import dropout, gelu
    from tinygrad_lite.ops import abs, cast, clip, clone, cos, erf, exp, log, maximum, minimum
    from tinygrad_lite.ops import relu, sigmoid, sign, sin, sqrt, tanh, to, where

    # reductions (axis: None for all, a number, or several)
    from tinygrad_lite.compositions import all, any, mean, prod, std, var
    from tinygrad_lite.functional import logsumexp
    from tinygrad_lite.ops import amax, amin, argmax, argmin, max, min, sum

    # shape
    from tinygrad_lite.compositions import chunk, flatten, flip, repeat, split
    from tinygrad_lite.compositions import squeeze, stack, transpose, unbind, unsqueeze
    from tinygrad_lite.ops import cat, expand, pad, permute, reshape

    # picking elements
    from tinygrad_lite.compositions import gather, one_hot, tril, triu

    einsum = staticmethod(compositions.einsum)

    # the chapters of functional/
    from tinygrad_lite.functional import avg_pool2d, conv2d, cross_entropy, layer_norm, linear, log_softmax
    from tinygrad_lite.functional import max_pool2d, scaled_dot_product_attention, softmax

    # isort: on

    # --- creation (shapes as numbers or as one tuple) ---------------------------------------------------------

    @staticmethod
    def full(
        shape=None, value=None, *more, dtype: Any = None, device: str = "cpu", requires_grad: bool = False, **names
    ) -> Tensor:
        """A tensor filled with one value."""
        shape, value, *_ = respelled(Tensor.full, more, names, shape, value, dtype, device, requires_grad)
        dtype = Tensor(value).dtype if dtype is None or value is None else np.dtype(dtype)
        check_fits(value, dtype, "full")
        shape = _sizes("full", *(shape if np.iterable(shape) else (shape,)))
        return Tensor.wrap(get_device(device).xp.full(shape, value, dtype)).requires_grad_(requires_grad)

    @staticmethod
    def zeros(*shape, dtype: Any = np.float32, device: str = "cpu", requires_grad: bool = False, **names) -> Tensor:
        """A tensor of zeros."""
        return Tensor.full(as_shape(shape, "zeros", names), 0, dtype=dtype, device=device, requires_grad=requires_grad)

    @staticmethod
    def ones(*shape, dtype: Any = np.float32, device: str = "cpu", requires_grad: bool = False, **names) -> Tensor:
        """A tensor of ones."""
        return Tensor.full(as_shape(shape, "ones", names), 1, dtype=dtype, device=device, requires_grad=requires_grad)

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
        """start, start + step, ... up to but excluding stop; from 0 if only one number is given.

        Floats are start + i step in float64, rounded once: repeated additions in float32 would drift away.
        """
        start, stop = (0, start) if stop is None else (start, stop)
        whole = all(isinstance(n, (int, np.integer)) for n in (start, stop, step))
        dtype = np.dtype(dtype or (np.int64 if whole else np.float32))
        ends = step and all(map(math.isfinite, (start, stop, step))) and (whole or is_float(dtype))
        if not ends or (dtype.kind == "u" and min(start, stop, step) < 0):
            raise ValueError(f"arange: {start}, {stop} and a step of {step} do not count to an end in {dtype}")
        xp = get_device(device).xp
        if is_float(dtype):
            numbers = start + xp.arange(math.ceil((stop - start) / step), dtype=np.float64) * step
            return Tensor.wrap(numbers.astype(dtype)).requires_grad_(requires_grad)
        counted = range(start, stop, step)
        check_fits([*counted[:1], *counted[-1:]] if dtype.itemsize < 8 else max(start, stop, key=abs), dtype, "arange")
        return Tensor.wrap(xp.arange(start, stop, step, dtype)).requires_grad_(requires_grad)

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
        sizes = _sizes("eye", rows, rows if columns is None else columns)
        return Tensor.wrap(get_device(device).xp.eye(*sizes, dtype=dtype)).requires_grad_(requires_grad)

    @staticmethod
    def rand(*shape, dtype: Any = np.float32, device: str = "cpu", requires_grad: bool = False, **names) -> Tensor:
        """Random numbers, uniform in [0, 1); drawn on the host, so every device gets the same (see `manual_seed`)."""
        return _drawn("rand", "random", as_shape(shape, "rand", names), dtype, device, requires_grad)

    @staticmethod
    def randn(*shape, dtype: Any = np.float32, device: str = "cpu", requires_grad: bool = False, **names) -> Tensor:
        """Random numbers, normal with mean 0 and variance 1; drawn on the host, like those of `rand`."""
        return _drawn("randn", "standard_normal", as_shape(shape, "randn", names), dtype, device, requires_grad)

    def full_like(self, value: Any = None, *more, dtype: Any = None, requires_grad: bool = False, **names) -> Tensor:
        """A tensor filled with one value, with this shape and device, and this dtype unless another is given."""
        value, dtype, _ = respelled(Tensor.full_like, more, names, value, dtype or self.dtype, requires_grad)
        return Tensor.full(self.shape, value, dtype=dtype, device=self.device, requires_grad=requires_grad)

    def zeros_like(self, *, dtype: Any = None, requires_grad: bool = False) -> Tensor:
        """Zeros with this shape and device, and this dtype unless another is given."""
        return self.full_like(0, dtype=dtype, requires_grad=requires_grad)

    def ones_like(self, *, dtype: Any = None, requires_grad: bool = False) -> Tensor:
        """Ones with this shape and device, and this dtype unless another is given."""
        return self.full_like(1, dtype=dtype, requires_grad=requires_grad)


def _sizes(op: str, *sizes: int) -> tuple[int, ...]:
    """The sizes of a new tensor. Raises: ValueError unless they are whole numbers of at least 0."""
    if bad := [size for size in sizes if not isinstance(size, (int, np.integer)) or size < 0]:
        raise ValueError(f"{op}: a size is a whole number of at least 0, not {bad[0]!r}")
    return sizes


def _drawn(stream: str, draw: str, shape: tuple, dtype: Any, device: str, requires_grad: bool) -> Tensor:
    """Random numbers by the method `draw` of a generator."""
    if not is_float(np.dtype(dtype)):
        raise TypeError(f"{stream}: draws fractions, which {np.dtype(dtype)} cannot hold: use a float dtype")
    numbers = getattr(next_rng(stream), draw)(_sizes(stream, *shape)).astype(dtype)
    return Tensor.wrap(get_device(device).from_host(numbers)).requires_grad_(requires_grad)


for _name, _method in list(vars(Methods).items()):
    if _name not in ("__dict__", "__doc__", "__module__", "__weakref__"):
        setattr(Tensor, _name, _method)
