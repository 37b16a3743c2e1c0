"""Convolution with a filter as long as the text: every position is a weighted sum of all earlier ones.

    y_t = sum_(s <= t) h_(t - s) x_s        in each of C channels, each with a filter h of its own

In matrices: y = H x, where H_ts = h_(t - s) for s <= t and 0 otherwise. All entries of a diagonal are equal: a Toeplitz
matrix, of T^2 entries but only T different numbers. Attention's P is such a mixing matrix too, but P depends on the
text, and H on the distance alone.

Gradients, with dy = dL/dy: y is linear in x and in h, so

    dx_s = sum_(t >= s) h_(t - s) dy_t
    dh_r = sum_(t >= r) x_(t - r) dy_t       summed over the batch

Read backwards, from the last position to the first, both are the same convolution again: with g_u = dy_(T - 1 - u), dx
is that of g and h, and dh that of x and g.

A convolution is a product of spectra. With F the Fourier transform of 2 T numbers, the last T of which are zeros, so
that the end does not run into the beginning,

    y = first T of F^-1( F(h) F(x) )

takes T log T operations instead of T^2. But a spectrum is made of all positions, and its rounding has the size of the
largest of them: a large x_s would disturb the y_t before it, which do not depend on it, and an infinite one would make
them all NaN. So the fused version transforms the past only. It computes blocks of n positions as products with
matrices; then each odd block gets what its neighbour, the even block before it, adds to it, by a transform of 2 n
numbers. The two are then one block of 2 n, and so on: log T times n log n operations for each n positions, in all
T log^2 T. For dx, past and future change places, as the formulas above do.

References: Cooley, Tukey 1965 on the fast transform; Poli et al. 2023, section 2 (arXiv:2302.10866).
"""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from extra.mixers.rnn import same_floats
from tinygrad_lite.functional.registry import ReferenceAndFused
from tinygrad_lite.ops.common import silent
from tinygrad_lite.tensor import Tensor, node


def long_conv_composed(x: Tensor, h: Tensor) -> Tensor:
    """y_t = sum over s <= t of h_(t - s) x_s, as a product with a Toeplitz matrix for each channel.

    Args:
        x: (B, T, C).
        h: (T, C), a filter for each channel.
    Returns: (B, T, C), dtype of x.
    Raises: ValueError if the shapes do not fit.
    """
    check_long_conv(x, h)
    steps = x.shape[1]
    behind = np.subtract.outer(np.arange(steps), np.arange(steps))  # t - s
    later = Tensor((behind < 0)[..., None], device=x.device)
    toeplitz = h[Tensor(np.maximum(behind, 0), device=x.device)]  # (T, T, C)
    return (x.unsqueeze(1) * toeplitz).masked_fill(later, 0.0).sum(2)  # (B, T, T, C) -> (B, T, C)


BLOCK = 64  # positions that are computed as a product with a matrix


def long_conv_fused(x: Tensor, h: Tensor) -> Tensor:
    """`long_conv_composed` in one node, by fast Fourier transforms of the past."""
    if not same_floats(x, h) or 0 in x.shape:
        return long_conv_composed(x, h)
    check_long_conv(x, h)
    xs, hs = (array.data.swapaxes(-1, -2) for array in (x, h))  # (B, C, T), (C, T)

    def backward(dy):
        g = dy.swapaxes(-1, -2)[..., ::-1]
        dx, dh = convolved(g, hs), sum(map(convolved, xs, g))  # backwards; dh one sequence at a time, to save memory
        return dx[..., ::-1].swapaxes(-1, -2), dh[..., ::-1].swapaxes(-1, -2)

    return node(convolved(xs, hs).swapaxes(-1, -2), (x, h), backward, "long_conv", uses_result=False)


@silent
def convolved(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """y_t = sum over s <= t of a_s b_(t - s), along the last axis of a (..., T) and b (T) or (..., T).

    No y_t is computed from an a_s after it. Where a number is infinite or NaN, y is NaN from there on.
    """
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        bad_a, bad_b = ~np.isfinite(a), ~np.isfinite(b)
        y = convolved(np.where(bad_a, 0, a), np.where(bad_b, 0, b))
        y[np.logical_or.accumulate(bad_a | bad_b, axis=-1)] = np.nan
        return y
    steps, n = a.shape[-1], BLOCK
    length = n << (-(-steps // n) - 1).bit_length()
    a, b = (np.pad(z, [(0, 0)] * (z.ndim - 1) + [(0, length - steps)]) for z in (a, b))
    lags = np.pad(b[..., :n], [(0, 0)] * (b.ndim - 1) + [(n - 1, 0)])
    toeplitz = sliding_window_view(lags, n, axis=-1)[..., ::-1, :]  # b_(t - s) in row s and column t, 0 for t < s
    y = (a.reshape(*a.shape[:-1], -1, n) @ toeplitz.copy()).reshape(a.shape)
    while n < steps:
        pairs = (*a.shape[:-1], -(-(steps - n) // (2 * n)), 2, n)  # of blocks; the last odd one may be incomplete
        even, odd = (z[..., : 2 * n * pairs[-3]].reshape(pairs)[..., i, :] for i, z in enumerate((a, y)))
        spectra = np.fft.rfft(even, 2 * n)
        spectra *= np.fft.rfft(b[..., None, : 2 * n])
        odd += np.fft.irfft(spectra, 2 * n)[..., n:]
        n *= 2
    return y[..., :steps]


def check_long_conv(x: Tensor, h: Tensor) -> None:
    """Raise ValueError if the shapes do not fit."""
    if x.ndim != 3 or h.shape != x.shape[1:]:
        raise ValueError(f"long_conv: x (B, T, C) and h (T, C) do not fit: {x.shape} and {h.shape}")


long_conv = ReferenceAndFused(long_conv_composed, cpu=long_conv_fused)
