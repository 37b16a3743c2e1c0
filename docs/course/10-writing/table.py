"""A language model of seven words: the probabilities of the next word depend on the last word alone."""

from __future__ import annotations

import numpy as np

WORDS = [".", "the", "a", "cat", "dog", "sees", "sleeps"]
NEXT = np.array(
    [  # .  the    a   cat   dog  sees  sleeps
        [0.00, 0.60, 0.40, 0.00, 0.00, 0.00, 0.00],  # after a full stop
        [0.00, 0.00, 0.00, 0.55, 0.45, 0.00, 0.00],  # after "the"
        [0.00, 0.00, 0.00, 0.10, 0.90, 0.00, 0.00],  # after "a"
        [0.15, 0.00, 0.00, 0.00, 0.00, 0.45, 0.40],  # after "cat"
        [0.42, 0.00, 0.00, 0.00, 0.00, 0.20, 0.38],  # after "dog"
        [0.00, 0.60, 0.40, 0.00, 0.00, 0.00, 0.00],  # after "sees"
        [1.00, 0.00, 0.00, 0.00, 0.00, 0.00, 0.00],  # after "sleeps"
    ]
)


class NoMemory:
    """The state of a model that remembers nothing but the last word."""

    def select(self, rows: np.ndarray) -> NoMemory:
        return self


def step(tokens: np.ndarray, state: NoMemory) -> tuple[np.ndarray, NoMemory]:
    """The log-probabilities (B, V) of what follows the tokens (B,), and the state."""
    with np.errstate(divide="ignore"):  # the logarithm of 0 is -inf, as it should be
        return np.log(NEXT[tokens]), state


def text(tokens: list[int]) -> str:
    """The words of some tokens."""
    return " ".join(WORDS[token] for token in tokens)
