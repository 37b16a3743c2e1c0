"""Solutions of chapter 22."""

import numpy as np


def score_gradient(p: np.ndarray, drawn: int, weight: float) -> np.ndarray:
    """d(weight * log p[drawn]) / dz, for the scores z of the softmax p (V,): where this answer pushes them."""
    return weight * (np.eye(len(p))[drawn] - p)


def group_weights(points: np.ndarray) -> np.ndarray:
    """The weights of GRPO for the answers of a group (G,): how many standard deviations each is above the mean.

    If all have the same points, all weights are 0.
    """
    spread = points.std()
    return (points - points.mean()) / spread if spread else np.zeros(len(points))


def preference_weight(better: float, worse: float, beta: float) -> float:
    """The weight of the better answer in DPO, beta s(-m), with m = beta (better - worse).

    Args:
        better, worse: log p(y) / q(y) of the two answers.
    """
    return beta / (1 + np.exp(beta * (better - worse)))
