"""Solutions of chapter 15."""

import numpy as np


def read_early(stream: np.ndarray, matrix: np.ndarray, eps: float = 1e-5) -> np.ndarray:
    """The probabilities (L + 1, T, V) that a stream (L + 1, T, C) stands for at every layer.

    RMS norm of each vector (chapter 14), times the transpose of the output matrix (V, C), softmax over V.
    """
    normalised = stream / np.sqrt(np.mean(stream**2, axis=-1, keepdims=True) + eps)
    logits = normalised @ matrix.T
    odds = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return odds / odds.sum(axis=-1, keepdims=True)


def added(stream: np.ndarray) -> np.ndarray:
    """The Euclidean length of what each of the L blocks adds at each position: (L + 1, T, C) -> (L, T)."""
    return np.linalg.norm(stream[1:] - stream[:-1], axis=-1)


def character_bits(tokens: list[str], probabilities: list[float]) -> list[float]:
    """The bits of every character of a text: those of a token, -log2 p, are shared equally by its characters."""
    pairs = zip(tokens, probabilities, strict=True)
    return [float(-np.log2(p)) / len(token) for token, p in pairs for _ in token]


def induction(tokens: list[int]) -> np.ndarray:
    """Where an induction head looks: (T, T), true at [t, s] if s <= t and the token before s is the one at t."""
    looks = np.zeros((len(tokens), len(tokens)), bool)
    for t in range(len(tokens)):
        for s in range(1, t + 1):
            looks[t, s] = tokens[s - 1] == tokens[t]
    return looks
