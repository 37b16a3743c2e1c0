"""This project's side of the rows on a GPU."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.gpu_side import FIRST_TOKENS, Side, made_up_text
from benchmarks.kernels import between_events, seen_by_cupti
from benchmarks.machine import gpu_model
from benchmarks.our_side import greedy, make_model
from benchmarks.shapes import Shape
from benchmarks.steps import Step, trainer
from tinygrad_lite import functional as F
from tinygrad_lite.autograd import no_grad
from tinygrad_lite.cli.console import say
from tinygrad_lite.cuda.gemm import as_bfloat16, gemm
from tinygrad_lite.cuda.launch import kernel, launch
from tinygrad_lite.device import Array, get_device, keyed_rng
from tinygrad_lite.precision import precision
from tinygrad_lite.tensor import Tensor


class Ours(Side):
    """Our models on device cuda. Weights stay float32; the precision is that of the matrix products."""

    def __init__(self, quick: bool) -> None:
        super().__init__(quick)
        self.device = get_device("cuda")
        self.xp = self.device.xp
        self.shape: Shape | None = None

    def facts(self) -> dict[str, Any]:
        """The GPU, and the amount of work in each task."""
        amounts = {"product": 2 * self.size**3, "copy": 2 * self.bytes, "write": self.tokens}
        trained = {
            name: {"tokens": shape.target_tokens, "flop": shape.target_tokens * shape.blueprint.flops_per_token()}
            for name, shape in self.shapes.items()
        }
        return {"about": gpu_model(), "amounts": amounts, "shapes": trained}

    def in_precision(self, name: str) -> contextlib.AbstractContextManager:
        """Inside, matrix products are computed in this precision."""
        return precision(name)

    def synchronize(self) -> None:
        """Wait for the GPU."""
        self.device.synchronize()

    def release(self) -> None:
        """Drop the model, and free its memory."""
        self.shape = self.model = self.learn = self.batches = None
        gc.collect()
        self.xp.get_default_memory_pool().free_all_blocks()

    def check(self, shape: Shape, work: str) -> dict[str, list[float]]:
        """Make the model; returns its results in float32."""
        self.shape = shape
        self.model = make_model(shape)
        self.model.to("cuda")
        with precision("float32"):
            if work == "write":
                self.model.eval()
                return {"log_probs": self.log_probs_of(made_up_text(shape.vocab_size, min(FIRST_TOKENS, self.tokens)))}
            self.learn = trainer(shape.options, self.model, shape.options.make_optimizer(self.model))
            self.batches = [tuple(Tensor(part, device="cuda") for part in batch) for batch in shape.batches()]
            losses = [self.loss()]
            if not shape.options.dropout:
                self.train(0)
                losses.append(self.loss())
        return {"losses": losses}

    def log_probs_of(self, text: list[int]) -> list[float]:
        """The log-probability of each token but the first, read with the cache as `write` does."""
        found = []
        log_probs, state = self.model.start(np.array([text[:1]]))
        for token in text[1:]:
            found.append(float(log_probs[0, token]))
            log_probs, state = self.model.step(np.array([token]), state)
        return found

    def loss(self) -> float:
        """The loss on the first batch, without dropout."""
        self.model.eval()
        with no_grad():
            loss = self.model.loss(self.batches[0]).item()
        self.model.train()
        return loss

    def train(self, number: int) -> Array:
        """A training step. The loss stays on the GPU."""
        batch = self.batches[number % len(self.batches)]
        return self.learn(batch, number).data

    def work(self, work: str, precision: str, variant: str) -> Step:
        """The function that does a task once."""
        if work == "train":
            return self.train
        if work == "write":
            return self.write
        return {
            "product": self.product,
            "copy": self.copy,
            "launch": self.launch,
            "small product": self.small_product,
            "linear": self.linear,
        }[work](precision)

    def write(self, number: int) -> None:
        """Generate a text from token `number` on."""
        greedy(self.model, number % self.shape.vocab_size, self.tokens)

    def random(self, *size: int) -> Array:
        """Random numbers; with zeros a GPU would be faster."""
        return self.device.from_host(keyed_rng(1, "benchmark").standard_normal(size, dtype=np.float32))

    def product(self, precision: str) -> Step:
        """Multiply two large matrices."""
        a = self.random(self.size, self.size)
        a = as_bfloat16(a) if precision == "bfloat16" else a
        out = self.xp.empty(a.shape, a.dtype)

        def step(number: int) -> None:
            gemm(a, a, out=out)

        return step

    def copy(self, precision: str) -> Step:
        """Copy a large array on the GPU."""
        a = self.xp.tile(self.random(1024), self.bytes // 4096)
        b = self.xp.empty(a.shape, a.dtype)

        def step(number: int) -> None:
            b[...] = a

        return step

    def launch(self, precision: str) -> Step:
        """Launch a small kernel, which adds a bias."""
        y, bias = self.random(4, 32), self.random(32)
        function = kernel("bias", "add_bias", X=y.dtype, PACK=1)

        def step(number: int) -> None:
            launch(function, (1,), (32, 4), *y.shape, y.shape[1], y, bias)

        return step

    def small_product(self, precision: str) -> Step:
        """Multiply two small matrices."""
        a = self.random(64, 64)
        out = self.xp.empty(a.shape, a.dtype)

        def step(number: int) -> None:
            gemm(a, a, out=out)

        return step

    def linear(self, precision: str) -> Step:
        """Apply a small linear map, with its node in the graph."""
        x, weight, bias = (Tensor.wrap(self.random(*size)) for size in ((64, 64), (64, 64), (64,)))
        weight.requires_grad_()

        def step(number: int) -> None:
            F.linear(x, weight, bias)

        return step

    def kernels_of(self, step: Step) -> tuple[list[tuple[str, float]], str]:
        """The kernels of a step with their microseconds, and how they were measured."""
        by: dict[str, Callable[[Step], list[tuple[str, float]]]] = {"CUPTI": seen_by_cupti, "events": self.by_events}
        for source, measure in by.items():
            try:
                if spent := measure(step):
                    return spent, source
                say(f"no kernels were seen by {source}")
            except Exception as error:  # a profiler may raise anything; the other way is tried next
                say(f"kernels could not be seen by {source}: {type(error).__name__}: {error}")
        raise RuntimeError("no kernel was seen")

    def by_events(self, step: Step) -> list[tuple[str, float]]:
        """The kernels of a step, measured with events."""
        return between_events(step, self.synchronize, head_start=self.head_start())

    def head_start(self) -> Callable[[], None]:
        """A function that queues about 100 ms of work, so that the GPU stays behind Python and does not wait for it."""
        a = self.random(self.size, self.size)
        out = self.xp.empty(a.shape, a.dtype)

        def queue() -> None:
            for _ in range(5):
                gemm(a, a, out=out)

        return queue
