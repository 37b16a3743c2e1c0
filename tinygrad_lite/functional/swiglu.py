"""SwiGLU: one linear map says what, another how much.

    y = silu(g) * u    silu(g) = g s(g)    s(g) = 1 / (1 + e^-g)        g, u: two linear maps of the same input

Each hidden unit u is multiplied by a gate silu(g), which is near 0 for g far below 0 and near g for g far above. A
feed-forward part with it has three matrices instead of two, W_g, W_u and W_d: (silu(x W_g) * x W_u) W_d; with 8/3 C
hidden units instead of 4 C it has as many parameters as one without a gate.

Gradients, with dy = dL/dy, and s'(g) = s (1 - s):

    du = dy * silu(g)
    dg = dy * u * silu'(g)         silu'(g) = s + g s (1 - s) = s + silu(g) (1 - s)

The fused version keeps the two factors of dy, so its backward pass is two multiplications, and works through blocks
that stay in the processor's cache.

Reference: Shazeer 2020, eq. 6 (arXiv:2002.05202).
"""

import numpy as np

from tinygrad_lite.functional.gelu import BLOCK
from tinygrad_lite.functional.registry import ReferenceAndFused
from tinygrad_lite.tensor import Tensor, node


def swiglu_composed(gate: Tensor, up: Tensor) -> Tensor:
    """y = silu(gate) * up, element-wise.

    Args:
        gate, up: float tensors of the same shape.
    Returns: their shape and dtype.
    Raises: ValueError if the shapes differ.
    """
    check_swiglu(gate, up)
    return gate.silu() * up


def swiglu_fused(gate: Tensor, up: Tensor) -> Tensor:
    """`swiglu_composed` in one node that keeps silu(g) and u silu'(g) instead of the inputs."""
    if gate.dtype not in (np.float32, np.float64) or gate.dtype != up.dtype:
        return swiglu_composed(gate, up)
    check_swiglu(gate, up)
    shape, g, u = gate.shape, gate.data.reshape(-1), up.data.reshape(-1)
    y, silu, slope = (np.empty_like(g) for _ in range(3))
    for start in range(0, g.size, BLOCK):
        part = slice(start, start + BLOCK)
        s = slope[part]  # s(g), and then in place
        np.negative(g[part], out=s)
        np.exp(s, out=s)
        s += 1
        np.divide(1, s, out=s)
        np.multiply(g[part], s, out=silu[part])
        rest = np.subtract(1, s, out=y[part])
        rest *= silu[part]
        s += rest
        s *= u[part]
        np.multiply(silu[part], u[part], out=y[part])
    silu, slope = silu.reshape(shape), slope.reshape(shape)

    def backward(dy):
        # In place: the graph is walked only once, so the factors are not needed again.
        return np.multiply(dy, slope, out=slope), np.multiply(dy, silu, out=silu)

    return node(y.reshape(shape), (gate, up), backward, "swiglu", linear=True)


def check_swiglu(gate: Tensor, up: Tensor) -> None:
    """Raise ValueError if the shapes differ."""
    if gate.shape != up.shape:
        raise ValueError(f"swiglu: gate and up must have the same shape, not {gate.shape} and {up.shape}")


swiglu = ReferenceAndFused(swiglu_composed, cpu=swiglu_fused, cuda="tinygrad_lite.cuda.activations")
