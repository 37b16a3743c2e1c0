"""A linear map followed by GELU: the first half of a Transformer's feed-forward layer.

    z = x W^T + b    y = gelu(z)    x: (..., C_in)    W: (C_out, C_in)    b: (C_out,)    y: (..., C_out)

Both parts have their own chapters, and by the chain rule

    dz = dy gelu'(z)    dx = dz W    dW = dz^T x    db = sum of the rows of dz

They are one operation here for the sake of GPUs, where adding the bias and computing GELU would each move an array of
all hidden units to memory and back. There z is not kept, only the product x W^T, to which the backward pass adds b
again.
"""

from tinygrad_lite.functional.gelu import gelu, gelu_composed
from tinygrad_lite.functional.linear import linear, linear_composed
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
    return gelu_composed(linear_composed(x, weight, bias), approximate)


# --- the fused version ----------------------------------------------------------------------------------------


def linear_gelu_fused(x: Tensor, weight: Tensor, bias: Tensor | None = None, approximate: str = "none") -> Tensor:
    """`linear_gelu_composed` in two nodes: on a CPU there is nothing to gain from one."""
    return gelu(linear(x, weight, bias), approximate)


linear_gelu = ReferenceAndFused(linear_gelu_composed, cpu=linear_gelu_fused, cuda="tinygrad_lite.cuda.gelu")
