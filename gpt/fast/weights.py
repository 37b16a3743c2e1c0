"""The weights as `step.py` needs them: whatever does not depend on the text is computed in advance.

- The gain g and shift b of a layer norm become part of the linear map that follows: with n = (x - mean) / deviation,
  (n * g + b) W^T + c = n (W * g)^T + (W b + c).
- Every layer norm subtracts the mean of x, and nothing else reads x. So the mean is subtracted in advance from
  everything that is added to x: the embeddings and the outputs of attention and feed-forward. Then x always has mean 0,
  and all that remains of the norm is a division by the deviation, sqrt(sum(x^2) / C + eps), as in an RMS norm. The
  factor sqrt(C) becomes part of the linear map as well, which leaves a division by sqrt(sum(x^2) + C eps).
- Queries, keys and values come from one product with the three matrices side by side. The query's matrix contains the
  division by sqrt(D); if queries and keys have their own norm, its gain does.
- GELU's polynomial (`functional/gelu.py`) begins with a factor, and the result is halved. Both become part of the maps
  before and after it.
- Weights are stored as (in, out), the order in which a row vector times a matrix reads them fastest.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from tinygrad_lite.device import Array, xp_of
from tinygrad_lite.functional.gelu import ERF_POLYNOMIAL, GPT2_POLYNOMIAL
from tinygrad_lite.nn import LayerNorm, Linear, RMSNorm

ROWS = 256  # transposed at a time: together they fit into a processor's cache

Affine = tuple[np.ndarray, np.ndarray | None]  # matrix (in, out) and shift (out,): x -> x @ matrix + shift


def centred(x: np.ndarray) -> np.ndarray:
    """Each row minus its mean, which would lose its last digits in float32."""
    return (x - x.mean(axis=-1, keepdims=True, dtype=np.float64)).astype(x.dtype)


def balanced_output(linear: Linear, balanced: Callable[[np.ndarray], np.ndarray]) -> Affine:
    """A linear map with `balanced` applied to its results: they have mean 0, or stay as they are."""
    matrix = np.array(balanced(linear.weight.data.T), order="C")
    return matrix, None if linear.bias is None else balanced(linear.bias.data)


def gain(norm: LayerNorm | RMSNorm, width: int) -> np.ndarray | float:
    """What a norm multiplies by, times the sqrt(C) that `normalise` leaves out."""
    return math.sqrt(width) if norm.weight is None else norm.weight.data * math.sqrt(width)


def fold(norm: LayerNorm | RMSNorm, linears: Sequence[Linear]) -> Affine:
    """Linear maps side by side, after a norm: with its gain, and its shift if it has one."""
    weights = [linear.weight.data for linear in linears]  # (out, in) each
    factor = np.reshape(gain(norm, weights[0].shape[1]), (-1, 1)).astype(weights[0].dtype)
    matrix = np.empty((weights[0].shape[1], sum(map(len, weights))), weights[0].dtype)
    done = 0
    for weight in weights:
        # A few rows at a time: transposed in one go, a large matrix would be read or written all over the memory.
        for rows in np.split(weight, range(ROWS, len(weight), ROWS)):
            np.multiply(rows.T, factor, out=matrix[:, done : done + len(rows)])
            done += len(rows)
    return matrix, joint_shift(norm, linears)


def joint_shift(norm: LayerNorm | RMSNorm, linears: Sequence[Linear]) -> Array | None:
    """The shift of linear maps side by side, after a norm: their biases, and what they map the norm's bias to."""
    xp, shift = xp_of(linears[0].weight.data), None
    if linears[0].bias is not None:
        shift = xp.concatenate([linear.bias.data for linear in linears])
    if isinstance(norm, LayerNorm) and norm.bias is not None:
        moved = xp.concatenate([linear.weight.data @ norm.bias.data for linear in linears])
        shift = moved if shift is None else shift + moved
    return shift


def scale(affine: Affine, factor: float, columns: slice = slice(None)) -> None:
    """Multiply a linear map, or these columns of its result, by a number."""
    for part in affine:
        if part is not None:
            part[..., columns] *= factor


def monic_polynomial(activation: str) -> tuple[list[np.ndarray], float]:
    """GELU without a leading factor: the polynomial p and the number w such that, with x = w h,

        2 y / w = h (1 + tanh(u)),    u = x q(x^2) = h p(h^2),    p(s) = s^n + p_1 s^(n-1) + .. + p_n

    where q is the polynomial of `functional/gelu.py`. In p, the coefficient of a term q_k s^(n-k) of q is
    w^(2 (n-k) + 1) q_k.

    Returns: p_1 to p_n, as float32 arrays without axes, because NumPy would need a microsecond each time to make one
    from a Python number; and w.
    """
    first, *others = GPT2_POLYNOMIAL if activation == "gelu_tanh" else ERF_POLYNOMIAL
    w = first ** (-1 / (2 * len(others) + 1))
    powers = range(2 * len(others) - 1, 0, -2)
    return [np.array(q * w**power, np.float32) for q, power in zip(others, powers, strict=True)], w
