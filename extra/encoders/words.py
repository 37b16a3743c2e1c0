"""BERT's pretraining task: a text becomes sequences of two segments, some of whose tokens are to be predicted.

    [CLS] Der Mann [MASK] ein Buch . [SEP] Es ist [MASK] Goethe . [SEP]

15 % of the tokens of a sequence are to be predicted. Four in five of these are replaced by [MASK], one in ten by a
random token, and one in ten stays: the model never knows which tokens are right, so it needs a good vector for each of
them, even without a [MASK], as in all later uses. The hidden tokens are drawn again for every sequence.

The second segment follows the first in its text, or, in half of the sequences, comes from elsewhere; the model learns
to tell. Later work found little use in this (Liu et al. 2019, arXiv:1907.11692), so it can be switched off: then a
sequence is a single segment.

Reference: Devlin et al. 2018, section 3.1 and appendix A.1.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from extra.encoders.bert import Bert, MaskedBatch
from extra.encoders.classes import with_interval
from extra.encoders.options import BertOptions
from extra.inside import numbers
from extra.tokenizers.wordpiece import CLS, MASK, PAD, SEP, UNKNOWN, WordPieceTokenizer
from text.tokenizers import learn
from text.tokenizers.base import Tokenizer
from text.tokenizers.bpe import BPETokenizer
from tinygrad_lite.autograd import no_grad
from tinygrad_lite.errors import CorpusError, counted
from tinygrad_lite.generator import pad_rows
from tinygrad_lite.random import keyed_rng
from tinygrad_lite.tensor import Tensor
from training.cli.console import is_plain
from training.corpora.texts import load_corpus
from training.task import Report, Task

SPECIALS = (PAD, CLS, SEP, MASK, UNKNOWN)  # in this order, after the byte pairs; WordPiece has its own
HIDDEN, REPLACED = 0.8, 0.1  # of the tokens to predict: those that become [MASK], and those that become another token
# The end of a sentence: a full stop or similar, closing quotation marks, and white space; or a line break.
SENTENCE = re.compile(r".*?(?:[.!?][\"'»«“”‘’)\]]*\s+|\n+|\Z)", re.DOTALL)


def sentences(text: str) -> list[str]:
    r"""A text cut after its sentences and lines; the pieces, joined, are the text again.

    >>> sentences("Ja! Wer reitet\nso spät?")
    ['Ja! ', 'Wer reitet\n', 'so spät?']
    """
    return [piece for piece in SENTENCE.findall(text) if piece]


@dataclass
class TokenizedText:
    """The tokens of a text, one long array, and where its parts begin.

    Attributes:
        documents: where each document begins (a paragraph, or a review: whatever is between empty lines), and the end.
        cuts: where the sentences begin that are not the first of their document.
    """

    tokens: np.ndarray
    documents: np.ndarray
    cuts: np.ndarray

    @classmethod
    def encode(cls, tokenizer: Tokenizer, text: str) -> TokenizedText:
        """The tokens of a text, sentence by sentence."""
        tokens, documents, cuts = [], [], []
        for document in re.split(r"(?<=\n\n)(?=[^\n])", text):
            documents.append(len(tokens))
            for piece in sentences(document):
                if (ids := tokenizer.encode(piece)) and len(tokens) > documents[-1]:
                    cuts.append(len(tokens))
                tokens += ids
        return cls(np.array(tokens, np.int32), np.array([*documents, len(tokens)]), np.array(cuts, int))

    def document(self, place: int) -> tuple[int, int]:
        """Where the document with this token begins and ends."""
        number = np.searchsorted(self.documents, place, "right")
        return int(self.documents[number - 1]), int(self.documents[number])


@dataclass
class MaskedSequence:
    """A sequence with hidden tokens: `MaskedBatch`'s rows, each (T,), places (n,) counted from its own beginning."""

    ids: np.ndarray
    segments: np.ndarray
    places: np.ndarray
    targets: np.ndarray
    follows: bool


@dataclass
class MaskedText:
    """A tokenized text, from which batches with hidden tokens are made.

    Attributes:
        train, held_out: the part to learn from, and the part to evaluate on.
    """

    tokenizer: Tokenizer
    train: TokenizedText
    held_out: TokenizedText
    options: BertOptions

    def micro_batches(self, step: int) -> list[list[MaskedSequence]]:
        """The sequences of one update, a list for each micro-step; the same for the same step.

        Sequence n of all updates is drawn with the key (seed, n), whatever the size of the batches.
        """
        size, micro_steps = self.options.batch_size, self.options.gradient_accumulation_steps
        firsts = [(step * micro_steps + micro_step) * size for micro_step in range(micro_steps)]
        return [self.sequences(self.train, "masked", range(first, first + size)) for first in firsts]

    def validation_sequences(self) -> list[MaskedSequence]:
        """Sequences of the held-out text, enough to cover it once, or N of them; always the same."""
        count = self.options.eval_iters or max(1, len(self.held_out.tokens) // self.options.config.block_size)
        return self.sequences(self.held_out, "held-out", range(count))

    def sequences(self, text: TokenizedText, name: str, numbers: range) -> list[MaskedSequence]:
        """The sequences with these numbers."""
        return [self.sequence(text, keyed_rng(self.options.seed, name, n)) for n in numbers]

    def sequence(self, text: TokenizedText, rng: np.random.Generator) -> MaskedSequence:
        """A random sequence of a text, with tokens hidden."""
        if self.options.config.next_sentence and len(text.cuts):
            *parts, follows = self._two_segments(text, rng)
        else:
            follows, room = True, self.options.config.block_size - 2
            start = rng.integers(0, max(1, len(text.tokens) - room + 1))
            parts = [text.tokens[start : start + room]]
        ids, segments = with_marks(self.tokenizer, parts)
        hidden, places = self.hide(ids, rng)
        return MaskedSequence(hidden, segments, places, ids[places], follows)

    def _two_segments(self, text: TokenizedText, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, bool]:
        """What precedes the end of a random sentence; what follows it, or another text; whether it really follows."""
        room = self.options.config.block_size - 3
        cut = int(text.cuts[rng.integers(len(text.cuts))])
        length = int(rng.integers(room // 4, room - room // 4 + 1))  # of the first segment, at most
        first = text.tokens[max(text.document(cut)[0], cut - length) : cut]
        other = cut if rng.integers(2) else int(text.cuts[rng.integers(len(text.cuts))])
        second = text.tokens[other : min(text.document(other)[1], other + room - len(first))]
        return first, second, other == cut

    def hide(self, ids: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Hide tokens of a sequence: the changed ids, and the places of the tokens to predict, in order."""
        words = np.flatnonzero(self.is_ordinary[ids])
        count = max(1, round(self.options.mask_share * len(words)))
        places = np.sort(rng.permutation(words)[:count])
        hidden, chance = ids.copy(), rng.random(len(places))
        hidden[places[chance < HIDDEN]] = self.tokenizer.specials[MASK]
        replaced = places[(chance >= HIDDEN) & (chance < HIDDEN + REPLACED)]
        ordinary = np.flatnonzero(self.is_ordinary)
        hidden[replaced] = ordinary[rng.integers(0, len(ordinary), len(replaced))]
        return hidden, places

    @functools.cached_property
    def is_ordinary(self) -> np.ndarray:
        """Which tokens are not special: a boolean for each id."""
        return ~np.isin(np.arange(self.tokenizer.vocab_size), list(self.tokenizer.specials.values()))

    def batch(self, sequences: list[MaskedSequence], whole: list[MaskedSequence] | None = None) -> MaskedBatch:
        """The tensors of some sequences.

        Args:
            whole: the batch of which these are one process's part; None: these.
        """
        ids = pad_rows([s.ids for s in sequences], self.tokenizer.specials[PAD])
        segments = pad_rows([s.segments for s in sequences], 0)
        width = ids.shape[1]
        places = np.concatenate([row * width + s.places for row, s in enumerate(sequences)])
        targets = np.concatenate([s.targets for s in sequences])
        settings = {"dtype": np.int64, "device": self.options.device}
        arrays = [Tensor(array, **settings) for array in (ids, segments, places, targets)]
        if not self.options.config.next_sentence:
            return MaskedBatch(*arrays)
        whole = whole or sequences
        share = len(sequences) / len(whole) / (len(targets) / sum(len(s.targets) for s in whole))
        follows = Tensor(np.array([s.follows for s in sequences]), **settings)
        return MaskedBatch(*arrays, follows, share)


class WordsTask(Task):
    """A training text, and the hidden words of its held-out part."""

    predicted, measures = "hidden token", ("accuracy", "next_accuracy")

    def __init__(self, options: BertOptions, tokenizer: Tokenizer | None = None) -> None:
        self.options = options
        corpus = load_corpus(options.dataset, files=options.text)
        self.corpus_sha256, self.text = corpus.sha256, corpus.text
        train, held_out = corpus.split()
        self.tokenizer = tokenizer or learn_tokenizer(options, train)
        parts = [TokenizedText.encode(self.tokenizer, part) for part in (train, held_out)]
        if min(len(part.tokens) for part in parts) < options.config.block_size:
            found = f"{counted(len(parts[0].tokens), 'token')} to learn from and {len(parts[1].tokens):,} held out"
            needed = f"--block_size {options.config.block_size} needs at least as many of both"
            advice = "take a longer text, or a smaller --block_size"
            raise CorpusError(f"the text is too short: {found}, but {needed}: {advice}")
        self.data = MaskedText(self.tokenizer, *parts, options)
        self._latest: tuple[int, list[list[MaskedSequence]]] = -1, []
        self.held_out = self.data.validation_sequences()
        is_goethe = options.dataset.startswith("goethe") and not options.text
        self.example = "Der [MASK] ist ein Künstler." if is_goethe else example_of(held_out)

    def describe(self) -> str:
        """One line about the tokens."""
        data = self.data
        per_step = self.options.batch_size * self.options.gradient_accumulation_steps * self.options.config.block_size
        return (
            f"{self.tokenizer.kind} tokenizer with {self.tokenizer.vocab_size:,} tokens; {len(data.train.tokens):,} "
            f"tokens to learn from, {len(data.held_out.tokens):,} held out; an epoch is about "
            f"{counted(math.ceil(len(data.train.tokens) / per_step), 'step')}"
        )

    def update(self, step: int) -> list[list[MaskedSequence]]:
        """The sequences of an update, a list for each micro-step; the latest are kept."""
        if step != self._latest[0]:
            self._latest = step, self.data.micro_batches(step)
        return self._latest[1]

    def target_tokens(self, step: int) -> int:
        """The number of hidden tokens of an update."""
        return sum(len(sequence.targets) for part in self.update(step) for sequence in part)

    def batches(self, step: int, rank: int = 0, size: int = 1) -> Iterator[tuple[MaskedBatch, float]]:
        """A process's sequences of the batches of one update, each with its share of the update's hidden tokens."""
        tokens = self.target_tokens(step)
        for part in self.update(step):
            if own := part[len(part) * rank // size : len(part) * (rank + 1) // size]:
                yield self.data.batch(own, part), sum(len(sequence.targets) for sequence in own) / tokens

    def validation_batches(self, rank: int = 0, size: int = 1) -> Iterator[tuple[MaskedBatch, int]]:
        """Sequences of the held-out text; with several processes, each has every n-th batch."""
        batch_size = self.options.batch_size
        for first in range(rank * batch_size, len(self.held_out), size * batch_size):
            batch = self.data.batch(self.held_out[first : first + batch_size], self.held_out)
            yield batch, len(batch.targets)

    def report(self, model: Bert, val_loss: float) -> Report:
        """How many of the hidden words are guessed correctly, and the guesses in a sentence."""
        right, asked, right_next, sequences = 0, 0, 0, len(self.held_out)
        for batch, count in self.validation_batches():
            x = model(batch.ids, batch.segments)
            right += int(are_guessed(model, x, batch).sum())
            asked += count
            if batch.follows is not None:
                logits = model.next_head(model.pooled(x, batch.ids)).numpy()
                right_next += int((logits.argmax(-1) == batch.follows.numpy()).sum())
        measures = {"accuracy": right / asked}
        words = f"{right / asked:.1%} of {counted(asked, 'hidden token')} guessed"
        if self.options.config.next_sentence:
            measures["next_accuracy"] = right_next / sequences
            words += f", and of {counted(sequences, 'second segment')} {with_interval(right_next, sequences)}"
        text = "\n".join(guesses(model, self.tokenizer, self.example, 3)) if self.example else ""
        return Report(measures, words, text)


def are_guessed(model: Bert, x: Tensor, batch: MaskedBatch) -> np.ndarray:
    """Whether the most probable token is right at each hidden position: (B, T, C) vectors of a batch -> (N,)."""
    rows = x.reshape(-1, model.config.n_embd)[batch.places]
    return model.words(rows).numpy().argmax(-1) == batch.targets.numpy()


def learn_tokenizer(options: BertOptions, text: str) -> Tokenizer:
    """The tokenizer that the options ask for, learned from the part of the text that is not held out."""
    if options.tokenizer == WordPieceTokenizer.kind:  # it has its own special tokens
        return WordPieceTokenizer.train(text, options.vocab_size, lowercase=options.lowercase)
    return learn(options.tokenizer, text, options.vocab_size, SPECIALS)


def example_of(text: str) -> str:
    """A short line of a text with one word hidden; empty if there is none.

    >>> example_of("Zweiter Teil\\n\\nEs irrt der Mensch, so lang er strebt.")
    'Es [MASK] der Mensch, so lang er strebt.'
    """
    for line in text.split("\n")[1:]:  # the first may be a part of one
        words = line.split()[:12]
        if len(words) >= 5 and words[0][0].isalpha() and is_plain(" ".join(words)):
            hidden = max(range(1, len(words) - 1), key=lambda n: (words[n].isalpha(), len(words[n])))
            return " ".join([*words[:hidden], MASK, *words[hidden + 1 :]])
    return ""


def with_marks(tokenizer: Tokenizer, parts: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """The ids of one part or two between special tokens, [CLS] first [SEP] second [SEP], and their segments."""
    rows = [[*part, tokenizer.specials[SEP]] for part in parts]
    rows[0].insert(0, tokenizer.specials[CLS])
    return np.concatenate(rows), np.repeat(np.arange(len(rows)), [*map(len, rows)])


def whole_sequence(tokenizer: Tokenizer, text: str) -> np.ndarray:
    """The ids of a text in which each [MASK] hides a word: [CLS] text [SEP].

    In byte-pair encoding a word's token begins with the space before it, so [MASK] replaces that, too.
    """
    if tokenizer.kind == BPETokenizer.kind:
        text = text.replace(f" {MASK}", MASK)
    return with_marks(tokenizer, [tokenizer.encode(text, allow_special=[MASK])])[0]


def predictions(model: Bert, tokenizer: Tokenizer, text: str, most: int) -> list[list[tuple[int, float]]]:
    """For each [MASK] in a text, the most probable tokens with their probabilities, best first."""
    special = tokenizer.specials
    ids = whole_sequence(tokenizer, text)[: model.config.block_size]
    places = np.flatnonzero(ids == special[MASK])
    with no_grad(), model.evaluating():
        x = model(Tensor(ids[None], device=model.device))
        logits = model.words(x[0][Tensor(places, device=x.device)])
        probabilities = numbers(logits.softmax()).copy()
    probabilities[:, list(special.values())] = 0  # a special token is not a word
    best = np.argsort(-probabilities, axis=1, kind="stable")[:, :most].tolist()
    return [[(token, float(row[token])) for token in tokens] for row, tokens in zip(probabilities, best, strict=True)]


def guesses(model: Bert, tokenizer: Tokenizer, text: str, most: int) -> list[str]:
    """A text, and below it for each [MASK] the most probable words, as lines."""
    lines = [text]
    for found in predictions(model, tokenizer, text, most):
        lines.append("  " + ", ".join(f"{tokenizer.render(token).strip()} {p:.1%}" for token, p in found))
    return lines
