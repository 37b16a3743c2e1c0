"""Rows in parts for training, validation and test: what belongs together stays in one part, so nothing leaks."""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from tinygrad_lite.errors import counted


@dataclass(frozen=True)
class InParts:
    """Items with labels in three parts, and their source.

    Attributes:
        labels: the names of the labels, in the order of their numbers.
    """

    name: str
    train: Any
    validation: Any
    test: Any
    labels: tuple[str, ...]
    source: str
    licence: str

    def announce(self, noun: str, sizes: Sequence[int], say: Callable[[str], None]) -> None:
        """Print the sizes of the parts, the source and the licence."""
        parts = "{:,} for training, {:,} for validation, {:,} to test".format(*sizes)
        say(f"{self.name}: {noun} with {counted(len(self.labels), 'label')}, {parts}, from {self.source}")
        say(f"licence: {self.licence}")


def stratified(
    rows: Sequence[tuple[Hashable, bytes]], sizes: Sequence[int], groups: Sequence[Sequence[int]] = ()
) -> list[list[int]]:
    """The row numbers of each part.

    Rows are shuffled by the SHA-256 of their contents, which is the same everywhere and with every version of NumPy.
    The n shuffled rows of a label are placed at (i + 1/2) / n, and the parts are cut in this order: so every part has
    the share of each label to within one row. A group follows the first of its rows, so that sizes and shares are then
    approximate; no part is empty if there are as many groups as parts.

    Args:
        rows: the label and the contents of each.
        sizes: of the parts.
        groups: rows that stay in one part; none: each row for itself.

    >>> stratified([("a", b"1"), ("a", b"2"), ("b", b"3"), ("b", b"4"), ("b", b"5"), ("b", b"6")], (3, 3))
    [[3, 2, 0], [1, 5, 4]]
    """
    shuffled = sorted(range(len(rows)), key=lambda row: hashlib.sha256(rows[row][1]).digest())
    by_label = defaultdict(list)
    for row in shuffled:
        by_label[rows[row][0]].append(row)
    place = {row: (i + 0.5) / len(own) for own in by_label.values() for i, row in enumerate(own)}
    ranked = sorted(shuffled, key=place.__getitem__)[: sum(sizes)]
    rank = {row: number for number, row in enumerate(ranked)}
    groups = sorted(groups, key=lambda rows: min(map(rank.__getitem__, rows))) or [[row] for row in ranked]
    parts, number = [[] for _ in sizes], 0
    for left, rows in zip(range(len(groups), 0, -1), groups, strict=True):
        while number + 1 < len(sizes) and (len(parts[number]) >= sizes[number] or left < len(sizes) - number):
            number += 1
        parts[number] += rows
    return [[row for row in shuffled if row in part] for part in map(set, parts)]
