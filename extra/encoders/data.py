"""BERT's data: a text becomes sequences of two segments, some of whose tokens are hidden.

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
import re
from dataclasses import dataclass

import numpy as np

from extra.encoders.bert import MaskedBatch
from extra.encoders.options import BertOptions
from extra.tokenizers.wordpiece import CLASS as CLS
from extra.tokenizers.wordpiece import MASK, UNKNOWN
from extra.tokenizers.wordpiece import PADDING as PAD
from extra.tokenizers.wordpiece import SEPARATOR as SEP
from text.tokenizers.base import Tokenizer
from tinygrad_lite.generator import pad_rows
from tinygrad_lite.random import keyed_rng
from tinygrad_lite.tensor import Tensor

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
        count = self.options.eval_iters or max(1, len(self.held_out.tokens) // self.options.block_size)
        return self.sequences(self.held_out, "held-out", range(count))

    def sequences(self, text: TokenizedText, name: str, numbers: range) -> list[MaskedSequence]:
        """The sequences with these numbers."""
        return [self.sequence(text, keyed_rng(self.options.seed, name, n)) for n in numbers]

    def sequence(self, text: TokenizedText, rng: np.random.Generator) -> MaskedSequence:
        """A random sequence of a text, with tokens hidden."""
        special = self.tokenizer.specials
        if self.options.next_sentence and len(text.cuts):
            first, second, follows = self._two_segments(text, rng)
            ids = np.concatenate([[special[CLS]], first, [special[SEP]], second, [special[SEP]]])
            segments = np.repeat([0, 1], [len(first) + 2, len(second) + 1])
        else:
            follows, room = True, self.options.block_size - 2
            start = rng.integers(0, max(1, len(text.tokens) - room + 1))
            ids = np.concatenate([[special[CLS]], text.tokens[start : start + room], [special[SEP]]])
            segments = np.zeros(len(ids), np.int64)
        hidden, places = self.hide(ids, rng)
        return MaskedSequence(hidden, segments, places, ids[places], follows)

    def _two_segments(self, text: TokenizedText, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, bool]:
        """What precedes the end of a random sentence; what follows it, or another text; whether it really follows."""
        room = self.options.block_size - 3
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
        if not self.options.next_sentence:
            return MaskedBatch(*arrays)
        whole = whole or sequences
        share = len(sequences) / len(whole) / (len(targets) / sum(len(s.targets) for s in whole))
        follows = Tensor(np.array([s.follows for s in sequences]), **settings)
        return MaskedBatch(*arrays, follows, share)
