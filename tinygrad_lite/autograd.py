"""Reverse-mode automatic differentiation: what a node is, and how gradients flow back through the graph.

Every operation computes its result immediately. If one of its inputs needs a gradient, it also creates a `Node`: the
nodes its inputs came from (its parents), and a function `backward(dy)` that turns dL/d(result) into one gradient for
each parent. Nodes and their edges form the graph of the computation. `walk_back` walks it from the loss to the leaves,
the nodes without parents, and applies the chain rule at each node. That is all; the derivatives themselves are in
`ops/` and in the chapters of `functional/`.

A node holds no array. The arrays of the forward pass that a derivative needs are captured by its `backward`, a closure;
all others are freed as soon as the forward pass drops them. This file knows arrays and nodes, not tensors.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from threading import get_ident
from typing import Any, Self

import numpy as np

from tinygrad_lite.device import Array, xp_of

Backward = Callable[..., "tuple[Array | Piece | None, ...] | Node"]  # backward(dy), or with `adds` backward(dy, so_far)

without_graph: set[int] = set()  # the threads that are inside `no_grad`; empty most of the time


def builds_graph() -> bool:
    """Whether operations in this thread create nodes."""
    return not without_graph or get_ident() not in without_graph


class no_grad:
    """Inside, operations compute values only: no graph is built and nothing is kept for a backward pass.

    Use `with no_grad():` for a block of lines, `@no_grad()` for a function. Other threads are not affected.
    """

    inside = False  # whether a graph is built inside

    def __new__(cls, function: Callable | None = None) -> Any:
        """Without brackets, `@no_grad` gets the function at once."""
        made = super().__new__(cls)
        return made if function is None else made(function)

    def __init__(self) -> None:
        self._outside: list[bool] = []  # whether one was built before, for each `with` that is open

    def __enter__(self) -> None:
        self._outside.append(builds_graph())
        self._switch(self.inside)

    def __exit__(self, *error: object) -> None:
        self._switch(self._outside.pop())

    def _switch(self, on: bool) -> None:
        (without_graph.discard if on else without_graph.add)(get_ident())

    def __call__(self, function: Callable) -> Callable:
        if inspect.isgeneratorfunction(function):  # its lines run later, outside this call
            name = function.__name__
            raise TypeError(f"no_grad: {name} is a generator: write `with no_grad():` in it or around its use")

        @functools.wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            with type(self)():
                return function(*args, **options)

        return call


class build_graph(no_grad):
    """Inside, operations create nodes, even within `no_grad`."""

    inside = True


@dataclass(eq=False, repr=False)
class Node:
    """One step of a computation, as the backward walk sees it; or a leaf, where the walk ends.

    Attributes:
        op: the operation's name; empty for a leaf.
        parents: the node of each input, None for an input that needs no gradient.
        backward: takes dL/dy and returns dL/dx for each input x (None where there is none). It may close over arrays
            and shapes, never over the resulting tensor: that would be a reference cycle, and memory would be freed
            late. It must not write into dy. None for a leaf. Instead of gradients it may return the node of the same
            result, computed again (`recompute`), through which the walk reaches the same older nodes.
        shape, dtype: of the result; its gradient has the same.
        age: how many nodes were made before this one.
        seen: for each array that `backward` needs, its counter of in-place writes (a list of one number, see
            `Tensor.version`) and the count when the node was made. A different count later means it was overwritten.
        adds: the derivative also does the next addition. It is called as backward(dy, so_far), with the sum of the
            gradients that have arrived at the first input, or None, and returns the new sum as that input's gradient.
            What arrives later is added as usual. This saves a pass over memory where a norm follows a residual sum.
        keep: keep(gradient, op) stores the gradient of the result in `Tensor.grad`; op names the operation it came
            from, for error messages. Leaves have it, and results whose `retain_grad()` was called.
        notes: a place where an observer may store something.
    """

    op: str
    parents: tuple[Node | None, ...]
    backward: Backward | None
    shape: tuple[int, ...]
    dtype: np.dtype
    age: int = field(default_factory=itertools.count().__next__, init=False)  # a parent is older than its child
    # Defaults on the class, for most nodes have none of these.
    keep = None
    seen = ()
    adds = False
    notes = None


# --- the walk -------------------------------------------------------------------------------------------------


def walk_back(loss: Node, gradient: Array) -> None:
    """Apply the chain rule from the loss to the leaves; each leaf stores dL/d(leaf). The graph is freed as the walk
    proceeds.

    First collect all nodes that the loss depends on. Then visit them, newest first: take the sum dy of all gradients
    that have arrived at a node, and add what its `backward(dy)` returns to the sums of its parents.

    Why newest first? A node may pass its gradient on only when those from all its children have arrived. In

    >>> from tinygrad_lite import Tensor
    >>> a = Tensor(1.0, requires_grad=True)
    >>> b = a + a
    >>> c = b + b
    >>> c.backward()
    >>> a.grad.item()
    4.0

    b is twice a child of a, and twice a parent of c. Following each edge at once, depth first, would pass on the first
    half of b's gradient, 1, and later its full sum, 2: a would get 2 * 1 + 2 * 2 = 6. Children are always made after
    their parents, so visiting the nodes from the newest to the oldest is enough.

    These lines are the whole algorithm. `Sums` adds in place where it can, and `differentiate` calls `backward`.

    Args:
        gradient: dL/d(the loss), which is 1 for a scalar.
    Raises: RuntimeError if part of the graph was freed by an earlier walk, if a value that is still needed was
        overwritten, or if an operation's gradients do not match its inputs in number, shape and dtype.
    """
    nodes = collect(loss)
    sums = Sums({loss: gradient})
    with np.errstate(all="ignore"):
        while nodes:
            node = nodes.pop()
            dy = sums.pop(node, None)
            if dy is None:  # no child passed a gradient on
                continue
            if node.keep is not None:
                node.keep(dy, node.op)
            if node.backward is not None:
                for parent, dx in differentiate(node, dy, sums, nodes):
                    if parent is not None and dx is not None:
                        sums.add(parent, dx, node.op)


class Sums(dict[Node, Array]):
    """For each node that is still to be visited, the sum of the gradients that have arrived so far."""

    def __init__(self, first: dict[Node, Array]) -> None:
        super().__init__(first)
        self.own: set[Node] = set()  # nodes whose sum was allocated here, so that gradients may be added in place

    def add(self, node: Node, dx: Array | Piece, op: str) -> None:
        """Add a gradient from the operation `op` to the sum of a node."""
        if node.backward is None:  # a leaf passes nothing on, so its gradients are stored as they arrive
            node.keep(dx, op)
            return
        check_gradient(dx, node.shape, node.dtype, op)
        if isinstance(dx, Piece):
            so_far = self.get(node)
            self[node] = dx.added(so_far if so_far is None or node in self.own else so_far.copy())
            self.own.add(node)
        elif node not in self:
            self[node] = dx
        elif node in self.own:
            self[node] += dx
        else:
            self[node] = self[node] + dx
            self.own.add(node)


class Piece:
    """The gradient of a tensor of which only a part was read: 0 elsewhere, so only the part is stored.

    All pieces of a tensor are added to one array. So the gradients of 1,000 rows of a matrix take the time of one
    matrix, and not that of 1,000 matrices of which all rows but one are 0.

    Args:
        shape: the tensor's.
        add: add(array, index, values) adds the values at an index to an array of this shape, in place.
        values: the gradient of the part, of the tensor's dtype.
    """

    def __init__(self, shape: tuple[int, ...], add: Callable[..., Any], index: Any, values: Array) -> None:
        self.shape, self.dtype, self.add, self.index, self.values = shape, values.dtype, add, index, values

    def added(self, total: Array | None = None) -> Array:
        """The array to which the piece was added, in place; by default one of zeros."""
        if total is None:
            total = xp_of(self.values).zeros(self.shape, self.dtype)
        self.add(total, self.index, self.values)
        return total


def differentiate(node: Node, dy: Array, sums: Sums, nodes: list[Node]) -> Iterable[tuple[Node | None, Array | None]]:
    """Each parent of a node with its gradient, from dy = dL/d(result). Frees the node and notifies the observers.

    Besides `backward(dy)` there are two other kinds of derivative: one takes the sum of its first parent and adds to it
    (`Node.adds`), and one returns a node instead, from which the walk continues with the same dy.
    """
    parents, backward = node.parents, node.backward
    node.parents, node.backward = (), _freed
    for observer in observers:
        observer.before_backward(node)
    if isinstance(dy, np.generic):  # NumPy turns 0-d results into scalars
        dy = np.asarray(dy)
    if not node.adds:
        found = backward(dy)
    else:  # but an observer gets every gradient separately
        found = backward(dy, None if observers else sums.pop(parents[0], None))
        sums.own.discard(parents[0])
    if isinstance(found, Node):
        nodes += collect(found, node.age)  # made just now, so newer than all that are left to visit
        parents, found = (found,), (dy,)
    if type(found) is not tuple or len(found) != len(parents):
        raise RuntimeError(
            f"backward: the derivative of '{node.op}' did not return a tuple with a gradient (or None) for each of "
            f"its {len(parents)} inputs"
        )
    if observers:
        found = tuple(dx.added() if isinstance(dx, Piece) else dx for dx in found)
    for observer in observers:
        given = [dx for parent, dx in zip(parents, found, strict=True) if parent is not None and dx is not None]
        observer.after_backward(node, dy, given)
    return zip(parents, found, strict=True)


def collect(loss: Node, age: int = -1) -> list[Node]:
    """Every node newer than `age` that the loss depends on, oldest first; found without recursion.

    (A recursive search would hit Python's limit of 1,000 nested calls in a network of about 12 layers.)
    """
    found, todo = {loss}, [loss]
    while todo:
        node = todo.pop()
        if node.backward is _freed:
            raise RuntimeError(
                f"backward: the graph behind '{node.op}' was freed by an earlier backward(); to use it for "
                "several losses, add the losses first and call backward() once"
            )
        for version, value in node.seen:
            if version[0] != value:
                raise RuntimeError(
                    f"backward: a value that '{node.op}' still needs was overwritten in place after it was used"
                )
        for parent in node.parents:
            if parent is not None and parent.age > age and parent not in found:
                found.add(parent)
                todo.append(parent)
    return sorted(found, key=lambda node: node.age)


def check_gradient(dx: Array, shape: tuple[int, ...], dtype: np.dtype, op: str) -> None:
    """Raise RuntimeError unless a gradient has the shape and dtype of its value: mistakes show where they are made."""
    if dx.shape != shape or dx.dtype != dtype:
        raise RuntimeError(
            f"backward of '{op}' gave a gradient of shape {dx.shape} and dtype {dx.dtype} "
            f"for a parent of shape {shape} and dtype {dtype}"
        )


def _freed(dy: Array) -> tuple:
    """Replaces a `backward` that has been used."""
    raise RuntimeError("backward: this part of the graph was already used and freed")


# --- observers ------------------------------------------------------------------------------------------------


class Observer:
    """Something that watches computations inside a `with`, such as `detect_anomaly` and `Graph` (debug/).

    Attributes:
        looks: whether it looks at values, so that they must be computed at once.
    """

    looks = True

    def __enter__(self) -> Self:
        observers.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        observers.remove(self)

    def made(self, result: Any, inputs: tuple, is_view: bool) -> None:
        """A tensor has been computed from these tensors."""

    def read(self, tensors: Iterable[Any]) -> None:
        """The values of these tensors have been read, for something that has no node: a condition, an index, a copy."""

    def before_backward(self, node: Node) -> None:
        """The derivative of a node is about to be computed."""

    def after_backward(self, node: Node, dy: Array, gradients: Sequence[Array]) -> None:
        """It has been computed: dL/d(input) for each input that needs a gradient, from dL/d(result)."""


observers: list[Observer] = []  # nearly always empty
