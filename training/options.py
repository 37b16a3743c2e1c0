"""The options of training that all models share.

The names are nanoGPT's wherever nanoGPT has one.
"""

import dataclasses
import inspect
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from text.tokenizers import KINDS as TOKENIZERS
from tinygrad_lite import optim
from tinygrad_lite.config import of_training, under
from tinygrad_lite.errors import OptionError
from tinygrad_lite.nn import Module
from tinygrad_lite.precision import PRECISIONS
from tinygrad_lite.transformer import MIXERS
from training.cli.options import contained, fields_of, values_of
from training.cli.unread import Readers

OPTIMIZERS = {"adamw": optim.AdamW, "adam": optim.Adam, "sgd": optim.SGD, "muon": optim.Muon}
# The options that some of them take.
OF_OPTIMIZERS = {"adamw": ("beta2",), "adam": ("beta2",), "muon": ("beta2", "muon_lr_factor", "muon_momentum")}

# The options that each schedule takes. (Its first parameter is the step.)
RATES = {name: [*inspect.signature(schedule).parameters][1:] for name, schedule in optim.SCHEDULES.items()}

of_data, of_evaluation, of_run = under("data", "evaluation", "run")


@dataclasses.dataclass
class TrainOptions:
    """Options of the training loop, with their defaults, units and ranges."""

    out_dir: str = of_run("", "folder of the run's files; empty: out/<preset>, or out/<text>", is_path=True)
    resume: bool = of_run(False, "continue the run in out_dir; the same as --init_from resume")
    init_from: str = of_run(
        "scratch", "start: scratch, resume, a checkpoint, a run's folder, or one in Hugging Face's layout", is_path=True
    )
    overwrite: bool = of_run(False, "start again in a folder that already holds a run")
    seed: int = of_run(1337, "random seed", low=0)
    device: str = of_run("cpu", "where to compute", choices=("cpu", "cuda", "auto"))
    dtype: str = of_run(
        "float32",
        "type of weights and gradients; on a GPU also tf32 or bfloat16: float32 weights, faster, less precise products",
        choices=("float32", "float64", *PRECISIONS[1:]),
    )
    workers: int = of_run(0, "how many share the work; 0: one per core, at most 4", unit="processes", low=0, high=256)
    composed: bool = of_run(False, "use the composed (reference) version of every operation; slow")

    max_iters: int = of_training(2000, "number of updates", unit="steps", low=0)
    gradient_accumulation_steps: int = of_training(
        1, "micro-steps whose gradients are summed for one update", unit="micro-steps", low=1, high=1_000_000
    )
    optimizer: str = of_training("adamw", "update rule (muon: for the blocks, adamw elsewhere)", choices=[*OPTIMIZERS])
    learning_rate: float = of_training(1e-3, "learning rate after the warm-up", above=0.0)
    schedule: str = of_training("cosine", "how the learning rate changes, if decay_lr", choices=[*optim.SCHEDULES])
    decay_lr: bool = of_training(True, "whether the learning rate follows the schedule or stays constant")
    warmup_iters: int = of_training(100, "steps of linear rise at the start", unit="steps", low=0)
    min_lr: float | None = of_training(None, "rate after cosine or trapezoid; none: a tenth of learning_rate", low=0.0)
    beta1: float = of_training(0.9, "decay of the gradient's running mean", low=0.0, below=1.0)
    beta2: float = of_training(0.99, "decay of the squared gradient's running mean", low=0.0, below=1.0)
    weight_decay: float = of_training(0.1, "weight decay of the matrices", low=0.0)
    grad_clip: float = of_training(1.0, "largest global norm of the gradient; 0: no clipping", low=0.0)

    eval_interval: int = of_evaluation(250, "steps between evaluations and checkpoints", unit="steps", low=1)
    patience: int = of_evaluation(0, "stop after N evaluations without progress; 0: never", unit="evaluations", low=0)

    log_interval: ClassVar[int] = 10  # steps between rows of metrics.csv
    muon_lr_factor: ClassVar[float] = 10.0  # of the learning rate, for muon's matrices
    muon_momentum: ClassVar[float] = 0.95
    # The options that are paths of training data, named by each model's class.
    FILES: ClassVar[tuple[str, ...]] = ()
    # These say where a run reads and writes and how it starts, not what it computes, so no checkpoint holds them (nor
    # the paths of `paths()`).
    NOT_SAVED: ClassVar[frozenset[str]] = frozenset("out_dir init_from resume overwrite".split())
    FIXED: ClassVar[frozenset[str]] = frozenset({"dtype"})  # by the weights of a run that is resumed
    DATASETS: ClassVar[Collection[str]] = ()  # the names that --dataset accepts, if it accepts others too
    # Of a command that names no text, by the preset that it names (None: none): the texts of which it takes the first
    # that is available; and the function that finds one.
    UNNAMED: ClassVar[Mapping[str | None, tuple[str, ...]]] = {}
    find_text: ClassVar[Callable[[str], object]]
    # The options whose product is the size of a micro-step, the batch's first, and the units of their values.
    FACTORS: ClassVar[tuple[tuple[str, str], ...]] = (("batch_size", "sequences"), ("block_size", "tokens"))
    # Which options are read only with some values of others: training/cli/unread.py.
    READERS: ClassVar = {"text": {False: ("dataset",)}}

    @classmethod
    def paths(cls) -> tuple[str, ...]:
        """The options that no checkpoint holds because they are paths to read; options.json has them."""
        fields = fields_of(cls)[0].items()
        return tuple(name for name, field in fields if field.metadata["is_path"] and name not in cls.NOT_SAVED)

    @classmethod
    def of(cls, **values: Any) -> Self:
        """Options with these values, those of the model among them, which are not checked."""
        return cls(**contained(cls, values))

    def changed(self, **values: Any) -> Self:
        """The same options with other values."""
        return self.of(**values_of(self) | values)

    def model_config(self, vocab_size: int, specials: Mapping[str, int] | None = None) -> Any:
        """The model's settings for a vocabulary of this size.

        Args:
            specials: the ids of special tokens by name; None: arbitrary ones, to find the size of the model.
        Raises: OptionError if the options contradict each other.
        """
        names = self.config.special_fields()
        ids = {name: specials[self.config.special_token(name)] for name in names} if specials else {}
        config = dataclasses.replace(self.config, vocab_size=vocab_size, **ids)
        if misfit := config.misfit("--"):
            raise OptionError(misfit)
        return config

    def readers(self) -> Readers:
        """What the parts of a run read, among the options that not every run reads."""
        return {
            "decay_lr": {True: {"schedule"}.union(*RATES.values()) - {"learning_rate"}},
            "schedule": RATES,
            "optimizer": OF_OPTIMIZERS,
            "tokenizer": {kind: ("vocab_size",) for kind, tokenizer in TOKENIZERS.items() if tokenizer.takes_size},
            "mixer": {name: mixer.reads for name, mixer in MIXERS.items()},
            **self.READERS,
            **self.config.READERS,
        }

    def check(self) -> None:
        """Refuse what cannot be computed, before any text is fetched.

        A path in --dataset moves to --text, which keeps it out of the checkpoint, which may be given away.

        Raises: OptionError.
        """
        named = Path(self.dataset)
        if "text" in self.FILES and not self.text and (named.name != self.dataset or named.is_file()):
            self.text, self.dataset = [self.dataset], type(self).dataset
        self.model_config(self.config.vocab_size)

    def max_workers(self) -> int:
        """How many processes there is work for: each needs a row of the batch."""
        return self.batch_size

    def factors(self) -> list[tuple[int, str]]:
        """The numbers whose product is the size of a micro-step, and their units."""
        return [(values_of(self)[name], unit) for name, unit in self.FACTORS]

    @property
    def weight_dtype(self) -> np.dtype:
        """The type of weights and gradients. (TF32 and bfloat16 only change how a GPU multiplies them.)"""
        return np.dtype("float32" if self.dtype in PRECISIONS else self.dtype)

    def saved(self) -> dict[str, Any]:
        """The settings that a checkpoint holds."""
        return {name: value for name, value in values_of(self).items() if name not in self.NOT_SAVED | {*self.paths()}}

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
        chosen = {name: value for name, value in vars(self).items() if value is not None}
        values = {"lr_decay_iters": self.max_iters, "min_lr": self.learning_rate / 10} | chosen
        names = RATES[self.schedule]
        return {name: values[name] for name in (names if self.decay_lr else ("learning_rate",)) if name in values}

    def learning_rate_at(self, step: int) -> float:
        """The learning rate of the update that leads from `step` to `step + 1` updates."""
        return optim.SCHEDULES[self.schedule](step, **self.rate_settings()) if self.decay_lr else self.learning_rate

    def built(self, model: type[Module], config: Any) -> Module:
        """A new model of this class, on the CPU."""
        return model(config).to("cpu", self.weight_dtype)

    def make_optimizer(self, model: Module) -> optim.Optimizer:
        """The optimizer that the options ask for, for all parameters of the model."""
        kind = OPTIMIZERS[self.optimizer]
        make_groups = optim.muon_groups if kind is optim.Muon else optim.decay_groups
        return kind(make_groups(model, self.weight_decay), self.learning_rate, **self.optimizer_settings())

    def optimizer_settings(self) -> dict[str, Any]:
        """The settings of the optimizer besides the learning rate and the weight decay."""
        if self.optimizer == "sgd":
            return {"momentum": self.beta1}
        of_one = {"muon": {"muon_lr_factor": self.muon_lr_factor, "momentum": self.muon_momentum}}
        return {"betas": (self.beta1, self.beta2)} | of_one.get(self.optimizer, {})
