"""Solutions of chapter 18."""

import numpy as np


def gradients(x: np.ndarray, a: np.ndarray, b: np.ndarray, s: float, dy: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The derivatives of y = s (x A^T) B^T: dA (r, n) and dB (m, r) from x (B, n), A (r, n), B (m, r), dy (B, m)."""
    z = x @ a.T
    dz = s * dy @ b
    return dz.T @ x, s * dy.T @ z


def fold(w: np.ndarray, adapters: list[tuple[np.ndarray, np.ndarray, float]]) -> np.ndarray:
    """The matrix (m, n) that computes what W (m, n) and all adapters, each (A, B, alpha), compute together.

    An adapter of rank r adds alpha / r times its product; the ranks may differ. W itself must not change.
    """
    return w + sum((alpha / len(a)) * b @ a for a, b, alpha in adapters)


def closest(update: np.ndarray, rank: int) -> tuple[np.ndarray, float]:
    """The matrix of this rank that is closest to an update, and the share of the update's sum of squares that it keeps.

    numpy.linalg.svd gives the singular values and vectors, the largest first.
    """
    u, s, v = np.linalg.svd(update, full_matrices=False)
    return (u[:, :rank] * s[:rank]) @ v[:rank], float((s[:rank] ** 2).sum() / (s**2).sum())


def absmax(w: np.ndarray, block: int) -> tuple[np.ndarray, np.ndarray]:
    """Quantize numbers (N,), N a multiple of `block`, to 8 bits: codes (N / block, block) of int8, scales (N / block,).

    Code times scale must be within half a scale of the number. A block of zeros has the scale 0 and codes of 0.
    """
    blocks = w.reshape(-1, block)
    scales = np.abs(blocks).max(axis=1) / 127
    codes = np.rint(blocks / np.where(scales == 0, 1, scales)[:, None])
    return codes.astype(np.int8), scales
