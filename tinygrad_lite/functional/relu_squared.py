"""ReLU squared: an activation without any transcendental function, at the cost of two multiplications.

    y = max(x, 0)^2        dy/dx = 2 max(x, 0) = 2 sqrt(y)

Unlike ReLU's, its derivative is continuous: it is 0 at 0 from both sides. A search over programs that train language
models found it; it learns at least as well as GELU.

The fused version keeps only y, which the next linear map keeps anyway: the root of a rounded square is the number
itself, to the last bit. (Except where the square is below the smallest number, 1e-38 in float32: there the derivative,
below 1e-18, becomes 0.) It works through blocks that stay in the processor's cache, as GELU does.

Reference: So et al. 2021, section 3 (arXiv:2109.08668).
"""

import numpy as np

from tinygrad_lite.functional.gelu import BLOCK
from tinygrad_lite.functional.registry import ReferenceAndFused
from tinygrad_lite.tensor import Tensor, node


def relu_squared_composed(x: Tensor) -> Tensor:
    """y = max(x, 0)^2, element-wise. Has the shape and dtype of x."""
    return x.relu() ** 2


def relu_squared_fused(x: Tensor) -> Tensor:
    """`relu_squared_composed` in one node that keeps the result instead of the input."""
    if x.dtype not in (np.float32, np.float64):
        return relu_squared_composed(x)
    shape, flat = x.shape, x.data.reshape(-1)
    y = np.empty_like(flat)
    # NumPy compares two arrays three times as fast as with a number.
    zeros = np.zeros(min(BLOCK, flat.size), flat.dtype)
    for start in range(0, flat.size, BLOCK):
        part = slice(start, start + BLOCK)
        positive = np.maximum(flat[part], zeros[: flat[part].size], out=y[part])
        positive *= positive
    y = y.reshape(shape)

    def backward(dy):
        dx = np.sqrt(y)
        dx += dx
        dx *= dy
        return (dx,)

    return node(y, (x,), backward, "relu_squared", uses=())


relu_squared = ReferenceAndFused(relu_squared_composed, cpu=relu_squared_fused, cuda="tinygrad_lite.cuda.activations")
