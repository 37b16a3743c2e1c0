"""Exercises of chapter 5: every ... is a blank to fill in."""

# The tokens of "lowness</w>" with the ten merges of the chapter, which were learned from low, lower, newest and widest:
# a list of strings such as ["wi", "d", "est</w>"]. Use pencil and paper.
LOWNESS = ...


def next_merge(spelled: dict[tuple, int]) -> tuple[str, str]:
    """The pair to merge next: the most frequent; among equals, the one with the shortest token; among these, the first.

    Args:
        spelled: words as tokens, each with its count, in the order of the text: {("l", "o", "w", "</w>"): 5, ...}.
    """
    ...


def encode(word: str, merges: list[tuple[str, str]]) -> list[str]:
    """The tokens of a word: its characters, merged by rank.

    Args:
        merges: pairs of tokens in the order in which they were learned, such as [("e", "s"), ("es", "t")].
    """
    ...


def decode(ids: list[int], pieces: list[bytes]) -> str:
    """The text of these ids; U+FFFD for bytes that are not UTF-8.

    Args:
        pieces: the bytes of each token, by id.
    """
    ...
