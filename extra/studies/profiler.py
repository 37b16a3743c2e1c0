"""The time and memory of a training step: a table of its operations, forward and backward, and a table of their shapes.

    with Profile() as profile:
        loss = model.loss(batch)
        loss.backward()
    print(profile.table())
    print(profile.shapes())

Inside, an observer (see autograd.py) reads the clock. An operation's forward time is measured from the end of the
previous operation, so it includes the Python code between the two; its backward time is that of its derivative. Its
memory is what its derivative keeps; an array that several derivatives keep is counted for the first of them.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, field
from textwrap import TextWrapper

from tinygrad_lite import autograd
from tinygrad_lite.autograd import Node
from tinygrad_lite.debug.graph import kept_by, owner
from tinygrad_lite.device import Array
from tinygrad_lite.tensor import Tensor

MIB, WIDTH = 2**20, 79  # columns of a table
Shape = tuple[int, ...]


@dataclass
class Spent:
    """The cost of one kind of operation.

    Attributes:
        calls: number of calls.
        forward, backward: seconds.
        kept: bytes kept from the forward pass to the backward pass.
    """

    calls: int = 0
    forward: float = 0.0
    backward: float = 0.0
    kept: int = 0


@dataclass
class Shaped:
    """The calls of an operation with the same shapes.

    Attributes:
        calls: number of calls.
        parameters: the sizes of all parameters that they read, by id: one that several calls read counts once.
        operations: floating-point operations of their matrix products, forward.
    """

    calls: int = 0
    parameters: dict[int, int] = field(default_factory=dict)
    operations: int = 0

    def in_words(self) -> tuple[str, str, str]:
        """The three numbers for a table; the last two are blank if 0."""
        parameters, millions = sum(self.parameters.values()), self.operations / 1e6
        return f"{self.calls:,}", f"{parameters:,}" if parameters else "", f"{millions:,.2f}" if millions else ""


class Profile(autograd.Observer):
    """Inside a `with`, all operations are timed; `by_operation` has their costs, `by_shapes` their sizes.

    Args:
        synchronize: waits until the device has finished; otherwise only the launch of its work would be timed.
    """

    def __init__(self, synchronize: Callable[[], None] = lambda: None) -> None:
        self.synchronize = synchronize
        self.by_operation: dict[str, Spent] = defaultdict(Spent)
        self.by_shapes: dict[tuple[str, tuple[Shape, ...], Shape], Shaped] = defaultdict(Shaped)
        self.seconds = 0.0  # inside the `with`, in total
        self._known: set[int] = set()  # arrays that are already counted, and weights, which are not

    def __enter__(self) -> Profile:
        self._began = self._last = time.perf_counter()
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self.seconds += time.perf_counter() - self._began

    def made(self, result: Tensor, inputs: tuple[Tensor, ...], is_view: bool) -> None:
        """An operation has just computed this result from these tensors."""
        if result._node is not None:
            self._known.update(id(owner(tensor.data)) for tensor in inputs if tensor._is_leaf)
            for array in kept_by(result._node.backward):
                if id(owner(array)) not in self._known:
                    self._known.add(id(owner(array)))
                    self.by_operation[result.op].kept += array.nbytes
        self.note(result.op)
        parameters = {id(tensor): tensor.numel() for tensor in inputs if tensor._is_parameter}
        if parameters or not is_view:
            shapes = tuple(tensor.shape for tensor in inputs)
            shaped = self.by_shapes[result.op, shapes, result.shape]
            shaped.calls += 1
            shaped.parameters |= parameters
            shaped.operations += products(result.op, shapes, result.shape)
        self._last = time.perf_counter()  # this bookkeeping is not part of the next operation

    def before_backward(self, node: Node) -> None:
        """The derivative of an operation is about to be computed."""
        self._backward_began = time.perf_counter()

    def after_backward(self, node: Node, dy: Array, gradients: Sequence[Array]) -> None:
        """The derivative of an operation has been computed."""
        self.synchronize()
        self._last = time.perf_counter()
        self.by_operation[node.op].backward += self._last - self._backward_began
        self._known.clear()  # memory is being freed, and new arrays may have the ids of old ones

    def note(self, what: str) -> None:
        """An operation, or something else such as the update of the weights, has just ended."""
        self.synchronize()
        now = time.perf_counter()
        spent = self.by_operation[what]
        spent.calls += 1
        spent.forward += now - self._last
        self._last = now

    def table(self, steps: int = 1) -> str:
        """The operations, the most expensive first: milliseconds, share of the total time, and mebibytes per step."""
        rows = sorted(self.by_operation.items(), key=lambda item: -(item[1].forward + item[1].backward))
        lines = [f"{'operation':<30}{'calls':>7}{'forward':>12}{'backward':>12}{'share':>8}{'kept':>10}"]
        lines += [self._row(name, spent, steps) for name, spent in rows]
        total = Spent(*map(sum, zip(*map(astuple, self.by_operation.values()), strict=True)))
        rest = Spent(forward=self.seconds - total.forward - total.backward)
        lines += [self._row("everything else", rest, steps), self._row("together", total, steps, self.seconds)]
        return "\n".join(lines)

    def shapes(self) -> str:
        """The operations by the shapes of what they read and make, in the order of their first calls.

        Each has the number of calls, of parameters among what they read, and of floating-point operations in their
        matrix products, in millions (forward; backward takes twice as many). Views, which cost nothing, are left out
        unless they are views of a parameter.
        """
        rows, total = [("calls", "parameters", "MFLOP", "operation: reads -> makes")], Shaped()
        for (name, inputs, result), shaped in self.by_shapes.items():
            rows.append((*shaped.in_words(), f"{name}: {' '.join(map(size, inputs))} -> {size(result)}"))
            total.calls += shaped.calls
            total.parameters |= shaped.parameters
            total.operations += shaped.operations
        rows.append((*total.in_words(), "together"))
        *widths, _ = (2 + max(map(len, column)) for column in zip(*rows, strict=True))
        wrap = TextWrapper(WIDTH, subsequent_indent=" " * (sum(widths) + 4), break_on_hyphens=False)
        return "\n".join(wrap.fill(f"{''.join(map('{:>{}}'.format, row, widths))}  {row[-1]}") for row in rows)

    def _row(self, name: str, spent: Spent, steps: int, seconds: float | None = None) -> str:
        forward, backward = spent.forward / steps * 1e3, spent.backward / steps * 1e3
        share = (spent.forward + spent.backward if seconds is None else seconds) / self.seconds
        kept = spent.kept / steps / MIB
        return f"{name:<30}{spent.calls // steps:>7,}{forward:>9.2f} ms{backward:>9.2f} ms{share:>8.1%}{kept:>6.1f} MiB"


def size(shape: Shape) -> str:
    """A shape in a table.

    >>> size((8, 128, 384)), size(())
    ('8x128x384', '1')
    """
    return "x".join(map(str, shape)) or "1"


def products(operation: str, inputs: Sequence[Shape], result: Shape) -> int:
    """The floating-point operations of the matrix products in an operation, forward; 0 if it has none.

    Each number of a product is a sum of n products: n multiplications and about as many additions. Attention has two
    products, the scores Q K^T and their weights times V; what causality leaves out is counted anyway.

    >>> products("linear", [(8, 16), (32, 16)], (8, 32))
    8192
    """
    if operation in ("linear", "matmul"):
        return 2 * math.prod(result) * inputs[0][-1]
    if operation == "conv2d":  # inputs[1] is the weight
        return 2 * math.prod(result) * math.prod(inputs[1][1:])
    if operation == "scaled_dot_product_attention":
        (*rows, width), keys = inputs[0], inputs[1][-2]
        return 4 * math.prod(rows) * width * keys
    return 0
