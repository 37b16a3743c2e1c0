"""How many floating-point operations the matrix products of a model take, from the sizes of its matrices."""

import math
from typing import Any

from tinygrad_lite.nn import Module


def linear_weights(model: Module) -> list[Any]:
    """The matrices of all linear maps of a model, including quantized ones (`quantize.py`) and those of states."""
    maps = [part for _, part in model.named_modules() if hasattr(part, "in_features") or hasattr(part, "hidden_size")]
    return [part.weight for part in maps if hasattr(part, "weight")]  # an adapter has none itself, but consists of maps


def linear_flops(model: Module) -> int:
    """Floating-point operations of all linear maps of a model, forward, for one token.

    A map of (C, F) takes C F multiplications and as many additions.
    """
    return sum(2 * weight.numel() for weight in linear_weights(model))


def attention_flops(config: Any) -> int:
    """Floating-point operations of attention in all blocks of a model, forward, for one token.

    The scores of T keys, and the sum of their values, take 2 H D T multiplications and as many additions per block;
    H D is C unless heads have a width of their own, and T is the window if there is one.

    Args:
        config: settings with n_layer, n_head, head_width, block_size and window.
    """
    return 4 * config.n_layer * config.n_head * config.head_width * min(config.block_size, config.window or math.inf)


def training_flops(model: Module, attention: int = 0) -> int:
    """Floating-point operations of the matrix products in which a model learns from one token.

    Backward costs twice as much as forward: once for the gradient of the input, once for that of the weights, which is
    not computed for a frozen matrix. (Below the lowest layer that learns, neither is computed; this is not subtracted.)
    Norms, softmax, activations and the optimizer are not counted.

    Args:
        attention: the operations of attention, forward.
    Reference: Chowdhery et al. 2022 (arXiv:2204.02311), appendix B.
    """
    frozen = [weight.numel() for weight in linear_weights(model) if not weight.requires_grad]
    return 3 * (linear_flops(model) + attention) - 2 * sum(frozen)
