"""PyTorch's side: the tasks of `our_side.py` and `gpu_side.py`, from the same weights, on the same batches.

On a CPU PyTorch runs with its defaults: eagerly, with its default AdamW. One side compiles the model and its loss,
forward and backward, with torch.compile.
"""

import contextlib
import functools
import gc
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from unittest import mock

import torch
from torch import nn

from benchmarks.gpu_side import WRITTEN, Side, Spent, Step, seen_by_cupti
from benchmarks.our_side import MALLOC, Repeat, make_model, per_second, timed
from benchmarks.shapes import SHAPES, Shape
from benchmarks.torch_encoder import from_ours as encoder_from_ours
from benchmarks.torch_gpt import TorchGPT
from benchmarks.torch_gpt import from_ours as gpt_from_ours
from benchmarks.torch_seq2seq import from_ours as seq2seq_from_ours
from extra.encoders.bert import Bert
from extra.encoders.vit import ViT
from extra.pretrained.gpt2 import LAYOUT
from gpt.model import GPT
from seq2seq.model import Seq2Seq
from tinygrad_lite.errors import UserError
from tinygrad_lite.optim.muon import EPS, ROUNDS
from training.folder import tune_memory
from training.options import TrainOptions

FROM_OURS = {GPT: gpt_from_ours, Seq2Seq: seq2seq_from_ours} | dict.fromkeys((Bert, ViT), encoder_from_ours)
MODES = {"compiled": None, "reduce-overhead": "reduce-overhead"}  # of torch.compile


def prepare(work: str, name: str, side: str) -> tuple[Repeat, list[str]]:
    """The function that does this work on a CPU, and facts for the reader.

    Args:
        side: torch; torch-malloc, with the memory settings of our scripts instead of the system's; torch-compiled.
    Raises: UserError if the model cannot be compiled.
    """
    facts = [f"threads: {torch.get_num_threads()}", MALLOC[side == "torch-malloc" and tune_memory()]]
    here, shape = TorchSide(quick=False, device="cpu"), SHAPES[name]
    here.make(shape, work)
    if side == "torch-compiled":
        facts.append(f"compiling {name} took {compiled_in_advance(here):.0f} s")
    if work.startswith("train"):
        return timed(lambda number: here.train("float32", here.torch_model.loss, number).item()), facts
    here.tokens = shape.options.config.block_size - 1  # after a prompt of one token
    return timed(here.work(work, "float32", "eager"), per_second(here.tokens)), facts


def compiled_in_advance(side: Side) -> float:
    """Compile the loss of a side's model; returns the seconds that this takes."""
    model, began = side.torch_model, time.perf_counter()
    model.loss = torch.compile(model.loss)
    try:
        model.loss(*side.batches[0]).backward()
    except Exception as error:
        reason = str(error).strip().split("\n")[0]
        raise UserError(
            f"torch.compile failed here, so leave out --compile: {type(error).__name__}: {reason}"
        ) from None
    return time.perf_counter() - began


def torch_model_of(shape: Shape, model: Any) -> nn.Module:
    """The model in PyTorch with the weights of ours."""
    return FROM_OURS[shape.model](model, **({"packed": is_packed(shape)} if shape.model is GPT else {}))


def is_packed(shape: Shape) -> bool:
    """Whether a GPT has one matrix for queries, keys and values: not for Muon, which treats each by itself."""
    return shape.options.optimizer != "muon"


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


# --- the side -------------------------------------------------------------------------------------------------


class TorchSide(Side):
    """The tasks. Variants of training: "eager" and those of MODES; of writing: `write`.

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
        self.shape = shape
        if work == "train-alone":  # with PyTorch's own weights, so that this process never holds a model of ours
            self.torch_model = TorchGPT(shape.config, is_packed(shape)).float()
        else:
            self.model = make_model(shape)
            self.torch_model = torch_model_of(shape, self.model).to(self.device)
        if work.startswith("write"):
            self.torch_model.eval()
            return
        if shape.options.optimizer == "muon":
            self.optimizer = MuonAndAdamW(shape.options, self.torch_model)
        else:
            self.optimizer = torch_optimizer(shape.options, self.torch_model, fused=self.device.type == "cuda" or None)
        batches = map(shape.arguments, shape.batches())
        self.batches = [tuple(torch.tensor(part, device=self.device) for part in batch) for batch in batches]

    def log_probs_of(self, text: list[int]) -> list[float]:
        """The log-probability of each token except the first."""
        ids = torch.tensor(text, device=self.device)
        with torch.no_grad():
            return self.torch_model(ids[None, :-1]).log_softmax(-1).gather(2, ids[None, 1:, None]).flatten().tolist()

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
        if work == "write-uncached":
            first = torch.zeros(1, 1, dtype=torch.int64)
            return lambda number: self.torch_model.generate(first + number % self.shape.vocab_size, self.tokens)
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

        if self.has_compiled:
            torch.compiler.cudagraph_mark_step_begin()
        self.optimizer.zero_grad()
        loss = in_autocast(*self.batches[number % len(self.batches)])
        loss.backward()
        if self.shape.options.grad_clip:
            torch.nn.utils.clip_grad_norm_(self.torch_model.parameters(), self.shape.options.grad_clip)
        self.optimizer.step()
        return loss.detach()

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


# --- optimizers -----------------------------------------------------------------------------------------------


def torch_optimizer(options: TrainOptions, torch_model: nn.Module, **settings: Any) -> torch.optim.AdamW:
    """AdamW with nanoGPT's groups."""
    groups = decay_groups(torch_model.parameters(), options.weight_decay)
    return torch.optim.AdamW(groups, lr=options.learning_rate, betas=(options.beta1, options.beta2), **settings)


class MuonAndAdamW:
    """The optimizers of `--optimizer muon`: Muon for the matrices of the blocks, AdamW for the rest.

    Muon is PyTorch's, except for the polynomials of its rounds, which are ours (`orthogonal`): with its own, it would
    take five rounds instead of three. Its other defaults are ours too. PyTorch always orthogonalises in bfloat16: about
    as fast as float32, or faster, with AVX512-BF16, and many times slower without. The first update alone is not
    rounded, since after it the losses of both sides are compared. AdamW is the fused one: it is faster.
    """

    def __init__(self, options: TrainOptions, model: nn.Module) -> None:
        lr, decay = options.learning_rate, options.weight_decay
        muon = {"lr": options.muon_lr_factor * lr, "momentum": options.muon_momentum, "weight_decay": decay}
        adamw = {"lr": lr, "betas": (options.beta1, options.beta2), "fused": True}
        matrices = [p for p in model.blocks.parameters() if p.ndim == 2]
        chosen = set(matrices)
        rest = [p for p in model.parameters() if p not in chosen]
        self.both = torch.optim.Muon(matrices, **muon), torch.optim.AdamW(decay_groups(rest, decay), **adamw)
        self.is_rounded = False

    def zero_grad(self) -> None:
        """Remove all gradients."""
        for optimizer in self.both:
            optimizer.zero_grad()

    def step(self) -> None:
        """Update all weights."""
        rounds = functools.partial(orthogonal, is_rounded=self.is_rounded)
        with mock.patch("torch.optim._muon._zeropower_via_newtonschulz", rounds):
            for optimizer in self.both:
                optimizer.step()
        self.is_rounded = True


def orthogonal(matrix: torch.Tensor, *_: Any, is_rounded: bool = True) -> torch.Tensor:
    """What PyTorch's function of the same purpose computes, in the same way, with a polynomial for each round."""
    is_tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if is_tall else matrix
    x = x.bfloat16() if is_rounded else x
    x = x / x.norm().clamp(min=EPS)
    for a, b, c in ROUNDS:
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if is_tall else x


def decay_groups(parameters: Iterable[nn.Parameter], weight_decay: float) -> list[dict[str, Any]]:
    """nanoGPT's groups: parameters with two or more axes decay, the others do not."""
    parameters = list(parameters)
    return [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
