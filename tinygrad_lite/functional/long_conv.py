"""Convolution with a filter as long as the text: every position is a weighted sum of all earlier ones.

    y_t = sum_(s <= t) h_(t - s) x_s        in each of C channels, each with a filter h of its own

In matrices: y = H x, where H_ts = h_(t - s) for s <= t and 0 otherwise. All entries of a diagonal are equal: a Toeplitz
matrix, of T^2 entries but only T different numbers. Attention's P is such a mixing matrix too, but P depends on the
text, and H on the distance alone.

A convolution is a product of spectra. With F the Fourier transform of 2 T numbers, the last T of which are zeros, so
that the end does not run into the beginning,

    y = first T of F^-1( F(h) F(x) )

takes T log T operations instead of T^2. Gradients, with dy = dL/dy: y is linear in x and in h, so dx = H^T dy, which is
the same sum backwards in time, and in dh the roles of h and x are exchanged:

    dx_s = sum_(t >= s) h_(t - s) dy_t       = F^-1( conj(F(h)) F(dy) )
    dh_r = sum_(t >= r) x_(t - r) dy_t       = F^-1( conj(F(x)) F(dy) ), summed over the batch

References: Cooley, Tukey 1965 on the fast transform; Poli et al. 2023, section 2 (arXiv:2302.10866).
"""

import numpy as np

from tinygrad_lite.functional.registry import ReferenceAndFused
from tinygrad_lite.functional.rnn import same_floats
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
    shown = Tensor((behind >= 0)[..., None].astype(x.dtype), device=x.device)
    toeplitz = h[Tensor(np.maximum(behind, 0), device=x.device)] * shown  # (T, T, C)
    return (x.unsqueeze(1) * toeplitz).sum(2)  # (B, T, T, C) -> (B, T, C)


def long_conv_fused(x: Tensor, h: Tensor) -> Tensor:
    """`long_conv_composed` by fast Fourier transforms, in one node that keeps both spectra."""
    if not same_floats(x, h) or 0 in x.shape:
        return long_conv_composed(x, h)
    check_long_conv(x, h)
    steps = x.shape[1]
    size = 1 << (2 * steps - 1).bit_length()  # a power of two, the fastest

    def transform(array: np.ndarray) -> np.ndarray:
        return np.fft.rfft(array, size, axis=-2)

    def back(spectrum: np.ndarray) -> np.ndarray:
        return np.fft.irfft(spectrum, size, axis=-2)[..., :steps, :].astype(x.dtype, copy=False)

    of_x, of_h = transform(x.data), transform(h.data)

    def backward(dy):
        of_dy = transform(dy)
        return back(of_dy * of_h.conj()), back((of_dy * of_x.conj()).sum(0))

    return node(back(of_x * of_h), (x, h), backward, "long_conv", linear=True)


def check_long_conv(x: Tensor, h: Tensor) -> None:
    """Raise ValueError if the shapes do not fit."""
    if x.ndim != 3 or h.shape != x.shape[1:]:
        raise ValueError(f"long_conv: x (B, T, C) and h (T, C) do not fit: {x.shape} and {h.shape}")


long_conv = ReferenceAndFused(long_conv_composed, cpu=long_conv_fused)
