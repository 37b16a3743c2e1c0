"""Training pairs and held-out pairs of texts, which share no text on either side: read from files, and divided.

Both models that learn from pairs use it: the encoder-decoder, and a GPT that answers (extra/pairs/pairs.py).
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from tinygrad_lite.errors import CorpusError, OptionError
from tinygrad_lite.random import keyed_rng
from training.cli.files import text_named
from training.corpora.pair_cleaning import Pair, aligned_pairs, tabbed_pairs


@dataclass
class PairCorpus:
    """Training pairs and held-out pairs.

    Attributes:
        left_out: the numbers of pairs that are not used, each with the reason.
    """

    name: str
    train: list[Pair]
    held_out: list[Pair]
    left_out: list[str] = field(default_factory=list)

    @property
    def sha256(self) -> str:
        """The hash of all pairs, as lines of text."""
        parts = (self.train, self.held_out)
        lines = "".join(f"{source}\t{target}\n" for part in parts for source, target in [*part, ("", "")])
        return hashlib.sha256(lines.encode("utf-8")).hexdigest()

    def reduced(self, count: int, seed: int) -> Self:
        """With only this many training pairs, those of a smaller number being among those of a larger one; 0: all.

        Raises: OptionError if there are fewer.
        """
        if count > len(self.train):
            raise OptionError(f"--train_pairs {count:,}: {self.name} has only {len(self.train):,} to learn from")
        order = keyed_rng(seed, "train pairs").permutation(len(self.train))
        return replace(self, train=[self.train[n] for n in order[:count]]) if count else self


def divide(
    name: str,
    pairs: Sequence[Pair],
    *,
    words: Sequence[Pair] = (),
    held_out: Sequence[Pair] = (),
    tests: Sequence[Pair] = (),
    count: int = 1000,
    swap: bool = False,
) -> PairCorpus:
    """Divide pairs into those to learn from and those that are held out.

    Args:
        words: additional pairs, from a dictionary or another corpus: trained on, never held out.
        held_out: the held-out pairs, if a corpus or the user supplies them; none: some of the pairs are held out.
        tests: pairs whose sentences are kept out of both parts; those given as held_out stay.
        count: how many, at most a tenth of all.
        swap: whether to exchange source and target.
    Raises: CorpusError if there are too few.
    """
    (pairs, empty), (held_out, empty_too) = without_empty(pairs), without_empty(held_out)
    (pairs, asked), (words, asked_too) = (without_sentences_of(tests, part) for part in (pairs, words))
    train = pairs
    if not held_out:
        train, held_out = split(pairs, min(count, len(pairs) // 10))
    train, seen = without_sentences_of(held_out, [*train, *words])
    if not train or not held_out:
        found = f"{len(train):,} to learn from and {len(held_out):,} held out"
        raise CorpusError(f"{name} has too few pairs: {found}; use more")
    if swap:
        train, held_out = ([(target, source) for source, target in part] for part in (train, held_out))
    reasons = {
        "with an empty side": empty + empty_too,
        "that share a sentence with those that test translations": asked + asked_too,
        "that share a sentence with a held-out pair": seen,
    }
    return PairCorpus(name, train, held_out, [f"{count:,} {reason}" for reason, count in reasons.items() if count])


def without_empty(pairs: Sequence[Pair]) -> tuple[list[Pair], int]:
    """The pairs without an empty side, and the number of the others."""
    full = [pair for pair in pairs if all(pair)]
    return full, len(pairs) - len(full)


def without_sentences_of(held_out: Sequence[Pair], pairs: Sequence[Pair]) -> tuple[list[Pair], int]:
    """The pairs that have no sentence, in either language, in common with held-out ones; the number of the others."""
    seen = [{key_of(pair[side]) for pair in held_out} for side in (0, 1)]
    unseen = [(one, other) for one, other in pairs if key_of(one) not in seen[0] and key_of(other) not in seen[1]]
    return unseen, len(pairs) - len(unseen)


def read_table(path: Path) -> list[Pair]:
    """The pairs of a file with source TAB target in each line; CorpusError if it cannot be read."""
    return tabbed_pairs(text_named(path), str(path))


def read_two(source: Path, target: Path) -> list[Pair]:
    """The pairs of two files, line by line; CorpusError if they cannot be read, or if one has more lines."""
    return aligned_pairs(text_named(source), text_named(target), str(source), str(target))


def split(pairs: Sequence[Pair], held_out: int) -> tuple[list[Pair], list[Pair]]:
    """Hold out about N pairs, so that none of their sentences, in either language, is trained on.

    Pairs that share a sentence stay together in groups (`grouped`). These are held out in the order of a hash of their
    sentences, so that the choice does not depend on the order of the pairs, and the first few held-out pairs are
    representative.
    """
    groups = grouped([((0, key_of(source)), (1, key_of(target))) for source, target in pairs])
    chosen: dict[int, None] = {}  # a set that keeps its order
    for _, group in sorted((hashlib.sha256(repr(name).encode()).digest(), group) for name, group in groups.items()):
        if len(chosen) < held_out and len(group) <= max(1, held_out // 10):  # no group may dominate
            chosen.update(dict.fromkeys(group))
    return [pair for i, pair in enumerate(pairs) if i not in chosen], [pairs[i] for i in chosen]


def key_of(sentence: str) -> str:
    """A key that is equal for equal sentences; case, spaces and final punctuation make no difference.

    >>> key_of("Guten Tag!") == key_of("guten  Tag")
    True
    """
    return " ".join(sentence.casefold().split()).rstrip(" .!?。！？")


def grouped(keys: Sequence[Sequence[Any]]) -> dict[Any, list[int]]:
    """The rows that belong together, those that share a key, directly or through others: by their smallest key.

    Each row joins its keys (union-find).

    >>> grouped([("a", "b"), ("c",), ("d", "b")])
    {'a': [0, 2], 'c': [1]}
    """
    parent: dict[Any, Any] = {}

    def root(key: Any) -> Any:
        parent.setdefault(key, key)
        while parent[key] != key:
            parent[key] = parent[parent[key]]  # halves the path
            key = parent[key]
        return key

    for first, *others in keys:
        for other in others:
            pair = root(first), root(other)
            parent[max(pair)] = min(pair)
    groups: dict[Any, list[int]] = {}
    for row, (first, *_) in enumerate(keys):
        groups.setdefault(root(first), []).append(row)
    return groups
