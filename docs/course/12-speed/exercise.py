"""Exercises of chapter 12: every ... is a blank to fill in."""

import numpy as np

from tinygrad_lite import Tensor
from tinygrad_lite.tensor import node


def flops(n_layer: int, n_embd: int, vocab_size: int, tokens: int) -> int:
    """The operations of the products with weights in one training step of a GPT with GPT-2's parts, where F = 4 C.

    A block has the four matrices of attention and the two of the feed-forward part; after the blocks comes the output,
    C -> V. Attention's products of queries, keys and values with each other are not counted.
    """
    ...


def silu_composed(x: Tensor) -> Tensor:
    """x / (1 + e^-x), composed of four operations."""
    return x / ((-x).exp() + 1)


# How many passes through memory does silu_composed take, forward? Count reads and writes, as for GELU; no computer.
PASSES = ...


def silu(x: Tensor) -> Tensor:
    """The same in one node, which keeps a single array of the size of x for its derivative."""
    y = ...

    def backward(dy: np.ndarray) -> tuple[np.ndarray]:
        return (...,)

    return node(y, (x,), backward, "silu")


def update(weights: np.ndarray, gradients: np.ndarray, lr: float, rank: int) -> None:
    """What process `rank` of W does once all gradients are there: w -= lr g, in place, for its part of the N weights.

    weights (N,) are shared; gradients (W, N) have a row for each process, already multiplied by its share of the batch.
    The parts are equally large, up to one weight.
    """
    ...
