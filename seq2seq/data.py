"""The translation model's data: sentence pairs become batches with about the same number of tokens.

A batch is two rectangles, one of source and one of target tokens. Short sentences are padded, and computing padding is
wasted. So sentences of similar length go together: all pairs are sorted by length (pairs of equal length in a new
random order in each epoch), cut into batches, and the batches are shuffled.

    order     I go .  |  He sleeps .  |  The man reads a book .  |  A dog runs over the wet grass .  | ...
    batches  [I go .  ;  He sleeps .]   [The man reads a book .  ;  A dog runs over the wet grass .]   ...

A batch holds at most `batch_tokens` tokens of source and target together, padding included: many short sentences, or
few long ones. So every update costs about the same; within it, all target tokens have the same weight.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from seq2seq.model import Batch
from tinygrad_lite.decoding.state import pad_rows
from tinygrad_lite.device import keyed_rng
from tinygrad_lite.tensor import Tensor
from tinygrad_lite.tokenizers.base import Tokenizer

BOS, EOS, PAD = "<bos>", "<eos>", "<pad>"
SPECIALS = (PAD, BOS, EOS)

Pair = tuple[list[int], list[int]]  # source ids; target ids from <bos> to <eos>


@dataclass
class PairData:
    """Tokenized sentence pairs, split into a training part and a held-out part.

    Attributes:
        train, held_out: pairs of token ids, the target from <bos> to <eos>.
        batch_tokens: maximum number of tokens in a batch: source, target and padding.
        micro_steps: batches whose gradients make one update.
    """

    tokenizer: Tokenizer
    train: list[Pair]
    held_out: list[Pair]
    batch_tokens: int
    micro_steps: int
    seed: int
    device: str = "cpu"
    _epochs: list[list[np.ndarray]] = field(default_factory=list, repr=False)  # batches; only the latest is kept
    _ends: list[int] = field(default_factory=list, repr=False)  # updates up to the end of each epoch

    @property
    def pad(self) -> int:
        """The id of <pad>."""
        return self.tokenizer.specials[PAD]

    @property
    def epoch_steps(self) -> int:
        """The number of updates in the first epoch; later epochs may have a few more or less."""
        self.update(0)
        return self._ends[0]

    def update(self, step: int) -> list[np.ndarray]:
        """The batches of one update, as indices of pairs. An epoch's last update may have fewer micro-steps."""
        while not self._ends or step >= self._ends[-1]:
            batches = self.epoch(len(self._ends))
            self._epochs = [batches]
            updates = -(-len(batches) // self.micro_steps)
            self._ends.append((self._ends[-1] if self._ends else 0) + updates)
        number = next(i for i, end in enumerate(self._ends) if step < end)
        batches = self._epochs[0] if number == len(self._ends) - 1 else self.epoch(number)
        first = (step - (self._ends[number - 1] if number else 0)) * self.micro_steps
        return batches[first : first + self.micro_steps]

    def epoch(self, number: int) -> list[np.ndarray]:
        """The batches of one pass over the training pairs, in an order drawn with the key (seed, epoch)."""
        rng = keyed_rng(self.seed, "epoch", number)
        batches = batches_of(self.train, self.batch_tokens, rng.permutation(len(self.train)))
        return [batches[i] for i in rng.permutation(len(batches))]

    def target_tokens(self, step: int) -> int:
        """The number of target tokens of an update, each target's <eos> included."""
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
        for part in batches_of(self.held_out, self.batch_tokens, np.arange(len(self.held_out))):
            pairs = [self.held_out[i] for i in part]
            yield self.batch(pairs), sum(len(target) - 1 for _, target in pairs)

    def batch(self, pairs: Sequence[Pair]) -> Batch:
        """Two padded rectangles: source (B, S) and target (B, T + 1)."""
        sources, targets = zip(*pairs, strict=True)
        arrays = (pad_rows(sources, self.pad), pad_rows(targets, self.pad))
        return tuple(Tensor(array, np.int64, self.device) for array in arrays)

    def padding(self) -> float:
        """The share of padding in an epoch's batches."""
        real = sum(len(source) + len(target) for source, target in self.train)
        return 1 - real / sum(area([self.train[i] for i in part]) for part in self.epoch(0))


def area(pairs: Sequence[Pair]) -> int:
    """The tokens of a batch of these pairs, padding included."""
    return len(pairs) * (max(len(source) for source, _ in pairs) + max(len(target) for _, target in pairs))


def batches_of(pairs: Sequence[Pair], batch_tokens: int, order: np.ndarray) -> list[np.ndarray]:
    """Cut pairs, sorted by length, into batches of at most `batch_tokens` tokens; a longer pair is a batch of its own.

    Args:
        order: (n,), the order of pairs of equal length.
    Returns: the indices of the pairs of each batch; every pair is in exactly one batch.
    """
    lengths = np.array([(len(source), len(target)) for source, target in pairs]).reshape(-1, 2)[order]
    by_length = order[np.lexsort((lengths[:, 0], lengths[:, 1]))]  # by target, then by source; stable
    batches, start, longest = [], 0, (0, 0)
    for place, number in enumerate(by_length):
        source, target = pairs[number]
        grown = (max(longest[0], len(source)), max(longest[1], len(target)))
        if place > start and sum(grown) * (place + 1 - start) > batch_tokens:
            batches.append(by_length[start:place])
            start, grown = place, (len(source), len(target))
        longest = grown
    return [*batches, by_length[start:]] if len(by_length) else []


def encode_pairs(tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]]) -> list[Pair]:
    """Sentences as token ids, the target between <bos> and <eos>."""
    bos, eos = tokenizer.specials[BOS], tokenizer.specials[EOS]
    return [(tokenizer.encode(source), [bos, *tokenizer.encode(target), eos]) for source, target in pairs]
