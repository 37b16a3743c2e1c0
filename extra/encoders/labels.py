"""BERT's fine-tuning task: the label of a text, or of a pair of texts.

    [CLS] A joy from start to end . [SEP]                      ->   positive
    [CLS] Es regnet . [SEP] Die Straße ist trocken . [SEP]     ->   contradiction

A model that has learned to predict words (`--init_from`) needs few examples for this, because it already knows the
language: only the head is new (Devlin et al. 2018, section 3.2 and figure 4).
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from extra.corpora.tables import load_labelled
from extra.encoders.bert import LabelledBatch
from extra.encoders.classes import ClassesTask
from extra.encoders.config import LABEL_MARK
from extra.encoders.options import BertOptions
from extra.encoders.words import PAD, learn_tokenizer, with_marks
from text.tokenizers.base import Tokenizer
from tinygrad_lite.errors import CorpusError, OptionError, counted
from tinygrad_lite.generator import pad_rows
from tinygrad_lite.tensor import Tensor

Encoded = tuple[Sequence[np.ndarray], Sequence[np.ndarray], Sequence[int]]  # ids, segments and label of each text
PAIR_MARK = "|||"  # between the two texts of a pair, as a user writes them


class LabelsTask(ClassesTask):
    """Labelled texts to learn from, and others to evaluate on."""

    asked_with, predicted, classes = "start", "text", "labels"

    def __init__(self, options: BertOptions, tokenizer: Tokenizer | None = None) -> None:
        self.options = options
        data = self.data = load_labelled(options.table or options.dataset)
        self.corpus_sha256 = data.sha256
        if wrong := [label for label in data.labels if LABEL_MARK in label]:
            raise CorpusError(f"the label {wrong[0]!r} in {data.name} has the mark {LABEL_MARK}: rename it")
        names = LABEL_MARK.join(data.labels)
        if not options.config.labels:  # so that the model has as many outputs
            options.config = replace(options.config, labels=names)
        self.labels = options.config.labels.split(LABEL_MARK)
        if not set(data.labels) <= set(self.labels):
            raise CorpusError(f"the labels in {data.name} are {names}, but those of the model {options.config.labels}")
        if data.are_pairs and options.config.segments < 2:
            raise CorpusError(f"{data.name} has pairs of texts, which need a model with two segments: --segments 2")
        self.tokenizer = tokenizer or learn_tokenizer(options, self.text)
        self.train, self.held_out = (self.encoded(part) for part in (data.train, data.validation))
        self.example = data.validation[0][0].replace("\t", f" {PAIR_MARK} ")

    @property
    def text(self) -> str:
        """All texts to learn from."""
        return "\n".join(text for text, _ in self.data.train).replace("\t", "\n")

    def encoded(self, part: Sequence[tuple[str, int]]) -> Encoded:
        """The ids, segments and label of each text."""
        numbers = [self.labels.index(label) for label in self.data.labels]  # the model's numbers, by the data's
        size = self.options.config.block_size
        rows = [(*sequence(self.tokenizer, text.split("\t"), size), numbers[label]) for text, label in part]
        return tuple(zip(*rows, strict=True))

    def hold_out_test(self) -> None:
        """From now on, evaluate on the test part, which no run has seen."""
        self.held_out = self.encoded(self.data.test)

    def describe(self) -> str:
        """One line about the texts."""
        (ids, _, _), size = self.train, self.options.config.block_size
        cut = np.mean([len(row) == size for row in ids])
        return (
            f"{self.data.name}: {len(ids):,} {self.data.noun} to learn from, {len(self.held_out[0]):,} held out, "
            f"{len(self.labels)} labels ({', '.join(self.labels[:10])}); {self.tokenizer.kind} tokenizer with "
            f"{self.tokenizer.vocab_size:,} tokens; {cut:.1%} of the texts have {size} or more; "
            f"an epoch is {counted(math.ceil(len(ids) / self.target_tokens(0)), 'step')}"
        )

    def batch(self, columns: Encoded, numbers: np.ndarray) -> LabelledBatch:
        """The tensors of some texts."""
        ids, segments, labels = ([column[number] for number in numbers] for column in columns)
        arrays = (pad_rows(ids, self.tokenizer.specials[PAD]), pad_rows(segments, 0), np.array(labels))
        return LabelledBatch(*(Tensor(array, dtype=np.int64, device=self.options.device) for array in arrays))


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
    """The ids and segments of a text, or of a pair; what is longer than `size` is cut, in a pair the longer text."""
    parts = [tokenizer.encode(text) for text in texts]
    while sum(map(len, parts)) + len(parts) + 1 > size:
        max(parts, key=len).pop()
    return with_marks(tokenizer, parts)
