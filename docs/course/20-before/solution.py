"""Solutions of chapter 20."""

import numpy as np


def states(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The states h_1 .. h_T of an RNN, (T, H): h_t = tanh(x_t + W h_(t-1)), from inputs x (T, H) and W (H, H).

    h_0 is 0.
    """
    found, h = [], np.zeros(len(w))
    for x_t in x:
        h = np.tanh(x_t + w @ h)
        found.append(h)
    return np.array(found)


def back_through_time(x: np.ndarray, w: np.ndarray, dh: np.ndarray) -> np.ndarray:
    """dL/dW (H, H) of these states, from dh (T, H): dL/dh_t through the state as a result, not through later steps."""
    h, later, dw = states(x, w), np.zeros(len(w)), np.zeros_like(w)
    for t in reversed(range(len(x))):
        dz = (dh[t] + later) * (1 - h[t] ** 2)
        if t > 0:
            dw += np.outer(dz, h[t - 1])
        later = w.T @ dz
    return dw


def lstm_step(x: np.ndarray, w: np.ndarray, h: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The next state and cell of an LSTM, (H,) each, from x (4 H,), W (4 H, H), h and c (H,).

    The four parts of x and W belong to input gate, forget gate, candidate and output gate.
    """
    i, f, g, o = np.split(x + w @ h, 4)
    c = c / (1 + np.exp(-f)) + np.tanh(g) / (1 + np.exp(-i))
    return np.tanh(c) / (1 + np.exp(-o)), c


def look_back(h: np.ndarray, memory: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """The weights (S,) of a state h (C,) on a memory (S, C), scored by dot products, and their mean of it (C,).

    Only the first `length` positions are text; the others get no weight.
    """
    scores = memory[:length] @ h
    weights = np.zeros(len(memory))
    weights[:length] = np.exp(scores - scores.max())
    weights /= weights.sum()
    return weights, weights @ memory
