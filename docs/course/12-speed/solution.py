"""Solutions of chapter 12."""

import numpy as np

from tinygrad_lite import Tensor
from tinygrad_lite.tensor import node


def flops(n_layer: int, n_embd: int, vocab_size: int, tokens: int) -> int:
    """The operations of the products with weights in one training step of a GPT with GPT-2's parts, where F = 4 C.

    A block has the four matrices of attention and the two of the feed-forward part; after the blocks comes the output,
    C -> V. Attention's products of queries, keys and values with each other are not counted.
    """
    weights = n_layer * (4 * n_embd**2 + 2 * n_embd * 4 * n_embd) + n_embd * vocab_size
    return 6 * weights * tokens


def silu_composed(x: Tensor) -> Tensor:
    """x / (1 + e^-x), composed of four operations."""
    return x / ((-x).exp() + 1)


# -x, exp, and + 1 read one array and write one each; the division reads two and writes one.
PASSES = 9


def silu(x: Tensor) -> Tensor:
    """The same in one node, which keeps a single array of the size of x for its derivative."""
    slope = 1 / (1 + np.exp(-x.data))
    y = x.data * slope
    slope += y * (1 - slope)  # s + x s (1 - s)

    def backward(dy: np.ndarray) -> tuple[np.ndarray]:
        return (dy * slope,)

    return node(y, (x,), backward, "silu")


def update(weights: np.ndarray, gradients: np.ndarray, lr: float, rank: int) -> None:
    """What process `rank` of W does once all gradients are there: w -= lr g, in place, for its part of the N weights.

    weights (N,) are shared; gradients (W, N) have a row for each process, already multiplied by its share of the batch.
    The parts are equally large, up to one weight.
    """
    size, n = gradients.shape
    part = slice(n * rank // size, n * (rank + 1) // size)
    weights[part] -= lr * gradients[:, part].sum(0)
