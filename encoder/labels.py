"""BERT's fine-tuning task: the label of a text, or of a pair of texts.

    [CLS] A joy from start to end . [SEP]                      ->   positive
    [CLS] Es regnet . [SEP] Die Straße ist trocken . [SEP]     ->   contradiction

A model that has learned to predict words (`--init_from`) needs few examples for this, because it already knows the
language: only the head is new (Devlin et al. 2018, section 3.2 and figure 4).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from encoder.bert import Bert, LabelledBatch
from encoder.config import LABEL_MARK
from encoder.data import CLS, PAD, SEP
from encoder.options import BertOptions
from encoder.words import learn_tokenizer
from tinygrad_lite.autograd import no_grad
from tinygrad_lite.errors import CorpusError, OptionError, counted
from tinygrad_lite.tensor import Tensor
from workshop.corpora.tables import Labelled, load_labelled
from workshop.decoding.scores import with_interval
from workshop.decoding.state import pad_rows
from workshop.run.epochs import items_in_epochs
from workshop.run.family import Report
from workshop.tokenizers.base import Tokenizer

PAIR_MARK = "|||"  # between the two texts of a pair, as a user writes them


class LabelsTask:
    """Labelled texts to learn from, and others to evaluate on."""

    asked_with, predicted, unit = "start", "text", ""

    def __init__(self, options: BertOptions, tokenizer: Tokenizer | None = None) -> None:
        self.options = options
        self.data = load_labelled(options.table or options.dataset)
        self.corpus_sha256 = self.data.sha256
        if wrong := [label for label in self.data.labels if LABEL_MARK in label]:
            raise CorpusError(f"the label {wrong[0]!r} in {self.data.name} has the mark {LABEL_MARK}: rename it")
        names = LABEL_MARK.join(self.data.labels)
        if options.labels and not set(self.data.labels) <= set(options.labels.split(LABEL_MARK)):
            raise CorpusError(f"the labels in {self.data.name} are {names}, but those of the model {options.labels}")
        options.labels = options.labels or names  # so that the model has as many outputs
        self.labels = options.labels.split(LABEL_MARK)
        if self.data.are_pairs and options.segments < 2:
            raise CorpusError(
                f"{self.data.name} has pairs of texts, which need a model with two segments: --segments 2"
            )
        self.tokenizer = tokenizer or learn_tokenizer(options, self.text)
        self.train, self.held_out = (self.encoded(part) for part in (self.data.train, self.data.validation))
        self.example = self.data.validation[0][0].replace("\t", f" {PAIR_MARK} ")

    @property
    def text(self) -> str:
        """All texts to learn from."""
        return "\n".join(text for text, _ in self.data.train).replace("\t", "\n")

    def encoded(self, part: Sequence[Labelled]) -> list[tuple[np.ndarray, np.ndarray, int]]:
        """The ids, segments and label of each text."""
        numbers = [self.labels.index(label) for label in self.data.labels]  # the model's numbers, by the data's
        size = self.options.block_size
        return [(*sequence(self.tokenizer, text.split("\t"), size), numbers[label]) for text, label in part]

    def hold_out_test(self) -> None:
        """From now on, evaluate on the test part, which no run has seen."""
        self.held_out = self.encoded(self.data.test)

    def describe(self) -> str:
        """One line about the texts."""
        cut = np.mean([len(ids) == self.options.block_size for ids, _, _ in self.train])
        return (
            f"{self.data.name}: {len(self.train):,} {self.data.noun} to learn from, {len(self.held_out):,} held out, "
            f"{len(self.labels)} labels ({', '.join(self.labels[:10])}); {self.tokenizer.kind} tokenizer with "
            f"{self.tokenizer.vocab_size:,} tokens; {cut:.1%} of the texts have {self.options.block_size} or more; "
            f"an epoch is {counted(math.ceil(len(self.train) / self.target_tokens(0)), 'step')}"
        )

    def unknown(self) -> dict[str, int]:
        """The characters or words of the texts that the tokenizer does not know."""
        return self.tokenizer.unknown(self.text)

    def target_tokens(self, step: int) -> int:
        """The number of texts of an update."""
        return self.options.batch_size * self.options.gradient_accumulation_steps

    def batches(self, step: int, rank: int = 0, size: int = 1) -> Iterator[tuple[LabelledBatch, float]]:
        """A process's texts of the batches of one update, each with its share of the update's texts.

        The texts come in passes over all of them, each in a different order.
        """
        rows = self.target_tokens(step)
        numbers = items_in_epochs(self.options.seed, step * rows, rows, len(self.train)).tolist()
        for first in range(0, rows, self.options.batch_size):
            part = numbers[first : first + self.options.batch_size]
            if own := part[len(part) * rank // size : len(part) * (rank + 1) // size]:
                yield self.batch([self.train[number] for number in own]), len(own) / rows

    def validation_batches(self, rank: int = 0, size: int = 1) -> Iterator[tuple[LabelledBatch, int]]:
        """All held-out texts; with several processes, each has every n-th batch."""
        batch_size = self.options.batch_size
        for first in range(rank * batch_size, len(self.held_out), size * batch_size):
            part = self.held_out[first : first + batch_size]
            yield self.batch(part), len(part)

    def batch(self, rows: Sequence[tuple[np.ndarray, np.ndarray, int]]) -> LabelledBatch:
        """The tensors of some texts."""
        ids, segments, labels = zip(*rows, strict=True)
        arrays = (pad_rows(ids, self.tokenizer.specials[PAD]), pad_rows(segments, 0), np.array(labels))
        return LabelledBatch(*(Tensor(array, dtype=np.int64, device=self.options.device) for array in arrays))

    def report(self, model: Bert, val_loss: float) -> Report:
        """How many labels are right."""
        model.eval()
        with no_grad():
            right = 0
            for batch, _ in self.validation_batches():
                found = model.label_logits(batch.ids, batch.segments).numpy().argmax(-1)
                right += int((found == batch.labels.numpy()).sum())
        model.train()
        share = with_interval(right, len(self.held_out))
        return Report({"accuracy": right / len(self.held_out)}, f"{share} of {len(self.held_out):,} labels right", "")


def texts_of(line: str, most: int) -> list[str]:
    """The text in a line, or the two of a pair, separated by ||| or a tab.

    >>> texts_of("Es regnet. ||| Die Straße ist nass.", most=2)
    ['Es regnet.', 'Die Straße ist nass.']

    Raises: OptionError if there are more than `most`, the segments of the model.
    """
    texts = [text.strip() for text in line.replace("\t", PAIR_MARK).split(PAIR_MARK)]
    if len(texts) > (most := min(2, most)):
        words = "a text or a pair of texts" if most == 2 else "one text"
        raise OptionError(f"{PAIR_MARK} divides {line[:60]!r} into {len(texts)} texts, but the model reads {words}")
    return texts


def sequence(tokenizer: Tokenizer, texts: Sequence[str], size: int) -> tuple[np.ndarray, np.ndarray]:
    """The ids and segments of a text, or of a pair; what is longer than `size` is cut, in a pair the longer text.

    [CLS] first [SEP] second [SEP]
    """
    special, parts = tokenizer.specials, [tokenizer.encode(text) for text in texts]
    while sum(map(len, parts)) + len(parts) + 1 > size:
        max(parts, key=len).pop()
    ids, segments = [special[CLS]], [0]
    for number, part in enumerate(parts):
        ids += [*part, special[SEP]]
        segments += [number] * (len(part) + 1)
    return np.array(ids), np.array(segments)
