"""Exercises of chapter 15: every ... is a blank to fill in."""

from collections.abc import Callable

import numpy as np


def read_early(stream: np.ndarray, matrix: np.ndarray, eps: float = 1e-5) -> np.ndarray:
    """The probabilities (L + 1, T, V) that a stream (L + 1, T, C) stands for at every layer.

    RMS norm of each vector (chapter 14), times the transpose of the output matrix (V, C), softmax over V.
    """
    return ...


def added(stream: np.ndarray) -> np.ndarray:
    """The Euclidean length of what each of the L blocks adds at each position: (L + 1, T, C) -> (L, T)."""
    return ...


def character_bits(tokens: list[str], probabilities: list[float]) -> list[float]:
    """The bits of every character of a text: those of a token, -log2 p, are shared equally by its characters."""
    return ...


def induction(tokens: list[int]) -> np.ndarray:
    """Where an induction head looks: (T, T), true at [t, s] if s <= t and the token before s is the one at t."""
    return ...


def induction_head(tokens: list[int], vocab_size: int, sharpness: float = 50.0) -> np.ndarray:
    """What a hand-made induction head expects after each token: the weight of every token, (T, V).

    Layer 1 copies to each position the token before it, as a one-hot vector (V,), and to position 0 a vector of 0. In
    layer 2 the query of t is the one-hot vector of its token, the key of s is what layer 1 has copied there, and the
    value of s is the one-hot vector of its token. Scores are sharpness query · key; the softmax is causal.
    """
    return ...


def patched(blocks: list[Callable[[np.ndarray], np.ndarray]], a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The final stream at the last position in a run on b, if one vector comes from a run on a: (L + 1, T, C).

    a and b, (T, C) each, are what the first of L blocks reads; a block is a function (T, C) -> (T, C). At [l, t] the
    vector at position t after l blocks (l = 0: before all) is a's; all others there are b's, and the run continues.
    """
    return ...


def dimensions(weight: np.ndarray) -> np.ndarray:
    """The share of a dimension that each feature has, D_i = |w_i|² / sum_j (ŵ_i · w_j)²: (m, n) -> (n,).

    w_i is column i, and ŵ_i = w_i / |w_i|. A feature whose column is 0 has none.
    """
    return ...
