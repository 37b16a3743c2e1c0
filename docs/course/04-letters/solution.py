"""Solutions of chapter 4."""

import math

import numpy as np

# The loss is (ln 2 + ln 8) / 2 = (ln 2 + 3 ln 2) / 2 = 2 ln 2, and e^(2 ln 2) = 4: the geometric mean of 2 and 8.
PERPLEXITY = 4


def interpolated(counts: np.ndarray, lower: np.ndarray, weight: float) -> np.ndarray:
    """P(w | h) = weight c(hw) / c(h·) + (1 - weight) P'(w), and P'(w) alone where c(h·) = 0.

    Args:
        counts: c(hw) in row h and column w, (V, V).
        lower: P'(w), the probabilities of a model without context, (V,); their sum is 1.
    Returns: (V, V); every row sums to 1.
    """
    totals = counts.sum(1, keepdims=True)
    mixed = weight * counts / np.maximum(totals, 1) + (1 - weight) * lower
    return np.where(totals > 0, mixed, lower)


def bits_per_character(nats_per_token: float, text: str, tokens: list[int]) -> float:
    """The loss in bits per character of a model that has predicted all `tokens`, into which `text` was cut."""
    return nats_per_token / math.log(2) / (len(text) / len(tokens))


def gradient(logits: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """dL/dlogits (V, V) of the bigram network, where L is the mean loss over all pairs of the text.

    Args:
        logits: row h has those of the letters after h, (V, V).
        counts: c(hw), (V, V); their sum is the number of pairs.
    """
    q = np.exp(logits - logits.max(1, keepdims=True))
    q /= q.sum(1, keepdims=True)
    return (counts.sum(1, keepdims=True) * q - counts) / counts.sum()
