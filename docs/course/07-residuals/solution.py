"""Solutions of chapter 7."""

from collections.abc import Callable

import numpy as np

from tinygrad_lite import Tensor


def layer_norm(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, eps: float = 1e-5) -> np.ndarray:
    """Layer norm over the last axis: x (..., C), weight and bias (C,) -> (..., C)."""
    centred = x - x.mean(-1, keepdims=True)
    variance = (centred**2).mean(-1, keepdims=True)
    return centred / np.sqrt(variance + eps) * weight + bias


def rms_norm_backward(dh: np.ndarray, h: np.ndarray, r: np.ndarray) -> np.ndarray:
    """The gradient of RMS norm, which divides by the root mean square: h = x r with r = 1 / √(mean(x²) + eps).

    Given dL/dh and what the forward pass kept, dh and h (rows, C) and r (rows, 1), return dL/dx (rows, C). In which
    direction can x be moved without changing h? Which terms of layer norm's formula remain?
    """
    return r * (dh - h * (dh * h).mean(-1, keepdims=True))


def block(
    x: Tensor,
    attention: Callable[[Tensor], Tensor],
    mlp: Callable[[Tensor], Tensor],
    attention_norm: Callable[[Tensor], Tensor],
    mlp_norm: Callable[[Tensor], Tensor],
) -> Tensor:
    """A pre-norm block: first attention, then the feed-forward part, each with its norm and residual connection."""
    x = x + attention(attention_norm(x))
    return x + mlp(mlp_norm(x))


# The variance at the end is 1 + 24 * 2 = 49, and a norm divides by the deviation.
DEEP = 7
