"""The GPT's data: a text becomes tokens, the tokens become batches of (ids, targets).

The text itself provides the targets: at every position the target is the next token. So a batch consists of windows
of T + 1 tokens, cut from the text, whose first T are the ids and whose last T, shifted by one, are the targets:

    window    H  a  b  e  _  n  u  n
    ids       H  a  b  e  _  n  u
    targets   a  b  e  _  n  u  n

The last tenth of the text (of some corpora, their last works) is held out: the model is never trained on it, so the
loss there measures how well the model generalises.
"""

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gpt.options import GPTOptions
from text.tokenizers import learn
from text.tokenizers.base import StreamDecoder, Tokenizer
from tinygrad_lite.errors import CorpusError, counted
from tinygrad_lite.random import keyed_rng
from tinygrad_lite.tensor import Tensor
from training.corpora.texts import HELD_OUT, Corpus, load_corpus

Batch = tuple[Tensor, Tensor]  # ids and targets, both (B, T)


@dataclass
class TextData:
    """A tokenized text, split into a training part and a held-out part.

    Attributes:
        train, held_out: token ids, one long array each.
        chars_per_token: of the held-out tokens that are predicted; converts nats per token into bits per character.
    """

    options: GPTOptions
    corpus: Corpus
    tokenizer: Tokenizer
    train: np.ndarray
    held_out: np.ndarray
    chars_per_token: float

    @property
    def apart(self) -> int:
        """How far apart the windows of the held-out text begin."""
        return self.options.config.block_size

    def batch(self, step: int, sequences: int) -> tuple[np.ndarray, np.ndarray]:
        """The windows of one update, (sequences, T) ids and targets; the same for the same step.

        All sequences of an update are chosen at once, so cutting them into micro-steps does not change them.
        """
        return self.windows(self.train, self.starts(step, sequences))

    def starts(self, step: int, sequences: int) -> np.ndarray:
        """Where the windows of one update begin: (sequences,)."""
        options = self.options
        if options.data_order == "epochs":
            return self._next_in_epochs(step * sequences, sequences)
        rng = keyed_rng(options.seed, "batch", step)  # drawn with the key (seed, step)
        return rng.integers(0, len(self.train) - options.config.block_size, sequences)

    def windows(self, tokens: np.ndarray, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The windows that begin at these places (n,): ids and targets, both (n, T)."""
        found = tokens[starts[:, None] + np.arange(self.options.config.block_size + 1)]
        return found[:, :-1], found[:, 1:]

    def _next_in_epochs(self, first: int, sequences: int) -> np.ndarray:
        """Where windows first, first + 1, ... begin, counted through all epochs."""
        seed, length, size = self.options.seed, len(self.train), self.options.config.block_size
        epochs, places = np.divmod(first + np.arange(sequences), windows_of_epoch(length, size))
        parts = [epoch_starts(seed, e, length, size)[places[epochs == e]] for e in np.unique(epochs).tolist()]
        return np.concatenate(parts)

    def micro_batches(self, step: int, batch_size: int, micro_steps: int) -> Iterator[Batch]:
        """The update's windows as `micro_steps` batches of `batch_size` sequences."""
        ids, targets = self.batch(step, batch_size * micro_steps)
        for part in zip(np.split(ids, micro_steps), np.split(targets, micro_steps), strict=True):
            yield self._tensors(*part)

    def validation_batches(self, batch_size: int, eval_iters: int) -> Iterator[Batch]:
        """The held-out text in consecutive windows, in which each token is a target once; always the same.

        With eval_iters > 0, only N windows of it, evenly spaced.
        """
        size = self.options.config.block_size
        starts = np.arange(0, len(self.held_out) - 1, self.apart)
        if 0 < eval_iters < len(starts):
            starts = starts[np.linspace(0, len(starts) - 1, eval_iters).round().astype(int)]
        whole = starts[starts + size < len(self.held_out)]
        for first in range(0, len(whole), batch_size):
            yield self._tensors(*self.windows(self.held_out, whole[first : first + batch_size]))
        for start in starts[len(whole) :]:  # the last window may be shorter
            rest = self.held_out[None, start:]
            yield self._tensors(rest[:, :-1], rest[:, 1:])

    def _tensors(self, *arrays: np.ndarray) -> Batch:
        return tuple(Tensor(array, dtype=np.int64, device=self.options.device) for array in arrays)


def bits_per_character(nats_per_token: float, chars_per_token: float) -> float:
    """A loss in the unit that is comparable across tokenizers; 1 nat is 1/ln 2 bits."""
    return nats_per_token / math.log(2) / chars_per_token


def characters_each(tokenizer: Tokenizer, text: str, tokens: Sequence[int]) -> float:
    """How many characters of a text a token has that is predicted: each but the first, which has nothing before it.

    Args:
        tokens: those of the text, perhaps after the tokenizer's prefix, which then predicts the first, too.
    """
    given = len(tokenizer.prefix) if [*tokens[: len(tokenizer.prefix)]] == [*tokenizer.prefix] else 0
    first = "" if given else StreamDecoder(tokenizer).push(int(tokens[0]))
    return (len(text) - len(first)) / (len(tokens) - max(given, 1))


def windows_of_epoch(tokens: int, block_size: int) -> int:
    """The number of windows in an epoch: as many consecutive ones as fit wherever the first begins.

    A window is block_size tokens and one more, the last target, which is the first token of the next window.
    """
    return max(1, tokens // block_size - 1)


@functools.lru_cache(maxsize=2)  # an update may need the end of one epoch and the beginning of the next
def epoch_starts(seed: int, epoch: int, tokens: int, block_size: int) -> np.ndarray:
    """Where the windows of an epoch begin, in the order in which they are visited.

    An epoch cuts the text into consecutive windows, so none of its tokens is a target twice; a few at either end are
    left out. The key (seed, epoch) determines the place of the first window, so that every epoch has different windows,
    and their order.
    """
    rng, count = keyed_rng(seed, "epoch", epoch), windows_of_epoch(tokens, block_size)
    offset = rng.integers(0, min(block_size, tokens - count * block_size))
    return offset + block_size * rng.permutation(count)


def prepare(options: GPTOptions, tokenizer: Tokenizer | None = None) -> TextData:
    """Get the text, learn a tokenizer from it (unless one is given), and tokenize.

    Raises: CorpusError if the text is too short for one context.
    """
    corpus = load_corpus(options.dataset, files=options.text)
    train_text, held_out_text = corpus.split()
    if tokenizer is None:
        # Words and merges are learned from what is not held out, characters from the whole text: the set of letters
        # reveals next to nothing about the held-out part.
        text = corpus.text if options.tokenizer == "char" else train_text
        tokenizer = learn(options.tokenizer, text, options.vocab_size)
    kind = np.uint16 if tokenizer.vocab_size <= 65536 else np.int32
    train = np.array(tokenizer.encode_whole(train_text), kind)
    held_out = np.array(tokenizer.encode_whole(held_out_text), kind)
    size = options.config.block_size
    if len(train) <= size or len(held_out) < 2:
        # The length that would suffice, at this number of characters per token; a tenth of 20 tokens is 2.
        tokens = max((size + 1) / (1 - HELD_OUT), 2 / HELD_OUT)
        longer = math.ceil(tokens * len(corpus.text) / (len(train) + len(held_out)))
        smaller = f"--block_size {len(train) - 1} or smaller, or " if min(len(train), len(held_out)) > 1 else ""
        raise CorpusError(
            f"the text is too short: {counted(len(train), 'token')} to learn from and {len(held_out):,} held out, but "
            f"--block_size {size} needs at least {size + 1:,} and 2; take {smaller}a text "
            f"of more than {counted(longer - 1, 'character')} (this one has {len(corpus.text):,})"
        )
    return TextData(options, corpus, tokenizer, train, held_out, characters_each(tokenizer, held_out_text, held_out))
