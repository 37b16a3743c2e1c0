"""Solutions of chapter 5."""

from collections import Counter
from itertools import pairwise

# l o w n e s s </w>: e s is the first merge, so n e no longer exists; then l o and lo w. No merge has es s or s </w>.
LOWNESS = ["low", "n", "es", "s", "</w>"]


def next_merge(spelled: dict[tuple, int]) -> tuple[str, str]:
    """The pair to merge next: the most frequent; among equals, the one with the shortest token; among these, the first.

    Args:
        spelled: words as tokens, each with its count, in the order of the text: {("l", "o", "w", "</w>"): 5, ...}.
    """
    counts = Counter()
    for tokens, count in spelled.items():
        for pair in pairwise(tokens):
            counts[pair] += count
    # min returns the first of equals, and a Counter lists its keys in the order in which they were first seen.
    return min(counts, key=lambda pair: (-counts[pair], len(pair[0]) + len(pair[1])))


def encode(word: str, merges: list[tuple[str, str]]) -> list[str]:
    """The tokens of a word: its characters, merged by rank.

    Args:
        merges: pairs of tokens in the order in which they were learned, such as [("e", "s"), ("es", "t")].
    """
    tokens = list(word)
    for left, right in merges:
        i = 0
        while i < len(tokens) - 1:
            if tokens[i] == left and tokens[i + 1] == right:
                tokens[i : i + 2] = [left + right]
            i += 1
    return tokens


def decode(ids: list[int], pieces: list[bytes]) -> str:
    """The text of these ids; U+FFFD for bytes that are not UTF-8.

    Args:
        pieces: the bytes of each token, by id.
    """
    return b"".join(pieces[token] for token in ids).decode("utf-8", errors="replace")
