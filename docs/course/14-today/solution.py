"""Solutions of chapter 14."""

import numpy as np


def rms_norm(x: np.ndarray, eps: float = 1e-5) -> np.ndarray:
    """Each vector x (..., C) divided by its root mean square, sqrt(mean(x^2) + eps)."""
    return x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + eps)


def swiglu(x: np.ndarray, w_gate: np.ndarray, w_up: np.ndarray, w_down: np.ndarray) -> np.ndarray:
    """The feed-forward part with a gate: x (..., C), w_gate and w_up (F, C), w_down (C, F) -> (..., C)."""
    gate = x @ w_gate.T
    return (gate / (1 + np.exp(-gate)) * (x @ w_up.T)) @ w_down.T


def rotary(x: np.ndarray, position: int, frequencies: np.ndarray) -> np.ndarray:
    """x (D,) with point i, which is (x[i], x[i + D/2]), turned by the angle position * frequencies[i]."""
    first, second = np.split(x, 2)
    cos, sin = np.cos(position * frequencies), np.sin(position * frequencies)
    return np.concatenate([first * cos - second * sin, first * sin + second * cos])


def trapezoid(step: int, peak: float, steps: int, plateau: float = 0.4) -> float:
    """The rate of a step, counted from 0: peak at first, and from plateau * steps on a line that is 0 at `steps`."""
    begin = plateau * steps
    return peak * min(1.0, (steps - step) / (steps - begin))
