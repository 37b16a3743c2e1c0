"""The description of a family of models for the scripts; the GPT is one, the translation model another.

`train.py` and `sample.py` are the same for all families. Each family describes itself in one `Family`, such as the one
in gpt/family.py, and its `Task` is the work that the training loop does step by step. families.py lists them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import numpy as np

from extra.adapters.adapter import Change, adapter_in, base_of, fingerprint
from extra.pretrained.read import is_pretrained_folder, load_pretrained, model_type
from text.tokenizers import tokenizer_from_json
from text.tokenizers.base import Tokenizer
from tinygrad_lite.adapt import attach
from tinygrad_lite.config import ModelConfig
from tinygrad_lite.errors import CheckpointError, counted
from tinygrad_lite.functional.registry import is_composed, set_composed
from tinygrad_lite.nn import Module
from training.checkpoint import Checkpoint, describe, fact_in, load_checkpoint
from training.cli.console import quoted, say
from training.corpora.fetch import cache_folder
from training.folder import find_checkpoint
from training.model_config import read_model_config

PEFT_CONFIG = "adapter_config.json"
BASE_FIRST = "python sample.py BASE --adapter"


@dataclass
class Report:
    """The results of an evaluation besides the loss.

    Attributes:
        measures: numbers by their columns in metrics.csv.
        words: the same in words.
        text: a sample by the model, or empty.
    """

    measures: dict[str, float]
    words: str
    text: str


class Task(Protocol):
    """A model's data, and its evaluation on them, for the training loop."""

    tokenizer: Tokenizer
    corpus_sha256: str
    example: str  # a prompt, a sentence or a picture for the trained model; empty if there is none
    asked_with: str  # the option of sample.py that takes it
    predicted: str  # what the loss is the mean over, such as "token"
    unit: str  # what it also reports bits per, such as "character"; empty: nothing
    model: Any  # the one being trained; set by the training loop

    def describe(self) -> str:
        """One line about the data."""

    def unknown(self) -> dict[str, int]:
        """The characters or words that the tokenizer does not know, and how often they occur."""

    def target_tokens(self, step: int) -> int:
        """The number of target tokens of an update, in all of its batches."""

    def batches(self, step: int, rank: int = 0, size: int = 1) -> Iterator[tuple[Any, float]]:
        """The batches of one update, each with its share of the update's target tokens; the same for the same step.

        The loss of an update is the mean over all its target tokens: the sum of the batches' mean losses, each times
        its share. So several small batches, or parts of one, give exactly the gradient of a large one, even if their
        numbers of tokens differ.

        With several processes, each has some of the rows of every batch; a batch without rows for it may be omitted.
        """

    def validation_batches(self, rank: int = 0, size: int = 1) -> Iterator[tuple[Any, int]]:
        """The held-out batches, each with its number of target tokens; always the same."""

    def report(self, model: Any, val_loss: float) -> Report:
        """Further results for a model with this validation loss, which is in evaluation mode, without derivatives."""


@dataclass(frozen=True)
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
        options: the dataclass of its options; their `model_config(vocab_size, specials)` makes the model's settings.
        task: makes the task from options and a tokenizer (None: learn one).
        speak: does what the options of sample.py ask for, or raises OptionError if it cannot; its arguments are the
            options, those given on the command line, what was read, and the model.
        others: classes that replace the model's, by the setting `mixer` of those models.
        adapt: fits trained weights to the settings of a run that starts from them, where these may differ.
        layouts: other programs' layouts (extra/pretrained/layout.py) that it reads, by the model_type in config.json.
        read_peft: reads an adapter in peft's layout, if the family can.
        fetched: the modules that fetch trained models, by the models' names.
    """

    name: str
    title: str
    about: str
    examples: Mapping[str, str]
    preset: str
    config: type[ModelConfig]
    model: type
    options: type
    task: Callable[[Any, Tokenizer | None], Task]
    speak: Callable[[Any, Mapping[str, Any], Trained, Module], None]
    others: Mapping[str, type] = field(default_factory=dict)
    adapt: Callable[[Mapping[str, np.ndarray], Any], dict[str, np.ndarray]] = lambda weights, config: dict(weights)
    layouts: Mapping[str, Any] = field(default_factory=dict)
    read_peft: Callable[[Path, Any], Any] | None = None
    fetched: Mapping[str, ModuleType] = field(default_factory=dict)

    def model_of(self, config: Any) -> type:
        """The class of models with these settings."""
        return self.others.get(config.mixer, self.model)

    def fetches(self, path: Path) -> bool:
        """Whether this is the name of a model that is fetched, and of nothing that exists."""
        return str(path) in self.fetched and not path.exists()

    def read(self, path: Path, adapter: Path | None = None, beside: bool = False) -> Trained:
        """Read a trained model, like `load`, or fetch it first.

        Args:
            path: the model; or an adapter, which stands for itself and for the base that it names.
            adapter: an adapter of this model, to be folded into its weights: the checkpoint or the folder of a run, or
                a folder in peft's layout.
            beside: do not fold in the changes of matrices: they are to stay separate from quantized ones
            (`Trained.changes`).
        Raises: CheckpointError if one of them cannot be used, or if they do not belong together.
        """
        if adapter is None and not self.fetches(path) and not is_pretrained_folder(path):
            if (path / PEFT_CONFIG).is_file():
                raise CheckpointError(f"{path} is an adapter: name its base too, as in {BASE_FIRST} {quoted(path)}")
            file = find_checkpoint(path)
            if file.is_file() and isinstance(facts := fact_in(file, "base"), dict) and facts:
                return self.adapted(self.read_base(file, facts), file, beside)
        trained = self.load(path)
        return self.adapted(trained, adapter, beside) if adapter else trained

    def read_base(self, path: Path, facts: Mapping[str, Any]) -> Trained:
        """The base that the adapter at `path` names, which is not fetched: an untrusted file may have named it.

        Raises: CheckpointError if it is not there.
        """
        named = base_of(path, facts)["path"]
        place, problem = Path(named), f"{path} is an adapter of {named}, which is not"
        if self.fetches(place):
            place = cache_folder() / self.fetched[str(place)].FOLDER
            if not place.is_dir():
                command = f"python sample.py {named} --adapter {quoted(path)}"
                raise CheckpointError(f"{problem} in the cache, and is downloaded only if you name it: {command}")
        # An untrusted file must not make this program search a disk, or connect to a computer of its choice.
        is_near = not named.startswith(("//", "\\\\")) and os.path.exists(place)
        if not is_near or not (place.is_file() or is_pretrained_folder(place)):
            raise CheckpointError(f"{problem} there: say where its base is, as in {BASE_FIRST} {quoted(path)}")
        return self.load(place)

    def adapted(self, trained: Trained, path: Path, beside: bool = False) -> Trained:
        """A trained model with the adapter at `path`, folded into its weights or `beside` them.

        Raises: CheckpointError if it is not an adapter, or belongs to another base.
        """
        if (path / PEFT_CONFIG).is_file():
            if not self.read_peft:
                raise CheckpointError(f"{path} is in peft's layout, which is read for the GPT, not for {self.title}")
            own, adapter, about = trained, self.read_peft(path, trained.config), f"the adapter {path}"
        else:
            path = find_checkpoint(path)
            checkpoint = load_checkpoint(path)
            check_family(path, checkpoint, self.name)
            adapter = adapter_in(path, checkpoint)
            self.check_base(path, checkpoint, trained)
            own = self.held(path, checkpoint, trained)
            about = own.about
        for name in own.config.shape():
            ours, theirs = getattr(own.config, name), getattr(trained.config, name)
            if ours != theirs and not (name == "block_size" and ours < theirs):
                raise CheckpointError(f"{path} adapts a model with {name} {ours}, but {trained.path} has {theirs}")
        about, changes = f"{trained.about}; with {about}", adapter.changes if beside else {}
        weights = adapter.folded_into(self.fit(trained.weights, own.config), beside)
        return replace(own, path=trained.path, about=about, weights=weights, adapter=path, changes=changes)

    @staticmethod
    def check_base(path: Path, checkpoint: Checkpoint, trained: Trained) -> None:
        """Raise CheckpointError unless the adapter at `path` was trained on these weights."""
        facts = base_of(path, checkpoint.base)
        if fingerprint(trained.weights) != facts["sha256"]:
            base = f"its base was {facts['path']}, with the SHA-256 {facts['sha256'][:12]}..."
            raise CheckpointError(f"{path} was not trained on the weights of {trained.path}: {base}")

    def fit(self, weights: Mapping[str, np.ndarray], config: ModelConfig) -> dict[str, np.ndarray]:
        """Trained weights as a model of these settings needs them: with fewer positions, or another head."""
        weights = dict(weights)
        for name in self.model.position_tables & weights.keys():
            weights[name] = weights[name][: config.block_size]
        return self.adapt(weights, config)

    def load(self, path: Path) -> Trained:
        """Read a trained model.

        Args:
            path: a checkpoint; a folder in one of the layouts, which has a config.json; any other folder, of whose
                newest run the best checkpoint is read; or the name of a model, which is fetched if necessary.
        Raises: CheckpointError or TokenizerError with the reason if there is none, or if it cannot be used; the errors
            of fetching.
        """
        if self.fetches(path):
            path = self.fetched[str(path)].fetched_folder()
        if self.layouts and is_pretrained_folder(path):
            return read_folder(path, self)
        path = find_checkpoint(path)
        checkpoint = load_checkpoint(path)
        check_family(path, checkpoint, self.name)
        if checkpoint.base:
            command = f"python -m extra.adapters.merge BASE {quoted(path)} OUT.safetensors"
            raise CheckpointError(f"{path} is an adapter, and this needs a whole model: of a GPT, {command} makes one")
        return self.held(path, checkpoint)

    def held(self, path: Path, checkpoint: Checkpoint, base: Trained | None = None) -> Trained:
        """What a checkpoint holds: a model, or an adapter, which has the tokenizer of its `base` unless it has its own.

        Raises: CheckpointError or TokenizerError if its settings cannot be used.
        """
        config, training = read_model_config(self.config, checkpoint.model), checkpoint.training
        tokenizer = base.tokenizer if base and not checkpoint.tokenizer else tokenizer_from_json(checkpoint.tokenizer)
        check_tokenizer(path, config, tokenizer)
        return Trained(
            *(path, f"{path}: {describe(checkpoint)}", self.model_of(config), config, tokenizer, checkpoint.weights),
            corpus_sha256=checkpoint.corpus_sha256,
            dataset=str(training.get("dataset", "")),
            quantized=checkpoint.base.get("quantize"),
            composed=bool(training.get("composed")),
        )


@dataclass
class Trained:
    """Settings, weights and tokenizer that belong together.

    Attributes:
        about: one line for messages: its source, and a description.
        corpus_sha256: the hash of the training text; empty if unknown.
        dataset: the name of what it was trained on; empty if unknown.
        adapter: the adapter that was folded into the weights, or is kept beside them; None if there was none.
        changes: by the names of linear maps, the changes of their matrices that are not folded in.
        composed: whether it was trained with the reference versions of all operations.
        quantized: how the weights were quantized when the adapter was trained; None if they were not.
    """

    path: Path
    about: str
    model_class: type
    config: Any
    tokenizer: Tokenizer
    weights: dict[str, np.ndarray] = field(repr=False)
    corpus_sha256: str = ""
    dataset: str = ""
    adapter: Path | None = None
    changes: dict[str, Change] = field(default_factory=dict, repr=False)
    quantized: str | None = None
    composed: bool = False

    def make_model(self, device: str = "cpu", take: bool = False) -> Module:
        """The model, ready to predict: without dropout, and without `changes`.

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

    def attach_changes(self, model: Module) -> None:
        """Put `changes` beside the linear maps of a model, which may be quantized.

        Raises: CheckpointError if one belongs to no linear map.
        """
        try:
            attach(model, self.changes)
        except ValueError as error:
            raise CheckpointError(f"{self.adapter}: {error}") from None


def check_family(path: Path, checkpoint: Checkpoint, name: str) -> None:
    """Raise CheckpointError if a checkpoint holds a model of another family."""
    if checkpoint.family != name:
        raise CheckpointError(f"{path} holds a model of the family {checkpoint.family!r}, not {name!r}")


def check_tokenizer(path: Path, config: Any, tokenizer: Tokenizer) -> None:
    """Raise CheckpointError if a tokenizer differs from the model in its number of tokens, or in the special ones."""
    if tokenizer.vocab_size != config.vocab_size:
        raise CheckpointError(f"{path}: its tokenizer has {tokenizer.vocab_size} tokens, its model {config.vocab_size}")
    check_specials(path, config, tokenizer)


def check_specials(path: Path, config: Any, tokenizer: Tokenizer) -> None:
    """Raise CheckpointError if the tokenizer's ids of special tokens differ from those in the model's settings."""
    for name, token in config.specials.items():
        if tokenizer.specials.get(name) != token:
            raise CheckpointError(f"{path}: {name} is token {token} of its model, but not of its tokenizer")


def read_folder(folder: Path, family: Family) -> Trained:
    """Read a model from a folder in Hugging Face's layout; the ids of special tokens are those of its tokenizer.

    Raises: CheckpointError or TokenizerError with the reason if it cannot be used.
    """
    title, config, weights, tokenizer = load_pretrained(folder, family.layouts)
    if tokenizer is None:
        advice = "put the tokenizer.json of its model (or its vocab.txt) next to its config.json"
        raise CheckpointError(f"{folder} has no tokenizer: {advice}")
    names = {name: config.special_token(name) for name in config.special_fields()}
    if missing := [token for token in names.values() if token not in tokenizer.specials]:
        raise CheckpointError(f"the tokenizer in {folder} has no token {missing[0]}, which a {title} needs")
    config = replace(config, **{name: tokenizer.specials[token] for name, token in names.items()})
    about = f"{folder}: {title} with {counted(family.model.blueprint(config).num_parameters(), 'parameter')}"
    return Trained(folder, about, family.model, config, tokenizer, weights)


def read_any(path: Path, families: Sequence[Family]) -> Trained:
    """Read a trained model of one of these families; a folder is either in Hugging Face's layout, or a run's.

    Raises: CheckpointError or TokenizerError with the reason if there is none, or if it cannot be used.
    """
    if (family := family_of_weights(path, families)) is None:
        path = find_checkpoint(path)
        family = family_of_weights(path, families) or families[0]
    return family.read(path)


def family_of_weights(path: Path, families: Sequence[Family]) -> Family | None:
    """The family of a trained model; None if it is none of these.

    Args:
        path: a checkpoint, a folder in Hugging Face's layout, or the name of a model that is fetched.
    """
    if is_pretrained_folder(path):
        kind = model_type(path)
        return next((family for family in families if kind in family.layouts), families[0])
    held = fact_in(path, "family") if path.is_file() else None
    return next((family for family in families if family.name == held or family.fetches(path)), None)
