"""Dropout: in training, each element is set to zero with probability p, so that no unit relies on another.

    y = x * mask / (1 - p)    mask is 1 with probability 1 - p, else 0

Dividing by 1 - p keeps the expected value, so nothing has to change when dropout is switched off. The mask does not
depend on x, so the gradient is dx = dy * mask / (1 - p).

Each element is decided by a 16-bit random number, so p is rounded to a multiple of 1/65536: two bytes of raw
generator output per element are several times cheaper than a float. The random numbers depend on the current position
in the run (`random_key` in random.py) and are generated on the host, so the mask is the same on every device and in
both versions. The GPU's own version is the exception: there the host generates only a key, from which each
thread computes its random numbers. They too are the same at the same position in the run, but differ from the CPU's
(see cuda/dropout.py).

Reference: Srivastava et al. 2014, section 4 (JMLR 15); scaling in training ("inverted dropout") is modern practice.
"""

import numpy as np

from tinygrad_lite.device import get_device
from tinygrad_lite.functional.registry import ReferenceAndFused
from tinygrad_lite.random import next_rng
from tinygrad_lite.tensor import Tensor, node


def keep_mask(shape: tuple[int, ...], p: float) -> np.ndarray:
    """A truth value for each element of the shape: whether it is kept, with probability 1 - p."""
    count = int(np.prod(shape))
    raw = next_rng("dropout").bit_generator.random_raw((count + 3) // 4).view(np.uint16)
    return (raw[:count] >= round(p * 65536)).reshape(shape)


def dropout_composed(x: Tensor, p: float = 0.5) -> Tensor:
    """y = x * mask / (1 - p), with a new random mask at each call; x itself if p is 0.

    Args:
        x: float tensor of any shape.
        p: probability that an element is dropped, in [0, 1), and at most 0.999.
    Raises: ValueError if it is not.
    """
    check_probability(p)
    if p == 0:
        return x
    keep = Tensor.wrap(get_device(x.device).from_host(keep_mask(x.shape, p)))
    return x * keep.cast(x.dtype) * (1 / (1 - p))


def check_probability(p: float) -> None:
    """Raise ValueError if p is not in [0, 1), or too close to 1 to be a multiple of 1/65536.

    With p = 1, no factor could restore the expected value.
    """
    if not 0 <= p <= 0.999:
        raise ValueError(f"dropout: p must be in [0, 1), not {p}: above 0.999, 16 bits for each element are too few")


# --- the fused version: a first reader may stop here -----------------------------------------------------------


def dropout_fused(x: Tensor, p: float = 0.5) -> Tensor:
    """`dropout_composed` in one node that keeps the mask, one byte per element."""
    if p == 0 or x.dtype.kind != "f":
        return dropout_composed(x, p)
    check_probability(p)
    keep, scale = keep_mask(x.shape, p), x.dtype.type(1 / (1 - p))

    def dropped(values):
        factors = keep * scale
        factors *= values
        return factors

    return node(dropped(x.data), (x,), lambda dy: (dropped(dy),), "dropout", linear=True)


dropout = ReferenceAndFused(dropout_composed, cpu=dropout_fused, cuda="tinygrad_lite.cuda.dropout")
