"""Rotary position embedding: queries and keys are turned by position, so that scores depend on how far apart they are.

The D numbers of a head are D/2 points in a plane, point i being (x_i, x_(i + D/2)). At position p, point i is turned by
the angle a = p f_i; each frequency in f is a different speed, like those of the hands of a clock:

    y_i         = x_i cos a - x_(i + D/2) sin a
    y_(i + D/2) = x_(i + D/2) cos a + x_i sin a              for i < D/2

Turning two vectors by the same angle leaves their dot product unchanged. So the product of a query, turned at position
p, with a key, turned at s, equals that of the query turned by (p - s) f with the unturned key: the score depends on
what the two tokens are and on how far apart they are, not on where. Nothing is added to the tokens, and nothing is
learned.

Gradient, with dy = dL/dy, by the formula above:

    dx_i         =  dy_i cos a + dy_(i + D/2) sin a
    dx_(i + D/2) = -dy_i sin a + dy_(i + D/2) cos a

which is the same turn by the angle -a: the inverse of a rotation is its transpose. This does not need the input.

The fused version writes both lines as one, y = x * (cos a, cos a) + (second half, first half) * (-sin a, sin a), and
lays these factors side by side for all heads, so that NumPy multiplies long rows instead of D/2 numbers at a time.

References: Su et al. 2021, section 3.2 (arXiv:2104.09864). The pairs are those of GPT-NeoX, Llama and Qwen (first half
with second half); the paper and GPT-J pair neighbours.
"""

import functools

import numpy as np

from tinygrad_lite.functional.registry import ReferenceAndFused
from tinygrad_lite.tensor import Tensor, node


def rotary_composed(x: Tensor, positions: Tensor, frequencies: tuple[float, ...]) -> Tensor:
    """Turn the pairs (x_i, x_(i + D/2)) by the angles positions * frequencies.

    Args:
        x: (B, T, H, D) float tensor.
        positions: (T,) integers, or (B, T) if they differ from row to row.
        frequencies: D/2 angles per position, in radians.
    Returns: (B, T, H, D), dtype of x.
    Raises: ValueError if the shapes do not fit.
    """
    check_rotary(x, positions, frequencies)
    speeds = Tensor(np.array(frequencies), device=x.device)
    angles = positions.cast(np.float64).unsqueeze(-1) * speeds  # (..., T, D/2)
    cos, sin = (table.cast(x.dtype).unsqueeze(-2) for table in (angles.cos(), angles.sin()))  # the same for all heads
    first, second = x.chunk(2, axis=-1)
    return (first * cos - second * sin).cat(second * cos + first * sin, axis=-1)


def rotary_fused(x: Tensor, positions: Tensor, frequencies: tuple[float, ...]) -> Tensor:
    """`rotary_composed` in one node, which keeps the factors for one head."""
    if x.dtype not in (np.float32, np.float64) or x.numel() == 0:
        return rotary_composed(x, positions, frequencies)
    check_rotary(x, positions, frequencies)
    factors, heads = rotary_factors(positions.data, frequencies, x.dtype), x.shape[2]  # (2, ..., T, D)

    def backward(dy):
        cos, sin = np.repeat(factors[..., None, :], heads, axis=-2)
        return (turn(dy, cos, np.negative(sin, out=sin)),)

    cos, sin = np.repeat(factors[..., None, :], heads, axis=-2)
    return node(turn(x.data, cos, sin), (x,), backward, "rotary", linear=True)


def turn(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """x * cos + (second half, first half) * sin, over the last axis."""
    halves = x.reshape(*x.shape[:-1], 2, x.shape[-1] // 2)
    swapped = halves.take([1, 0], axis=-2).reshape(x.shape)  # faster than two assignments: the halves are short
    swapped *= sin
    y = x * cos
    y += swapped
    return y


def rotary_factors(positions: np.ndarray, frequencies: tuple[float, ...], dtype: np.dtype) -> np.ndarray:
    """What `turn` needs for these positions: (cos, cos) and (-sin, sin), as (2, ..., D). All layers share them."""
    return _factors(positions.astype(np.int64).tobytes(), positions.shape, frequencies, dtype)


@functools.lru_cache(maxsize=4)
def _factors(positions: bytes, shape: tuple[int, ...], frequencies: tuple[float, ...], dtype: np.dtype) -> np.ndarray:
    angles = np.frombuffer(positions, np.int64).reshape(*shape, 1) * np.array(frequencies)
    cos, sin = np.cos(angles), np.sin(angles)
    factors = np.array([np.concatenate([cos, cos], axis=-1), np.concatenate([-sin, sin], axis=-1)], dtype)
    factors.flags.writeable = False
    return factors


def check_rotary(x: Tensor, positions: Tensor, frequencies: tuple[float, ...]) -> None:
    """Raise ValueError if the shapes or types do not fit."""
    if x.ndim != 4 or positions.shape not in (x.shape[1:2], x.shape[:2]):
        raise ValueError(
            f"rotary: x (B, T, H, D) and positions (T,) or (B, T) do not fit: {x.shape} and {positions.shape}"
        )
    if positions.dtype.kind not in "iu" or x.dtype.kind in "iub":
        raise ValueError(f"rotary: x must be floats and positions integers, not {x.dtype} and {positions.dtype}")
    if 2 * len(frequencies) != x.shape[3]:
        raise ValueError(
            f"rotary: x {x.shape} needs a frequency for every 2 of its {x.shape[3]} numbers, not {len(frequencies)}"
        )


rotary = ReferenceAndFused(rotary_composed, cpu=rotary_fused, cuda="tinygrad_lite.cuda.rotary")
