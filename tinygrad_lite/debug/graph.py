"""The graph of an expression as text: every operation with its value and, after backward, its gradient.

There is one line for each tensor, oldest first, as in autograd: the values were computed from the top line to the
bottom line, and `backward()` visits the same lines from the bottom to the top. A tensor that is used several times has
only one line; others refer to it by its name or number.
"""

import itertools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self

import numpy as np

from tinygrad_lite import autograd
from tinygrad_lite.device import Array
from tinygrad_lite.tensor import Tensor

SMALL = 6  # elements; arrays with more are shown by their norm


class Row(NamedTuple):
    """A tensor of a graph in words: its name, how it was made and from what, its shape, value and gradient.

    A tensor from outside has the operation "leaf" if it requires a gradient, else "constant".
    """

    name: str
    operation: str
    inputs: list[str]
    shape: str
    value: str
    gradient: str


class Graph(autograd.Observer):
    """Records every operation inside a `with`; print it before or after `backward()`.

    `backward()` frees the graph as it proceeds and keeps gradients only at the leaves. A `Graph` records the
    operations, and makes every intermediate result keep its gradient too. It keeps all of these tensors alive, so it is
    for studying, not for training.

    >>> a, b = Tensor(2.0, requires_grad=True), Tensor(-3.0, requires_grad=True)
    >>> with Graph() as graph:
    ...     c = a * b
    ...     loss = (c + a) * (c + 1.0)
    >>> loss.backward()
    >>> graph.name(a=a, b=b, c=c, loss=loss)
                        shape  value  gradient
    a = leaf            ()     2      22
    b = leaf            ()     -3     -18
    c = mul(a, b)       ()     -6     -9
    #1 = add(c, a)      ()     -4     -5
    #2 = add(c, 1)      ()     -5     -4
    loss = mul(#1, #2)  ()     20     1
    """

    def __init__(self) -> None:
        self.parents: dict[Tensor, tuple[Tensor, ...]] = {}  # oldest first; () for tensors from outside
        self.names: dict[Tensor, str] = {}
        self.results: dict[Any, Tensor] = {}  # by node, which an in-place operation hands to the tensor it writes into
        self.values: dict[Tensor, tuple] = {}  # operations and copies of results, which a write in place may change

    def made(self, result: Tensor, inputs: tuple[Tensor, ...], is_view: bool) -> None:
        """Record an operation."""
        inputs = tuple(self.results.get(tensor._node, tensor) for tensor in inputs)
        for tensor in inputs:
            self.parents.setdefault(tensor, ())
        self.parents[result], self.values[result] = inputs, (result.op, Tensor.wrap(result.data.copy()))
        if result.requires_grad:
            self.results[result._node] = result.retain_grad()

    def name(self, names: Mapping[str, Any] | None = None, /, **more: Any) -> Self:
        """Give names to tensors: `name(a=a)`, `name(dict(model.named_parameters()))`, or simply `name(locals())`.

        Values that are not tensors are ignored. Tensors without a name get numbers.
        """
        tensors = {name: x for name, x in ((names or {}) | more).items() if isinstance(x, Tensor)}
        self.names |= {self.results.get(x._node, x): name for name, x in tensors.items()}
        return self

    def rows(self) -> list[Row]:
        """A row for each tensor that has a line of its own, oldest first."""
        # A constant number, like the 2 in x**2, has none: it is shown in the line that uses it.
        shown = [x for x in self.parents if self.parents[x] or x.requires_grad or x.numel() != 1 or x in self.names]
        shown.sort(key=lambda tensor: bool(self.parents[tensor]))  # tensors from outside first
        numbers, rows = itertools.count(1), []
        lines = {tensor: self.names.get(tensor) or f"#{next(numbers)}" for tensor in shown}
        for tensor, name in lines.items():
            operation, value = self.values.get(tensor, (tensor.op, tensor))
            operation = operation or ("leaf" if tensor.requires_grad else "constant")
            inputs = [lines.get(parent) or show_values(parent) for parent in self.parents[tensor]]
            gradient = "" if tensor.grad is None else show_values(tensor.grad)
            rows.append(Row(name, operation, inputs, str(tensor.shape), show_values(value), gradient))
        return rows

    def __str__(self) -> str:
        cells = [("", "shape", "value", "gradient")]
        for row in self.rows():
            made = row.operation
            if made not in ("leaf", "constant"):
                made += f"({', '.join(row.inputs) or '...'})"
            cells.append((f"{row.name} = {made}", row.shape, row.value, row.gradient))
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in cells)

    __repr__ = __str__


def show_values(tensor: Tensor) -> str:
    """Up to six values on one line with six digits; for more, the Euclidean norm of the tensor.

    >>> show_values(Tensor([[0.5, 1 / 3], [-2.0, 4.0]]))
    '[[0.5 0.333333] [-2 4]]'
    >>> show_values(Tensor.ones(10, 10))
    'norm 10'
    """
    values = tensor.numpy()
    if values.size > SMALL:
        return f"norm {np.linalg.norm(values.astype(np.float64)):.6g}"
    return " ".join(np.array2string(values, max_line_width=1000, formatter={"float_kind": "{:.6g}".format}).split())


def owner(array: Array) -> Array:
    """The array that owns the memory of this one."""
    return array if array.base is None else array.base


def kept_by(backward: Callable) -> list[Array]:
    """The arrays that a derivative closes over."""
    contents = [cell.cell_contents for cell in backward.__closure__ or ()]
    listed = [item for content in contents if isinstance(content, list) for item in content]
    return [found for found in contents + listed if hasattr(found, "__array_function__") and hasattr(found, "nbytes")]
