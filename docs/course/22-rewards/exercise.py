"""Exercises of chapter 22: every ... is a blank to fill in."""

import numpy as np


def score_gradient(p: np.ndarray, drawn: int, weight: float) -> np.ndarray:
    """d(weight * log p[drawn]) / dz, for the scores z of the softmax p (V,): where this answer pushes them."""
    return ...


def group_weights(points: np.ndarray) -> np.ndarray:
    """The weights of GRPO for the answers of a group (G,): how many standard deviations each is above the mean.

    If all have the same points, all weights are 0.
    """
    return ...


def preference_weight(better: float, worse: float, beta: float) -> float:
    """The weight of the better answer in DPO, beta s(-m), with m = beta (better - worse).

    Args:
        better, worse: log p(y) / q(y) of the two answers.
    """
    return ...
