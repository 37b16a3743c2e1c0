"""Solutions of chapter 9."""

import numpy as np


def cross_entropy(logits: np.ndarray, target: int) -> tuple[float, np.ndarray]:
    """The loss of one prediction in nats, and its gradient with respect to the logits (V,), both of any size.

    Logits of 1000 or more must not overflow, and the loss of an improbable target must not be infinite.
    """
    shifted = logits - logits.max()
    total = np.exp(shifted).sum()
    gradient = np.exp(shifted) / total
    gradient[target] -= 1
    return np.log(total) - shifted[target], gradient


def adamw(
    w: float, g: float, m: float, v: float, step: int, lr: float, beta1: float, beta2: float, eps: float, decay: float
) -> tuple[float, float, float]:
    """The new w, m and v after update number `step` (1 is the first), with decoupled weight decay."""
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g**2
    w = w - lr * (m / (1 - beta1**step)) / ((v / (1 - beta2**step)) ** 0.5 + eps) - lr * decay * w
    return w, m, v


def clip(gradients: list[np.ndarray], limit: float) -> list[np.ndarray]:
    """The gradients of several parameters, scaled down together if their global norm exceeds the limit."""
    norm = sum((gradient**2).sum() for gradient in gradients) ** 0.5
    return [gradient * min(1.0, limit / norm) for gradient in gradients] if norm else gradients


# The shares are 3/4 and 1/4: 2 * 3/4 + 4 * 1/4.
MEAN_LOSS = 2.5
