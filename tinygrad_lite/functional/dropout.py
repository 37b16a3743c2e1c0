"""Dropout: in training, each element is set to zero with probability p, so that no unit can rely on another.

    y = x * mask / (1 - p)    mask is 1 with probability 1 - p, else 0

Dividing by 1 - p keeps the expected value, so nothing has to change when dropout is switched off. The mask is a
constant for the gradient: dx = dy * mask / (1 - p).

A 16-bit random number decides on each element, so p is rounded to a multiple of 1/65536: two bytes of raw generator
output per element are several times cheaper than a float. The numbers come from the current position in the run
(`random_key` in device.py), drawn on the host: the same mask on every device and in both versions. A GPU's own version
is the exception. There only a key is drawn on the host, and each thread computes its random numbers from it: the same
ones whenever the position in the run is the same, but others than on the CPU (see cuda/dropout.py).

Reference: Srivastava et al. 2014, section 4 (JMLR 15); the "inverted" scaling at training time is today's custom.
"""

import numpy as np

from tinygrad_lite.device import get_device, next_rng
from tinygrad_lite.functional.registry import ReferenceAndFused
from tinygrad_lite.tensor import Tensor, node


def keep_mask(shape: tuple[int, ...], p: float) -> np.ndarray:
    """A truth value for each element: whether it is kept, with probability 1 - p."""
    count = int(np.prod(shape))
    raw = next_rng("dropout").bit_generator.random_raw((count + 3) // 4).view(np.uint16)
    return (raw[:count] >= round(p * 65536)).reshape(shape)


def dropout_composed(x: Tensor, p: float = 0.5) -> Tensor:
    """y = x * mask / (1 - p), with a new random mask at each call; x itself if p is 0.

    Args:
        x: float tensor of any shape.
        p: probability that an element is dropped, in [0, 1).
    Raises: ValueError if p is not in [0, 1).
    """
    check_probability(p)
    if p == 0:
        return x
    keep = Tensor.wrap(get_device(x.device).from_host(keep_mask(x.shape, p)))
    return x * keep.cast(x.dtype) * (1 / (1 - p))


def dropout_fused(x: Tensor, p: float = 0.5) -> Tensor:
    """`dropout_composed` in one node that keeps one array, mask / (1 - p)."""
    if p == 0 or x.dtype.kind != "f":
        return dropout_composed(x, p)
    check_probability(p)
    scale = keep_mask(x.shape, p) * x.dtype.type(1 / (1 - p))

    def backward(dy):
        return (dy * scale,)

    return node(x.data * scale, (x,), backward, "dropout")


def check_probability(p: float) -> None:
    """Raise ValueError if p is not in [0, 1): if all were dropped, nothing could make up for it."""
    if not 0 <= p < 1:
        raise ValueError(f"dropout: p must be in [0, 1), not {p}")


dropout = ReferenceAndFused(dropout_composed, cpu=dropout_fused, cuda="tinygrad_lite.cuda.dropout")
