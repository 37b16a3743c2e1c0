"""Checks of chapter 22."""

import functools

import numpy as np
from compare import same

from extra.rewards.rewards import weights
from tinygrad_lite import Tensor

_same = functools.partial(same, atol=1e-5)


def score_gradient(exercise):
    """log p_a = z_a - logsumexp(z), so d log p_a / dz_v is 1 for the drawn answer, minus p_v for all."""
    rng = np.random.default_rng(0)
    for drawn, weight in ((0, 1.0), (2, -0.5), (3, 0.0)):
        scores = Tensor(rng.standard_normal(4), requires_grad=True)
        (scores.log_softmax()[drawn] * weight).backward()
        p = scores.softmax().numpy()
        _same(exercise.score_gradient(p, drawn, weight), scores.grad.numpy(), f"answer {drawn}, weight {weight}")


def group_weights(exercise):
    """Subtract the mean, then divide by the standard deviation, unless that is 0."""
    for points in ([1, 0, 0, 1, 0, 0, 0, 0], [0.5, 2, -1], [1, 1, 1], [0, 0]):
        points = np.array(points, float)
        right = weights("grpo", points[None], points[None], 0.1)[0]
        _same(exercise.group_weights(points), right, f"points {points}")


def preference_weight(exercise):
    """s(-m) = 1 / (1 + e^m): one half while the model is still the reference, and less the surer it is."""
    for better, worse, beta in ((0, 0, 0.1), (2, -1, 0.5), (-3, 1, 2.0)):
        right = weights("dpo", np.array([[1.0, 0.0]]), np.array([[better, worse]]), beta)[0, 0]
        _same(exercise.preference_weight(better, worse, beta), right, f"{better} and {worse}, beta {beta}")
