"""How many arrays does a calculation move between memory and processor, and how many does it keep?

Counted by watching its operations, as the profiler does, not measured: an operation is taken to read each array that
it is given once, and to write each array that it makes once, which are its result and what it keeps for its derivative.
What NumPy reads and writes inside an operation is not seen, so the count is a lower bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tinygrad_lite import Tensor, autograd
from tinygrad_lite.debug.graph import kept_by, owner


@dataclass
class Traffic:
    """What the operations inside a `with` cost.

    Attributes:
        operations: their number.
        passes: bytes read and written, forward.
        kept: bytes kept for the backward pass; an array that several derivatives keep counts once.
    """

    operations: int = 0
    passes: float = 0
    kept: float = 0

    def __enter__(self) -> Traffic:
        self._kept_arrays: dict[int, Any] = {}
        autograd.observers.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        autograd.observers.remove(self)

    def made(self, result: Tensor, inputs: tuple[Tensor, ...], is_view: bool) -> None:
        """An operation has computed this result from these tensors."""
        moved = {id(owner(x.data)): x.data for x in (*inputs, result)}
        kept = {} if result._node is None else {id(owner(x)): x for x in kept_by(result._node.backward)}
        self.operations += 1
        self.passes += sum(x.nbytes for x in (moved | kept).values())
        self.kept += sum(x.nbytes for key, x in kept.items() if key not in self._kept_arrays)
        self._kept_arrays |= kept  # they stay alive, so that no other array gets the id of one of them


def count(operation: Callable[..., Tensor], x: Tensor, **parameters: Tensor) -> Traffic:
    """The cost of one operation, where the unit of `passes` and `kept` is an array of the size of x."""
    with Traffic() as traffic:
        operation(x, **parameters)
    unit = x.data.nbytes
    return Traffic(traffic.operations, round(traffic.passes / unit, 1), round(traffic.kept / unit, 1))
