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

Part = tuple[tuple[Tensor, ...], float]  # a micro-batch, and its share of the loss


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
    launched, and recorded again later.
    """

    def __init__(self) -> None:
        self.facts: tuple | None = None  # what a recording depends on, as it was at the last call
        self.launched = 0  # calls with these facts
        self.replay: Callable[[], None] | None = None

    def __call__(
        self,
        work: Callable[[Sequence[Part]], list[Tensor]],
        optimizer: Optimizer,
        step: int,
        parts: Iterable[Part],
    ) -> list[Tensor]:
        """The losses of work(parts), which also computes the gradients of the optimizer's parameters.

        Args:
            step: its number, on which dropout depends.
        """
        parts = list(parts)
        facts = facts_of(parts, optimizer)
        if facts is None or facts != self.facts or (self.replay and not self._has_gradients()):
            self.facts, self.launched, self.replay = facts, 0, None
        self.launched += 1
        if facts is not None and self.launched == LAUNCHED + 1:
            self._record(work, optimizer, parts)
        if self.replay is None:
            return work(parts)
        for given, own in zip(parts, self.parts, strict=True):
            for x, mine in zip(given[0], own[0], strict=True):
                mine.data[...] = x.data
        self.step.fill(step & dropout.WORD)
        self.replay()
        return self.losses

    def _record(self, work: Callable, optimizer: Optimizer, parts: Sequence[Part]) -> None:
        """Record work() on arrays that stay; if that is impossible, the calls with these facts are launched."""
        xp = parts[0][0][0].xp
        self.step = xp.zeros(1, np.uint32)
        self.parts = [(as_batch(batch, [Tensor.wrap(x.data.copy()) for x in batch]), share) for batch, share in parts]

        def recorded() -> None:
            self.losses = work(self.parts)

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


def as_batch(like: tuple, tensors: Sequence[Tensor]) -> tuple:
    """A batch of these tensors, of the type of another, which may be a NamedTuple."""
    return getattr(type(like), "_make", tuple)(tensors)


def facts_of(parts: Sequence[Part], optimizer: Optimizer) -> tuple | None:
    """What the launches of a step depend on, apart from the contents of arrays; None if they must not be recorded."""
    tensors = [x for batch, _ in parts for x in batch]
    if observers or is_composed() or not all(isinstance(x, Tensor) for x in tensors):
        return None
    rounded = optimizer._copy
    if rounded is not None and rounded.version[0] != optimizer.values.version:
        return None  # something else has written the weights: their copy is not the one that is kept
    places = optimizer.values.data.data.ptr, None if rounded is None else rounded.array.data.ptr
    return (
        get_precision(),
        places,
        [share for _, share in parts],
        [(x.shape, x.dtype) for x in tensors],
        [parameter.requires_grad for parameter in optimizer.named.values()],
    )
