"""PyTorch's side of the rows on a GPU: the tasks of `gpu_ours.py`, from the same weights, on the same batches.

PyTorch is used in the usual way: attention by `scaled_dot_product_attention`, its fused AdamW, autocast for
bfloat16 in training, bfloat16 weights for writing, and `set_float32_matmul_precision("high")` for TF32.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import itertools
from collections.abc import Iterator
from typing import Any

import torch

from benchmarks.gpu_side import FIRST_TOKENS, Side, made_up_text
from benchmarks.kernels import seen_by_cupti
from benchmarks.our_side import make_model
from benchmarks.shapes import Shape
from benchmarks.steps import Step
from benchmarks.torch_gpt import TorchCache
from benchmarks.torch_gpt import from_ours as gpt_from_ours
from benchmarks.torch_seq2seq import from_ours as seq2seq_from_ours
from benchmarks.torch_side import greedily, hugging_face, torch_optimizer, torch_step


class Torch(Side):
    """The PyTorch models. Variants: "eager", "compiled" by torch.compile, and for writing "hugging-face"."""

    def __init__(self, quick: bool, device: str = "cuda") -> None:
        super().__init__(quick)
        self.device = torch.device(device)
        self.shape: Shape | None = None
        self.has_compiled = False

    def facts(self) -> dict[str, Any]:
        """The versions and the GPU."""
        about = f"torch {torch.__version__}"
        if self.device.type == "cuda":
            torch.cuda.init()
            about += f" on {torch.cuda.get_device_name()}"
        return {"about": about}

    @contextlib.contextmanager
    def in_precision(self, name: str) -> Iterator[None]:
        """Inside, matrix products are computed in this precision."""
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)

    def synchronize(self) -> None:
        """Wait for the GPU."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def release(self) -> None:
        """Drop the models, and free their memory."""
        self.shape = self.model = self.torch_model = self.optimizer = self.batches = None
        if self.has_compiled:
            torch.compiler.reset()
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def check(self, shape: Shape, work: str) -> dict[str, list[float]]:
        """Make the models; returns the results in float32."""
        self.shape, self.model = shape, make_model(shape)
        self.torch_model = (seq2seq_from_ours if shape.translates else gpt_from_ours)(self.model).to(self.device)
        with self.in_precision("float32"):
            if work == "write":
                self.torch_model.eval()
                return {"log_probs": self.log_probs_of(made_up_text(shape.vocab_size, min(FIRST_TOKENS, self.tokens)))}
            fused = self.device.type == "cuda"
            self.optimizer = torch_optimizer(shape.options, self.torch_model, fused=fused)
            batches = shape.batches()
            self.batches = [tuple(torch.tensor(part, device=self.device) for part in batch) for batch in batches]
            losses = [self.loss()]
            if not shape.options.dropout:
                self.train("float32", self.torch_model.loss, 0)
                losses.append(self.loss())
        return {"losses": losses}

    @torch.no_grad()
    def log_probs_of(self, text: list[int]) -> list[float]:
        """The log-probability of each token but the first, read with the cache as `generate_cached` does."""
        model, found = self.torch_model, []
        caches = [TorchCache(model.config.block_size) for _ in model.blocks]
        for token, following in itertools.pairwise(text):
            x = model.hidden(torch.tensor([[token]], device=self.device), caches)
            log_probs = torch.nn.functional.linear(x[0, -1], model.token_embedding.weight).log_softmax(-1)
            found.append(log_probs[following].item())
        return found

    def loss(self) -> float:
        """The loss on the first batch, without dropout.

        The graph is recorded, since without it nn.Transformer uses another implementation.
        """
        self.torch_model.eval()
        loss = self.torch_model.loss(*self.batches[0]).item()
        self.torch_model.train()
        return loss

    def train(self, precision: str, loss_of: Any, number: int) -> torch.Tensor:
        """A training step. The loss stays on the GPU."""

        def in_autocast(*batch: torch.Tensor) -> torch.Tensor:
            with torch.autocast(self.device.type, torch.bfloat16, enabled=precision == "bfloat16"):
                return loss_of(*batch)

        batch = self.batches[number % len(self.batches)]
        return torch_step(self.shape.options, self.torch_model, self.optimizer, in_autocast, batch)

    def prompt(self, number: int) -> torch.Tensor:
        """A prompt of one token, (1, 1)."""
        return torch.tensor([[number % self.shape.vocab_size]], device=self.device)

    def random(self, *size: int) -> torch.Tensor:
        """Random numbers; with zeros a GPU would be faster."""
        return torch.randn(*size, device=self.device)

    def work(self, work: str, precision: str, variant: str) -> Step:
        """The function that does a task once."""
        if work == "train":
            loss_of = self.torch_model.loss
            if variant == "compiled":
                self.has_compiled, loss_of = True, torch.compile(loss_of)
            return lambda number: self.train(precision, loss_of, number)
        if work == "write":
            return self.writes(torch.bfloat16 if precision == "bfloat16" else torch.float32, variant)
        return {
            "product": self.product,
            "copy": self.copy,
            "launch": self.launch,
            "small product": self.small_product,
            "linear": self.linear,
        }[work](precision)

    def writes(self, dtype: torch.dtype, variant: str) -> Step:
        """Greedy generation, by our PyTorch model or by Hugging Face's, with weights of this dtype."""
        if variant == "hugging-face":
            theirs = hugging_face(self.model).to(self.device, dtype)

            def write(number: int) -> None:
                theirs.generate(self.prompt(number), **greedily(self.tokens))

            return write
        torch_model = copy.deepcopy(self.torch_model).to(dtype)

        def step(number: int) -> None:
            torch_model.generate_cached(self.prompt(number), self.tokens).tolist()

        return step

    def product(self, precision: str) -> Step:
        """Multiply two large matrices."""
        a = self.random(self.size, self.size)
        a = a.bfloat16() if precision == "bfloat16" else a
        out = torch.empty_like(a)

        def step(number: int) -> None:
            torch.mm(a, a, out=out)

        return step

    def copy(self, precision: str) -> Step:
        """Copy a large array on the GPU."""
        a = self.random(self.bytes // 4)
        b = torch.empty_like(a)

        def step(number: int) -> None:
            b.copy_(a)

        return step

    def launch(self, precision: str) -> Step:
        """Launch a small kernel, which adds a bias."""
        y, bias = self.random(4, 32), self.random(32)

        def step(number: int) -> None:
            y.add_(bias)

        return step

    def small_product(self, precision: str) -> Step:
        """Multiply two small matrices."""
        a = self.random(64, 64)
        out = torch.empty_like(a)

        def step(number: int) -> None:
            torch.mm(a, a, out=out)

        return step

    def linear(self, precision: str) -> Step:
        """Apply a small linear map, with its node in the graph."""
        x, weight, bias = self.random(64, 64), self.random(64, 64).requires_grad_(), self.random(64)

        def step(number: int) -> None:
            torch.nn.functional.linear(x, weight, bias)

        return step

    def kernels_of(self, step: Step) -> tuple[list[tuple[str, float]], str]:
        """The kernels of a step with their microseconds, and how they were measured."""
        return seen_by_cupti(step), "CUPTI"
