"""The tensor: an array, and the node that says how it was computed.

Its operators and the methods that compute are listed in `methods.py`; how gradients flow back is in `autograd.py`.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator, Sequence
from threading import get_ident
from typing import TYPE_CHECKING, Any

import numpy as np

from tinygrad_lite import autograd
from tinygrad_lite.arguments import respelled
from tinygrad_lite.autograd import Backward, Node, Piece, observers, without_graph
from tinygrad_lite.device import Array, device_of, get_device

Axis = int | Sequence[int] | None


if TYPE_CHECKING:  # so that an editor knows the methods, which `methods.py` adds to the class when both exist
    from tinygrad_lite.methods import Methods
else:
    Methods = object


class Listed(type):
    """The type of a class whose `help()` and `dir()` list its methods and properties, one name for each."""

    hidden: tuple[type, ...] = (str, bool, type(None))  # default values of attributes

    def __dir__(cls) -> list[str]:
        return [name for name in super().__dir__() if name[0] == "_" or not isinstance(getattr(cls, name), cls.hidden)]


class Tensor(Methods, metaclass=Listed):
    """An n-dimensional array with a gradient.

    The other operand of a tensor may also be a number, a list or an array, which becomes a constant: a number takes the
    tensor's dtype if it can, a list becomes float32 or int64, an array keeps its dtype (in NumPy usually float64).

    Args:
        data: a number, nested lists, or an array (which is copied). Python floats become float32, integers
            int64; arrays keep their dtype.
        dtype: another type for the elements.
        device: "cpu" or "cuda".
        requires_grad: whether `backward()` leaves a gradient in `.grad`.
    Attributes:
        data: the values, a NumPy or CuPy array.
        grad: the gradient, a tensor, or None if none has arrived.
        op: the operation that computed it; empty for a leaf.

    >>> x = Tensor([1.0, 2.0, 3.0], requires_grad=True)
    >>> (x * x).sum().backward()
    >>> x.grad
    Tensor([2. 4. 6.], shape=(3,), dtype=float32, device=cpu)
    """

    # Defaults, on the class: most tensors are results, and each attribute that need not be set on them saves time.
    grad: Tensor | None = None
    op = ""
    _node: Node | None = None  # how it was computed; None for a constant
    _is_parameter = False
    _gradient_memory: Callable[[], Array] | None = None  # where an optimizer wants the gradient of a leaf

    def __init__(
        self, data: Any, *more, dtype: Any = None, device: str | None = None, requires_grad: bool = False, **names
    ) -> None:
        respelled(Tensor.__init__, more, names)
        if isinstance(data, Tensor):
            raise TypeError("Tensor(tensor): use tensor.detach(), tensor.cast(dtype) or tensor.to(device)")
        is_list = not hasattr(data, "dtype")
        if is_list or not isinstance(data.dtype, np.dtype):  # the latter: an array of another library
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
        check_fits(data, wanted, "Tensor")
        self.data = (get_device(device).xp if device else np).array(data, dtype=dtype)
        self._version = [0]  # counts in-place writes; views of the same memory share this cell
        if requires_grad:
            self.requires_grad_()

    @staticmethod
    def wrap(array: Array) -> Tensor:
        """A leaf over an existing array, without copying it."""
        tensor = Tensor.__new__(Tensor)
        # NumPy's functions return a scalar where there are no axes.
        tensor.data, tensor._version = asarray(array) if isinstance(array, generic) else array, [0]
        return tensor

    # --- what it is ------------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the axes."""
        return self.data.shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
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
        """All axes in reverse order, as in NumPy: the transpose of a matrix; a vector is unchanged."""
        return self.permute(*range(self.ndim)[::-1])

    @property
    def requires_grad(self) -> bool:
        """Whether gradients flow to it. It can be set on float leaves, which calls `requires_grad_`."""
        return self._node is not None

    @requires_grad.setter
    def requires_grad(self, requires_grad: bool) -> None:
        self.requires_grad_(requires_grad)

    @property
    def version(self) -> int:
        """How often its memory was written to in place, as counted by `mark_written`."""
        return self._version[0]

    def numel(self) -> int:
        """The number of elements."""
        return self.data.size

    def numpy(self) -> np.ndarray:
        """The values as a NumPy array: a read-only view on the CPU, a copy from a GPU."""
        view = device_of(self.data).to_host(noted(self).data).view()
        view.flags.writeable = False
        return view

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """The array that NumPy's functions ask for, as np.asarray(x) does: a read-only view, unless they want a copy.

        Refused, as in torch, if a gradient would silently be lost, or if NumPy would have to wait for a GPU.
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
        return noted(self).data.item()

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
        return bool(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __format__(self, form: str) -> str:
        if form and self.data.size != 1:
            raise ValueError(f"format {form!r}: a tensor of shape {self.shape} is not one number: format its elements")
        return format(self.item(), form) if form else str(self)

    def __dir__(self) -> list[str]:
        return sorted({*dir(type(self)), *vars(self), "grad", "op"})

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
        """Whether gradients end here: it is a constant, or was not computed by an operation."""
        return self._node is None or self._node.backward is None

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Ask for a gradient of this leaf (or stop asking), and return it."""
        if not self._is_leaf:
            raise RuntimeError("requires_grad_: only for leaves, not for results; use detach() to stop gradients here")
        if requires_grad and self.dtype not in (np.float32, np.float64):
            raise TypeError(f"requires_grad: only float32 and float64 have gradients, not {self.dtype}")
        if requires_grad and self._node is None:
            self._node = Node("", (), None, self.shape, self.dtype)
            self._node.keep = self._keeper()
        elif not requires_grad:
            self._node = None
        return self

    def _keeper(self) -> Callable[[Array, str], None]:
        """The function that adds a gradient to `.grad`. It holds this tensor weakly: a cycle would be freed late."""
        return functools.partial(_keep, weakref.ref(self))

    def retain_grad(self) -> Tensor:
        """Keep the gradient of this intermediate result in `.grad`, as for a leaf."""
        if self._node is None:
            raise RuntimeError("retain_grad: this tensor takes part in no gradient computation")
        self._node.keep = self._keeper()
        return self

    def __reduce__(self) -> tuple:
        """For `copy.deepcopy` and pickle: a leaf is copied with its gradient; a result cannot be copied."""
        if not self._is_leaf:
            raise RuntimeError(f"the result of '{self.op}' cannot be copied or pickled: use .detach() first")
        return _rebuild, (type(self), self.data, self.requires_grad, self.grad)

    def detach(self) -> Tensor:
        """The same values, in the same memory, as a constant: gradients stop here."""
        tensor = Tensor.wrap(noted(self).data)
        tensor._version = self._version
        return tensor

    def mark_written(self) -> None:
        """Count a write into this tensor's memory. Code that changes `data` in place must call it, as optimizers do."""
        self._version[0] += 1

    def backward(self, gradient: Tensor | None = None, *more, **names) -> None:
        """Leave dL/dx in the `.grad` of every leaf x that requires a gradient, where L is this tensor.

        Gradients add up in `.grad` until it is set to None. The graph is freed as it is walked (`autograd.walk_back`).

        Args:
            gradient: dL/d(this tensor), if this tensor is not itself the scalar loss.
        Raises: RuntimeError if there is no graph, if part of it was freed by an earlier backward, or if a value
            that is still needed was overwritten.
        """
        respelled(Tensor.backward, more, names)
        if self._node is None:
            raise RuntimeError("backward: this tensor was computed from nothing that requires a gradient")
        if gradient is None:
            if self.data.size != 1:
                raise RuntimeError(f"backward: a tensor of shape {self.shape} is not a scalar loss; sum it first")
            start = self.xp.ones(self.shape, self.dtype)
        else:
            start = gradient.data if isinstance(gradient, Tensor) else gradient
            if not hasattr(start, "shape"):
                what = f"backward: the gradient is a {type(gradient).__name__}, not a tensor of shape {self.shape}"
                raise TypeError(f"{what}: for a factor write (2.0 * loss).backward()")
            autograd.check_gradient(start, self.shape, self.dtype, "backward")
        autograd.walk_back(self._node, start)


def _rebuild(kind: type[Tensor], array: Array, requires_grad: bool, gradient: Tensor | None) -> Tensor:
    """A copy of a leaf, from what its `__reduce__` returned."""
    tensor = kind.__new__(kind)
    tensor.data, tensor._version = array, [0]
    tensor.requires_grad_(requires_grad).grad = gradient
    return tensor


def _keep(reference: weakref.ref[Tensor], dy: Array | Piece, op: str) -> None:
    """Add a gradient from the operation `op` to a tensor's `.grad`."""
    tensor = reference()
    if tensor is None:  # it no longer exists, so its gradient cannot be read
        return
    autograd.check_gradient(dy, tensor.data.shape, tensor.data.dtype, op)
    memory, holds_gradient = gradient_memory(tensor)
    if memory is None:  # a copy, because dy may be shared with other gradients
        tensor.grad = Tensor.wrap(dy.added() if isinstance(dy, Piece) else tensor.xp.array(dy))
    elif isinstance(dy, Piece):
        if not holds_gradient:
            memory[...] = 0
        dy.added(memory)
    elif holds_gradient:
        memory += dy
    else:
        memory[...] = dy


def gradient_memory(tensor: Tensor) -> tuple[Array | None, bool]:
    """The array of `.grad`, and whether it holds a gradient, to which the next one must be added.

    A tensor without a gradient gets memory from its optimizer for the caller to write the gradient into; without an
    optimizer, the array is None.
    """
    if tensor.grad is not None:
        if not isinstance(tensor.grad, Tensor):
            raise TypeError(f"backward: .grad was set to a {type(tensor.grad).__name__}: make it a Tensor, or None")
        autograd.check_gradient(tensor.grad.data, tensor.shape, tensor.dtype, "setting .grad")
        return writable(tensor.grad), True
    if tensor._gradient_memory is None:
        return None, False
    memory = tensor._gradient_memory()
    tensor.grad = Tensor.wrap(memory)
    return memory, False


def writable(gradient: Tensor) -> Array:
    """The array of a gradient; one set by hand to a view or a stretched tensor first gets memory of its own."""
    flags = gradient.data.flags
    if not (flags.c_contiguous and getattr(flags, "writeable", True)):  # CuPy has no such flag
        gradient.data = gradient.data.copy()
    return gradient.data


def memory_to_write(leaf: Tensor) -> tuple[Array | None, bool]:
    """`gradient_memory` of a leaf, for a derivative that writes into it and then returns None instead of the gradient.

    The array is None if the gradient must be returned: of a result, which passes it on, and while observers, or
    `gradcheck`, need it.
    """
    is_free = leaf.requires_grad and leaf._is_leaf and getattr(leaf._node.keep, "func", None) is _keep and not observers
    return gradient_memory(leaf) if is_free else (None, False)


def noted(*tensors: Tensor) -> Tensor:
    """The first of these tensors, whose values are read where no node says it: the observers are told."""
    for observer in observers:
        if isinstance(observer, autograd.Observer):  # others only know what is made
            observer.read(tensors)
    return tensors[0]


def constant(y: Array, *inputs: Tensor) -> Tensor:
    """The result of an operation that passes no gradient on."""
    if observers:
        noted(*inputs)
    return Tensor.wrap(y)


LIMITS = {np.dtype(t): (np.iinfo(t).min, np.iinfo(t).max) for t in "bhilqBHILQ"} | {np.dtype(bool): (0, 1)}


def check_fits(values: Any, dtype: np.dtype, op: str) -> None:
    """Raise ValueError for numbers that integers or truth values cannot hold: NaN, infinity, 300 in uint8, 2 in bool.

    `values` is a number, a list, a tensor or an array. What is on a GPU, for which the host would have to wait, is not
    checked.
    """
    low, high = LIMITS.get(dtype, (0, 0))
    if low == high or getattr(values, "dtype", None) == dtype:
        return
    ends = [values]
    if type(values) not in (int, float, bool):
        values = np.asarray(values) if isinstance(values, (list, tuple)) else values
        values = values.data if isinstance(values, Tensor) else values
        is_here = isinstance(values, (np.ndarray, generic)) and values.size and values.dtype.kind in "fiuO"
        ends = np.array([values.min(), values.max()], values.dtype).tolist() if is_here else []
    for number in ends:
        if not low <= number <= high:
            raise ValueError(f"{op}: {dtype} cannot hold {number}")


def check_one_device(tensors: Sequence[Tensor], op: str) -> None:
    """Raise ValueError if the tensors do not all live on one device."""
    kind = type(tensors[0].data)
    for tensor in tensors:
        if type(tensor.data) is not kind:
            devices = " and ".join(dict.fromkeys(t.device for t in tensors))
            raise ValueError(f"{op}: tensors on {devices} cannot be combined; move one with .to(device)")


# These run at every operation, so what they call is looked up once.
new, generic, asarray = object.__new__, np.generic, np.asarray


def node(
    y: Array,
    parents: tuple[Tensor, ...],
    backward: Backward | None,
    op: str,
    linear: bool = False,
    view: bool = False,
    uses: tuple[Tensor, ...] | None = None,
    uses_result: bool = True,
    adds: bool = False,
) -> Tensor:
    """The result of an operation, with its node: the only place where the graph grows.

    Args:
        y: the computed array (or NumPy scalar, as reductions return).
        parents: the tensors it was computed from.
        backward: takes dL/dy and returns dL/d(parent) for each parent; see `autograd.Node`.
        op: the name, for messages.
        linear: the derivative needs neither the parents' values nor y, so overwriting them does no harm.
        view: y is the first parent's memory in another shape (and linear), so writes to one are writes to both.
        uses: the parents whose values the derivative needs; None: all of them.
        uses_result: whether the derivative needs y.
        adds: backward takes and returns the sum of the first parent's gradients; see `autograd.Node`.
    """
    if isinstance(y, generic):
        y = asarray(y)
    dtype = y.dtype
    if dtype.char == "e" and op != "cast":  # float16; comparing characters takes a tenth of the time
        raise TypeError(f"{op}: float16 is for storage only; use .cast('float32') first")
    tensor = new(Tensor)
    tensor.data, tensor.op = y, op
    tensor._version = parents[0]._version if view else [0]
    if not without_graph or get_ident() not in without_graph:
        edges, needed = (), False
        for parent in parents:
            edge = parent._node
            edges += (edge,)
            if edge is not None:
                needed = True
        if needed:
            tensor._node = made = Node(op, edges, backward, y.shape, dtype)
            if adds:
                made.adds = True
            if not (linear or view):
                uses = parents if uses is None else uses
                if uses_result:
                    uses = (*uses, tensor)
                made.seen = tuple([(x._version, x._version[0]) for x in uses])
    for observer in observers:
        observer.made(tensor, parents, view)
    return tensor
