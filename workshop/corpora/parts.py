"""Labelled rows in parts for training, validation and test, each label having the same share in all of them."""

import hashlib
from collections import Counter
from collections.abc import Hashable, Sequence


def stratified(labels: Sequence[Hashable], contents: Sequence[bytes], sizes: Sequence[int]) -> list[list[int]]:
    """The row numbers of each part.

    Rows are shuffled by the SHA-256 of their contents, which is the same everywhere and with every version of NumPy.
    The n shuffled rows of a label are placed at (i + 1/2) / n, and the parts are cut in this order: so every part has
    the share of each label to within one row.

    Args:
        labels: of each row.
        contents: of each row.
        sizes: of the parts.

    >>> stratified("aabbbb", [b"1", b"2", b"3", b"4", b"5", b"6"], (3, 3))
    [[3, 2, 0], [1, 5, 4]]
    """
    shuffled = sorted(range(len(labels)), key=lambda row: hashlib.sha256(contents[row]).digest())
    totals, seen, place = Counter(labels), Counter(), {}
    for row in shuffled:
        place[row] = (seen[labels[row]] + 0.5) / totals[labels[row]]
        seen[labels[row]] += 1
    ranked = sorted(shuffled, key=place.__getitem__)
    rank = {row: number for number, row in enumerate(shuffled)}
    parts, start = [], 0
    for size in sizes:
        parts.append(sorted(ranked[start : start + size], key=rank.__getitem__))
        start += size
    return parts
