"""What every training run can be asked for, whatever the model: the options that train.py shares between models.

The names are nanoGPT's wherever nanoGPT has one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tinygrad_lite import optim
from tinygrad_lite.cuda.precision import PRECISIONS
from tinygrad_lite.nn import Module
from tinygrad_lite.options import option


@dataclass
class TrainOptions:
    """Options of the training loop, with their defaults, units and ranges."""

    out_dir: str = option("", "folder of this run's files; empty: out/<preset>", group="run")
    init_from: str = option(
        "scratch",
        "where to start: 'scratch'; 'resume' (same as --resume) to go on with out_dir; or trained weights to start "
        "from: a checkpoint, a run's folder, or a folder in Hugging Face's GPT-2 layout",
        group="run",
    )
    overwrite: bool = option(False, "start anew in a folder that already holds a run", group="run")
    dry_run: bool = option(False, "print parameters, memory, tokens per step and the schedule, and stop", group="run")
    profile: bool = option(False, "print what the operations of a step cost, and stop", group="run")
    seed: int = option(1337, "start of all random numbers", low=0, group="run")
    device: str = option("cpu", "where to compute", choices=("cpu", "cuda", "auto"), group="run")
    dtype: str = option(
        "float32",
        "type of weights and gradients; on a GPU also tf32 or bfloat16: float32 weights, faster and coarser products",
        choices=("float32", "float64", *PRECISIONS[1:]),
        group="run",
    )
    workers: int = option(
        0, "processes that share the work; 0: one per core, at most 4", unit="processes", low=0, high=256, group="run"
    )
    composed: bool = option(False, "use the composed (explaining) version of every operation; slow", group="run")

    max_iters: int = option(2000, "updates to make", unit="steps", low=0, group="training")
    gradient_accumulation_steps: int = option(
        1, "micro-steps whose gradients make one update", unit="micro-steps", low=1, high=1_000_000, group="training"
    )
    optimizer: str = option("adamw", "how gradients become updates", choices=("adamw", "adam", "sgd"), group="training")
    learning_rate: float = option(1e-3, "learning rate after the warm-up", above=0.0, group="training")
    schedule: str = option(
        "cosine",
        "learning rate over time, if decay_lr",
        choices=("cosine", "inverse_square_root", "constant"),
        group="training",
    )
    decay_lr: bool = option(True, "whether the learning rate follows the schedule or stays", group="training")
    warmup_iters: int = option(100, "steps of linear rise at the start", unit="steps", low=0, group="training")
    lr_decay_iters: int | None = option(
        None, "step at which the cosine ends; none: max_iters", unit="steps", low=1, group="training"
    )
    min_lr: float | None = option(
        None, "learning rate at the end of the cosine; none: a tenth of learning_rate", low=0.0, group="training"
    )
    beta1: float = option(0.9, "memory of the gradient's running mean", low=0.0, below=1.0, group="training")
    beta2: float = option(0.99, "memory of the squared gradient's running mean", low=0.0, below=1.0, group="training")
    weight_decay: float = option(0.1, "pull of the matrices towards 0", low=0.0, group="training")
    grad_clip: float = option(1.0, "largest global norm of the gradient; 0: no clipping", low=0.0, group="training")

    eval_interval: int = option(
        250, "steps between evaluations and checkpoints", unit="steps", low=1, group="evaluation"
    )
    patience: int = option(
        0,
        "stop after so many evaluations in a row without a better validation loss; 0: never",
        unit="evaluations",
        low=0,
        group="evaluation",
    )
    keep: int = option(
        0, "checkpoints to keep beside last and best: those of the latest evaluations", low=0, group="evaluation"
    )
    average: int = option(
        0,
        "at the end, average the weights of so many latest evaluations, kept for it; 0: no average",
        unit="checkpoints",
        low=0,
        group="evaluation",
    )
    stop_on_disk_error: bool = option(
        False,
        "stop as soon as something cannot be written; else say so, train on and try again at the next evaluation",
        group="evaluation",
    )
    log_interval: int = option(10, "steps between rows of metrics.csv", unit="steps", low=1, group="evaluation")

    @property
    def weight_dtype(self) -> np.dtype:
        """The type of weights and gradients. (TF32 and bfloat16 are in what way a GPU multiplies them.)"""
        return np.dtype("float32" if self.dtype in PRECISIONS else self.dtype)

    def learning_rate_at(self, step: int) -> float:
        """The learning rate of the update that leads from `step` to `step + 1` updates."""
        if not self.decay_lr or self.schedule == "constant":
            return optim.constant(step, self.learning_rate, self.warmup_iters if self.decay_lr else 0)
        if self.schedule == "inverse_square_root":
            return optim.inverse_square_root(step, self.learning_rate, self.warmup_iters)
        decay_iters = self.lr_decay_iters or self.max_iters
        min_lr = self.learning_rate / 10 if self.min_lr is None else self.min_lr
        return optim.cosine(step, self.learning_rate, self.warmup_iters, decay_iters, min_lr)

    def make_optimizer(self, model: Module) -> optim.Optimizer:
        """The optimizer that the options ask for, over all parameters of the model."""
        groups = optim.decay_groups(model, self.weight_decay)
        if self.optimizer == "sgd":
            return optim.SGD(groups, self.learning_rate, momentum=self.beta1)
        kind = optim.AdamW if self.optimizer == "adamw" else optim.Adam
        return kind(groups, self.learning_rate, betas=(self.beta1, self.beta2))
