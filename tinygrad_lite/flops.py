"""How many floating-point operations the matrix products of a model take, from the sizes of its matrices."""

from __future__ import annotations

from typing import Any

from tinygrad_lite.nn import Module


def linear_weights(model: Module) -> list[Any]:
    """The matrices of all linear maps of a model, those of quantized ones (`quantize.py`) too."""
    maps = [part for _, part in model.named_modules() if hasattr(part, "in_features")]
    return [part.weight for part in maps if hasattr(part, "weight")]  # an adapter has none, but consists of maps


def linear_flops(model: Module) -> int:
    """Floating-point operations of all linear maps of a model, forward and for one token.

    A map of (C, F) takes C F multiplications and as many additions.
    """
    return sum(2 * weight.numel() for weight in linear_weights(model))


def training_flops(model: Module, attention: int = 0) -> int:
    """Floating-point operations of the matrix products with which a model learns from one token.

    Backward costs twice as much as forward: once for the gradient of the input, once for that of the weights, which is
    not computed for a frozen matrix. (Below the lowest layer that learns, neither is; that is not taken off.)

    Args:
        attention: the operations of attention, forward.
    """
    frozen = [weight.numel() for weight in linear_weights(model) if not weight.requires_grad]
    return 3 * (linear_flops(model) + attention) - 2 * sum(frozen)
