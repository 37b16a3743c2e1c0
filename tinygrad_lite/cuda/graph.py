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

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Self

import numpy as np

from tinygrad_lite.autograd import observers
from tinygrad_lite.cuda import dropout, gemm
from tinygrad_lite.functional.registry import is_composed
from tinygrad_lite.optim.optimizer import Optimizer
from tinygrad_lite.precision import get_precision
from tinygrad_lite.tensor import Tensor

LAUNCHED = 2  # steps before the one that is recorded: they load all kernels, and make whatever is kept between steps

Part = tuple[tuple, float]  # a micro-batch of tensors, or numbers, and its share of the loss
FAILURES = (RuntimeError, MemoryError, OSError)  # CuPy's errors are subclasses of the first two


class Capture:
    """Inside, launches on this thread are only recorded; afterwards, `replay` repeats them all in one call.

    The kernels must have been launched before, because loading one is not a launch. If the work cannot be captured,
    since it reads a number or memory runs out, for example, it ends with one of FAILURES, and `replay` stays None.

    Args:
        allocates: whether the work allocates arrays, or multiplies matrices by cuBLAS. Arrays then come from a pool of
            the graph's own: what the work frees serves the rest of it, but nothing outside.
    """

    def __init__(self, allocates: bool = False) -> None:
        self.allocates, self.replay = allocates, None

    def __enter__(self) -> Self:
        import cupy

        self.stream, self.kept = cupy.cuda.Stream(non_blocking=True), []  # the default stream cannot be captured
        with ExitStack() as around:
            around.enter_context(self.stream)
            if self.allocates:
                cupy.get_default_memory_pool().free_all_blocks()  # what earlier steps used
                self.kept.append(cupy.cuda.MemoryPool())
                around.enter_context(cupy.cuda.using_allocator(self.kept[0].malloc))
                self.kept.append(cupy.empty(gemm.WORKSPACE, np.uint8))
                around.enter_context(gemm.recorded_on(self.stream, self.kept[1]))
            self.stream.begin_capture()
            self.around = around.pop_all()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: Any) -> None:
        with self.around:
            graph = self.stream.end_capture()
            if kind is None:
                self.replay = functools.partial(replay, graph, *self.kept)


def captured(work: Callable[[], None]) -> Callable[[], None]:
    """A function that repeats the launches of work() in one call; `work` itself if they cannot be captured."""
    capture = Capture()
    with suppress(*FAILURES), capture:
        work()
    return capture.replay or work


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
        self.is_recording, self.error = False, None

    def passes(
        self, parts: Iterable[Part], optimizer: Optimizer, step: int, losses: list[Tensor]
    ) -> Iterator[tuple[int, Part]]:
        """The parts, numbered, for each of which the caller makes a forward and a backward pass; none in a replay.

        Args:
            optimizer: that of the parameters, which have no gradients yet.
            step: its number, on which dropout depends.
            losses: where the caller appends the loss of each pass, and a replay those that it computes.
        """
        parts = list(parts)
        facts = facts_of(parts, optimizer)
        if facts is None or facts != self.facts:
            self.needed *= 2 if self.replay else 1
            self.facts, self.launched, self.replay = facts, 0, None
        if facts is not None and self.launched == self.needed:
            yield from self._record(parts, optimizer, losses)
        self.launched += 1
        if self.replay is None:
            yield from enumerate(parts)
            return
        for x, mine in zip(tensors_of(parts), tensors_of(self.parts), strict=True):
            mine.data[...] = x.data
        self.step.fill(step & dropout.WORD)
        self.replay()
        losses[:] = self.losses
        for parameter, gradient in self.gradients:
            parameter.grad = gradient

    def _record(self, parts: Sequence[Part], optimizer: Optimizer, losses: list[Tensor]) -> Iterator[tuple[int, Part]]:
        """Record the passes on arrays that stay; if that is impossible, nothing has happened."""
        self.step = tensors_of(parts)[0].xp.zeros(1, np.uint32)
        self.parts = [(own_copy(batch), share) for batch, share in parts]
        self.is_recording, dropout.step_at, capture = True, self.step, Capture(allocates=True)
        try:
            with suppress(*FAILURES), capture:
                for number, part in enumerate(self.parts):
                    yield number, part
                    if self.error is not None:
                        raise self.error
        finally:
            self.is_recording, self.error, dropout.step_at = False, None, None
        self.replay, self.losses = capture.replay, [*losses]
        self.gradients = [(parameter, parameter.grad) for parameter in optimizer.memory.named.values()]
        losses.clear()
        optimizer.zero_grad()

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """The context of a pass: while it is recorded, an error only ends the recording."""
        try:
            yield
        except FAILURES as error:
            if not self.is_recording:
                raise
            self.error = error


def tensors_of(parts: Sequence[Part]) -> list[Tensor]:
    """The tensors in these micro-batches."""
    return [x for batch, _ in parts for x in batch if isinstance(x, Tensor)]


def own_copy(batch: tuple) -> tuple:
    """The same batch with its own arrays; it may be a NamedTuple."""
    copies = [Tensor.wrap(x.data.copy()) if isinstance(x, Tensor) else x for x in batch]
    return getattr(type(batch), "_make", tuple)(copies)


def facts_of(parts: Sequence[Part], optimizer: Optimizer) -> tuple | None:
    """What the launches of a step depend on, apart from the contents of arrays; None if they must not be recorded."""
    rounded, values = optimizer.memory.rounded, optimizer.memory.values
    if observers or is_composed() or (rounded is not None and rounded.version[0] != values.version):
        return None  # the last: something else has written the weights, and their copy will be another one
    contents = [(x.shape, x.dtype) if isinstance(x, Tensor) else x for batch, share in parts for x in (*batch, share)]
    if not all(isinstance(x, (tuple, int, float, type(None))) for x in contents):
        return None  # an array of the host, for example
    learned = [parameter.requires_grad for parameter in optimizer.memory.named.values()]
    return get_precision(), values.data.data.ptr, rounded and rounded.array.data.ptr, contents, learned
