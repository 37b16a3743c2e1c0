"""The description of a family of models for the scripts; the GPT is one, the translation model another.

`train.py` and `sample.py` are the same for all families. Each family describes itself in a subclass of `Family`, and
its `Task` (task.py) is the work that the training loop does step by step. families.py lists them.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from text.decoding.sample_options import SampleOptions
from text.tokenizers import tokenizer_from_json
from text.tokenizers.base import Tokenizer
from tinygrad_lite.config import ModelConfig
from tinygrad_lite.errors import CheckpointError
from tinygrad_lite.functional.registry import is_composed, set_composed
from tinygrad_lite.nn import Module
from training.checkpoint import Checkpoint, describe, fact_in, load_checkpoint
from training.cli.console import say
from training.folder import find_checkpoint
from training.model_config import read_model_config
from training.setup import RunSetup
from training.task import Task


@dataclass
class Trained:
    """Settings, weights and tokenizer that belong together.

    Attributes:
        about: one line for messages: its source, and a description.
        corpus_sha256: the hash of the training text; empty if unknown.
        dataset: the name of what it was trained on; empty if unknown.
        composed: whether it was trained with the reference versions of all operations.
    """

    path: Path
    about: str
    model_class: type
    config: Any
    tokenizer: Tokenizer
    weights: dict[str, np.ndarray] = field(repr=False)
    corpus_sha256: str = ""
    dataset: str = ""
    composed: bool = False

    def make_model(self, device: str = "cpu", take: bool = False) -> Module:
        """The model, ready to predict: without dropout.

        If it was trained with reference versions, these are used from now on: someone may have changed one, and no
        fused version would know.

        Args:
            take: whether the model takes over `weights`, which is empty afterwards.
        Raises: CheckpointError if the weights do not fit the settings.
        """
        model = self.model_class.from_weights(self.config, self.weights, device, take)
        model.eval()
        if self.composed and not is_composed():
            versions = "the reference versions of all operations (--composed)"
            say(f"note: this model was trained with {versions}; they compute here, too, which is slower")
            set_composed(True)
        return model


class Family:
    """A family of models.

    Attributes:
        name: as in checkpoints and presets.
        title: the same in messages, as in "belongs to ...".
        about: what its training does, for --help.
        examples: commands for --help, each with what it does.
        preset: the preset if none is named.
        config: the dataclass of the model's settings.
        model: the model's class, with `from_weights`, `loss`, and the names of its `position_tables`.
        options: the dataclass of the options of train.py; their `model_config(vocab_size, specials)` makes the model's
            settings.
        sampling: the dataclass of the options of sample.py.
        setup: how a run starts.
        make_task: the task for the data that the options name; without a tokenizer it learns one.
        sample: does what the options of sample.py ask for, given these, those typed, the trained model as read, and as
            a module; raises OptionError if such models cannot do it.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    about: ClassVar[str]
    examples: ClassVar[Mapping[str, str]]
    preset: ClassVar[str]
    config: ClassVar[type[ModelConfig]]
    model: ClassVar[type]
    options: ClassVar[type]
    sampling: ClassVar[type] = SampleOptions
    setup: ClassVar[type[RunSetup]] = RunSetup
    make_task: Callable[[Any, Tokenizer | None], Task]
    sample: Callable[[Any, Mapping[str, Any], Trained, Module], None]

    def model_of(self, config: ModelConfig) -> type:
        """The class of models with these settings."""
        return self.model

    def has(self, path: Path) -> bool:
        """Whether there is a trained model of this family at a path."""
        return os.path.isfile(path) and fact_in(path, "family") == self.name

    def read(self, path: Path) -> Trained:
        """Read a trained model: a checkpoint, or of a folder the best checkpoint of its newest run.

        Raises: CheckpointError or TokenizerError with the reason if there is none, or if it cannot be used.
        """
        path = find_checkpoint(path)
        checkpoint = load_checkpoint(path)
        self.check_family(path, checkpoint)
        return self.held(path, checkpoint)

    def read_for(self, options: Any, path: Path) -> Trained:
        """The same with what options of sample.py add to it."""
        return self.read(path)

    def read_start(self, path: Path) -> Trained:
        """The same for a run that starts from it."""
        return self.read(path)

    def read_base(self, path: Path, checkpoint: Checkpoint) -> Trained | None:
        """The model to which the weights of a run that is resumed belong; None if they are a whole model."""
        if checkpoint.base:
            self.held(path, checkpoint)  # which refuses it
        return None

    def make_model(self, options: Any, trained: Trained, device: str) -> Module:
        """The model on a device for sample.py, with the weights that were read."""
        model = trained.make_model(device, take=device == "cpu")
        if device == "cpu":
            trained.weights = model.state_dict()  # the model's own arrays: no second copy stays in memory
        return model

    def held(self, path: Path, checkpoint: Checkpoint) -> Trained:
        """What a checkpoint holds, which is a whole model.

        Raises: CheckpointError or TokenizerError if it is none, or if its settings cannot be used.
        """
        if checkpoint.base:
            raise CheckpointError(f"{path} is only an addition to {checkpoint.base.get('path')}, not a whole model")
        return self.described(path, checkpoint, tokenizer_from_json(checkpoint.tokenizer))

    def described(self, path: Path, checkpoint: Checkpoint, tokenizer: Tokenizer) -> Trained:
        """Its settings and weights with this tokenizer; CheckpointError if they do not belong together."""
        config, training = read_model_config(self.config, checkpoint.model), checkpoint.training
        if (size := tokenizer.vocab_size) != config.vocab_size:
            raise CheckpointError(f"{path}: its tokenizer has {size} tokens, its model {config.vocab_size}")
        check_specials(path, config, tokenizer)
        return Trained(
            *(path, f"{path}: {describe(checkpoint)}", self.model_of(config), config, tokenizer, checkpoint.weights),
            corpus_sha256=checkpoint.corpus_sha256,
            dataset=str(training.get("dataset", "")),
            composed=bool(training.get("composed")),
        )

    def fit(self, weights: Mapping[str, np.ndarray], config: ModelConfig) -> dict[str, np.ndarray]:
        """Trained weights as a model of these settings needs them: with fewer positions."""
        cut = {name: weights[name][: config.block_size] for name in self.model.position_tables & weights.keys()}
        return {**weights, **cut}

    def check_family(self, path: Path, checkpoint: Checkpoint) -> None:
        """Raise CheckpointError if a checkpoint holds a model of another family."""
        if checkpoint.family != self.name:
            raise CheckpointError(f"{path} holds a model of the family {checkpoint.family!r}, not {self.name!r}")


def check_specials(path: Path, config: Any, tokenizer: Tokenizer) -> None:
    """Raise CheckpointError if the tokenizer's ids of special tokens differ from those in the model's settings."""
    for name, token in config.specials.items():
        if tokenizer.specials.get(name) != token:
            raise CheckpointError(f"{path}: {name} is token {token} of its model, but not of its tokenizer")


def family_of_weights(path: Path, families: Sequence[Family]) -> Family | None:
    """The family of the trained model at a path; None if there is none of these."""
    return next((family for family in families if family.has(path)), None)
