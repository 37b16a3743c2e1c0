"""Exercises of chapter 14: every ... is a blank to fill in."""

import numpy as np


def rms_norm(x: np.ndarray, eps: float = 1e-5) -> np.ndarray:
    """Each vector x (..., C) divided by its root mean square, sqrt(mean(x^2) + eps)."""
    return ...


def swiglu(x: np.ndarray, w_gate: np.ndarray, w_up: np.ndarray, w_down: np.ndarray) -> np.ndarray:
    """The feed-forward part with a gate: x (..., C), w_gate and w_up (F, C), w_down (C, F) -> (..., C)."""
    return ...


def rotary(x: np.ndarray, position: int, frequencies: np.ndarray) -> np.ndarray:
    """x (D,) with point i, which is (x[i], x[i + D/2]), turned by the angle position * frequencies[i]."""
    return ...


def trapezoid(step: int, peak: float, steps: int, plateau: float = 0.4) -> float:
    """The rate of a step, counted from 0: peak at first, and from plateau * steps on a line that is 0 at `steps`."""
    return ...
