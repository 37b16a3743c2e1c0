"""The options of training that all models share.

The names are nanoGPT's wherever nanoGPT has one.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from tinygrad_lite import adapt, optim
from tinygrad_lite.config import under
from tinygrad_lite.errors import OptionError
from tinygrad_lite.nn import Module
from tinygrad_lite.precision import PRECISIONS
from tinygrad_lite.quantize import KINDS, quantize
from training.cli.options import values_of

# These say where a run reads and writes and how it starts, not what it computes, so no checkpoint holds them (nor the
# paths of `paths()`).
NOT_SAVED = {*"out_dir init_from resume overwrite dry_run watts flops_per_second profile stop_on_disk_error".split()}

# The class of each optimizer, and the options for its settings.
BETAS = {"betas": attrgetter("beta1", "beta2")}
FOR_MUON = {"muon_lr_factor": attrgetter("muon_lr_factor"), "momentum": attrgetter("muon_momentum")}
OPTIMIZERS: dict[str, tuple[type[optim.Optimizer], dict[str, attrgetter]]] = {
    "adamw": (optim.AdamW, BETAS),
    "adam": (optim.Adam, BETAS),
    "sgd": (optim.SGD, {"momentum": attrgetter("beta1")}),
    "muon": (optim.Muon, BETAS | FOR_MUON),
}

of_run, of_training, of_adapting, of_evaluation = under("run", "training", "adapting", "evaluation")


@dataclass
class TrainOptions:
    """Options of the training loop, with their defaults, units and ranges."""

    out_dir: str = of_run("", "folder of the run's files; empty: out/<preset>, or out/<text>", is_path=True)
    resume: bool = of_run(False, "continue the run in out_dir; the same as --init_from resume")
    init_from: str = of_run(
        "scratch", "start: scratch, resume, a checkpoint, a run's folder, or one in Hugging Face's layout", is_path=True
    )
    overwrite: bool = of_run(False, "start again in a folder that already holds a run")
    dry_run: bool = of_run(False, "print parameters, memory, operations, schedule and time, and stop")
    watts: float = of_run(0.0, "power for --dry_run to calculate energy with; 0: none", unit="W", low=0.0)
    flops_per_second: float = of_run(0.0, "rate for --dry_run, such as 9.5e12; 0: this machine's", low=0.0)
    profile: bool = of_run(False, "print the cost of each operation of a step, and stop")
    seed: int = of_run(1337, "random seed", low=0)
    device: str = of_run("cpu", "where to compute", choices=("cpu", "cuda", "auto"))
    dtype: str = of_run(
        "float32",
        "type of weights and gradients; on a GPU also tf32 or bfloat16: float32 weights, faster, less precise products",
        choices=("float32", "float64", *PRECISIONS[1:]),
    )
    workers: int = of_run(0, "how many share the work; 0: one per core, at most 4", unit="processes", low=0, high=256)
    exchange: str = of_run(
        "same",
        "type that mpirun's processes send: same as dtype, or bfloat16: half as big",
        choices=("same", "bfloat16"),
    )
    composed: bool = of_run(False, "use the composed (reference) version of every operation; slow")

    max_iters: int = of_training(2000, "number of updates", unit="steps", low=0)
    gradient_accumulation_steps: int = of_training(
        1, "micro-steps whose gradients are summed for one update", unit="micro-steps", low=1, high=1_000_000
    )
    optimizer: str = of_training("adamw", "update rule (muon: for the blocks, adamw elsewhere)", choices=[*OPTIMIZERS])
    learning_rate: float = of_training(1e-3, "learning rate after the warm-up", above=0.0)
    muon_lr_factor: float = of_training(10.0, "factor of the learning rate for muon's matrices", above=0.0)
    muon_momentum: float = of_training(0.95, "decay of the gradient's running mean in muon", low=0.0, below=1.0)
    schedule: str = of_training("cosine", "how the learning rate changes, if decay_lr", choices=[*optim.SCHEDULES])
    decay_lr: bool = of_training(True, "whether the learning rate follows the schedule or stays constant")
    warmup_iters: int = of_training(100, "steps of linear rise at the start", unit="steps", low=0)
    lr_decay_iters: int | None = of_training(None, "end of cosine or trapezoid; none: max_iters", unit="steps", low=1)
    min_lr: float | None = of_training(None, "rate after cosine or trapezoid; none: a tenth of learning_rate", low=0.0)
    plateau: float = of_training(
        0.4, "share of lr_decay_iters after which the trapezoid (also called WSD) falls linearly", low=0.0, high=1.0
    )
    beta1: float = of_training(0.9, "decay of the gradient's running mean", low=0.0, below=1.0)
    beta2: float = of_training(0.99, "decay of the squared gradient's running mean", low=0.0, below=1.0)
    weight_decay: float = of_training(0.1, "weight decay of the matrices", low=0.0)
    grad_clip: float = of_training(1.0, "largest global norm of the gradient; 0: no clipping", low=0.0)

    freeze: list[str] = of_adapting(
        [], "weights of --init_from that stay as they are: patterns, such as blocks.0,*.bias; base: all but a new head"
    )
    lora_rank: int = of_adapting(
        0, "LoRA: freeze all weights of --init_from, and learn changes of this rank to its linear maps; 0: none", low=0
    )
    lora_alpha: float = of_adapting(16.0, "factor of these changes, divided by lora_rank", above=0.0, high=1e6)
    lora_targets: list[str] = of_adapting(
        [], "linear maps that are changed, such as query,value; empty: all of the blocks (Dettmers et al. 2023)"
    )
    lora_dropout: float = of_adapting(0.0, "probability of dropping an element of their input", low=0.0, below=1.0)
    quantize: str | None = of_adapting(
        None, "with lora_rank: store frozen weights in 8 bits (int8) or 4 (nf4): less memory, slower", choices=[*KINDS]
    )

    eval_interval: int = of_evaluation(250, "steps between evaluations and checkpoints", unit="steps", low=1)
    patience: int = of_evaluation(0, "stop after N evaluations without progress; 0: never", unit="evaluations", low=0)
    keep: int = of_evaluation(0, "checkpoints to keep besides last and best: those of the latest evaluations", low=0)
    stop_on_disk_error: bool = of_evaluation(False, "stop if a file cannot be written; else warn, and try again later")
    log_interval: int = of_evaluation(10, "steps between rows of metrics.csv", unit="steps", low=1)

    # The options that are paths, named by each model's class: of the training data, and of models to learn from.
    FILES: ClassVar[tuple[str, ...]] = ()
    MODELS: ClassVar[tuple[str, ...]] = ()
    DATASETS: ClassVar[tuple[str, ...]] = ()  # the names that --dataset accepts, if it accepts others too
    # Of a command that names no text, by the preset that it names (None: none): the texts of which it takes the first
    # that is available; and the function that finds one.
    UNNAMED: ClassVar[Mapping[str | None, tuple[str, ...]]] = {}
    find_text: ClassVar[Callable[[str], object]]
    # The options whose product is the size of a micro-step, the batch's first, and the units of their values.
    FACTORS: ClassVar[tuple[tuple[str, str], ...]] = (("batch_size", "sequences"), ("block_size", "tokens"))
    COUNTED: ClassVar[tuple[int, str]] = (1, "token")  # the tokens for which flops_per_token counts, and their name

    @classmethod
    def paths(cls) -> tuple[str, ...]:
        """The options that no checkpoint holds because they are paths; options.json has them."""
        return (*cls.FILES, *cls.MODELS)

    @property
    def latest_is_best(self) -> bool:
        """Whether every evaluated model is saved as `best`: if lowering the validation loss is not the aim of a run."""
        return False

    @property
    def moments(self) -> int:
        """How many numbers the optimizer keeps for each trained one."""
        return len(OPTIMIZERS[self.optimizer][0].state_names)

    def take_path(self) -> None:
        """Move a path from --dataset to --text, which keeps it out of the checkpoint, which may be given away."""
        named = Path(self.dataset)
        if not self.text and (named.name != self.dataset or named.is_file()):
            self.text, self.dataset = [self.dataset], type(self).dataset

    def max_workers(self) -> int:
        """How many processes there is work for: each needs a row of the batch."""
        return self.batch_size

    def sizes(self, config: Any) -> tuple[int, int, str]:
        """For a run with such a model: numbers kept for a backward pass, tokens per step, and how these are made up."""
        factors = [(self.gradient_accumulation_steps, "micro-steps")] if self.gradient_accumulation_steps > 1 else []
        factors += self.factors()
        kept = config.activations(getattr(self, self.FACTORS[0][0]))
        return kept, math.prod(n for n, _ in factors), " x ".join(f"{n} {unit}" for n, unit in factors)

    def factors(self) -> list[tuple[int, str]]:
        """The numbers whose product is the size of a micro-step, and their units."""
        values = values_of(self)
        return [(values[name], unit) for name, unit in self.FACTORS]

    @property
    def weight_dtype(self) -> np.dtype:
        """The type of weights and gradients. (TF32 and bfloat16 only change how a GPU multiplies them.)"""
        return np.dtype("float32" if self.dtype in PRECISIONS else self.dtype)

    def saved(self) -> dict[str, Any]:
        """The settings that a checkpoint holds."""
        return {name: value for name, value in values_of(self).items() if name not in NOT_SAVED | {*self.paths()}}

    def noted(self) -> dict[str, Any]:
        """The settings for options.json, with absolute paths, so that --resume finds the files from any folder."""
        noted = values_of(self)
        for name in self.paths():
            paths = noted[name]
            whole = [str(Path(path).resolve()) for path in ([paths] if isinstance(paths, str) else paths) if path]
            noted[name] = whole if isinstance(paths, list) else "".join(whole)
        return noted

    def rate_settings(self) -> dict[str, Any]:
        """The options on which the learning rate depends, with the values that none of their values stands for."""
        values = vars(self) | {"lr_decay_iters": self.lr_decay_iters or self.max_iters}
        values["min_lr"] = self.learning_rate / 10 if self.min_lr is None else self.min_lr
        _, *names = inspect.signature(optim.SCHEDULES[self.schedule]).parameters  # the first is the step
        return {name: values[name] for name in (names if self.decay_lr else ("learning_rate",))}

    def learning_rate_at(self, step: int) -> float:
        """The learning rate of the update that leads from `step` to `step + 1` updates."""
        schedule = optim.SCHEDULES[self.schedule]
        return schedule(step, **self.rate_settings()) if self.decay_lr else self.learning_rate

    @property
    def adapts(self) -> bool:
        """Whether only part of the model learns, the rest staying as in --init_from."""
        return bool(self.freeze or self.lora_rank)

    def add_adapters(self, model: Module) -> None:
        """Quantize linear maps, and give them adapters, as the options say."""
        if self.quantize:
            quantize(model, self.quantize)
        if self.lora_rank:
            targets = ",".join(self.lora_targets).split(",") if self.lora_targets else []
            adapt.add_lora(model, self.lora_rank, self.lora_alpha, targets, self.lora_dropout)

    def adapt(self, model: Module, base: Collection[str] | None) -> None:
        """Freeze what the options say of these weights, the base's; add adapters, with which all of them are frozen.

        Args:
            base: their names; None: all that the model has.
        Raises: OptionError if the options do not fit the model.
        """
        if not self.adapts:
            return
        patterns = ",".join(self.freeze).split(",")
        asked = f"--lora_rank {self.lora_rank}" if self.lora_rank else f"--freeze {' '.join(self.freeze)}"
        try:
            adapt.freeze(model, ["*"] if self.lora_rank or patterns == ["base"] else patterns, base)
            self.add_adapters(model)
        except ValueError as error:
            raise OptionError(f"{asked}: {error}") from None
        if not adapt.learned(model):
            raise OptionError(f"{asked} leaves nothing to learn: freeze less, or --lora_rank 8")

    def make_optimizer(self, model: Module) -> optim.Optimizer:
        """The optimizer that the options ask for, for all parameters of the model."""
        kind, settings = OPTIMIZERS[self.optimizer]
        make_groups = optim.muon_groups if kind is optim.Muon else optim.decay_groups
        values = {name: get(self) for name, get in settings.items()}
        return kind(make_groups(model, self.weight_decay), self.learning_rate, **values)
