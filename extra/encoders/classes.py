"""What tasks have in common that name the class of an item, a text or a picture: batches, and how many are right."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from extra.corpora.epochs import items_in_epochs
from tinygrad_lite.nn import Module
from training.task import Report, Task


class ClassesTask(Task):
    """Items with classes, to learn from and to evaluate on.

    Attributes:
        options: those of the run.
        train, held_out: columns of equal length; the last one has the number of each item's class.
        classes: what the classes are called.

    A subclass says how a batch is written, `batch(columns, numbers)`: the tensors of the items with these numbers.
    """

    measures, classes = ("accuracy",), "classes"

    def target_tokens(self, step: int) -> int:
        """The number of items of an update."""
        return self.options.batch_size * self.options.gradient_accumulation_steps

    def batches(self, step: int, rank: int = 0, size: int = 1) -> Iterator[tuple[Any, float]]:
        """A process's items of the batches of one update, each with its share of the update's items.

        The items come in passes over all of them, each in a different order.
        """
        options, rows = self.options, self.target_tokens(step)
        numbers = items_in_epochs(options.seed, step * rows, rows, len(self.train[-1]))
        for first in range(0, rows, options.batch_size):
            part = numbers[first : first + options.batch_size]
            own = slice(len(part) * rank // size, len(part) * (rank + 1) // size)
            if len(part[own]):
                yield self.training_batch(part, own, step, first), len(part[own]) / rows

    def training_batch(self, numbers: np.ndarray, own: slice, step: int, first: int) -> Any:
        """A process's own items of a batch, of which `first` come before it in the update."""
        return self.batch(self.train, numbers[own])

    def validation_batches(self, rank: int = 0, size: int = 1) -> Iterator[tuple[Any, int]]:
        """All held-out items; with several processes, each has every n-th batch."""
        batch_size, numbers = self.options.batch_size, np.arange(len(self.held_out[-1]))
        for first in range(rank * batch_size, len(numbers), size * batch_size):
            part = numbers[first : first + batch_size]
            yield self.batch(self.held_out, part), len(part)

    def report(self, model: Module, val_loss: float) -> Report:
        """How many classes are right."""
        count, right = len(self.held_out[-1]), 0
        for batch, _ in self.validation_batches():
            right += int((model.label_logits(*batch[:-1]).numpy().argmax(-1) == batch.labels.numpy()).sum())
        words = f"{with_interval(right, count)} of {count:,} {self.classes} right"
        return Report({"accuracy": right / count}, words, "")


def with_interval(right: int, asked: int) -> str:
    """A share of right answers, with Wilson's 95 % interval.

    >>> with_interval(90, 100)
    '90.0% (82.6% to 94.5%)'
    """
    z, p = 1.96, right / asked
    middle = (p + z * z / (2 * asked)) / (1 + z * z / asked)
    half = z * math.sqrt(p * (1 - p) / asked + z * z / (4 * asked * asked)) / (1 + z * z / asked)
    return f"{p:.1%} ({middle - half:.1%} to {middle + half:.1%})"
