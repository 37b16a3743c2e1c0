"""The graph of an expression as text: every step of the calculation with its value and, after backward, its gradient.

One line for each tensor, oldest first, because that is how autograd sees it: the values were computed from the top
line to the bottom line, and `backward()` walks the same lines from the bottom to the top. A tensor that is used
several times has one line all the same; the others refer to it by its name or its number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tinygrad_lite.tensor import Tensor

SMALL = 6  # elements; arrays with more are shown by their norm


class Graph:
    """Everything that a result was computed from; print it before or after `backward()`.

    `backward()` frees the graph as it walks and leaves gradients at the leaves alone. A `Graph` made before remembers
    what was there, and asks every intermediate result to keep its gradient too. As long as it lives, all of these
    tensors do, so it is for looking at, not for training.

    Args:
        result: the tensor at the end, such as the loss.
        names: what to call some tensors, by name: `{"a": a}`, `dict(model.named_parameters())`, or simply `locals()`.
            What is no tensor is passed over. The others get numbers.
    Raises: RuntimeError if an earlier `backward()` has already freed the graph.

    >>> a, b = Tensor(2.0, requires_grad=True), Tensor(-3.0, requires_grad=True)
    >>> c = a * b
    >>> loss = (c + a) * (c + 1.0)
    >>> graph = Graph(loss, {"a": a, "b": b, "c": c, "loss": loss})
    >>> loss.backward()
    >>> graph
                        shape  value  gradient
    a = leaf            ()     2      22
    b = leaf            ()     -3     -18
    c = mul(a, b)       ()     -6     -9
    #1 = add(c, a)      ()     -4     -5
    #2 = add(c, 1)      ()     -5     -4
    loss = mul(#1, #2)  ()     20     1
    """

    def __init__(self, result: Tensor, names: Mapping[str, Any] | None = None) -> None:
        self.parents = _parents(result)
        self.nodes = sorted(self.parents, key=lambda tensor: tensor._order)
        for tensor in self.nodes:
            if tensor.requires_grad:
                tensor.retain_grad()
        self.names = {tensor: name for name, tensor in (names or {}).items() if isinstance(tensor, Tensor)}
        self.lines = [tensor for tensor in self.nodes if not self._is_number(tensor)]
        unnamed = [tensor for tensor in self.lines if tensor not in self.names]
        self.names |= {tensor: f"#{number}" for number, tensor in enumerate(unnamed, start=1)}

    def _is_number(self, tensor: Tensor) -> bool:
        """A constant like the 2 in x**2, which stands in the line that uses it."""
        constant = not tensor.requires_grad and tensor is not self.nodes[-1]
        return constant and tensor.numel() == 1 and tensor not in self.names

    def _made_by(self, tensor: Tensor) -> str:
        """How a tensor came about, such as "add(a, 1)"."""
        parents = self.parents[tensor]
        if parents:
            return f"{tensor.op}({', '.join(self.names.get(p) or show_values(p) for p in parents)})"
        return "leaf" if tensor.requires_grad else "constant"

    def __str__(self) -> str:
        rows = [("", "shape", "value", "gradient")]
        for tensor in self.lines:
            gradient = "" if tensor.grad is None else show_values(tensor.grad)
            made = f"{self.names[tensor]} = {self._made_by(tensor)}"
            rows.append((made, str(tensor.shape), show_values(tensor), gradient))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)

    __repr__ = __str__


def show_values(tensor: Tensor) -> str:
    """A few values on one line to six digits; for many, the length of the tensor taken as one vector.

    >>> show_values(Tensor([[0.5, 1 / 3], [-2.0, 4.0]]))
    '[[0.5 0.333333] [-2 4]]'
    >>> show_values(Tensor.ones(10, 10))
    'norm 10'
    """
    values = tensor.numpy()
    if values.size > SMALL:
        return f"norm {np.linalg.norm(values.astype(np.float64)):.6g}"
    text = np.array2string(values, max_line_width=1000, formatter={"float_kind": "{:.6g}".format})
    return " ".join(text.split())


def _parents(result: Tensor) -> dict[Tensor, tuple[Tensor, ...]]:
    """Every tensor behind a result, with its parents; found without recursion, as in `backward()`."""
    found: dict[Tensor, tuple[Tensor, ...]] = {}
    todo = [result]
    while todo:
        tensor = todo.pop()
        if tensor in found:
            continue
        if tensor._backward is not None and not tensor._parents:
            raise RuntimeError(
                f"Graph: the graph behind '{tensor.op}' was freed by an earlier backward(); make the Graph before it"
            )
        found[tensor] = tensor._parents
        todo.extend(tensor._parents)
    return found
