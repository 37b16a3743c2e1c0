"""What the training loop asks of a model's data: batches to learn from, batches to evaluate on, and a report."""

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

from text.tokenizers.base import Tokenizer


class Report(NamedTuple):
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
    """A model's data, and its evaluation on them, for the training loop.

    Attributes:
        tokenizer: turns text into tokens, or whatever else its data are.
        corpus_sha256: the hash of the data.
        text: what the tokenizer learned from, and may not know all of; empty if the data are no text.
        example: a prompt, a sentence or an image for the trained model; empty if there is none.
        asked_with: the option of sample.py that takes it.
        predicted: what the loss is the mean over.
        unit: what it also reports bits per, such as "character"; empty: nothing.
        measures: the columns of metrics.csv that `report` fills.
        model: the one being trained; set by the training loop.
    """

    tokenizer: Tokenizer
    corpus_sha256: str
    text = example = ""
    asked_with, predicted, unit = "start", "token", ""
    measures: tuple[str, ...] = ()
    model: Any

    def describe(self) -> str:
        """One line about the data."""

    def unknown(self) -> dict[str, int]:
        """The characters or words that the tokenizer does not know, and how often they occur."""
        return self.tokenizer.unknown(self.text)

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

    def improves(self, val_loss: float, best: float) -> bool:
        """Whether a model with this validation loss is better than the best so far."""
        return val_loss < best
