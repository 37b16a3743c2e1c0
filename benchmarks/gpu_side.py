"""One side of `python -m benchmarks.gpu`: a process that prepares tasks on its device, times them, and answers.

    python -m benchmarks.gpu_side ours           this project on the GPU
    python -m benchmarks.gpu_side cpu            this project on the CPU
    python -m benchmarks.gpu_side torch quick    PyTorch on the GPU, with tiny models

`gpu.py` starts these. A question is a line of JSON that names a method of `Side` and its arguments. An error is sent as
a reply, so a row that fails does not end the others. PyTorch's side is in `torch_side.py`.
"""

import contextlib
import gc
import math
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np

from benchmarks.children import serve
from benchmarks.machine import gpu_model
from benchmarks.our_side import greedy, make_model
from benchmarks.shapes import GPU_SHAPES, QUICK_SHAPES, VOCABULARY, Shape
from extra.gpt.options import GPTOptions
from tinygrad_lite import functional as F
from tinygrad_lite.autograd import no_grad
from tinygrad_lite.cuda import gemm as products
from tinygrad_lite.cuda.gemm import as_bfloat16, gemm
from tinygrad_lite.cuda.launch import kernel, launch
from tinygrad_lite.device import Array, get_device
from tinygrad_lite.nn import Module
from tinygrad_lite.optim import Optimizer
from tinygrad_lite.precision import precision
from tinygrad_lite.random import keyed_rng, random_key
from tinygrad_lite.tensor import Tensor
from training.cli.console import run_command, say
from training.folder import tune_memory
from training.options import TrainOptions
from training.processes.processes import OneGPU, OneProcess

WIDTHS = (32, 64, 128, 256, 512, 1024)  # of the models used to compare GPU and CPU
WRITTEN = {"write": 1, "write many": 32}  # the tasks of writing, and how many texts they write at once
FIRST_TOKENS = 32  # of a text, on whose log-probabilities the sides must agree
MAX_REPEATS = 200  # a GPU queues about 1,000 kernels; then Python waits
Step = Callable[[int], Any]  # does repeat number n of a task; on a GPU it only queues the work
Spent = list[tuple[str, float]]  # kernels in the order in which they ran, with their microseconds


def shape_of(width: int, quick: bool) -> Shape:
    """A GPT of this width, with heads of 64; everything else is the same in all of them."""
    sizes = {"n_layer": 1, "block_size": 8, "batch_size": 2} if quick else {"n_layer": 4, "block_size": 128}
    options = GPTOptions.of(**{"batch_size": 16, **sizes}, n_embd=width, n_head=max(1, width // 64))
    return Shape(options, VOCABULARY, options.config.block_size)


def made_up_text(vocab_size: int, count: int) -> list[int]:
    """Tokens drawn at random, on which both sides are compared.

    Each reads them one by one. Texts that a side chooses itself cannot be compared: an untrained model finds many
    tokens about equally probable, so rounding errors decide, and after one different token the texts have nothing in
    common.
    """
    return keyed_rng(1, "made-up text").integers(0, vocab_size, count).tolist()


class Side:
    """What the sides share. A subclass for each library has the tasks.

    Tasks: "train" a step; those of WRITTEN, with the key-value cache; "product" of two square matrices; "copy" of
    memory on the GPU; "launch", "small product" and "linear", for Python's time to start them.

    A subclass defines `facts` about itself; `make` a model, with optimizer and batches unless it only writes; its
    `loss` on the first batch without dropout, or its `log_probs_of` a text; `work`, the function that does a task once;
    `in_precision`, inside which matrix products have a precision; `synchronize`, which waits for the device; `release`
    of the model; and `kernels_of` a step, with how they were measured.
    """

    def __init__(self, quick: bool) -> None:
        self.shapes = (QUICK_SHAPES if quick else GPU_SHAPES) | {f"width {w}": shape_of(w, quick) for w in WIDTHS}
        self.shape: Shape | None = None  # of the model that was made last
        self.size = 64 if quick else 8192  # of the matrices: (size, size)
        self.bytes = 2**12 if quick else 2**30  # to copy
        self.tokens = 7 if quick else 255  # of a text, after the first
        self.max_repeats = 2 if quick else 200  # of a task in a turn
        self.ready: dict[str, tuple[Step, str, str]] = {}  # by variant: the function, its task and precision

    def prepare(self, work: str, shape: str) -> dict[str, list[float]]:
        """Replace the model by one of this shape, if the task needs one; returns its results in float32.

        "losses" before and, without dropout, after a step; or "log_probs", those of `made_up_text`.
        """
        self.ready.clear()
        self.release()
        if not shape:
            return {}
        self.shape = self.shapes[shape]
        with self.in_precision("float32"):
            self.make(self.shape, work)
            if work in WRITTEN:
                text = made_up_text(self.shape.vocab_size, min(FIRST_TOKENS, self.tokens))
                return {"log_probs": self.log_probs_of(text)}
            losses = [self.loss()]
            if not self.shape.options.config.dropout:
                self.work("train", "float32", "")(0)
                losses.append(self.loss())
        return {"losses": losses}

    def prompts(self, number: int, work: str) -> list[int]:
        """The first token of each text that repeat `number` of a task writes."""
        return [(number + row) % self.shape.vocab_size for row in range(WRITTEN[work])]

    def begin(self, work: str, precision: str, variant: str, seconds: float) -> dict[str, int]:
        """Prepare one variant of a task; returns the number of repeats that take about `seconds`."""
        with self.in_precision(precision):
            step = self.work(work, precision, variant)
            _, repeats = warm_up(step, self.synchronize, seconds, self.max_repeats)
        self.ready[variant] = step, work, precision
        return {"repeats": repeats}

    def turn(self, variant: str, repeats: int, begin: int) -> dict[str, Any]:
        """Do the task `repeats` times; returns its milliseconds, and those Python needed to launch it."""
        step, work, precision = self.ready[variant]
        with self.in_precision(precision):
            ms, asked_ms, result = time_group(step, self.synchronize, repeats, begin)
        loss = float(result) if work == "train" else 0.0
        if not math.isfinite(loss):
            raise ArithmeticError(f"the loss became {loss}, so the times are meaningless")
        return {"ms": ms, "asked_ms": asked_ms}

    def kernels(self, precision: str) -> dict[str, Any]:
        """The GPU's time in a training step by kernel, for the model that was made last."""
        with self.in_precision(precision):
            step = self.work("train", precision, "")
            warm_up(step, self.synchronize, 0.01)
            ms, _, _ = time_group(step, self.synchronize, min(10, self.max_repeats))
            # For single steps, with an empty queue: Python waits when about 1,000 kernels are queued, and then its time
            # in a group of steps would be the GPU's.
            asked_ms = min(time_group(step, self.synchronize, 1, number)[1] for number in range(5))
            spent, source = self.kernels_of(step)
        return {"ms": ms, "asked_ms": asked_ms, "kernels": spent, "source": source}


# --- time on any device ---------------------------------------------------------------------------------------

# Python only queues work for a GPU and continues at once. So the clock is read when the GPU has finished
# (`synchronize`), and only after a group of steps, since training does not wait between steps either.


def trainer(options: TrainOptions, model: Module, optimizer: Optimizer) -> Callable[[Any, int], Tensor]:
    """Make a function that trains on a batch: forward, backward, clipping, update, as train.py does on this device.

    It takes the batch and the number of the step, and returns the loss before the update, not yet fetched.
    """
    comm = OneGPU(optimizer) if optimizer.memory.values.device == "cuda" else OneProcess()

    def train(batch: Any, number: int) -> Tensor:
        optimizer.zero_grad()
        for _, (part, _) in comm.passes([(batch, 1.0)], optimizer, number):
            with comm.recorded(), random_key(options.seed, number):
                loss = model.loss(part)
                loss.backward()
                comm.losses.append(loss.detach())
        comm.sum_gradients(optimizer, number)
        comm.clip(optimizer, options.grad_clip)
        optimizer.step()
        return comm.losses[0]

    return train


def time_group(step: Step, synchronize: Callable[[], None], repeats: int, begin: int = 0) -> tuple[float, float, Any]:
    """Do `repeats` consecutive steps, numbered from `begin`.

    Returns: milliseconds of a step; those in which Python queued it; and the result of the last step.
    """
    synchronize()
    began = time.perf_counter()
    for number in range(begin, begin + repeats):
        result = step(number)
    asked = time.perf_counter()
    synchronize()
    done = time.perf_counter()
    return (done - began) * 1e3 / repeats, (asked - began) * 1e3 / repeats, result


def warm_up(
    step: Step, synchronize: Callable[[], None], seconds: float, max_repeats: int = MAX_REPEATS
) -> tuple[float, int]:
    """Do a few untimed steps: the first compiles kernels, the next allocates memory.

    Returns: milliseconds of the first step, and the number of steps that take about `seconds`.
    """
    first, _, _ = time_group(step, synchronize, 1)
    ms, _, _ = time_group(step, synchronize, 1, 1)
    if ms < 1e3 * seconds:  # a long step needs no others
        ms, _, _ = time_group(step, synchronize, 2, 2)
    return first, max(1, min(max_repeats, round(1e3 * seconds / ms)))


# --- this project ---------------------------------------------------------------------------------------------


class Ours(Side):
    """Our models. Weights stay float32; the precision applies to the GPU's matrix products."""

    def __init__(self, quick: bool, place: str = "cuda") -> None:
        super().__init__(quick)
        self.device = get_device(place)
        self.xp = self.device.xp
        if place == "cpu":
            tune_memory()

    def facts(self) -> dict[str, Any]:
        """The device, and the amount of work in each task."""
        if self.device.name == "cpu":
            return {"about": f"float32, one process, threads {os.environ.get('OPENBLAS_NUM_THREADS', 'one per core')}"}
        amounts = {"product": 2 * self.size**3, "copy": 2 * self.bytes}
        amounts |= {work: texts * self.tokens for work, texts in WRITTEN.items()}
        trained = {
            name: {"tokens": shape.target_tokens, "flop": shape.target_tokens * shape.blueprint.flops_per_token()}
            for name, shape in self.shapes.items()
        }
        return {"about": gpu_model(), "amounts": amounts, "shapes": trained}

    def in_precision(self, name: str) -> AbstractContextManager:
        return precision(name) if self.device.name == "cuda" else nullcontext()

    def synchronize(self) -> None:
        self.device.synchronize()

    def release(self) -> None:
        self.shape = self.model = self.learn = self.batches = None
        gc.collect()
        if self.device.name == "cuda":
            self.xp.get_default_memory_pool().free_all_blocks()

    def make(self, shape: Shape, work: str) -> None:
        self.model = make_model(shape)
        self.model.to(self.device.name)
        if work in WRITTEN:
            self.model.eval()
            return
        self.learn = trainer(shape.options, self.model, shape.options.make_optimizer(self.model))
        self.batches = [tuple(Tensor(part, device=self.device.name) for part in batch) for batch in shape.batches()]

    def log_probs_of(self, text: list[int]) -> list[float]:
        """The log-probability of each token except the first, read with the cache, as in writing."""
        found = []
        log_probs, state = self.model.start(np.array([text[:1]]))
        for token in text[1:]:
            found.append(float(log_probs[0, token]))
            log_probs, state = self.model.step(np.array([token]), state)
        return found

    def loss(self) -> float:
        self.model.eval()
        with no_grad():
            loss = self.model.loss(self.batches[0]).item()
        self.model.train()
        return loss

    def work(self, work: str, precision: str, variant: str) -> Step:
        if work == "train":
            return lambda number: self.learn(self.batches[number % len(self.batches)], number).data
        if work in WRITTEN:
            return lambda number: greedy(self.model, self.prompts(number, work), self.tokens)
        if work == "copy":
            a = self.xp.tile(self.random(1024), self.bytes // 4096)
            b = self.xp.empty(a.shape, a.dtype)
            return lambda number: b.__setitem__(..., a)
        if work == "launch":
            y, bias = self.random(4, 32), self.random(32)
            function = kernel("bias", "add_bias", X=y.dtype, PACK=1)
            return lambda number: launch(function, (1,), (32, 4), *y.shape, y.shape[1], y, bias)
        if work == "linear":  # with its node in the graph
            x, weight, bias = (Tensor.wrap(self.random(*size)) for size in ((64, 64), (64, 64), (64,)))
            weight.requires_grad_()
            return lambda number: F.linear(x, weight, bias)
        return self.multiply({"product": self.size, "small product": 64}[work], precision)

    def multiply(self, size: int, precision: str) -> Step:
        """Multiply two matrices (size, size)."""
        a = self.random(size, size)
        a = as_bfloat16(a) if precision == "bfloat16" else a
        out = self.xp.empty(a.shape, a.dtype)
        return lambda number: gemm(a, a, out=out)

    def random(self, *size: int) -> Array:
        """Random numbers; with zeros a GPU would be faster."""
        return self.device.from_host(keyed_rng(1, "benchmark").standard_normal(size, dtype=np.float32))

    def kernels_of(self, step: Step) -> tuple[Spent, str]:
        for source, measured in (("CUPTI", seen_by_cupti), ("events", self.between_events)):
            try:
                if spent := measured(step):
                    return spent, source
                say(f"no kernels were seen by {source}")
            except Exception as error:  # a profiler may raise anything; the other way is tried next
                say(f"kernels could not be seen by {source}: {type(error).__name__}: {error}")
        raise RuntimeError("no kernel was seen")

    def between_events(self, step: Step) -> Spent:
        """Our kernels and the products of a step, by events: time stamps that the GPU records before and after each.

        CuPy's own kernels are not covered. The GPU is given about 100 ms of work first: otherwise it would record an
        event and then wait for Python to launch the kernel.
        """
        busy = self.multiply(self.size, "float32")
        marks: list[tuple[str, Any, Any]] = []
        with watched(self.xp, marks):
            step(0)  # compiles the kernels
            self.synchronize()
            for number in range(5):
                busy(number)
            marks.clear()
            step(0)
            self.synchronize()
        return [(name, 1e3 * self.xp.cuda.get_elapsed_time(begin, end)) for name, begin, end in marks]


@contextmanager
def watched(cupy: Any, marks: list[tuple[str, Any, Any]]) -> Iterator[None]:
    """Makes each of our kernels and each product of cuBLAS add (name, event before, event after) to the list."""

    def marked(function: Callable[..., Any], name: Callable[..., str]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            before, after = cupy.cuda.Event(), cupy.cuda.Event()
            before.record()
            result = function(*arguments)
            after.record()
            marks.append((name(*arguments), before, after))
            return result

        return call

    class Module:
        """Replaces CuPy's module: returns marked kernels."""

        def __init__(self, **source: Any) -> None:
            self.module = plain(**source)

        def get_function(self, name: str) -> Callable[..., Any]:
            return marked(self.module.get_function(name), lambda *arguments: name)

    class Library:
        """Replaces cuBLAS."""

        def __init__(self, library: Any) -> None:
            for name in ("gemmEx", "gemmStridedBatchedEx"):
                setattr(self, name, marked(getattr(library, name), sizes))

    def sizes(*arguments: Any) -> str:
        n, m, k = arguments[3:6]
        return f"product ({m}, {k}) @ ({k}, {n})"

    plain, plain_cublas = cupy.RawModule, products.cublas
    kernel.cache_clear()  # so that every kernel is loaded from the module again
    cupy.RawModule = Module
    products.cublas = lambda: (Library(plain_cublas()[0]), plain_cublas()[1])
    try:
        yield
    finally:
        cupy.RawModule, products.cublas = plain, plain_cublas
        kernel.cache_clear()


def seen_by_cupti(step: Step) -> Spent:
    """Every kernel and copy of a step, by NVIDIA's interface for such tools, which PyTorch's profiler also uses."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.init()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as seen:
        step(0)
        torch.cuda.synchronize()
    on_gpu = torch.autograd.DeviceType.CUDA
    return [(event.name, event.time_range.elapsed_us()) for event in seen.events() if event.device_type == on_gpu]


# --- answering ------------------------------------------------------------------------------------------------


def reply_of(side: Side) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A function that answers {"do": a method, ...}; after an error with {"failed": reason, "traceback": ...}."""

    def reply(question: dict[str, Any]) -> dict[str, Any]:
        what = {name: value for name, value in question.items() if name != "do"}
        with contextlib.redirect_stdout(sys.stderr):  # stdout is for replies; libraries may print
            try:
                return getattr(side, question["do"])(**what)
            except Exception as error:
                failed = {"failed": f"{type(error).__name__}: {error}"[:500]}
                failed["traceback"] = traceback.format_exc()[-6000:]
            # Outside `except`, so that the error no longer keeps arrays alive.
            try:
                side.synchronize()
            except Exception:
                failed["broken"] = True  # after a failed kernel, this process can no longer use the GPU
            return failed

    return reply


def main(argv: list[str]) -> int:
    """Answer until stdin ends. The arguments: ours, cpu or torch, and perhaps "quick"."""
    quick = argv[1:] == ["quick"]
    with contextlib.redirect_stdout(sys.stderr):
        if argv[0] == "torch":
            from benchmarks.torch_side import TorchSide  # only here, since our side must not load PyTorch

            side: Side = TorchSide(quick)
        else:
            side = Ours(quick, "cpu" if argv[0] == "cpu" else "cuda")
    serve(reply_of(side))
    return 0


if __name__ == "__main__":
    run_command("benchmarks", main)
