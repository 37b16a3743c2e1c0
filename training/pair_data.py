"""Pairs of texts as batches with about the same number of tokens, for the models that learn from pairs.

A batch is one or two rectangles of tokens: a translation model reads sources and targets separately, a GPT each pair as
one row. Short rows are padded, and computing padding is wasteful. So texts of similar length are batched together: all
pairs are sorted by length (pairs of equal length in a new random order in each epoch), cut into batches, and the
batches are shuffled.

    order     I go .  |  He sleeps .  |  The man reads a book .  |  A dog runs over the wet grass .  | ...
    batches  [I go .  ;  He sleeps .]   [The man reads a book .  ;  A dog runs over the wet grass .]   ...

A batch holds at most `batch_tokens` tokens, padding included: many short pairs, or few long ones. So every update costs
about the same; within it, all target tokens have the same weight.
"""

import bisect
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from text.tokenizers.base import Tokenizer
from tinygrad_lite.random import keyed_rng
from tinygrad_lite.tensor import Tensor

Pair = tuple[list[int], list[int]]  # source ids; target ids with the tokens that begin and end it
Batch = tuple[Tensor, Tensor]


@dataclass
class PairData:
    """Tokenized pairs, split into a training part and a held-out part.

    A subclass for a model says how a batch of pairs is written, `batch(pairs)`, the tensors for `model.loss`, and how
    wide a pair is in it, `widths(pair)`, its tokens in each rectangle of a batch.

    Attributes:
        train, held_out: pairs of token ids.
        batch_tokens: maximum number of tokens in a batch, with padding.
        micro_steps: batches whose gradients make one update.
    """

    tokenizer: Tokenizer
    train: list[Pair]
    held_out: list[Pair]
    batch_tokens: int
    micro_steps: int
    seed: int
    device: str = "cpu"
    _latest: tuple[int, list[np.ndarray]] = field(default=(-1, []), repr=False)  # an epoch and its batches
    _starts: list[int] = field(default_factory=lambda: [0], repr=False)  # the first update of each epoch

    @property
    def epoch_steps(self) -> int:
        """The number of updates in the first epoch; later epochs may have a few more or less."""
        self.update(0)
        return self._starts[1]

    def update(self, step: int) -> list[np.ndarray]:
        """The batches of one update, as indices of pairs. An epoch's last update may have fewer micro-steps."""
        while step >= self._starts[-1]:
            batches = self.epoch(len(self._starts) - 1)
            self._starts.append(self._starts[-1] + math.ceil(len(batches) / self.micro_steps))
        number = bisect.bisect_right(self._starts, step) - 1
        first = (step - self._starts[number]) * self.micro_steps
        return self.epoch(number)[first : first + self.micro_steps]

    def epoch(self, number: int) -> list[np.ndarray]:
        """The batches of one pass over the training pairs, in an order drawn with the key (seed, epoch)."""
        if number != self._latest[0]:
            rng = keyed_rng(self.seed, "epoch", number)
            batches = batches_of([*map(self.widths, self.train)], self.batch_tokens, rng.permutation(len(self.train)))
            self._latest = number, [batches[i] for i in rng.permutation(len(batches))]
        return self._latest[1]

    def target_tokens(self, step: int) -> int:
        """The number of target tokens of an update, each target's end included."""
        return sum(len(self.train[i][1]) - 1 for part in self.update(step) for i in part)

    def micro_batches(self, step: int, rank: int = 0, size: int = 1) -> Iterator[tuple[Batch, int]]:
        """The batches of one update, each with its number of target tokens, which may differ.

        The pairs of a batch are sorted by length; with several processes, each has every n-th pair.
        """
        for part in self.update(step):
            if pairs := [self.train[i] for i in part[rank::size]]:
                yield self.batch(pairs), sum(len(target) - 1 for _, target in pairs)

    def validation_batches(self) -> Iterator[tuple[Batch, int]]:
        """All held-out pairs, in batches, each with its number of target tokens; always the same."""
        for part in batches_of([*map(self.widths, self.held_out)], self.batch_tokens, np.arange(len(self.held_out))):
            pairs = [self.held_out[i] for i in part]
            yield self.batch(pairs), sum(len(target) - 1 for _, target in pairs)

    def padding(self) -> float:
        """The share of padding in an epoch's batches."""
        widths = np.array([self.widths(pair) for pair in self.train])
        return 1 - widths.sum() / sum(area(widths[part]) for part in self.epoch(0))


def area(widths: np.ndarray) -> int:
    """The tokens of a batch of pairs with these widths (n, rectangles), padding included."""
    return len(widths) * int(widths.max(0).sum())


def batches_of(widths: Sequence[tuple[int, ...]], batch_tokens: int, order: np.ndarray) -> list[np.ndarray]:
    """Cut pairs, sorted by length, into batches of at most `batch_tokens` tokens; a longer pair is its own batch.

    Args:
        widths: the widths of each pair, in each rectangle.
        order: (n,), the order of pairs of equal length.
    Returns: the indices of the pairs of each batch; every pair is in exactly one batch.
    """
    if not len(order):
        return []
    by_length = order[np.lexsort(np.array(widths)[order].T)]  # by target, then by source; stable
    batches, start, longest = [], 0, widths[by_length[0]]
    for place, number in enumerate(by_length):
        grown = tuple(map(max, longest, widths[number]))
        if place > start and sum(grown) * (place + 1 - start) > batch_tokens:
            batches.append(by_length[start:place])
            start, grown = place, widths[number]
        longest = grown
    return [*batches, by_length[start:]]


def encode_pairs(tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]], begin: str, end: str) -> list[Pair]:
    """Texts as token ids, the target between the special tokens that begin and end it."""
    first, last = tokenizer.specials[begin], tokenizer.specials[end]
    return [(tokenizer.encode(source), [first, *tokenizer.encode(target), last]) for source, target in pairs]
