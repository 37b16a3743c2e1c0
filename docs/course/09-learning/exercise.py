"""Exercises of chapter 9: every ... is a blank to fill in."""

import numpy as np


def cross_entropy(logits: np.ndarray, target: int) -> tuple[float, np.ndarray]:
    """The loss of one prediction in nats, and its gradient with respect to the logits (V,), both of any size.

    Logits of 1000 or more must not overflow, and the loss of an improbable target must not be infinite.
    """
    ...


def adamw(
    w: float, g: float, m: float, v: float, step: int, lr: float, beta1: float, beta2: float, eps: float, decay: float
) -> tuple[float, float, float]:
    """The new w, m and v after update number `step` (1 is the first), with decoupled weight decay."""
    m = ...
    v = ...
    w = ...
    return w, m, v


def clip(gradients: list[np.ndarray], limit: float) -> list[np.ndarray]:
    """The gradients of several parameters, scaled down together if their global norm exceeds the limit."""
    ...


# An update consists of two micro-batches: 30 target tokens with a mean loss of 2, and 10 with a mean loss of 4.
# What is the mean loss per target token of the whole update?
MEAN_LOSS = ...
