"""The tensor: an array, and the node that says how it was computed.

Most of the methods are operations: `ops.py` has those with a derivative of their own, `compositions.py` those composed
of them, and `functional/` the heavy ones. How gradients walk back is in `autograd.py`.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tinygrad_lite import autograd, spelling
from tinygrad_lite.autograd import Backward, Node
from tinygrad_lite.device import Array, device_of, get_device, is_float, next_rng

Axis = int | Sequence[int] | None


class _Later:
    """Stands for a module of operations while the class `Tensor`, which they need, is being made.

    `exp = ops.exp` in its body then notes two names; the end of this file puts the function there.
    """

    def __init__(self, module: str, name: str = "") -> None:
        self.module, self.name = module, name

    def __getattr__(self, name: str) -> _Later:
        return _Later(self.module, name)


if TYPE_CHECKING:  # an editor sees the functions themselves
    from tinygrad_lite import compositions, functional, ops
else:
    compositions, functional, ops = _Later("compositions"), _Later("functional"), _Later("ops")


class Tensor(metaclass=spelling.Listed):
    """An n-dimensional array with a gradient.

    Beside a tensor, operations take a number, a list or an array too, and make a constant of it: a number takes the
    tensor's dtype if it can, a list becomes float32 or int64, an array keeps its dtype (NumPy's is mostly float64).

    Args:
        data: a number, nested lists, or an array (which is copied). Python floats become float32, integers
            int64; arrays keep their dtype.
        dtype: the type of the elements, if another one is wanted.
        device: "cpu" or "cuda".
        requires_grad: whether `backward()` leaves a gradient in `.grad`.
    Attributes:
        data: the values, an array of NumPy or CuPy.
        grad: the gradient, a tensor, or None where none has arrived.
        op: the operation that computed it; empty for a leaf.

    >>> x = Tensor([1.0, 2.0, 3.0], requires_grad=True)
    >>> (x * x).sum().backward()
    >>> x.grad
    Tensor([2. 4. 6.], shape=(3,), dtype=float32, device=cpu)
    """

    _node: Node | None = None  # how it was computed; None for a constant
    _is_parameter = False
    _gradient_memory: Callable[[], Array] | None = None  # where an optimizer wants the gradient of a leaf
    __array_ufunc__ = None  # lets `numpy_array + tensor` reach Tensor.__radd__

    def __init__(self, data: Any, dtype: Any = None, device: str | None = None, requires_grad: bool = False) -> None:
        if isinstance(data, Tensor):
            raise TypeError("Tensor(tensor): use tensor.detach(), tensor.cast(dtype) or tensor.to(device)")
        is_list = not hasattr(data, "dtype")
        if is_list or not isinstance(data.dtype, np.dtype):  # the latter: an array of some other library
            try:
                data = np.asarray(data)
            except ValueError:
                raise ValueError("Tensor: the nested lists differ in length, so they have no shape") from None
        given = data.dtype
        if dtype is None and is_list:
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
        self._set_up(array, "")
        if requires_grad:
            self.requires_grad_()

    def _set_up(self, array: Array, op: str) -> None:
        self.data = array
        self.grad: Tensor | None = None
        self.op = op
        self._version = [0]  # counts in-place writes; views of the same memory share this cell

    @staticmethod
    def wrap(array: Array) -> Tensor:
        """A leaf over an existing array, without copying it."""
        tensor = Tensor.__new__(Tensor)
        tensor._set_up(array, "")
        return tensor

    # --- what it is ------------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the axes."""
        return self.data.shape

    @property
    def ndim(self) -> int:
        """How many axes there are."""
        return self.data.ndim

    @property
    def dtype(self) -> np.dtype:
        """The type of the elements."""
        return self.data.dtype

    @property
    def device(self) -> str:
        """Where the data are: "cpu" or "cuda"."""
        return device_of(self.data).name

    @property
    def xp(self) -> Any:
        """The module that owns the data: numpy or cupy."""
        return device_of(self.data).xp

    @property
    def T(self) -> Tensor:
        """All axes in reverse order, as in NumPy: of a matrix the transpose, of a vector the vector itself."""
        return self.permute(*range(self.ndim)[::-1])

    @property
    def requires_grad(self) -> bool:
        """Whether gradients flow to it; may be set for leaves of floats, as `requires_grad_` does."""
        return self._node is not None

    @requires_grad.setter
    def requires_grad(self, requires_grad: bool) -> None:
        self.requires_grad_(requires_grad)

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

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """What NumPy's functions ask for, as in np.asarray(x): a read-only view where they do not want a copy.

        Refused, as in torch, if a gradient would end here without a word, or if NumPy would have to wait for a GPU.
        """
        if self.requires_grad:
            raise RuntimeError(
                "a tensor that requires a gradient does not become an array by itself, for NumPy would lose the "
                "gradient: use x.numpy() or x.detach().numpy(), and stack() or cat() to join tensors"
            )
        if self.device != "cpu":
            raise TypeError(f"a tensor on {self.device} does not become a NumPy array by itself: x.numpy() copies it")
        return np.array(self.numpy(), dtype, copy=copy)

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
            raise ValueError(f"a tensor of shape {self.shape} is neither true nor false: use .any() or .all()")
        return bool(self.data.item())

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __format__(self, form: str) -> str:
        if form and self.data.size != 1:
            raise ValueError(
                f"format {form!r}: the tensor of shape {self.shape} is not one number: format its elements"
            )
        return format(self.item(), form) if form else str(self)

    def __dir__(self) -> list[str]:
        return sorted({*dir(type(self)), *vars(self)})

    def __repr__(self) -> str:
        values = np.array2string(self.numpy(), separator=" ", prefix="Tensor(", threshold=100)
        facts = [f"shape={self.shape}", f"dtype={self.dtype}", f"device={self.device}"]
        if self.op:
            facts.append(f"op={self.op}")
        elif self.requires_grad:
            facts.append("requires_grad=True")
        return f"Tensor({values}, {', '.join(facts)})"

    # --- its place in the graph ------------------------------------------------------------------------------

    @property
    def _is_leaf(self) -> bool:
        """Whether no operation made it, as far as gradients are concerned."""
        return self._node is None or self._node.backward is None

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Ask for a gradient of this leaf (or stop asking), and return it."""
        if not self._is_leaf:
            raise RuntimeError("requires_grad_: only for leaves, not for results; use detach() to stop gradients here")
        if requires_grad and self.dtype not in (np.float32, np.float64):
            raise TypeError(f"requires_grad: only float32 and float64 have gradients, not {self.dtype}")
        if requires_grad and self._node is None:
            self._node = Node("", (), None, self.shape, self.dtype, keep=self._keeper())
        elif not requires_grad:
            self._node = None
        return self

    def _keeper(self) -> Callable[[Array, str], None]:
        """What puts a gradient into `.grad`, without holding this tensor: a cycle would be freed late."""
        return functools.partial(_keep, weakref.ref(self))

    def retain_grad(self) -> Tensor:
        """Keep the gradient of this intermediate result in `.grad`, as for a leaf."""
        if self._node is None:
            raise RuntimeError("retain_grad: this tensor takes part in no gradient computation")
        self._node.keep = self._keeper()
        return self

    def __reduce__(self) -> tuple:
        """For `copy.deepcopy` and pickle: a leaf is copied with its gradient, a result cannot be."""
        if not self._is_leaf:
            raise RuntimeError(f"the result of '{self.op}' cannot be copied or pickled: use .detach() first")
        return _rebuild, (type(self), self.data, self.requires_grad, self.grad)

    def detach(self) -> Tensor:
        """The same values (the same memory) as a constant: gradients stop here."""
        tensor = Tensor.wrap(self.data)
        tensor._version = self._version
        return tensor

    def __setitem__(self, index: Any, value: Any) -> None:
        """Write into the tensor, in place. Only for constants, and for leaves under `no_grad()`.

        A gradient does not flow through writing; build the new value with `where` or `cat` instead. The write is
        noted, and a backward pass that would still need the old values says so.
        """
        if not self._is_leaf or (self.requires_grad and autograd.grad_enabled):
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

    def mark_written(self) -> None:
        """Note that the memory of this tensor was changed in place (optimizers do this)."""
        self._version[0] += 1

    def backward(self, gradient: Tensor | None = None) -> None:
        """Leave dL/dx in `.grad` of every leaf x that asked for it, where L is this tensor.

        Gradients add up in `.grad` until they are set back. The graph is freed as it is walked; how, is in
        `autograd.walk_back`.

        Args:
            gradient: dL/d(this tensor), if this tensor is not itself the scalar loss.
        Raises: RuntimeError if there is no graph, if part of it was freed by an earlier backward, or if a value
            that is still needed was overwritten.
        """
        if self._node is None:
            raise RuntimeError("backward: this tensor was computed from nothing that requires a gradient")
        if gradient is None:
            if self.data.size != 1:
                raise RuntimeError(f"backward: a tensor of shape {self.shape} is no scalar loss; sum it first")
            start = self.xp.ones(self.shape, self.dtype)
        else:
            start = gradient.data if isinstance(gradient, Tensor) else gradient
            autograd.check_gradient(start, self.shape, self.dtype, "backward")
        autograd.walk_back(self._node, start)

    # --- creation (shapes as numbers or as one tuple) ---------------------------------------------------------

    @staticmethod
    def full(shape: Any, value: float, dtype: Any = None, device: str = "cpu", requires_grad: bool = False) -> Tensor:
        """A tensor of one value everywhere."""
        dtype = Tensor(value).dtype if dtype is None else dtype
        return Tensor.wrap(get_device(device).xp.full(shape, value, dtype)).requires_grad_(requires_grad)

    @staticmethod
    def zeros(*shape: Any, dtype: Any = np.float32, device: str = "cpu", requires_grad: bool = False) -> Tensor:
        """A tensor of zeros."""
        return Tensor.full(ops.as_shape(shape), 0, dtype, device, requires_grad)

    @staticmethod
    def ones(*shape: Any, dtype: Any = np.float32, device: str = "cpu", requires_grad: bool = False) -> Tensor:
        """A tensor of ones."""
        return Tensor.full(ops.as_shape(shape), 1, dtype, device, requires_grad)

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
        """The identity matrix: ones where row and column have the same number, as many columns as rows by default."""
        return Tensor.wrap(get_device(device).xp.eye(rows, columns, dtype=dtype)).requires_grad_(requires_grad)

    @staticmethod
    def rand(*shape: Any, dtype: Any = np.float32, device: str = "cpu", requires_grad: bool = False) -> Tensor:
        """Uniform in [0, 1). Drawn on the host, so every device gets the same numbers (see `manual_seed`)."""
        return _drawn("rand", "random", shape, dtype, device, requires_grad)

    @staticmethod
    def randn(*shape: Any, dtype: Any = np.float32, device: str = "cpu", requires_grad: bool = False) -> Tensor:
        """Normal with mean 0 and variance 1. Drawn on the host, like `rand`."""
        return _drawn("randn", "standard_normal", shape, dtype, device, requires_grad)

    def full_like(self, value: float, dtype: Any = None, requires_grad: bool = False) -> Tensor:
        """One value everywhere, in this shape, on this device, in this dtype unless another is given."""
        return Tensor.full(self.shape, value, self.dtype if dtype is None else dtype, self.device, requires_grad)

    def zeros_like(self, dtype: Any = None, requires_grad: bool = False) -> Tensor:
        """Zeros in this shape, on this device, in this dtype unless another is given."""
        return self.full_like(0, dtype, requires_grad)

    def ones_like(self, dtype: Any = None, requires_grad: bool = False) -> Tensor:
        """Ones in this shape, on this device, in this dtype unless another is given."""
        return self.full_like(1, dtype, requires_grad)

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

    __mod__ = ops.mod
    __floordiv__ = ops.floordiv

    def __rmod__(self, other: Any) -> Tensor:
        return ops.mod(other, self)

    def __rfloordiv__(self, other: Any) -> Tensor:
        return ops.floordiv(other, self)

    def __and__(self, other: Any) -> Tensor:
        return ops.logical(self, other, "logical_and")

    def __or__(self, other: Any) -> Tensor:
        return ops.logical(self, other, "logical_or")

    def __xor__(self, other: Any) -> Tensor:
        return ops.logical(self, other, "logical_xor")

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__
    __abs__ = ops.abs
    __hash__ = object.__hash__  # a tensor is itself, whatever its values: it can be in sets and dicts

    # --- all other methods are functions whose first argument is the tensor ------------------------------------

    __getitem__ = ops.getitem

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
    cross_entropy = functional.cross_entropy
    layer_norm = functional.layer_norm
    linear = functional.linear
    log_softmax = functional.log_softmax
    scaled_dot_product_attention = functional.scaled_dot_product_attention
    softmax = functional.softmax


def _drawn(stream: str, draw: str, shape: tuple, dtype: Any, device: str, requires_grad: bool) -> Tensor:
    """Random numbers by the method `draw` of a generator."""
    if not is_float(np.dtype(dtype)):
        raise TypeError(f"{stream}: draws fractions, which {np.dtype(dtype)} cannot hold: use a float dtype")
    numbers = getattr(next_rng(stream), draw)(ops.as_shape(shape)).astype(dtype)
    return Tensor.wrap(get_device(device).from_host(numbers)).requires_grad_(requires_grad)


def _rebuild(kind: type[Tensor], array: Array, requires_grad: bool, gradient: Tensor | None) -> Tensor:
    """A copy of a leaf, from what `__reduce__` says of it."""
    tensor = kind.__new__(kind)
    tensor._set_up(array, "")
    tensor.requires_grad_(requires_grad).grad = gradient
    return tensor


def _keep(reference: weakref.ref[Tensor], dy: Array, op: str) -> None:
    """Add a gradient, which comes from the operation named, to what `.grad` of a tensor holds."""
    tensor = reference()
    if tensor is None:  # nobody could read it
        return
    autograd.check_gradient(dy, tensor.data.shape, tensor.data.dtype, op)
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
        autograd.check_gradient(tensor.grad.data, tensor.shape, tensor.dtype, "setting .grad")
        return tensor.grad.data, True
    if tensor._gradient_memory is None:
        return None, False
    memory = tensor._gradient_memory()
    tensor.grad = Tensor.wrap(memory)
    return memory, False


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
    """The result of an operation, with its node: the only place where the graph grows.

    Args:
        y: the computed array (or NumPy scalar, as reductions give).
        parents: the tensors it was computed from.
        backward: takes dL/dy and returns dL/d(parent) for each parent; see `autograd.Node`.
        op: the name for messages.
        linear: the gradient does not depend on the parents' values, so overwriting them does no harm.
        view: y is the first parent's memory in another shape (and linear), so writes to one are writes to both.
    """
    if isinstance(y, np.generic):
        y = np.asarray(y)
    if y.dtype.char == "e" and op != "cast":  # float16; comparing characters takes a tenth of the time
        raise TypeError(f"{op}: float16 is for storage only; use .cast('float32') first")
    tensor = Tensor.__new__(Tensor)
    tensor._set_up(y, op)
    if view:
        tensor._version = parents[0]._version
    if autograd.grad_enabled:
        nodes = tuple([parent._node for parent in parents])
        if nodes.count(None) < len(nodes):
            tensor._node = made = Node(op, nodes, backward, y.shape, y.dtype)
            if not (linear or view):
                made.seen = tuple([(x._version, x._version[0]) for x in (*parents, tensor)])
    for observer in autograd.observers:
        observer.made(tensor, parents, view)
    return tensor


from tinygrad_lite import compositions, functional, ops  # noqa: E402  (they need Tensor and node)


def _close_the_circle() -> None:
    """Put the operations into the class, and let it understand torch and NumPy."""
    modules = {"compositions": compositions, "functional": functional, "ops": ops}
    for name, value in list(vars(Tensor).items()):
        if isinstance(value, _Later):
            setattr(Tensor, name, getattr(modules[value.module], value.name))
    spelling.teach(Tensor, spelling.ACCEPTED_METHODS, spelling.METHODS_INSTEAD)


_close_the_circle()
