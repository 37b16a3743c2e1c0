"""Exercises of chapter 4: every ... is a blank to fill in."""

import numpy as np

# At half of the places in a text, a model gives the right letter the probability 1/2; at the other half, 1/8.
# What is its perplexity on this text? Use pencil and paper.
PERPLEXITY = ...


def interpolated(counts: np.ndarray, lower: np.ndarray, weight: float) -> np.ndarray:
    """P(w | h) = weight c(hw) / c(h·) + (1 - weight) P'(w), and P'(w) alone where c(h·) = 0.

    Args:
        counts: c(hw) in row h and column w, (V, V).
        lower: P'(w), the probabilities of a model without context, (V,); their sum is 1.
    Returns: (V, V); every row sums to 1.
    """
    ...


def bits_per_character(nats_per_token: float, text: str, tokens: list[int]) -> float:
    """The loss in bits per character of a model that has predicted all `tokens`, into which `text` was cut."""
    ...


def gradient(logits: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """dL/dlogits (V, V) of the bigram network, where L is the mean loss over all pairs of the text.

    Args:
        logits: row h has those of the letters after h, (V, V).
        counts: c(hw), (V, V); their sum is the number of pairs.
    """
    ...
