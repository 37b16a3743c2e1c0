"""Pooling: a picture shrinks, as each window of k x l pixels becomes one number: their mean, or the largest.

    average    y[b,c,u,v] = sum over i, j of x[b, c, s u + i - p, s v + j - p] / (k l)
    maximum    y[b,c,u,v] = the largest of the same k l numbers

    x: (B, C, H, W)    s: stride, by default the kernel, so that windows touch    p: padding
    y: (B, C, H', W') with H' = floor((H + 2 p - k) / s) + 1, so pixels at the end that fill no window are left out

Every channel is pooled separately, and nothing is learned. Outside the picture, x is 0 for the mean, which divides by
k l everywhere, and -inf for the maximum, so that a pixel of the picture wins. The mean over whole pictures needs no
operation of its own: it is x.mean((2, 3)).

Gradients, with dy = dL/dy. Each pixel's gradient is a sum over all windows that contain it:

    average    dx = sum of dy / (k l)
    maximum    dx = sum of dy over those windows in which it is the largest pixel

If several pixels of a window are the largest, the first in reading order (row by row) gets all of dy, as in torch.
NaN counts as larger than any number.

A mean of k x l pixels is the mean of k means of l pixels: the fused version adds k rows, then l columns, and so reads
k + l numbers for each result instead of k l. For the gradient of the maximum it needs to know which pixel won, a
number below k l; it keeps only that, one byte for each result (two if k l > 256), and neither x nor y.

References: torch.nn.functional.avg_pool2d and max_pool2d; LeCun et al. 1998, section II.B (means, with a learned
factor).
"""

import math

import numpy as np

from tinygrad_lite.device import Array, is_float
from tinygrad_lite.functional.conv import Pair, Windows
from tinygrad_lite.functional.registry import ReferenceAndFused
from tinygrad_lite.ops.common import zero_unless
from tinygrad_lite.tensor import Tensor, node


def avg_pool2d_composed(
    x: Tensor, kernel_size: int | Pair = 2, stride: int | Pair | None = None, *, padding: int | Pair = 0
) -> Tensor:
    """y at each place = the mean of the window there; the zeros around the picture count.

    Args:
        x: (B, C, H, W) float tensor.
        kernel_size: of a window, in pixels; a number or a pair (down, across), as are the other two.
        stride: from one window to the next; None: kernel_size.
        padding: zeros on each side, at most half of kernel_size.
    Returns: (B, C, H', W').
    Raises: ValueError if x or the settings do not fit.
    """
    return check_pool2d("avg_pool2d", x, kernel_size, stride, padding).of(x).mean(2)


def max_pool2d_composed(
    x: Tensor, kernel_size: int | Pair = 2, stride: int | Pair | None = None, *, padding: int | Pair = 0
) -> Tensor:
    """y at each place = the largest pixel of the window there, which gets the gradient; the first of equal ones.

    Args:
        x: (B, C, H, W) float tensor.
        kernel_size: of a window, in pixels; a number or a pair (down, across), as are the other two.
        stride: from one window to the next; None: kernel_size.
        padding: pixels on each side that are never the largest, at most half of kernel_size.
    Returns: (B, C, H', W').
    Raises: ValueError if x or the settings do not fit.
    """
    windows = check_pool2d("max_pool2d", x, kernel_size, stride, padding)
    pixels, inside = windows.of(x, outside=-math.inf), windows.of(x.ones_like())
    largest, first = (window.argmax(2, keepdim=True) for window in (pixels, inside))
    largest = (inside.gather(2, largest) > 0).where(largest, first)  # if all pixels are -inf, too
    return pixels.gather(2, largest).squeeze(2)


def check_pool2d(
    op: str, x: Tensor, kernel_size: int | Pair, stride: int | Pair | None, padding: int | Pair
) -> Windows:
    """Where the windows lie. Raises: ValueError if x or the settings do not fit."""
    if x.ndim != 4 or not is_float(x.dtype):
        raise ValueError(f"{op}: x must be (B, C, H, W) floats, not {x.shape} of {x.dtype}")
    stride = kernel_size if stride is None else stride
    windows = Windows.that_fit(op, x, kernel_size, stride=stride, padding=padding)
    if any(2 * p > k for p, k in zip(windows.padding, windows.kernel, strict=True)):
        raise ValueError(f"{op}: padding {windows.padding} must be at most half of the kernel {windows.kernel}")
    return windows


# --- the fused versions: a first reader may stop here ----------------------------------------------------------


def avg_pool2d_fused(
    x: Tensor, kernel_size: int | Pair = 2, stride: int | Pair | None = None, *, padding: int | Pair = 0
) -> Tensor:
    """`avg_pool2d_composed` in one node that keeps nothing: rows are added first, then columns."""
    windows = check_pool2d("avg_pool2d", x, kernel_size, stride, padding)
    (p, q), (h, w), count = windows.padding, x.shape[2:], math.prod(windows.kernel)
    rows = [(..., place, slice(None)) for place in windows.along(0)]
    columns = [(..., place) for place in windows.along(1)]
    pixels = padded(x.data, windows.padding)
    bands = sum(pixels[place] for place in rows)
    y = sum(bands[place] for place in columns)
    y /= count
    shapes = bands.shape, pixels.shape

    def backward(dy):
        dbands, dpixels = (np.zeros(shape, dy.dtype) for shape in shapes)
        dy = dy / count
        for place in columns:
            dbands[place] += dy
        for place in rows:
            dpixels[place] += dbands
        return (np.ascontiguousarray(dpixels[..., p : p + h, q : q + w]),)

    return node(y, (x,), backward, "avg_pool2d", linear=True)


def max_pool2d_fused(
    x: Tensor, kernel_size: int | Pair = 2, stride: int | Pair | None = None, *, padding: int | Pair = 0
) -> Tensor:
    """`max_pool2d_composed` in one node that keeps the number of the winner in each window."""
    windows = check_pool2d("max_pool2d", x, kernel_size, stride, padding)
    (p, q), (h, w), places = windows.padding, x.shape[2:], windows.places()
    pixels = padded(x.data, windows.padding, -math.inf)
    shape, y = pixels.shape, pixels[places[0]].copy()
    winner = np.zeros(y.shape, np.min_scalar_type(len(places) - 1))
    if p or q:  # the first pixel of the picture, even if all of them are -inf
        inside = padded(np.ones((1, 1, h, w), bool), windows.padding)
        winner[...] = np.argmax([inside[place] for place in places], axis=0)
    for number, place in enumerate(places[1:], start=1):
        pixel = pixels[place].copy()  # used twice, and reading every second number is slow
        wins = ~(pixel <= y)  # larger, or one of the two is NaN
        wins &= y == y  # a NaN stays the winner
        np.maximum(winner, wins * winner.dtype.type(number), out=winner)
        np.maximum(y, pixel, out=y)

    def backward(dy):
        dpixels = np.zeros(shape, dy.dtype)
        for number, place in enumerate(places):
            dpixels[place] += zero_unless(winner == number, dy)
        return (np.ascontiguousarray(dpixels[..., p : p + h, q : q + w]),)

    return node(y, (x,), backward, "max_pool2d", linear=True)


def padded(pictures: Array, padding: Pair, outside: float = 0.0) -> Array:
    """The pictures with a margin."""
    (p, q), (*before, h, w) = padding, pictures.shape
    if p == q == 0:
        return pictures
    pixels = np.full((*before, h + 2 * p, w + 2 * q), outside, pictures.dtype)
    pixels[..., p : p + h, q : q + w] = pictures
    return pixels


avg_pool2d = ReferenceAndFused(avg_pool2d_composed, cpu=avg_pool2d_fused)
max_pool2d = ReferenceAndFused(max_pool2d_composed, cpu=max_pool2d_fused)
