"""Activation checkpointing: what the backward pass needs is recomputed instead of being kept."""

import weakref
from collections.abc import Callable, Iterable
from threading import get_ident
from typing import Any

import numpy as np

from tinygrad_lite import autograd
from tinygrad_lite.autograd import Node, build_graph
from tinygrad_lite.device import Array
from tinygrad_lite.random import draw_position, random_key
from tinygrad_lite.tensor import Tensor

SAMPLE = 64  # elements of a result that are compared with those of the second run


def recompute(function: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Tensor:
    """Call a function and keep only its arguments: the backward pass computes it a second time.

    This is activation checkpointing. A Transformer of L blocks, each of which keeps `a` arrays for its derivatives and
    has one as its input, then keeps L + a arrays instead of L a; the price is a second forward pass.

    The first time, the graph of the function is dropped as soon as its value is known. When the backward walk reaches
    it, the function is called again, draws the same random numbers, and the walk continues in the graph that this
    creates. So each gradient is summed in the same order as without recomputation: all of them are the same to the last
    bit.

    Whatever the function uses besides its arguments, such as the parameters of a module, may require gradients too, and
    it may itself call `recompute`. Apart from random numbers, it must compute the same when it is called again, so it
    must not depend on anything that has changed since: a loop variable is best passed as an argument. This is checked:
    the tensors that it read must be unchanged, and both runs must do the same operations on the same older tensors,
    with (on a CPU) the same result. If no graph is built, this is just a call.

    >>> x = Tensor([1.0, 2.0], requires_grad=True)
    >>> recompute(lambda x: (x * x).exp(), x).sum().backward()
    >>> x.grad.tolist() == (2 * x * (x * x).exp()).tolist()
    True

    Raises: TypeError if the function does not return a tensor; RuntimeError if it writes into what it reads or, from
        `backward`, if the second run is not a repetition of the first.
    Reference: Chen et al. 2016, section 3 (arXiv:1604.06174).
    """
    if not autograd.builds_graph():
        return function(*args, **kwargs)
    key, drawn = draw_position()
    with Run(*args, *kwargs.values()) as first:
        result = function(*args, **kwargs)
    read = first.versions()
    if not isinstance(result, Tensor):
        raise TypeError(f"recompute: the function must return one tensor, not a {type(result).__name__}")
    if first.is_older(result):  # nothing to learn; or an argument, unchanged
        return result
    steps, shape, values = first.steps, result.shape, sample(result.data)  # not `first`, which holds more

    def backward(dy: Array) -> Node:
        with random_key(*key, drawn=drawn), build_graph(), Run() as again:
            found = function(*args, **kwargs)
        is_same = isinstance(found, Tensor) and found.shape == shape and not again.is_older(found)
        is_same = is_same and again.steps == steps and is_close(sample(found.data), values)
        if not is_same or any(cell[0] != version for cell, version in read):
            raise RuntimeError(
                "recompute: the function did not compute the same again: whatever it uses must stay as it was until "
                "backward(), such as a loop variable (make it an argument), a cache, or train() and eval()"
            )
        return found._node

    y = Tensor.wrap(result.data)
    y.op, y._version = "recompute", result._version
    y._node = Node("recompute", tuple(first.older), backward, y.shape, y.dtype)
    y._node.seen = read
    return y


class Run(autograd.Observer):
    """Watches a function while it runs: which older tensors it reads, and what it does with them.

    Attributes:
        steps: a hash of all operations with a node: of each its name, the shape and type of its result, and for each
            tensor that it reads the node of an older one, the bytes of a single number, or None.
        older: the nodes of the older tensors.
    """

    looks = False

    def __init__(self, *args: Any) -> None:
        self.begin = Node("recompute", (), None, (), np.dtype(bool)).age  # older than anything the function makes
        self.thread, self.steps, self.older = get_ident(), 0, {}
        self.reads = [(weakref.ref(x), x.version, True) for x in args if isinstance(x, Tensor)]

    def is_older(self, x: Tensor) -> bool:
        """Whether a tensor is not a result of this run: a constant, or made before."""
        return x._node is None or x._node.age <= self.begin

    def made(self, result: Tensor, inputs: tuple[Tensor, ...], is_view: bool) -> None:
        """Record an operation."""
        self.read(inputs)
        if result._node is not None and get_ident() == self.thread:
            sources = [self._source(x) for x in inputs]
            self.steps = hash((self.steps, result.op, result.shape, result.dtype, *sources))
            self.older |= dict.fromkeys(source for source in sources if isinstance(source, Node))

    def read(self, tensors: Iterable[Tensor]) -> None:
        """Record what is read, with its version, and whether it is surely older: a constant may be made in the run."""
        if get_ident() == self.thread:
            self.reads += [(weakref.ref(x), x.version, x._node is not None) for x in tensors if self.is_older(x)]

    def _source(self, x: Tensor) -> Node | bytes | None:
        if x._node is not None:
            return x._node if self.is_older(x) else None
        data = vars(x).get("data")  # a sum on a GPU may not have been computed yet
        return data.tobytes() if isinstance(data, np.ndarray) and data.size == 1 else None

    def versions(self) -> tuple[tuple[list[int], int], ...]:
        """The counters of writes of the older tensors, as in `Node.seen`. What no longer exists was made in the run."""
        found = {}
        for reference, version, is_older in self.reads:
            if (x := reference()) is not None and (is_older or self.is_older(x)):
                if x.version != version:
                    raise RuntimeError("recompute: the function wrote into an argument, or into what else it reads")
                found[id(x._version)] = x._version, version
        return tuple(found.values())


def sample(y: Array) -> np.ndarray:
    """Some of the values of a result, or all if they are few; none on a GPU, which the host would have to wait for."""
    return y.flat[:: 1 + y.size // SAMPLE] if isinstance(y, np.ndarray) else np.empty(0)


def is_close(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two samples are the same but for rounding, which some libraries do differently in other memory."""
    return np.allclose(a, b, rtol=0, atol=1e-4 * np.abs(b[np.isfinite(b)]).max(initial=0), equal_nan=True)
