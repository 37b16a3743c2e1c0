"""Exercises of chapter 21: every ... is a blank to fill in."""

import numpy as np


def window_mask(steps: int, window: int, sinks: int) -> np.ndarray:
    """True where query t sees key s, (T, T): the `window` latest keys, including its own, and the first `sinks`."""
    return ...


def convolve(x: np.ndarray, h: np.ndarray) -> np.ndarray:
    """y_t = sum over s <= t of h_(t - s) x_s, for x and h (T,), by Fourier transforms."""
    return ...


def remember(q: np.ndarray, k: np.ndarray, v: np.ndarray, a: np.ndarray) -> np.ndarray:
    """o_t = q_t S_t with S_t = a_t S_(t-1) + k_t v_t^T, one step at a time, for q, k and v (T, D) and a (T,).

    S_0 is 0.
    """
    return ...


def next_chunk(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, a: np.ndarray, state: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The same from a given state (D, D), without a loop over the steps: the results (T, D), and the last state (D, D).

    With A_t = a_1 ... a_t: what was stored at s has decayed to A_t / A_s at t, and the state to A_t.
    """
    return ...
