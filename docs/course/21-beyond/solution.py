"""Solutions of chapter 21."""

import numpy as np


def window_mask(steps: int, window: int, sinks: int) -> np.ndarray:
    """True where query t sees key s, (T, T): the `window` latest keys, including its own, and the first `sinks`."""
    behind = np.subtract.outer(np.arange(steps), np.arange(steps))
    return (behind >= 0) & ((behind < window) | (np.arange(steps) < sinks))


def convolve(x: np.ndarray, h: np.ndarray) -> np.ndarray:
    """y_t = sum over s <= t of h_(t - s) x_s, for x and h (T,), by Fourier transforms."""
    size = 2 * len(x)
    return np.fft.irfft(np.fft.rfft(x, size) * np.fft.rfft(h, size), size)[: len(x)]


def remember(q: np.ndarray, k: np.ndarray, v: np.ndarray, a: np.ndarray) -> np.ndarray:
    """o_t = q_t S_t with S_t = a_t S_(t-1) + k_t v_t^T, one step at a time, for q, k and v (T, D) and a (T,).

    S_0 is 0.
    """
    state, found = np.zeros((q.shape[1], v.shape[1])), []
    for q_t, k_t, v_t, a_t in zip(q, k, v, a, strict=True):
        state = a_t * state + np.outer(k_t, v_t)
        found.append(q_t @ state)
    return np.array(found)


def next_chunk(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, a: np.ndarray, state: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The same from a given state (D, D), without a loop over the steps: the results (T, D), and the last state (D, D).

    With A_t = a_1 ... a_t: what was stored at s has decayed to A_t / A_s at t, and the state to A_t.
    """
    left = np.cumprod(a)
    decays = np.tril(left[:, None] / left)
    found = (q @ k.T * decays) @ v + left[:, None] * (q @ state)
    return found, left[-1] * state + (k * (left[-1] / left)[:, None]).T @ v
