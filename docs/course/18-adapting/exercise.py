"""Exercises of chapter 18: every ... is a blank to fill in."""

import numpy as np


def gradients(x: np.ndarray, a: np.ndarray, b: np.ndarray, s: float, dy: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The derivatives of y = s (x A^T) B^T: dA (r, n) and dB (m, r) from x (B, n), A (r, n), B (m, r), dy (B, m)."""
    return ...


def fold(w: np.ndarray, adapters: list[tuple[np.ndarray, np.ndarray, float]]) -> np.ndarray:
    """The matrix (m, n) that computes what W (m, n) and all adapters, each (A, B, alpha), compute together.

    An adapter of rank r adds alpha / r times its product; the ranks may differ. W itself must not change.
    """
    return ...


def closest(update: np.ndarray, rank: int) -> tuple[np.ndarray, float]:
    """The matrix of this rank that is closest to an update, and the share of the update's sum of squares that it keeps.

    numpy.linalg.svd gives the singular values and vectors, the largest first.
    """
    return ...


def absmax(w: np.ndarray, block: int) -> tuple[np.ndarray, np.ndarray]:
    """Quantize numbers (N,), N a multiple of `block`, to 8 bits: codes (N / block, block) of int8, scales (N / block,).

    Code times scale must be within half a scale of the number. A block of zeros has the scale 0 and codes of 0.
    """
    return ...
