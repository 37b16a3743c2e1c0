"""Convolution of pictures: the same small filter, applied at every position.

    y[b,o,u,v] = sum over c, i, j of W[o,c,i,j] x[b, c, s u + d i - p, s v + d j - p]  +  bias[o]

    x: (B, C, H, W), C channels    W: (C_out, C, k, l), a filter of k x l numbers for each pair of channels
    s: stride, from one window to the next    d: dilation, from one number of a window to the next
    p: padding, zeros around the picture      y: (B, C_out, H', W') with H' = floor((H + 2 p - d (k - 1) - 1) / s) + 1

All three may be different down and across. With G groups, the channels are cut into G equal parts, and each part of y
sees only its own part of x: W is (C_out, C / G, k, l). G = C is called depthwise. (Mathematicians flip the filter
first, and call this formula cross-correlation.)

A window has C k l numbers. Written as columns, the N = B H' W' windows form a matrix X (C k l, N), and the filters are
the rows of another, (C_out, C k l). So the formula is a product, Y = W X, and with dY = dL/dY, (C_out, N), the
gradients are those of a linear map (linear.py):

    dW = dY X^T       dbias = sum over the columns of dY       dX = W^T dY

X holds copies of x: a pixel lies in up to k l windows. By the chain rule its gradient is the sum over all copies,

    dx[b,c,m,n] = sum of dX over all (i, j, u, v) with s u + d i - p = m and s v + d j - p = n

In words: each number of dX is added at the position its counterpart in X was copied from.

Cutting a picture into patches and multiplying each by a matrix, as a Vision Transformer does, is a convolution whose
stride equals its kernel: then the windows touch without overlapping, the columns of X are the patches, and W is the
matrix.

The fused version never holds all of X, which is up to k l times as large as x: it copies the windows of a few pictures
at a time (of one, if it is large), copies them again in the backward pass, and keeps none. Each picture has a matrix of
its own, (C k l, H' W'), so that the products are already pictures.

References: LeCun et al. 1989 (the layer); Chellapilla, Puri, Simard 2006 (the matrix X); Krizhevsky et al. 2012
(groups). Dumoulin, Visin 2016 (arXiv:1603.07285) illustrate all combinations of stride, dilation and padding.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinygrad_lite.device import Array, sum_over
from tinygrad_lite.functional.registry import ReferenceAndFused
from tinygrad_lite.tensor import Tensor, node

Pair = tuple[int, int]  # down and across


def conv2d_composed(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    groups: int = 1,
    stride: int | Pair = 1,
    dilation: int | Pair = 1,
    padding: int | Pair = 0,
) -> Tensor:
    """y[b,o] at each place = the sum of filter W[o] times the window of x[b] there, + bias[o].

    Args:
        x: (B, C, H, W) pictures of C channels.
        weight: (C_out, C / groups, k, l).
        bias: (C_out,) or None.
        groups: how many parts the channels are cut into; each part of y sees only its own part of x.
        stride, dilation, padding: in pixels; a number, or a pair (down, across). They are given by name, because
            torch and tinygrad order them differently.
    Returns: (B, C_out, H', W').
    Raises: ValueError if the shapes do not fit.
    Reference: torch.nn.functional.conv2d.
    """
    windows = check_conv2d(x, weight, bias, groups, stride=stride, dilation=dilation, padding=padding)
    outputs, inputs, (h, w) = len(weight), math.prod(weight.shape[1:]), windows.size
    columns = windows.of(x).reshape(len(x), groups, inputs, h * w)
    y = weight.reshape(groups, outputs // groups, inputs) @ columns  # (B, G, C_out / G, H' W')
    y = y.reshape(len(x), outputs, h, w)
    return y if bias is None else y + bias.reshape(outputs, 1, 1)


def check_conv2d(x: Tensor, weight: Tensor, bias: Tensor | None, groups: int, **settings: int | Pair) -> "Windows":
    """Where the windows lie. Raises: ValueError if shapes and settings do not fit."""
    if x.ndim != 4 or weight.ndim != 4:
        raise ValueError(
            f"conv2d: x (B, C, H, W) and weight (C_out, C / groups, k, l) have 4 axes, not {x.shape} and {weight.shape}"
        )
    channels, outputs = x.shape[1], weight.shape[0]
    if not isinstance(groups, (int, np.integer)) or groups < 1 or channels % groups or outputs % groups:
        raise ValueError(
            f"conv2d: groups={groups!r} must divide the {channels} channels of x and the {outputs} of the result"
        )
    if weight.shape[1] * groups != channels:
        raise ValueError(
            f"conv2d: x {x.shape} in groups={groups} needs a weight (C_out, {channels // groups}, k, l), "
            f"not {weight.shape}"
        )
    if bias is not None and bias.shape != (outputs,):
        raise ValueError(f"conv2d: weight {weight.shape} needs a bias of shape {(outputs,)}, not {bias.shape}")
    return Windows.that_fit("conv2d", x, weight.shape[2:], **settings)


@dataclass(frozen=True)
class Windows:
    """Where the windows of a picture lie: H' x W' of them (`size`), of k x l pixels each (`kernel`).

    All attributes are pairs, (down, across), in pixels.
    """

    kernel: Pair
    stride: Pair
    dilation: Pair
    padding: Pair
    size: Pair

    @classmethod
    def that_fit(
        cls, op: str, x: Tensor, kernel: Any, *, stride: Any = 1, dilation: Any = 1, padding: Any = 0
    ) -> "Windows":
        """As many windows as the pictures have room for. Raises: ValueError if none fits, or for wrong settings."""
        kernel, stride = pair(op, "kernel_size", kernel, 1), pair(op, "stride", stride, 1)
        dilation, padding = pair(op, "dilation", dilation, 1), pair(op, "padding", padding, 0)
        sides = zip(x.shape[2:], kernel, stride, dilation, padding, strict=True)
        down, across = ((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, d, p in sides)
        if down < 1 or across < 1:
            raise ValueError(
                f"{op}: a kernel of {kernel}, dilation {dilation}, does not fit into pictures of {x.shape[2:]} "
                f"with padding {padding}"
            )
        return cls(kernel, stride, dilation, padding, (down, across))

    def along(self, side: int) -> list[slice]:
        """Down (0) or across (1), for each place in a window: the pixels that lie there in all windows.

        5 pixels hold 2 windows of 3 with stride 2: 0, 1, 2 and 2, 3, 4. Their first pixels are 0 and 2, and so on:

        >>> Windows((1, 3), (1, 2), (1, 1), (0, 0), (1, 2)).along(1)
        [slice(0, 3, 2), slice(1, 4, 2), slice(2, 5, 2)]
        """
        k, s, d, n = (value[side] for value in (self.kernel, self.stride, self.dilation, self.size))
        return [slice(d * i, d * i + s * (n - 1) + 1, s) for i in range(k)]

    def places(self) -> list[tuple]:
        """For each place in a window, row by row: the index of the pixels that lie there, in padded pictures."""
        return [(..., rows, columns) for rows in self.along(0) for columns in self.along(1)]

    def keep_width(self) -> bool:
        """Whether there are as many windows in a row as pixels."""
        return self.stride == (1, 1) and 2 * self.padding[1] == self.dilation[1] * (self.kernel[1] - 1)

    def of(self, x: Tensor, outside: float = 0.0) -> Tensor:
        """The windows of these pictures: (B, C, H, W) -> (B, C, k l, H', W')."""
        p, q = self.padding
        x = x.pad([(0, 0), (0, 0), (p, p), (q, q)], value=outside)
        return Tensor.stack(*(x[place] for place in self.places()), axis=2)


def pair(op: str, name: str, value: Any, least: int) -> Pair:
    """A setting as (down, across). Raises: ValueError if it is not one or two whole numbers of at least `least`."""
    numbers = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
    if len(numbers) != 2 or any(not isinstance(n, (int, np.integer)) or n < least for n in numbers):
        raise ValueError(
            f"{op}: {name} must be a whole number of at least {least}, or a pair (down, across), not {value!r}"
        )
    return numbers


# --- the fused version: a first reader may stop here -----------------------------------------------------------

COLUMNS = 1 << 18  # numbers of X that are computed at a time: 1 MiB in float32


def conv2d_fused(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, groups: int = 1, **settings: int | Pair
) -> Tensor:
    """`conv2d_composed` in one node that keeps x and weight only."""
    windows = check_conv2d(x, weight, bias, groups, **settings)
    mixed = any(p is not None and p.dtype != x.dtype for p in (weight, bias))
    if mixed or x.dtype not in (np.float32, np.float64) or x.numel() == 0 or weight.numel() == 0:
        return conv2d_composed(x, weight, bias, groups=groups, **settings)
    pictures, w_shape, x_needs, w_needs = x.data, weight.shape, x.requires_grad, weight.requires_grad
    batch, outputs, inputs, count = len(pictures), len(weight), math.prod(w_shape[1:]), math.prod(windows.size)
    filters = weight.data.reshape(groups, outputs // groups, inputs)
    few = max(1, COLUMNS // (groups * inputs * count))
    blocks = [slice(start, start + few) for start in range(0, batch, few)]
    y = np.empty((batch, groups, outputs // groups, count), x.dtype)
    for block in blocks:
        columns = to_columns(pictures[block], windows)
        np.matmul(filters, columns.reshape(-1, groups, inputs, count), out=y[block])
        if bias is not None:
            y[block] += bias.data.reshape(groups, outputs // groups, 1)
    y_shape = y.shape

    def backward(dy):
        dx = np.empty_like(pictures) if x_needs else None
        dw = np.zeros((groups, inputs, outputs // groups), filters.dtype)  # transposed: see below
        dy = np.ascontiguousarray(dy).reshape(y_shape)
        for block in blocks:
            columns = to_columns(pictures[block], windows)
            matrix = columns.reshape(-1, groups, inputs, count)
            if w_needs:
                dw += (matrix @ dy[block].swapaxes(2, 3)).sum(0)  # X dY^T takes a fifth less time than dY X^T
            if x_needs:
                np.matmul(filters.swapaxes(1, 2), dy[block], out=matrix)  # dX in the memory of X
                dx[block] = from_columns(columns, windows, pictures.shape[2:])
        dw = np.ascontiguousarray(dw.swapaxes(1, 2)).reshape(w_shape) if w_needs else None
        return (dx, dw) if bias is None else (dx, dw, sum_over(sum_over(dy, (3,)), (0,)).reshape(outputs))

    y = y.reshape(batch, outputs, *windows.size)
    return node(y, (x, weight) if bias is None else (x, weight, bias), backward, "conv2d")


def to_columns(pictures: Array, windows: Windows) -> Array:
    """The windows of a few pictures: (n, C, H, W) -> (n, C, k l, H', W')."""
    memory, inside, places = room(windows, pictures.shape, pictures.dtype)
    inside[...] = pictures
    columns = np.empty((*pictures.shape[:2], len(places), *windows.size), pictures.dtype)
    for number, place in enumerate(places):
        pixels = memory[place]
        columns[:, :, number].reshape(pixels.shape)[...] = pixels  # reshape gives a view
    clear_margins(columns, windows)
    return columns


def from_columns(columns: Array, windows: Windows, size: Pair) -> Array:
    """Add each number at the place from which `to_columns` copied it. Returns (n, C, H, W), a view."""
    memory, inside, places = room(windows, (*columns.shape[:2], *size), columns.dtype)
    clear_margins(columns, windows)
    for number, place in enumerate(places):
        pixels = memory[place]
        pixels += columns[:, :, number].reshape(pixels.shape)
    return inside


def room(windows: Windows, shape: tuple[int, ...], dtype: np.dtype) -> tuple[Array, Array, list[tuple]]:
    """Zeroed memory for padded pictures, the pictures in it (n, C, H, W), and where in it the places of windows are.

    Where y is as wide as x, as with 3 x 3 pixels and padding 1, a picture is kept as one long row without left and
    right margins. The pixels at one place in all windows are then a single piece of this row, and NumPy copies one long
    piece several times as fast as H' short ones. Where a window should read a margin, it reads the row above or below,
    until `clear_margins` sets those numbers to 0.
    """
    (n, channels, h, w), (p, q), (down, across) = shape, windows.padding, windows.size
    if not windows.keep_width():
        memory = np.zeros((n, channels, h + 2 * p, w + 2 * q), dtype)
        return memory, memory[..., p : p + h, q : q + w], windows.places()
    memory = np.zeros((n, channels, q + (h + 2 * p) * w + q), dtype)
    inside = memory[..., q + p * w : q + (p + h) * w].reshape(shape)
    starts = [rows.start * w + columns.start for _, rows, columns in windows.places()]
    return memory, inside, [(..., slice(start, start + down * across)) for start in starts]


def clear_margins(columns: Array, windows: Windows) -> None:
    """Set to 0 what lies in the margins left and right of the pictures, if `room` left them out."""
    if windows.keep_width():
        for number, (_, _, columns_of_pixels) in enumerate(windows.places()):
            left = windows.padding[1] - columns_of_pixels.start  # how many lie in the left margin; negative: the right
            columns[..., number, :, slice(left) if left >= 0 else slice(left, None)] = 0


conv2d = ReferenceAndFused(conv2d_composed, cpu=conv2d_fused)
