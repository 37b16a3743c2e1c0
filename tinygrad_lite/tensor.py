"""The tensor: an array that remembers how it was computed, so that gradients can walk back.

Every operation computes its result at once with NumPy or CuPy and, if some parent needs a gradient, hangs one
edge bundle on the result: its parents and a function `backward(dy)` that turns dL/d(result) into one gradient
per parent. `node()` is the only place where that happens. `Tensor.backward()` walks these edges from the loss
to the leaves. That is all of reverse-mode automatic differentiation; the calculus is in `ops.py` and in the
chapters of `functional/`.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tinygrad_lite import anomaly, profiler
from tinygrad_lite.device import Array, device_of, get_device, next_rng

Backward = Callable[[Array], tuple[Array | None, ...]]
Axis = int | Sequence[int] | None

_newest = itertools.count()  # creation counter: a parent is always older than its child
_grad_enabled = True


@contextmanager
def no_grad() -> Iterator[None]:
    """Inside, operations compute values only: no graph is built and nothing is kept for a backward pass."""
    global _grad_enabled
    before, _grad_enabled = _grad_enabled, False
    try:
        yield
    finally:
        _grad_enabled = before


class Tensor:
    """An n-dimensional array with a gradient.

    Args:
        data: a number, nested lists, or an array (which is copied). Python floats become float32, integers
            int64; arrays keep their dtype.
        dtype: the type of the elements, if another one is wanted.
        device: "cpu" or "cuda".
        requires_grad: whether `backward()` shall leave a gradient in `.grad`.

    >>> x = Tensor([1.0, 2.0, 3.0], requires_grad=True)
    >>> (x * x).sum().backward()
    >>> x.grad
    Tensor([2. 4. 6.], shape=(3,), dtype=float32, device=cpu)
    """

    _place: anomaly.Place | None = None  # the line that made it; remembered in the checking mode only
    _is_parameter = False
    _gradient_memory: Callable[[], Array] | None = None  # where an optimizer wants the gradient of a leaf
    _seen: tuple[int, ...] = ()  # the parents' versions when this node was made, and its own
    _retain = False
    __array_ufunc__ = None  # lets `numpy_array + tensor` reach Tensor.__radd__

    def __init__(self, data: Any, dtype: Any = None, device: str | None = None, requires_grad: bool = False) -> None:
        if isinstance(data, Tensor):
            raise TypeError("Tensor(tensor): use tensor.detach(), tensor.cast(dtype) or tensor.to(device)")
        given = data.dtype if hasattr(data, "dtype") else np.asarray(data).dtype
        if dtype is None and not hasattr(data, "dtype"):
            dtype = {"f": np.float32, "i": np.int64}.get(given.kind)
        wanted = given if dtype is None else np.dtype(dtype)
        if wanted.kind not in "fiub":
            raise TypeError(f"Tensor: elements of type {wanted} are not numbers")
        if device is None and not isinstance(data, (np.ndarray, np.generic)) and hasattr(data, "__array__"):
            device = device_of(data).name
        if device is None or device == "cpu":
            array = np.array(data, dtype=dtype)
        else:
            array = get_device(device).xp.array(data, dtype=dtype)
        self._set_up(array, (), None, "")
        if requires_grad:
            self.requires_grad_()

    def _set_up(self, array: Array, parents: tuple, backward: Backward | None, op: str) -> None:
        self.data = array
        self.grad: Tensor | None = None
        self.requires_grad = backward is not None
        self.op = op
        self._parents: tuple[Tensor, ...] = parents
        self._backward = backward
        self._order = next(_newest)
        self._version = [0]  # counts in-place writes; views of the same memory share this cell

    @staticmethod
    def wrap(array: Array) -> Tensor:
        """A leaf over an existing array, without copying it."""
        tensor = Tensor.__new__(Tensor)
        tensor._set_up(array, (), None, "")
        return tensor

    # --- what it is ------------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        return self.data.shape

    @property
    def ndim(self) -> int:
        return self.data.ndim

    @property
    def dtype(self) -> np.dtype:
        return self.data.dtype

    @property
    def device(self) -> str:
        return device_of(self.data).name

    @property
    def xp(self) -> Any:
        """The module that owns the data: numpy or cupy."""
        return device_of(self.data).xp

    @property
    def T(self) -> Tensor:
        return self.transpose()

    @property
    def version(self) -> int:
        """How often its memory was written to in place, as far as noted (see `mark_written`)."""
        return self._version[0]

    def numel(self) -> int:
        """How many elements there are."""
        return self.data.size

    def numpy(self) -> np.ndarray:
        """The values as a NumPy array: a read-only view on the CPU, a copy from a GPU."""
        view = device_of(self.data).to_host(self.data).view()
        view.flags.writeable = False
        return view

    def item(self) -> float | int | bool:
        """The value of a tensor with one element, as a Python number."""
        if self.data.size != 1:
            raise ValueError(f"item: the tensor of shape {self.shape} has {self.data.size} elements, not 1")
        return self.data.item()

    def tolist(self) -> Any:
        """The values as nested Python lists."""
        return self.numpy().tolist()

    def __len__(self) -> int:
        if self.ndim == 0:
            raise TypeError("len() of a 0-d tensor")
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))

    def __bool__(self) -> bool:
        if self.data.size != 1:
            raise ValueError(f"a tensor of shape {self.shape} is neither true nor false: use (t != 0).max()")
        return bool(self.data.item())

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __repr__(self) -> str:
        values = np.array2string(self.numpy(), separator=" ", prefix="Tensor(", threshold=100)
        facts = [f"shape={self.shape}", f"dtype={self.dtype}", f"device={self.device}"]
        if self.op:
            facts.append(f"op={self.op}")
        elif self.requires_grad:
            facts.append("requires_grad=True")
        return f"Tensor({values}, {', '.join(facts)})"

    # --- its place in the graph ------------------------------------------------------------------------------

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Ask for a gradient of this leaf (or stop asking), and return it."""
        if self._backward is not None:
            raise RuntimeError("requires_grad_: only for leaves, not for results; use detach() to stop gradients here")
        if requires_grad and self.dtype not in (np.float32, np.float64):
            raise TypeError(f"requires_grad: only float32 and float64 have gradients, not {self.dtype}")
        self.requires_grad = requires_grad
        return self

    def retain_grad(self) -> Tensor:
        """Keep the gradient of this intermediate result in `.grad`, as for a leaf."""
        if not self.requires_grad:
            raise RuntimeError("retain_grad: this tensor takes part in no gradient computation")
        self._retain = True
        return self

    def detach(self) -> Tensor:
        """The same values (the same memory) as a constant: gradients stop here."""
        tensor = Tensor.wrap(self.data)
        tensor._version = self._version
        return tensor

    def to(self, device: str) -> Tensor:
        """This tensor on another device; the gradient travels back."""
        return ops.to_device(self, device)

    def __setitem__(self, index: Any, value: Any) -> None:
        """Write into the tensor, in place. Only for constants, and for leaves under `no_grad()`.

        A gradient does not flow through writing; build the new value with `where` or `cat` instead. The write is
        noted, and a backward pass that would still need the old values says so.
        """
        if self._backward is not None or (self.requires_grad and _grad_enabled):
            raise RuntimeError(
                "cannot write into a tensor that gradients flow through: use where(), cat() or masked_fill(), "
                "or write into a leaf under no_grad()"
            )
        index = ops.raw_index(index, self.xp)
        self.data[index] = value.data if isinstance(value, Tensor) else value
        self.mark_written()

    def _in_place(self, result: Tensor, sign: str) -> Tensor:
        """What `x += y` and the like make of x + y: a new tensor, except that parameters and leaves that require a
        gradient are written into.
        """
        if self._backward is not None or not (self.requires_grad or self._is_parameter):
            return result
        if _grad_enabled:
            raise RuntimeError(
                f"x {sign} y: x is a leaf that requires a gradient: write into it under no_grad(), or make a new "
                f"tensor by x = x {sign[0]} y"
            )
        if result.shape != self.shape:
            raise ValueError(f"x {sign} y: the result has shape {result.shape}, x has {self.shape}")
        self[...] = result
        return self

    def mark_written(self) -> None:
        """Note that the memory of this tensor was changed in place (optimizers do this)."""
        self._version[0] += 1

    def backward(self, gradient: Tensor | None = None) -> None:
        """Leave dL/dx in `.grad` of every leaf x that asked for it, where L is this tensor.

        Gradients add up in `.grad` until they are set back. The graph is freed as it is walked.

        Why newest first? A tensor may hand its gradient on only after all its children have reported. In

        >>> a = Tensor(1.0, requires_grad=True)
        >>> b = a + a
        >>> c = b + b
        >>> c.backward()
        >>> a.grad.item()
        4.0

        b is the child of a twice and the parent of c twice. Walking depth-first along each edge at once would
        pass on b's first half gradient, then pass on the whole again, and arrive at 6. Children are always
        made after their parents, so going through the nodes by age, newest first, is enough.

        Args:
            gradient: dL/d(this tensor), if this tensor is not itself the scalar loss.
        Raises: RuntimeError if there is no graph, if part of it was freed by an earlier backward, or if a value
            that is still needed was overwritten.
        """
        if not self.requires_grad:
            raise RuntimeError("backward: this tensor was computed from nothing that requires a gradient")
        if gradient is None:
            if self.data.size != 1:
                raise RuntimeError(f"backward: a tensor of shape {self.shape} is no scalar loss; sum it first")
            start = self.xp.ones(self.shape, self.dtype)
        else:
            start = gradient.data if isinstance(gradient, Tensor) else gradient
            _check_gradient(start, self, "backward")
        nodes = _collect(self)
        gradients = {id(self): start}  # the sum of what has arrived so far
        own = set()  # whose sum is a fresh array that may be added into
        with np.errstate(all="ignore"):
            while nodes:
                tensor = nodes.pop()
                dy = gradients.pop(id(tensor), None)
                if dy is None:  # whatever was computed from it passed nothing on
                    continue
                if isinstance(dy, np.generic):  # NumPy turns 0-d results into scalars
                    dy = np.asarray(dy)
                if tensor._retain or tensor._backward is None:
                    _keep(tensor, dy)
                if tensor._backward is None:
                    continue
                parents, backward = tensor._parents, tensor._backward
                tensor._parents, tensor._backward = (), _freed
                began = time.perf_counter() if profiler.running else 0.0
                gradients_of_parents = backward(dy)
                if profiler.running:
                    profiler.running.note_backward(tensor.op, began)
                for parent, dx in zip(parents, gradients_of_parents, strict=True):
                    if dx is None or not parent.requires_grad:
                        continue
                    _check_gradient(dx, parent, tensor.op)
                    if anomaly.checking:
                        inputs = (dy, *(p.data for p in parents))
                        anomaly.check(dx, inputs, f"the gradient of {tensor.op}", tensor._place)
                    if parent._backward is None:  # a leaf waits for nobody, and its gradient need not wait either
                        _keep(parent, dx)
                        continue
                    key = id(parent)
                    if key not in gradients:
                        gradients[key] = dx
                    elif key in own:
                        gradients[key] += dx
                    else:
                        gradients[key] = gradients[key] + dx
                        own.add(key)

    # --- creation (shapes as numbers or as one tuple) ---------------------------------------------------------

    @staticmethod
    def full(shape: tuple[int, ...], value: float, dtype: Any = None, device: str = "cpu") -> Tensor:
        """A tensor of one value everywhere."""
        dtype = Tensor(value).dtype if dtype is None else dtype
        return Tensor.wrap(get_device(device).xp.full(shape, value, dtype))

    @staticmethod
    def zeros(*shape: Any, dtype: Any = np.float32, device: str = "cpu") -> Tensor:
        return Tensor.full(_shape(shape), 0, dtype, device)

    @staticmethod
    def ones(*shape: Any, dtype: Any = np.float32, device: str = "cpu") -> Tensor:
        return Tensor.full(_shape(shape), 1, dtype, device)

    @staticmethod
    def arange(start: float, stop: float | None = None, step: float = 1, device: str = "cpu") -> Tensor:
        """start, start + step, ... up to but excluding stop; from 0 if only one number is given."""
        start, stop = (0, start) if stop is None else (start, stop)
        dtype = np.float32 if any(isinstance(n, float) for n in (start, stop, step)) else np.int64
        return Tensor.wrap(get_device(device).xp.arange(start, stop, step, dtype))

    @staticmethod
    def eye(size: int, dtype: Any = np.float32, device: str = "cpu") -> Tensor:
        """The identity matrix."""
        return Tensor.wrap(get_device(device).xp.eye(size, dtype=dtype))

    @staticmethod
    def rand(*shape: Any, dtype: Any = np.float32, device: str = "cpu") -> Tensor:
        """Uniform in [0, 1). Drawn on the host, so every device gets the same numbers (see `manual_seed`)."""
        numbers = next_rng("rand").random(_shape(shape)).astype(dtype)
        return Tensor.wrap(get_device(device).from_host(numbers))

    @staticmethod
    def randn(*shape: Any, dtype: Any = np.float32, device: str = "cpu") -> Tensor:
        """Normal with mean 0 and variance 1. Drawn on the host, like `rand`."""
        numbers = next_rng("randn").standard_normal(_shape(shape)).astype(dtype)
        return Tensor.wrap(get_device(device).from_host(numbers))

    def full_like(self, value: float) -> Tensor:
        """A constant of this shape, dtype and device."""
        return Tensor.full(self.shape, value, self.dtype, self.device)

    def zeros_like(self) -> Tensor:
        return self.full_like(0)

    def ones_like(self) -> Tensor:
        return self.full_like(1)

    # --- arithmetic and comparison ----------------------------------------------------------------------------

    def __add__(self, other: Any) -> Tensor:
        return ops.add(self, other)

    def __radd__(self, other: Any) -> Tensor:
        return ops.add(other, self)

    def __sub__(self, other: Any) -> Tensor:
        return ops.sub(self, other)

    def __rsub__(self, other: Any) -> Tensor:
        return ops.sub(other, self)

    def __mul__(self, other: Any) -> Tensor:
        return ops.mul(self, other)

    def __rmul__(self, other: Any) -> Tensor:
        return ops.mul(other, self)

    def __truediv__(self, other: Any) -> Tensor:
        return ops.div(self, other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return ops.div(other, self)

    def __pow__(self, other: Any) -> Tensor:
        return ops.pow(self, other)

    def __rpow__(self, other: Any) -> Tensor:
        return ops.pow(other, self)

    def __iadd__(self, other: Any) -> Tensor:
        return self._in_place(ops.add(self, other), "+=")

    def __isub__(self, other: Any) -> Tensor:
        return self._in_place(ops.sub(self, other), "-=")

    def __imul__(self, other: Any) -> Tensor:
        return self._in_place(ops.mul(self, other), "*=")

    def __itruediv__(self, other: Any) -> Tensor:
        return self._in_place(ops.div(self, other), "/=")

    def __neg__(self) -> Tensor:
        return ops.neg(self)

    def __matmul__(self, other: Any) -> Tensor:
        return ops.matmul(self, other)

    def __rmatmul__(self, other: Any) -> Tensor:
        return ops.matmul(other, self)

    def __eq__(self, other: Any) -> Tensor:  # type: ignore[override]
        return ops.compare(self, other, "equal")

    def __ne__(self, other: Any) -> Tensor:  # type: ignore[override]
        return ops.compare(self, other, "not_equal")

    def __lt__(self, other: Any) -> Tensor:
        return ops.compare(self, other, "less")

    def __le__(self, other: Any) -> Tensor:
        return ops.compare(self, other, "less_equal")

    def __gt__(self, other: Any) -> Tensor:
        return ops.compare(self, other, "greater")

    def __ge__(self, other: Any) -> Tensor:
        return ops.compare(self, other, "greater_equal")

    def __invert__(self) -> Tensor:
        """Not: true where this tensor is false or zero."""
        return ops.compare(self, 0, "equal")

    __hash__ = object.__hash__  # a tensor is itself, whatever its values: it can be in sets and dicts

    def pow(self, exponent: Any) -> Tensor:
        return ops.pow(self, exponent)

    def maximum(self, other: Any) -> Tensor:
        return ops.maximum(self, other)

    def minimum(self, other: Any) -> Tensor:
        return ops.minimum(self, other)

    def matmul(self, other: Any) -> Tensor:
        return ops.matmul(self, other)

    # --- one element at a time --------------------------------------------------------------------------------

    def exp(self) -> Tensor:
        return ops.exp(self)

    def log(self) -> Tensor:
        return ops.log(self)

    def sqrt(self) -> Tensor:
        return ops.sqrt(self)

    def tanh(self) -> Tensor:
        return ops.tanh(self)

    def sin(self) -> Tensor:
        return ops.sin(self)

    def cos(self) -> Tensor:
        return ops.cos(self)

    def erf(self) -> Tensor:
        return ops.erf(self)

    def relu(self) -> Tensor:
        return ops.relu(self)

    def abs(self) -> Tensor:
        return ops.abs(self)

    def clip(self, low: float | None = None, high: float | None = None) -> Tensor:
        return ops.clip(self, low, high)

    def cast(self, dtype: Any) -> Tensor:
        return ops.cast(self, dtype)

    def sigmoid(self) -> Tensor:
        """1 / (1 + e^-x), written with tanh because e^-x overflows for very negative x."""
        return (self * 0.5).tanh() * 0.5 + 0.5

    def silu(self) -> Tensor:
        """x * sigmoid(x), also called swish (Ramachandran et al. 2017, arXiv:1710.05941)."""
        return self * self.sigmoid()

    def where(self, x: Any, y: Any) -> Tensor:
        """x where this tensor is true, y elsewhere."""
        return ops.where(self, x, y)

    def masked_fill(self, mask: Tensor, value: float) -> Tensor:
        """This tensor with `value` wherever the mask is true."""
        return ops.where(mask, value, self)

    # --- reductions (axis: None for all, a number, or several) ------------------------------------------------

    def sum(self, axis: Axis = None, keepdim: bool = False) -> Tensor:
        return ops.sum(self, axis, keepdim)

    def max(self, axis: Axis = None, keepdim: bool = False) -> Tensor:
        return ops.max(self, axis, keepdim)

    def min(self, axis: Axis = None, keepdim: bool = False) -> Tensor:
        return ops.min(self, axis, keepdim)

    def mean(self, axis: Axis = None, keepdim: bool = False) -> Tensor:
        total = self.sum(axis, keepdim)
        return total / (self.numel() / total.numel() if total.numel() else 1.0)

    def var(self, axis: Axis = None, keepdim: bool = False, correction: int = 1) -> Tensor:
        """Mean squared distance from the mean; divides by n - correction, as torch and tinygrad do."""
        distance = self - self.mean(axis, keepdim=True)
        total = (distance * distance).sum(axis, keepdim)
        return total / max(self.numel() / max(total.numel(), 1) - correction, 0.0)

    def std(self, axis: Axis = None, keepdim: bool = False, correction: int = 1) -> Tensor:
        """The square root of the variance. Its gradient where all elements are equal is 0 (PyTorch's choice)."""
        var = self.var(axis, keepdim, correction)
        flat = var == 0  # there the slope of the root is infinite
        return var.masked_fill(flat, 1.0).sqrt().masked_fill(flat, 0.0)

    def argmax(self, axis: int | None = None, keepdim: bool = False) -> Tensor:
        return ops.argmax(self, axis, keepdim)

    def logsumexp(self, axis: Axis = None, keepdim: bool = False) -> Tensor:
        return functional.logsumexp(self, axis, keepdim)

    # --- shape ------------------------------------------------------------------------------------------------

    def reshape(self, *shape: Any) -> Tensor:
        return ops.reshape(self, _shape(shape))

    view = reshape

    def permute(self, *axes: Any) -> Tensor:
        return ops.permute(self, _shape(axes))

    def transpose(self, axis0: int = 1, axis1: int = 0) -> Tensor:
        """Swap two axes."""
        axes = list(range(self.ndim))
        axis0, axis1 = (ops.one_axis(axis, self.ndim, "transpose") for axis in (axis0, axis1))
        axes[axis0], axes[axis1] = axis1, axis0
        return ops.permute(self, tuple(axes))

    def expand(self, *shape: Any) -> Tensor:
        return ops.expand(self, _shape(shape))

    def pad(self, padding: Sequence[tuple[int, int]], value: float = 0.0) -> Tensor:
        return ops.pad(self, padding, value)

    def flatten(self, start_axis: int = 0, end_axis: int = -1) -> Tensor:
        """Join the axes from start_axis to end_axis, both included, into one."""
        start, end = (ops.one_axis(axis, max(self.ndim, 1), "flatten") for axis in (start_axis, end_axis))
        return self.reshape(*self.shape[:start], math.prod(self.shape[start : end + 1]), *self.shape[end + 1 :])

    def squeeze(self, axis: int | None = None) -> Tensor:
        """Without the axes of size 1 (or without the one named, if it has size 1)."""
        if axis is None:
            return self.reshape(tuple(size for size in self.shape if size != 1))
        axis = ops.one_axis(axis, self.ndim, "squeeze")
        return self if self.shape[axis] != 1 else self.reshape(*self.shape[:axis], *self.shape[axis + 1 :])

    def unsqueeze(self, axis: int) -> Tensor:
        """With a new axis of size 1 at this place."""
        axis = ops.one_axis(axis, self.ndim + 1, "unsqueeze")
        return self.reshape(*self.shape[:axis], 1, *self.shape[axis:])

    def cat(self, *others: Tensor, axis: int = 0) -> Tensor:
        """This tensor and the others, one after the other along an axis they already have."""
        return ops.cat((self, *others), axis)

    def stack(self, *others: Tensor, axis: int = 0) -> Tensor:
        """This tensor and the others of the same shape, along a new axis."""
        return ops.cat(tuple(tensor.unsqueeze(axis) for tensor in (self, *others)), axis)

    def split(self, sizes: int | Sequence[int], axis: int = 0) -> tuple[Tensor, ...]:
        """Consecutive pieces along an axis: all of one size (the last may be smaller), or of the sizes given."""
        axis = ops.one_axis(axis, self.ndim, "split")
        length = self.shape[axis]
        if isinstance(sizes, int):
            sizes = [min(sizes, length - start) for start in range(0, length, sizes)]
        if sum(sizes) != length:
            raise ValueError(f"split: sizes {list(sizes)} add up to {sum(sizes)}, the axis has {length}")
        ends = list(itertools.accumulate(sizes))
        before = (slice(None),) * axis
        return tuple(self[(*before, slice(end - size, end))] for size, end in zip(sizes, ends, strict=True))

    # --- picking elements -------------------------------------------------------------------------------------

    def __getitem__(self, index: Any) -> Tensor:
        return ops.getitem(self, index)

    def gather(self, axis: int, index: Tensor) -> Tensor:
        """out[i][j][k] = self[i][index[i][j][k]][k] for axis 1, and likewise for other axes."""
        axis = ops.one_axis(axis, self.ndim, "gather")
        if index.ndim != self.ndim:
            raise ValueError(f"gather: index has {index.ndim} axes, the tensor has {self.ndim}")
        places = [index if i == axis else _along(index, i) for i in range(self.ndim)]
        return self[tuple(places)]

    def one_hot(self, num_classes: int) -> Tensor:
        """(...) integers -> (..., num_classes) float32 with a 1 at each integer's place and 0 elsewhere."""
        places = Tensor.arange(num_classes, device=self.device)
        return (self.unsqueeze(-1) == places).cast(np.float32)

    def tril(self, diagonal: int = 0) -> Tensor:
        """The lower triangle of the last two axes; zero above the given diagonal."""
        return self._triangle(diagonal).where(self, self.zeros_like())

    def triu(self, diagonal: int = 0) -> Tensor:
        """The upper triangle of the last two axes; zero below the given diagonal."""
        return self._triangle(diagonal - 1).where(self.zeros_like(), self)

    def _triangle(self, diagonal: int) -> Tensor:
        """True at row i, column j where j <= i + diagonal."""
        rows, columns = self.shape[-2:]
        i, j = (Tensor.arange(n, device=self.device) for n in (rows, columns))
        return j <= i.unsqueeze(1) + diagonal

    # --- the chapters of functional/ --------------------------------------------------------------------------

    def softmax(self, axis: int = -1) -> Tensor:
        return functional.softmax(self, axis)

    def log_softmax(self, axis: int = -1) -> Tensor:
        return functional.log_softmax(self, axis)

    def gelu(self, approximate: str = "none") -> Tensor:
        return functional.gelu(self, approximate)

    def layer_norm(self, weight: Tensor, bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
        return functional.layer_norm(self, weight, bias, eps)

    def dropout(self, p: float = 0.5) -> Tensor:
        return functional.dropout(self, p)

    def linear(self, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        return functional.linear(self, weight, bias)

    def scaled_dot_product_attention(
        self,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None = None,
        is_causal: bool = False,
        dropout_p: float = 0.0,
    ) -> Tensor:
        return functional.scaled_dot_product_attention(self, key, value, mask, is_causal, dropout_p)

    def cross_entropy(
        self, targets: Tensor, ignore_index: int = -100, label_smoothing: float = 0.0, reduction: str = "mean"
    ) -> Tensor:
        return functional.cross_entropy(self, targets, ignore_index, label_smoothing, reduction)


def _shape(sizes: tuple) -> tuple[int, ...]:
    """The sizes, whether they came as f(2, 3) or as f((2, 3))."""
    return tuple(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes


def _along(index: Tensor, axis: int) -> Tensor:
    """0, 1, 2, ... along one axis, shaped to broadcast against an index tensor."""
    shape = [1] * index.ndim
    shape[axis] = index.shape[axis]
    return Tensor.arange(index.shape[axis], device=index.device).reshape(shape)


def _collect(loss: Tensor) -> list[Tensor]:
    """Everything that the loss depends on and that takes part, oldest first; found without recursion.

    (A recursive search would stop at Python's limit of 1,000 nested calls, about a 12-layer network.)
    """
    found, todo = {id(loss): loss}, [loss]
    while todo:
        tensor = todo.pop()
        if tensor._backward is _freed:
            raise RuntimeError(
                f"backward: the graph behind '{tensor.op}' was freed by an earlier backward(); to use it for "
                "several losses, add the losses first and call backward() once"
            )
        versions = tuple(parent._version[0] for parent in tensor._parents)
        if tensor._seen and tensor._seen != (*versions, tensor._version[0]):
            raise RuntimeError(
                f"backward: a value that '{tensor.op}' still needs was overwritten in place after it was used"
            )
        for parent in tensor._parents:
            if parent.requires_grad and id(parent) not in found:
                found[id(parent)] = parent
                todo.append(parent)
    return sorted(found.values(), key=lambda tensor: tensor._order)


def _freed(dy: Array) -> tuple:
    """Stands in the place of a backward function that was used up."""
    raise RuntimeError("backward: this part of the graph was already used and freed")


def _keep(tensor: Tensor, dy: Array) -> None:
    """Add a gradient to what `.grad` holds."""
    memory, holds_gradient = gradient_memory(tensor)
    if memory is None:
        tensor.grad = Tensor.wrap(tensor.xp.array(dy))  # a copy: dy may be shared with other gradients
    elif holds_gradient:
        memory += dy
    else:
        memory[...] = dy


def gradient_memory(tensor: Tensor) -> tuple[Array | None, bool]:
    """The array of `.grad`, and whether a gradient is in it to which another one must be added.

    If there was none, this is memory of the optimizer, and what is written there next is the gradient; without an
    optimizer it is None.
    """
    if tensor.grad is not None:
        if not isinstance(tensor.grad, Tensor):
            raise TypeError(f"backward: .grad was set to a {type(tensor.grad).__name__}: make it a Tensor, or None")
        _check_gradient(tensor.grad.data, tensor, "setting .grad")
        return tensor.grad.data, True
    if tensor._gradient_memory is None:
        return None, False
    memory = tensor._gradient_memory()
    tensor.grad = Tensor.wrap(memory)
    return memory, False


def _check_gradient(dx: Array, parent: Tensor, op: str) -> None:
    """A gradient has its tensor's shape and dtype; a wrong derivative fails where it is made."""
    if dx.shape != parent.data.shape or dx.dtype != parent.data.dtype:
        raise RuntimeError(
            f"backward of '{op}' gave a gradient of shape {dx.shape} and dtype {dx.dtype} "
            f"for a parent of shape {parent.shape} and dtype {parent.dtype}"
        )


def check_one_device(tensors: Sequence[Tensor], op: str) -> None:
    """Raise ValueError if the tensors do not all live on one device."""
    kind = type(tensors[0].data)
    for tensor in tensors:
        if type(tensor.data) is not kind:
            devices = " and ".join(dict.fromkeys(t.device for t in tensors))
            raise ValueError(f"{op}: tensors on {devices} cannot be combined; move one with .to(device)")


def node(
    y: Array,
    parents: tuple[Tensor, ...],
    backward: Backward | None,
    op: str,
    linear: bool = False,
    view: bool = False,
) -> Tensor:
    """The result of an operation, with its edges: the only place where the graph grows.

    Args:
        y: the computed array (or NumPy scalar, as reductions give).
        parents: the tensors it was computed from.
        backward: takes dL/dy and returns dL/d(parent) for each parent (None where there is none). It may close
            over arrays and shapes, never over the resulting tensor: that would be a reference cycle, and memory
            would be freed late. It must not write into dy.
        op: the name for messages.
        linear: the gradient does not depend on the parents' values, so overwriting them does no harm.
        view: y is the first parent's memory in another shape (and linear), so writes to one are writes to both.
    """
    if isinstance(y, np.generic):
        y = np.asarray(y)
    if y.dtype == np.float16 and op != "cast":
        raise TypeError(f"{op}: float16 is for storage only; use .cast('float32') first")
    tensor = Tensor.__new__(Tensor)
    takes_part = False
    for parent in parents:
        takes_part = takes_part or parent.requires_grad
    if takes_part and _grad_enabled:
        tensor._set_up(y, parents, backward, op)
        if not (linear or view):
            tensor._seen = (*[parent._version[0] for parent in parents], 0)
    else:
        tensor._set_up(y, (), None, op)
    if view:
        tensor._version = parents[0]._version
    if anomaly.checking:
        tensor._place = anomaly.caller()
        anomaly.check(y, [parent.data for parent in parents], op, tensor._place)
    if profiler.running:
        profiler.running.note_forward(op, y, parents, tensor._backward, view)
    return tensor


from tinygrad_lite import functional, ops  # noqa: E402  (they need Tensor and node: the one circle in this project)
