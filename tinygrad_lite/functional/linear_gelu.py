"""A linear map and GELU behind it: the first half of a Transformer's feed-forward layer.

    y = gelu(x W^T + b)    x: (..., C_in)    W: (C_out, C_in)    b: (C_out,)    y: (..., C_out)

Both parts have their own chapters. They stand together here for a GPU, where adding the bias and taking GELU each
would send an array of all hidden units to memory and back. There the sum z = x W^T + b is not kept at all: the product
x W^T is, and backward adds b to it a second time,

    dz = dy gelu'(z)    dx = dz W    dW = dz^T x    db = sum of the rows of dz

On the CPU it is `linear`, then `gelu`, which works through blocks that stay in the cache anyway.
"""

from tinygrad_lite.functional.gelu import gelu
from tinygrad_lite.functional.linear import linear
from tinygrad_lite.functional.registry import ReferenceAndFused
from tinygrad_lite.tensor import Tensor


def linear_gelu_composed(x: Tensor, weight: Tensor, bias: Tensor | None = None, approximate: str = "none") -> Tensor:
    """y = gelu(x W^T + b).

    Args:
        x: (..., C_in) float tensor.
        weight: (C_out, C_in).
        bias: (C_out,) or None.
        approximate: "none" or "tanh", the form of GELU.
    Returns: (..., C_out).
    Raises: ValueError if the shapes do not fit.
    """
    return gelu(linear(x, weight, bias), approximate)


linear_gelu = ReferenceAndFused(linear_gelu_composed, cuda="tinygrad_lite.cuda.gelu")
