"""Exercises of chapter 19: every ... is a blank to fill in."""

import numpy as np


def mean_log_probs(log_probs: np.ndarray) -> np.ndarray:
    """The logarithms (N,) of the mean of K models' probabilities, from their logarithms (K, N).

    Some may be as low as -10,000, where e^x is 0.
    """
    return ...


def distilled(z: np.ndarray, t: int, q: np.ndarray, a: float) -> tuple[float, np.ndarray]:
    """The loss of logits z (V,) for the target (1 - a) [v = t] + a q_v, in nats, and its gradient dl/dz (V,)."""
    return ...


def dynamic_bits(text: np.ndarray, size: int, rate: float) -> float:
    """Bits per letter of a text (N,) of letters 0 ... size - 1, by a model that learns each letter after predicting it.

    The model is one logit for each letter, all 0 at first; it takes a step of gradient descent on -ln p(letter).
    """
    return ...


def best_for_other_half(p: np.ndarray) -> tuple[list[int], np.ndarray]:
    """Of several settings, the best for the other half: p (S, N) has the probabilities of N tokens with each setting.

    Returns: the setting for the first N // 2 tokens, which is the best for the others, and that for the others, which
    is the best for the first; and the probabilities (N,) with them.
    """
    return ...
