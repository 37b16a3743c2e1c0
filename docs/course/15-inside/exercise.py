"""Exercises of chapter 15: every ... is a blank to fill in."""

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
