"""Many launches as one: a CUDA graph.

A launch takes Python and the driver 10 to 100 microseconds, and many kernels need less. While a stream is *captured*,
launches are only recorded, with their arguments. The recorded graph is then launched as a whole, any number of times.
So everything that changes from one time to the next must be in the GPU's memory, at a fixed address, and the host may
read nothing while it is recorded.

Two kinds of work are graphs: a generated token (gpt/fast/step_cuda.py), and the forward and backward pass of a training
step (`Repeated`). The update of the weights is launched as before: it takes few launches, and its learning rate is a
number of the host.

Reference: CUDA C++ Programming Guide, section on CUDA Graphs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from tinygrad_lite.autograd import observers
from tinygrad_lite.cuda import dropout, gemm
from tinygrad_lite.functional.registry import is_composed
from tinygrad_lite.optimizer import Optimizer
from tinygrad_lite.precision import get_precision
from tinygrad_lite.tensor import Tensor

LAUNCHED = 2  # steps before the one that is recorded: they load all kernels, and make whatever is kept between steps

Part = tuple[tuple, float]  # a micro-batch of tensors, or numbers, and its share of the loss
Passes = Callable[[Iterable[Part]], Sequence[Tensor]]


def captured(work: Callable[[], None], allocates: bool = False) -> Callable[[], None]:
    """A function that repeats the launches of work() in one call; `work` itself if they cannot be captured.

    The kernels must have been launched before, because loading one is not a launch.

    Args:
        allocates: whether work() allocates arrays, or multiplies matrices by cuBLAS. Arrays then come from a pool of
            the graph's own: what work() frees serves the rest of it, but nothing outside.
    """
    import cupy

    stream, kept = cupy.cuda.Stream(non_blocking=True), []  # the default stream cannot be captured
    try:
        with ExitStack() as around:
            around.enter_context(stream)
            if allocates:
                cupy.get_default_memory_pool().free_all_blocks()  # what earlier steps used
                kept.append(cupy.cuda.MemoryPool())
                around.enter_context(cupy.cuda.using_allocator(kept[0].malloc))
                kept.append(cupy.empty(gemm.WORKSPACE, np.uint8))
                around.enter_context(gemm.recorded_on(stream, kept[1]))
            stream.begin_capture()
            try:
                work()
            finally:
                graph = stream.end_capture()
    except (RuntimeError, MemoryError, OSError):  # CuPy's errors are subclasses of the first two
        return work
    return functools.partial(replay, graph, *kept)


def replay(graph: Any, *_: Any) -> None:
    """Launch a graph; the other arguments are what it needs as long as it exists."""
    graph.launch()


class Repeated:
    """Forward and backward passes that are launched twice, and then recorded and replayed.

    A replay leaves the same losses, and the same gradients in the optimizer's memory, as the launches would. It is made
    only while nothing else changes than the contents of the batches and of the weights; otherwise the passes are
    launched, and recorded again after twice as many steps as before.
    """

    def __init__(self) -> None:
        self.facts: tuple | None = None  # what a recording depends on, as it was at the last call
        self.launched, self.needed = 0, LAUNCHED  # calls with these facts, and those before a recording
        self.replay: Callable[[], None] | None = None

    def __call__(self, passes: Passes, optimizer: Optimizer, step: int, parts: Iterable[Part]) -> Sequence[Tensor]:
        """The losses of passes(parts), which also computes the gradients of the optimizer's parameters.

        Args:
            step: its number, on which dropout depends.
        """
        parts = list(parts)
        facts = facts_of(parts, optimizer)
        if facts is None or facts != self.facts or (self.replay and not self._has_gradients()):
            self.needed *= 2 if self.replay else 1
            self.facts, self.launched, self.replay = facts, 0, None
        if facts is not None and self.launched == self.needed:
            self._record(passes, optimizer, parts)
        self.launched += 1
        if self.replay is None:
            return passes(parts)
        for x, mine in zip(tensors_of(parts), tensors_of(self.parts), strict=True):
            mine.data[...] = x.data
        self.step.fill(step & dropout.WORD)
        self.replay()
        return self.losses

    def _record(self, passes: Passes, optimizer: Optimizer, parts: Sequence[Part]) -> None:
        """Record the passes on arrays that stay; if that is impossible, the calls with these facts are launched."""
        self.step = tensors_of(parts)[0].xp.zeros(1, np.uint32)
        self.parts = [(own_copy(batch), share) for batch, share in parts]

        def recorded() -> None:
            self.losses = passes(self.parts)

        dropout.step_at = self.step
        try:
            made = captured(recorded, allocates=True)
        finally:
            dropout.step_at = None
        self.replay = None if made is recorded else made
        self.gradients = [(parameter, parameter.grad) for parameter in optimizer.named.values()]

    def _has_gradients(self) -> bool:
        """Whether the parameters still have the gradients that a replay writes."""
        return all(parameter.grad is gradient for parameter, gradient in self.gradients)


def tensors_of(parts: Sequence[Part]) -> list[Tensor]:
    """The tensors in these micro-batches."""
    return [x for batch, _ in parts for x in batch if isinstance(x, Tensor)]


def own_copy(batch: tuple) -> tuple:
    """The same batch with its own arrays; it may be a NamedTuple."""
    copies = [Tensor.wrap(x.data.copy()) if isinstance(x, Tensor) else x for x in batch]
    return getattr(type(batch), "_make", tuple)(copies)


def facts_of(parts: Sequence[Part], optimizer: Optimizer) -> tuple | None:
    """What the launches of a step depend on, apart from the contents of arrays; None if they must not be recorded."""
    rounded, values = optimizer._copy, optimizer.values
    if observers or is_composed() or (rounded is not None and rounded.version[0] != values.version):
        return None  # the last: something else has written the weights, and their copy will be another one
    contents = [(x.shape, x.dtype) if isinstance(x, Tensor) else x for batch, share in parts for x in (*batch, share)]
    if not all(isinstance(x, (tuple, int, float, type(None))) for x in contents):
        return None  # an array of the host, for example
    learned = [parameter.requires_grad for parameter in optimizer.named.values()]
    return get_precision(), values.data.data.ptr, rounded and rounded.array.data.ptr, contents, learned
