"""Exercises of chapter 7: every ... is a blank to fill in."""

from collections.abc import Callable

import numpy as np

from tinygrad_lite import Tensor


def layer_norm(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, eps: float = 1e-5) -> np.ndarray:
    """Layer norm over the last axis: x (..., C), weight and bias (C,) -> (..., C)."""
    return ...


def rms_norm_backward(dh: np.ndarray, h: np.ndarray, r: np.ndarray) -> np.ndarray:
    """The gradient of RMS norm, which divides by the root mean square: h = x r with r = 1 / √(mean(x²) + eps).

    Given dL/dh and what the forward pass kept, dh and h (rows, C) and r (rows, 1), return dL/dx (rows, C). In which
    direction can x be moved without changing h? Which terms of layer norm's formula remain?
    """
    return ...


def block(
    x: Tensor,
    attention: Callable[[Tensor], Tensor],
    mlp: Callable[[Tensor], Tensor],
    attention_norm: Callable[[Tensor], Tensor],
    mlp_norm: Callable[[Tensor], Tensor],
) -> Tensor:
    """A pre-norm block: first attention, then the feed-forward part, each with its norm and residual connection."""
    return ...


# A GPT with pre-norm has 12 blocks of two branches each. x has the variance 1 before the first block, and every branch
# adds independent numbers of variance 2. By what factor does the final norm divide?
DEEP = ...
