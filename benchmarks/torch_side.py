"""PyTorch's side of the rows: the tasks of `our_side.py`, from the same weights, on the same batches.

PyTorch runs with its defaults: eagerly, with its default AdamW; Muon as in `torch_muon.py`. One side compiles
the model and its loss, forward and backward, with torch.compile.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from benchmarks.gpu_side import WRITTEN, Side, Spent, seen_by_cupti
from benchmarks.our_side import MALLOC, Repeat, make_model
from benchmarks.shapes import SHAPES, Shape
from benchmarks.steps import Step
from benchmarks.torch_encoder import from_ours as encoder_from_ours
from benchmarks.torch_gpt import TorchCache, TorchGPT
from benchmarks.torch_gpt import from_ours as gpt_from_ours
from benchmarks.torch_muon import MuonAndAdamW, decay_groups
from benchmarks.torch_seq2seq import from_ours as seq2seq_from_ours
from extra.encoders.bert import Bert
from extra.encoders.vit import ViT
from extra.pretrained.gpt2 import LAYOUT
from gpt.model import GPT
from seq2seq.model import Seq2Seq
from tinygrad_lite.errors import UserError
from training.folder import tune_memory
from training.options import TrainOptions

FROM_OURS = {GPT: gpt_from_ours, Seq2Seq: seq2seq_from_ours} | dict.fromkeys((Bert, ViT), encoder_from_ours)
MODES = {"compiled": None, "reduce-overhead": "reduce-overhead"}  # of torch.compile
AnyOptimizer = torch.optim.Optimizer | MuonAndAdamW


def prepare(work: str, shape: str, side: str) -> tuple[Repeat, list[str]]:
    """The function that does this work, and facts for the reader.

    Args:
        side: torch; torch-malloc, with the memory settings of our scripts instead of the system's; torch-compiled.
    """
    facts = [f"threads: {torch.get_num_threads()}", MALLOC[side == "torch-malloc" and tune_memory()]]
    if side == "torch-compiled":
        repeat, seconds = train_compiled(SHAPES[shape])
        return repeat, [*facts, f"compiling {shape} took {seconds:.0f} s"]
    return WORKS[work](SHAPES[shape]), facts


def torch_model_of(shape: Shape) -> torch.nn.Module:
    """The model in PyTorch with the initial weights of ours."""
    packed = {"packed": is_packed(shape)} if shape.model is GPT else {}
    return FROM_OURS[shape.model](make_model(shape), **packed)


def is_packed(shape: Shape) -> bool:
    """Whether a GPT has one matrix for queries, keys and values: not for Muon, which treats each by itself."""
    return shape.options.optimizer != "muon"


def train(shape: Shape) -> Repeat:
    """Training steps, in milliseconds."""
    return steps_of(shape, torch_model_of(shape))


def train_alone(shape: Shape) -> Repeat:
    """The same from PyTorch's own initial weights, so that its process never holds a model of ours."""
    return steps_of(shape, TorchGPT(shape.config, is_packed(shape)).float())


def train_compiled(shape: Shape) -> tuple[Repeat, float]:
    """The same with the model's loss compiled in advance; and the seconds that this takes.

    Raises: UserError if it cannot be compiled.
    """
    torch_model, began = torch_model_of(shape), time.perf_counter()
    torch_model.loss = torch.compile(torch_model.loss)
    try:
        torch_model.loss(*torch_batches(shape)[0]).backward()
        seconds = time.perf_counter() - began
    except Exception as error:
        reason = str(error).strip().split("\n")[0]
        raise UserError(
            f"torch.compile failed here, so leave out --compile: {type(error).__name__}: {reason}"
        ) from None
    return steps_of(shape, torch_model), seconds


def torch_batches(shape: Shape) -> list[tuple[torch.Tensor, ...]]:
    """The training batches."""
    return [tuple(torch.from_numpy(part.copy()) for part in shape.arguments(rows)) for rows in shape.batches()]


def steps_of(shape: Shape, torch_model: torch.nn.Module) -> Repeat:
    """The training steps of a model."""
    batches = torch_batches(shape)
    optimizer = (MuonAndAdamW if shape.options.optimizer == "muon" else torch_optimizer)(shape.options, torch_model)

    def repeat(step: int) -> dict[str, float]:
        began = time.perf_counter()
        loss = torch_update(shape.options, torch_model, optimizer, batches[step % len(batches)])
        return {"value": (time.perf_counter() - began) * 1e3, "loss": loss}

    return repeat


def torch_update(
    options: TrainOptions, torch_model: torch.nn.Module, optimizer: AnyOptimizer, batch: Sequence[torch.Tensor]
) -> float:
    """Train on one batch, with a model that has `loss(*batch)`; returns the loss before the update."""
    return torch_step(options, torch_model, optimizer, torch_model.loss, batch).item()


def torch_step(
    options: TrainOptions,
    torch_model: torch.nn.Module,
    optimizer: AnyOptimizer,
    loss_of: Callable[..., torch.Tensor],
    batch: Sequence[torch.Tensor],
) -> torch.Tensor:
    """The same without waiting for the loss; `loss_of` is the model's `loss`, compiled or not."""
    optimizer.zero_grad()
    loss = loss_of(*batch)
    loss.backward()
    if options.grad_clip:
        torch.nn.utils.clip_grad_norm_(torch_model.parameters(), options.grad_clip)
    optimizer.step()
    return loss.detach()


def torch_optimizer(options: TrainOptions, torch_model: torch.nn.Module, **settings: Any) -> torch.optim.AdamW:
    """AdamW with nanoGPT's groups."""
    groups = decay_groups(torch_model.parameters(), options.weight_decay)
    return torch.optim.AdamW(groups, lr=options.learning_rate, betas=(options.beta1, options.beta2), **settings)


def write(shape: Shape) -> Repeat:
    """Greedy generation by Hugging Face's GPT-2 with its key-value cache, in tokens per second."""
    model, count = hugging_face(make_model(shape)), shape.options.config.block_size - 1

    def repeat(number: int) -> dict[str, float]:
        prompt = torch.tensor([[number % shape.vocab_size]])
        began = time.perf_counter()
        tokens = model.generate(prompt, **greedily(count))
        return {"value": (tokens.shape[1] - 1) / (time.perf_counter() - began)}

    return repeat


def hugging_face(model: GPT) -> Any:
    """Hugging Face's GPT-2 with our weights, and without an end-of-text token."""
    import transformers

    transformers.logging.set_verbosity_error()
    config = transformers.GPT2Config(**LAYOUT.their_config(model.config), eos_token_id=None)
    theirs = transformers.GPT2LMHeadModel(config).eval()
    weights = {name: torch.tensor(array) for name, array in LAYOUT.to_theirs(model).items()}
    theirs.load_state_dict(weights | {"lm_head.weight": weights["transformer.wte.weight"]})
    return theirs


def greedily(count: int) -> dict[str, Any]:
    """The arguments that make `generate` write exactly `count` tokens, greedily."""
    return {"max_new_tokens": count, "min_new_tokens": count, "do_sample": False, "use_cache": True}


def write_uncached(shape: Shape) -> Repeat:
    """Greedy generation without a cache, as nanoGPT samples, in tokens per second."""
    torch_model, count = torch_model_of(shape).eval(), shape.options.config.block_size - 1

    def repeat(number: int) -> dict[str, float]:
        prompt = torch.tensor([[number % shape.vocab_size]])
        began = time.perf_counter()
        tokens = torch_model.generate(prompt, count)
        return {"value": (tokens.shape[1] - 1) / (time.perf_counter() - began)}

    return repeat


WORKS = {"train": train, "train-alone": train_alone, "write": write, "write-uncached": write_uncached}


# --- on a GPU (gpu_side.py) -----------------------------------------------------------------------------------


class OnGPU(Side):
    """The side of `python -m benchmarks.gpu`. Variants of training: "eager" and those of MODES; of writing: `write`.

    PyTorch is used in the usual way: attention by `scaled_dot_product_attention`, its fused AdamW, autocast for
    bfloat16 in training, bfloat16 weights for writing, and `set_float32_matmul_precision("high")` for TF32.
    """

    def __init__(self, quick: bool, device: str = "cuda") -> None:
        super().__init__(quick)
        self.device, self.has_compiled = torch.device(device), False

    def facts(self) -> dict[str, Any]:
        on = torch.cuda.get_device_name() if self.device.type == "cuda" else "a CPU"
        return {"about": f"torch {torch.__version__} on {on}"}

    @contextlib.contextmanager
    def in_precision(self, name: str) -> Iterator[None]:
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def release(self) -> None:
        self.shape = self.model = self.torch_model = self.optimizer = self.batches = None
        if self.has_compiled:
            torch.compiler.reset()
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def make(self, shape: Shape, work: str) -> None:
        self.model = make_model(shape)
        self.torch_model = FROM_OURS[shape.model](self.model).to(self.device)
        if work in WRITTEN:
            self.torch_model.eval()
            return
        self.optimizer = torch_optimizer(shape.options, self.torch_model, fused=self.device.type == "cuda")
        batches = shape.batches()
        self.batches = [tuple(torch.tensor(part, device=self.device) for part in batch) for batch in batches]

    def log_probs_of(self, text: list[int]) -> list[float]:
        """The log-probability of each token except the first, read with the cache."""
        model, found = self.torch_model, []
        caches = [TorchCache(model.config.block_size) for _ in model.blocks]
        with torch.no_grad():
            for token, following in itertools.pairwise(text):
                x = model.hidden(torch.tensor([[token]], device=self.device), caches)
                logits = torch.nn.functional.linear(x[0, -1], model.token_embedding.weight)
                found.append(logits.log_softmax(-1)[following].item())
        return found

    def loss(self) -> float:
        """With its graph, since without one nn.Transformer uses another implementation."""
        self.torch_model.eval()
        loss = self.torch_model.loss(*self.batches[0]).item()
        self.torch_model.train()
        return loss

    def work(self, work: str, precision: str, variant: str) -> Step:
        if work == "train":
            loss_of = self.torch_model.loss
            if variant in MODES:
                self.has_compiled, loss_of = True, torch.compile(loss_of, mode=MODES[variant])
            return lambda number: self.train(precision, loss_of, number)
        if work in WRITTEN:
            return self.write(work, torch.bfloat16 if precision == "bfloat16" else torch.float32, variant)
        if work == "copy":
            a = self.random(self.bytes // 4)
            b = torch.empty_like(a)
            return lambda number: b.copy_(a)
        if work == "launch":
            y, bias = self.random(4, 32), self.random(32)
            return lambda number: y.add_(bias)
        if work == "linear":
            x, weight, bias = self.random(64, 64), self.random(64, 64).requires_grad_(), self.random(64)
            return lambda number: torch.nn.functional.linear(x, weight, bias)
        size = {"product": self.size, "small product": 64}[work]
        a = self.random(size, size)
        a = a.bfloat16() if precision == "bfloat16" else a
        out = torch.empty_like(a)
        return lambda number: torch.mm(a, a, out=out)

    def train(self, precision: str, loss_of: Callable[..., torch.Tensor], number: int) -> torch.Tensor:
        """A training step. The loss stays on the GPU."""

        def in_autocast(*batch: torch.Tensor) -> torch.Tensor:
            with torch.autocast(self.device.type, torch.bfloat16, enabled=precision == "bfloat16"):
                return loss_of(*batch)

        batch = self.batches[number % len(self.batches)]
        if self.has_compiled:
            torch.compiler.cudagraph_mark_step_begin()
        return torch_step(self.shape.options, self.torch_model, self.optimizer, in_autocast, batch)

    def write(self, work: str, dtype: torch.dtype, variant: str) -> Step:
        """Greedy generation by Hugging Face's GPT-2 with weights of this dtype.

        Variants: "eager", as `generate` works without further settings; or "static", with a cache of fixed size, for
        which it compiles the model and records CUDA graphs.
        """
        theirs, cache = hugging_face(self.model).to(self.device, dtype), {}
        if variant == "static":
            self.has_compiled, cache = True, {"cache_implementation": "static"}

        def generated(number: int) -> list[list[int]]:
            first = torch.tensor(self.prompts(number, work), device=self.device)[:, None]
            return theirs.generate(first, **greedily(self.tokens), **cache).tolist()

        return generated

    def random(self, *size: int) -> torch.Tensor:
        return torch.randn(*size, device=self.device)

    def kernels_of(self, step: Step) -> tuple[Spent, str]:
        return seen_by_cupti(step), "CUPTI"
