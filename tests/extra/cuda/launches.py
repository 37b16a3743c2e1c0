"""How many kernels a training step and a generated token launch, and how long Python takes; no GPU is needed.

    python -m tests.extra.cuda.launches             a line for each model
    python -m tests.extra.cuda.launches --names     and what is launched, by name

On the emulated GPU (tests/emulator), with kernels and products that do nothing. Three kinds of launches are counted:

    own         kernels of tinygrad_lite/cuda
    products    calls of cuBLAS
    CuPy's      other calls that write an array; CuPy launches one kernel for most of them, a few for a sorting;
                its `matmul` calls cuBLAS

    replayed    the same for a step or token whose launches are a graph (cuda/graph.py), which counts as one

Copies between host and GPU are not counted. The models have all their layers, but are narrow and read few tokens,
which changes no number: only whether there are several sequences, heads and blocks of rows matters.

Python's time is that of a replayed step without the calls counted as CuPy's, and without launching anything: what this
project's own code needs. On a GPU CuPy's part is added, several microseconds a launch.
"""

from __future__ import annotations

import copy
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from benchmarks.our_side import make_model
from benchmarks.shapes import GPU_SHAPES, SHAPES, Shape
from tests import standin
from tests.emulator import cupy_on_cpu
from tests.standin import StandInArray
from tinygrad_lite.cuda.graph import LAUNCHED
from tinygrad_lite.precision import precision
from tinygrad_lite.tensor import Tensor
from train import only_updates
from training.processes.workers import start_processes

STEPS = 5  # of which the fastest counts for the time
BATCH, TOKENS = 4, 64  # enough rows for sums of columns to need two kernels
TRAINED = {"baby GPT": "baby", "baby GPT, dropout": "baby-dropout", "GPT-2": "gpt2", "goethe": "goethe"}
WRITTEN = {"baby GPT": "baby", "GPT-2": "gpt2", "goethe": "goethe"}
PRODUCTS = ("gemmEx", "gemmStridedBatchedEx")


@dataclass
class Launches:
    """What was launched, by name, and how often arrays were asked for something, with the seconds that this took.

    On a GPU each of those calls is CuPy's.
    """

    own: Counter[str] = field(default_factory=Counter)
    products: Counter[str] = field(default_factory=Counter)
    cupys: Counter[str] = field(default_factory=Counter)
    asked: int = 0
    seconds: float = 0.0

    def clear(self) -> None:
        """Begin again."""
        self.__init__()

    @property
    def counts(self) -> tuple[int, int, int]:
        """The number of each kind."""
        return self.own.total(), self.products.total(), self.cupys.total()


@contextmanager
def counting() -> Iterator[Launches]:
    """Inside, device "cuda" counts instead of computing: its arrays hold whatever was in memory."""
    launches = Launches()

    def counted(kind: str, name: str) -> Any:
        def launch(*_: Any) -> None:
            getattr(launches, kind)[name] += 1

        return launch

    def call(function: Any, args: tuple, options: dict) -> Any:
        result = plain(function, args, options)
        if writes(result, function, args, options):
            launches.cupys[name_of(function)] += 1
        return result

    inside = False

    def timed(function: Any) -> Any:
        def run(*args: Any, **options: Any) -> Any:
            nonlocal inside
            if inside:
                return function(*args, **options)
            inside, began = True, time.perf_counter()
            try:
                return function(*args, **options)
            finally:
                inside = False
                launches.asked += 1
                launches.seconds += time.perf_counter() - began

        return run

    plain = standin._call
    with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
        patch.setattr(cupy_on_cpu.RawModule, "get_function", lambda _, name: counted("own", name))
        patch.setattr(standin, "_call", timed(call))
        for name in ("__getattr__", "__getitem__", "__setitem__", "__array_ufunc__"):
            patch.setattr(StandInArray, name, timed(getattr(StandInArray, name)))
        patch.setattr(StandInArray, "data", property(timed(StandInArray.data.fget)))
        for name in PRODUCTS:
            patch.setattr(cupy_on_cpu, name, counted("products", name))
        patch.setattr(cupy_on_cpu.Graph, "launch", lambda graph: launches.own.update(graph=1))
        with cupy_on_cpu.emulated_cuda():
            yield launches


def name_of(function: Any) -> str:
    """The name of NumPy's function, method or ufunc."""
    owner = getattr(function, "__self__", None)
    return owner.__name__ if isinstance(owner, np.ufunc) else function.__name__


def writes(result: Any, function: Any, args: tuple, options: dict) -> bool:
    """Whether a call writes an array on the GPU: one that exists, or a new one, which is neither empty nor a view."""
    if options.get("out") is not None or function.__name__ in ("__setitem__", "at"):
        return True
    if not isinstance(result, StandInArray) or function.__name__ in ("empty", "empty_like", "array", "asarray"):
        return False  # the last two copy a number from the host
    given = [getattr(function, "__self__", None), *(getattr(one, "hidden", None) for one in args)]
    return not any(result.hidden.base is one.base for one in given if isinstance(one, np.ndarray))  # else it is a view


class OneBatch:
    """A task whose batches are all the same, on the GPU. At each step it notes the time since the one before."""

    def __init__(self, shape: Shape, launches: Launches) -> None:
        self.batch = tuple(Tensor(part, device="cuda") for part in shape.batches()[0])
        self.launches, self.began, self.seconds, self.counted = launches, 0.0, [], []

    def batches(self, step: int, rank: int, size: int) -> Iterator[tuple[Any, float]]:
        self.seconds.append(time.perf_counter() - self.began - self.launches.seconds)
        self.counted.append(copy.deepcopy(self.launches))  # of the step before
        self.launches.clear()
        self.began = time.perf_counter()
        yield self.batch, 1.0


def narrow(name: str, n_layer: int = 0) -> Shape:
    """A model with two heads of its width, a small vocabulary of its parity, and few tokens; all its layers, or N."""
    shape, heads = (GPU_SHAPES | {"goethe": SHAPES["goethe"]})[name], 2
    options, width = shape.options, shape.options.config.n_embd // shape.options.config.n_head * heads
    options = options.changed(n_embd=width, n_head=heads, block_size=TOKENS, batch_size=BATCH, workers=1)
    options = options.changed(device="cuda", decay_lr=False, n_layer=n_layer or options.config.n_layer)
    return replace(shape, options=options, vocab_size=64 + shape.vocab_size % 64, tokens=TOKENS)


def training_step(shape: Shape, numbers: str = "bfloat16") -> tuple[Launches, Launches, float]:
    """The launches of the second step of train.py, those of a replayed step, and the milliseconds that Python needs."""
    with counting() as launches, precision(numbers), pytest.MonkeyPatch.context() as patch:
        patch.setattr("train.check_finite", lambda *_: None)
        model = make_model(shape)
        model.to("cuda")
        optimizer, task = shape.options.make_optimizer(model), OneBatch(shape, launches)
        # The last step is left out, because it reads the loss.
        options = replace(shape.options, max_iters=STEPS + 2, log_interval=100)
        with start_processes(only_updates, options, task, model, optimizer) as comm:
            only_updates(options, task, model, optimizer, comm)
    return task.counted[2], task.counted[-1], 1e3 * min(task.seconds[LAUNCHED + 3 :])


def generated_token(shape: Shape, numbers: str = "bfloat16") -> tuple[Launches, Launches, float]:
    """The launches for the first token with the cache, those for a later one, and the milliseconds of Python's."""
    with counting() as launches, precision(numbers):
        model = make_model(shape)
        model.to("cuda")
        model.eval()
        seconds, counted, (_, state) = [], [], model.start(np.array([[1]]))
        for _ in range(STEPS):
            launches.clear()
            began = time.perf_counter()
            _, state = model.step(np.array([1]), state)
            seconds.append(time.perf_counter() - began - launches.seconds)
            counted.append(copy.deepcopy(launches))
    return counted[0], counted[-1], 1e3 * min(seconds)


def table(n_layer: int = 0) -> str:
    """A line for each model, with all its layers or N."""
    heads = ("launches", "own", "products", "CuPy's", "replayed", "ms")
    lines = [f"{'bfloat16':32}" + "".join(f"{head:>10}" for head in heads)]
    works = [("training step", training_step, TRAINED), ("generated token", generated_token, WRITTEN)]
    for what, measure, names in works:
        for title, name in names.items():
            launches, replayed, ms = measure(narrow(name, n_layer))
            numbers = (sum(launches.counts), *launches.counts, sum(replayed.counts), f"{ms:.2f}")
            lines.append(f"{f'{what}, {title}':32}" + "".join(f"{number:>10}" for number in numbers))
            if "--names" in sys.argv:
                lines.append(f"    {dict(launches.own)}\n    {dict(launches.cupys)}")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
