"""What the scripts need to know of a family of models: the GPT is one, the translation model another.

`train.py` and `sample.py` are the same for all families. Each family describes itself in one `ModelSpec` (at the end of
gpt/task.py and of seq2seq/task.py), and its `Task` is the work that the training loop does step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tinygrad_lite.cli.errors import CheckpointError
from tinygrad_lite.nn import Module
from tinygrad_lite.tokenizers import tokenizer_from_json
from tinygrad_lite.tokenizers.base import Tokenizer
from tinygrad_lite.training.checkpoint import Checkpoint, describe, load_checkpoint
from tinygrad_lite.training.model_config import ModelConfig
from tinygrad_lite.training.run_folder import newest_checkpoint


@dataclass
class Report:
    """What an evaluation found out.

    Attributes:
        measures: numbers beside the validation loss, by their columns in metrics.csv.
        words: the same for people.
        text: what the model writes now; empty for nothing.
    """

    measures: dict[str, float]
    words: str
    text: str


class Task(Protocol):
    """A model's data and how well it does on them: what the training loop works on."""

    tokenizer: Tokenizer
    corpus_sha256: str
    example: str  # what to let the trained model continue, or translate, first; empty if nothing suits

    def describe(self) -> str:
        """One line on the data."""
        ...

    def unknown(self) -> dict[str, int]:
        """What in the data the tokenizer does not know, and how often it occurs."""
        ...

    def target_tokens(self, step: int) -> int:
        """The number of tokens that an update learns to predict, in all of its batches."""
        ...

    def batches(self, step: int, rank: int = 0, size: int = 1) -> Iterator[tuple[Any, float]]:
        """The batches of one update, each with its share of the update's target tokens; the same for the same step.

        The loss of an update is the mean over all its target tokens: the sum of the means of the batches, each times
        its share. So several small batches, or parts of one, give exactly the gradient of a large one, whether or not
        they have equally many tokens.

        Of several processes each has some of the rows of every batch; a batch without rows for it may be missing.
        """
        ...

    def validation_batches(self, rank: int = 0, size: int = 1) -> Iterator[tuple[Any, int]]:
        """The held-out batches, each with its number of target tokens; always the same."""
        ...

    def report(self, model: Any, val_loss: float) -> Report:
        """What else there is to say about a model with this validation loss."""
        ...


@dataclass(frozen=True)
class ModelSpec:
    """A family of models, as a table.

    Attributes:
        name: as in checkpoints and presets.
        title: the same for people, as in "an option of ...".
        about: what its training does, for --help.
        examples: commands for --help, each with what it does.
        preset: what it is trained with if no preset is named.
        options: the dataclass of its options, of which `model_config(vocab_size, specials)` makes a model's settings.
        config: the dataclass of these settings.
        model: the model's class, with `from_weights`, `loss`, and the names of its `position_tables`.
        task: makes the task, of options and a tokenizer (None: learn one).
        load: reads a trained model from a file or folder.
    """

    name: str
    title: str
    about: str
    examples: Mapping[str, str]
    preset: str
    options: type
    config: type[ModelConfig]
    model: type
    task: Callable[[Any, Tokenizer | None], Task]
    load: Callable[[Path], Trained]

    @property
    def shape(self) -> frozenset[str]:
        """The settings that decide which weights there are and what they compute."""
        return self.config.shape()


@dataclass
class Trained:
    """Settings, weights and tokenizer that belong together.

    Attributes:
        about: one line for people: where it is from, and what it is.
        corpus_sha256: the hash of the text that it learned from; empty if nobody knows.
    """

    path: Path
    about: str
    model_class: type
    config: Any
    tokenizer: Tokenizer
    weights: dict[str, np.ndarray] = field(repr=False)
    corpus_sha256: str = ""

    def make_model(self, device: str = "cpu") -> Module:
        """The model, ready to predict: without dropout.

        Raises: CheckpointError if the weights do not fit the settings.
        """
        model = self.model_class.from_weights(self.config, self.weights, device)
        model.eval()
        return model


def check_family(path: Path, checkpoint: Checkpoint, name: str) -> None:
    """Raise CheckpointError if a checkpoint holds a model of another family."""
    if checkpoint.family != name:
        raise CheckpointError(f"{path} holds a model of the family {checkpoint.family!r}, not {name!r}")


def check_specials(path: Path, config: Any, tokenizer: Tokenizer) -> None:
    """Raise CheckpointError if special tokens that the model's settings name by id are other ones to the tokenizer."""
    for name, token in config.specials.items():
        if tokenizer.specials.get(name) != token:
            raise CheckpointError(f"{path}: {name} is token {token} of its model, but not of its tokenizer")


def read_trained(path: Path, family: str, config_class: type[ModelConfig], model_class: type) -> Trained:
    """Read a trained model of a family: a checkpoint, or a folder, of which the newest one is taken.

    Raises: CheckpointError or TokenizerError with the reason if there is none or if it cannot be used.
    """
    if path.is_dir():
        path = newest_checkpoint(path)
    checkpoint = load_checkpoint(path)
    check_family(path, checkpoint, family)
    config = config_class.from_json(checkpoint.model)
    tokenizer = tokenizer_from_json(checkpoint.tokenizer)
    if tokenizer.vocab_size != config.vocab_size:
        raise CheckpointError(f"{path}: its tokenizer has {tokenizer.vocab_size} tokens, its model {config.vocab_size}")
    check_specials(path, config, tokenizer)
    about = f"{path}: {describe(checkpoint)}"
    return Trained(path, about, model_class, config, tokenizer, checkpoint.weights, checkpoint.corpus_sha256)
