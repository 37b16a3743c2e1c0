"""What a run starts with: its options, its folder, its weights; and the model and the data that it makes of them.

The shelf starts runs in more ways, from other programs' weights, on several machines, with adapters (extra/setup.py).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from text.tokenizers import tokenizer_from_json
from text.tokenizers.base import Tokenizer
from tinygrad_lite.config import ModelConfig
from tinygrad_lite.errors import CorpusError, OptionError, counted
from tinygrad_lite.nn import Module, shapes_only
from tinygrad_lite.optim import Optimizer
from tinygrad_lite.random import random_key
from training.checkpoint import Checkpoint
from training.cli.console import quoted, say, with_value
from training.cli.unread import refuse_unread
from training.folder import MAX_DEFAULT_WORKERS, METRICS, RunFolder, available_cores, choose_device
from training.log import RunLog
from training.options import TrainOptions
from training.processes.processes import OneProcess, Program
from training.processes.workers import start_processes
from training.task import Task

if TYPE_CHECKING:
    from training.family import Family, Trained


@dataclass
class RunSetup:
    """The options, folder and weights with which a run starts.

    Attributes:
        checkpoint: the last state of the run that is resumed; None for a new run.
        trained: the weights with which a new run starts, or the base of an adapter; None for random weights.
        named: the preset that the command line names, if it names one.
        names_text: whether the command line names the text of a run that is resumed, which may then be a different one.
        vocab_size: size of the vocabulary, once the text has been read.
        stand_in: the text of a command that names none, and why it is not the usual one; empty if it is.
    """

    family: Family
    options: TrainOptions
    folder: RunFolder
    checkpoint: Checkpoint | None = None
    trained: Trained | None = None
    named: str | None = None
    names_text: bool = False
    vocab_size: int | None = field(init=False, default=None)
    stand_in: str = field(init=False, default="")

    @property
    def tokenizer(self) -> Tokenizer | None:
        """The tokenizer of the weights; None for random weights, which fit any."""
        if self.trained:
            return self.trained.tokenizer
        return tokenizer_from_json(self.checkpoint.tokenizer) if self.checkpoint else None

    def make_task(self) -> Task:
        """Prepare the data, and print a description."""
        task = self.family.make_task(self.options, self.tokenizer)
        self.vocab_size = task.tokenizer.vocab_size
        say(task.describe())
        if self.tokenizer:
            warn_of_unknown(task)
        return task

    def make_model(self, tokenizer: Tokenizer) -> Module:
        """The model to train. Random weights depend only on the seed, not on the device.

        Trained weights are moved into it, so it can be made only once.
        """
        with random_key(self.options.seed):
            return self.started(self.options.model_config(tokenizer.vocab_size, tokenizer.specials))

    def started(self, config: ModelConfig) -> Module:
        """A model of these settings, with the weights with which the run starts."""
        options, make = self.options, self.family.model_of(config)
        if self.trained:
            weights = self.family.fit(self.trained.weights, config)
            self.trained.weights.clear()  # so that only the model holds the arrays
            model = make.from_weights(config, weights, options.device, take=True)
        elif self.checkpoint:
            model = make.from_weights(config, self.checkpoint.weights, options.device)
        else:
            model = make(config)
        return model.to(options.device, options.weight_dtype)

    def blueprint(self, config: ModelConfig) -> Module:
        """The same model with shapes only."""
        with shapes_only():
            return self.options.built(self.family.model_of(config), config)

    def describe(self, model: Module) -> str:
        """The size of the model for messages."""
        return counted(model.num_parameters(), "parameter")

    def saved(self, task: Task, model: Module) -> dict[str, Any]:
        """What a checkpoint says of the model: fields of `Checkpoint`."""
        return {"weights": model.state_dict(), "tokenizer": task.tokenizer.to_json()}

    def begin(self, optimizer: Optimizer, task: Task) -> None:
        """Prepare the folder, and restore the optimizer if the run is resumed."""
        self.folder.columns = (*METRICS, *task.measures)
        noted = {**self.options.noted(), "loss_per": task.predicted, "bits_per": task.unit}
        if self.checkpoint is None:
            self.refuse_if_used()  # again, now that it is locked
            self.folder.begin(noted)
            return
        try:
            optimizer.load_state_dict(self.checkpoint.optimizer, self.checkpoint.step)
        except ValueError as error:
            raise OptionError(f"cannot resume from {self.folder.last}: {error}; was --optimizer changed?") from None
        if task.corpus_sha256 != self.checkpoint.corpus_sha256:
            self.refuse_other_text()
        self.folder.rewind(self.checkpoint.step)
        self.folder.note_options(noted)
        say(f"resuming after {counted(self.checkpoint.step, 'step')}")

    def refuse_other_text(self) -> None:
        """Raise OptionError if the text of a resumed run is a different one, unless the command line names it."""
        changed = "this is not the text on which the run was trained so far"
        if not self.names_text:
            name = next((name for name in self.options.FILES if getattr(self.options, name)), "dataset")
            advice = f"restore that text, or name this one with --{name} to continue on it"
            raise OptionError(f"cannot resume {self.folder.path}: {changed}; {advice}")
        say(f"warning: {changed}, so the best loss so far no longer counts")

    # --- before the run -----------------------------------------------------------------------------------------

    def check(self, given: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
        """Choose the device and the number of workers, and check the options.

        Args:
            given: those typed.
            asked: these, and those of a named preset, which must be read as well, unless something was typed on which
                that depends.

        Raises: UserError with one sentence.
        """
        options = self.options
        options.device = choose_device(options)
        options.workers = self.number_of_workers()
        if options.min_lr is not None and options.min_lr > options.learning_rate:
            rates = f"--min_lr {options.min_lr:g} is above --learning_rate {options.learning_rate:g}"
            advice = "choose a smaller one, or omit it for a tenth of the peak"
            raise OptionError(f"{rates}, but the learning rate ends there: {advice}")
        options.check()
        for name in options.paths():
            paths = getattr(options, name)
            for path in [paths] if isinstance(paths, str) else paths:
                if path and not os.path.exists(path):
                    raise CorpusError(f"--{name} {path}: there is no such file")
        readers = options.readers()
        refuse_unread(options, given if given.keys() & readers.keys() else asked, readers)

    def refuse_if_used(self) -> None:
        """Raise OptionError if the folder of a new run holds another one."""
        if self.checkpoint is None and not self.options.overwrite:
            self.folder.refuse_if_used()

    def unnamed_texts(self) -> Sequence[str]:
        """For a new run that names no text: those of which it takes the first that is available."""
        is_named = self.names_text or self.checkpoint or self.trained
        return () if is_named else self.options.UNNAMED.get(self.named, ())

    def number_of_workers(self) -> int:
        """The number of processes that share the work. The results of a run depend on it, in the last digits.

        Raises: OptionError if there are more than can share a batch.
        """
        wanted = self.options.workers
        limit = self.most_workers(wanted, f"--workers {wanted}")
        return wanted or min(MAX_DEFAULT_WORKERS, available_cores(), limit)

    def most_workers(self, wanted: int, asked: str) -> int:
        """The largest number of processes that can share the work; OptionError, naming what `asked`, above it."""
        limit, reason = self.options.max_workers(), "each needs a part of the batch"
        if self.options.device != "cpu":
            limit, reason = 1, "one keeps a GPU busy"
        if wanted > limit:
            raise OptionError(f"{asked}: {reason}; use at most {limit}")
        return limit

    # --- the run ------------------------------------------------------------------------------------------------

    def carry_out(self, run: Callable[[RunSetup], int]) -> int:
        """Do what the command asks for, which is the run; returns the exit status."""
        return run(self)

    def processes(self, program: Program, *run: Any) -> AbstractContextManager[OneProcess]:
        """The processes that do the work together, this one included.

        Args:
            run: task, model, optimizer, and what stops them, as for `start_processes`.
        """
        return start_processes(program, self.options, *run)

    def log(self, task: Task, model: Module, optimizer: Optimizer) -> RunLog:
        """What writes the files of the run."""
        return RunLog(self, task, model, optimizer)

    def next_steps(self, task: Task) -> list[str]:
        """Commands worth typing after the run."""
        prompt = f" {with_value(task.asked_with, task.example)}" if task.example else ""
        return [f"python sample.py {quoted(self.folder.path)}{prompt}"]


def warn_of_unknown(task: Task) -> None:
    """Warn about characters or words of the text that the tokenizer of the weights lacks."""
    if not (counts := task.unknown()):
        return
    often = sorted(counts, key=lambda character: (-counts[character], character))
    named = ", ".join(f"{character!r} {counts[character]:,}" for character in often[:10])
    more = f" and {len(often) - 10} more" if len(often) > 10 else ""
    what = "words" if task.tokenizer.kind in ("word", "wordpiece") else "characters"
    unknown = f"{sum(counts.values()):,} {what} of the text are unknown to the tokenizer of these weights"
    say(f"warning: {unknown}, which cannot tell them apart: {named}{more}")
