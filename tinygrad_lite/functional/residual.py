"""The residual connection: what a part of a layer computes is added to the part's input.

    y = x + p          dx = dy    dp = dy

The gradient passes through unchanged, so it reaches every layer below. On a CPU that is all. On a GPU the sum is worth
a kernel of its own: x may be float32 and p bfloat16, and the norm that follows can add them while it reads them.

Reference: He et al. 2015, section 3.2 (arXiv:1512.03385).
"""

from tinygrad_lite.functional.registry import ReferenceAndFused
from tinygrad_lite.tensor import Tensor


def residual_composed(x: Tensor, part: Tensor) -> Tensor:
    """x + part, of the same shape.

    Args:
        x: the input of a part of a layer, float tensor.
        part: what the part computed from it; a narrower float type is converted to that of x.
    Returns: the shape and dtype of x.
    Raises: ValueError if the shapes differ.
    """
    check_residual(x, part)
    return x + part


def check_residual(x: Tensor, part: Tensor) -> None:
    """Raise ValueError if the shapes differ."""
    if x.shape != part.shape:
        raise ValueError(f"residual: x and part must have the same shape, not {x.shape} and {part.shape}")


residual = ReferenceAndFused(residual_composed, cuda="tinygrad_lite.cuda.residual")
