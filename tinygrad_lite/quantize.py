"""Quantized weights: a matrix in 8 or 4 bits per number, for models that are used or adapted, not trained from scratch.

    w  ~  s level[code]        s: a scale that the numbers of a block share        code: all that is stored of w

The largest number of a block, absmax = max |w|, gets the largest level: s = absmax / max(level). Every number gets the
code of the level nearest to w / s. So nothing is learned and no data are needed, and the error is known in advance.

int8. The levels are the integers from -127 to 127, spaced 1 apart. Rounding to the nearest errs by at most half a step,
and the step is s = absmax / 127, so

    |w - s code| <= absmax / 254

With a scale for each row, each output of a linear map has its own. But one weight of 100 in a row makes the step 0.79,
and weights below 0.39 become 0. With a scale for each block of 64 numbers, such an outlier ruins 63 others, not a row.

NF4, the 4-bit NormalFloat. Trained weights are roughly normal, most of them close to 0. Sixteen equally spaced levels
would waste codes on the tails, so these levels lie at quantiles of the normal distribution, dense where the weights
are: with q the inverse of its distribution function,

    level = q(p) / q(p_max)    p at equal distances from 1 - p_max to 1/2 in 8 values, and from 1/2 to p_max in 9

Each half contains 1/2, so both have the level 0, and one of these is dropped: 16 levels from -1 to 1, with an exact 0,
and one more above 0 than below. The infinite quantile q(1) is avoided by p_max. Of n equally probable intervals, the
middle of the last is at 1 - 1 / 2n; p_max is the mean of this value for n = 15 and 16. The error is at most half the
largest gap between neighbours, from -1 to -0.696: |w - s level| <= 0.152 absmax. That is worse than the 1/15 of equal
spacing. Around 0, where most weights are, half a gap is 0.04 to 0.05.

Double quantization. A float32 scale for 64 numbers takes 32 / 64 = 0.5 bits per weight, an eighth of the codes
themselves. So the scales are quantized as well: minus their mean (they are all positive), to int8 in blocks of 256.
Then a weight takes

    int8, a scale per row of C     8 + 32 / C                       8.056 bits for C = 576
    int8, blocks of 64             8 + 32 / 64                      8.5
    nf4-single                     4 + 32 / 64                      4.5
    nf4                            4 + 8 / 64 + 32 / (64 256)       4.127

The codes are chosen for the scales as they will be read, so a scale that is off by e costs at most e if a weight lies
beyond the last level: with s' the scale as it is read, |w - s' level| <= 0.152 absmax + e. An outlier now reaches
further. The scales of 256 blocks are rounded in the same steps, so it ruins up to 16,384 weights. Trained models have
hardly any: for them double quantization costs next to nothing.

The derivative. In y = x W^T + b a quantized W is a constant, so the only one is

    dx = dy W

Forward and backward read the codes, a few rows of W at a time; no other copy of W exists in between. The numbers of
such rows stay in the processor's cache, and so do the 65,536 quadruples of levels in which two bytes of NF4 are looked
up at once.

References: Dettmers et al. 2022 (arXiv:2208.07339), section 2, on absmax; Dettmers et al. 2023 (QLoRA,
arXiv:2305.14314), section 3 and appendix E, whose levels these are, and whose scales are 8-bit floats instead of int8.
"""

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from statistics import NormalDist

import numpy as np

from tinygrad_lite.errors import OptionError
from tinygrad_lite.functional.linear import check_linear, linear_composed
from tinygrad_lite.functional.registry import is_composed
from tinygrad_lite.nn import Linear, Module
from tinygrad_lite.nn.module import replace
from tinygrad_lite.tensor import Tensor, node, noted
from tinygrad_lite.transformer import Block


def normal_float_levels() -> np.ndarray:
    """The 16 levels of NF4, from -1 to 1, as float64."""
    quantile, p_max = NormalDist().inv_cdf, 1 - (1 / 32 + 1 / 30) / 2
    below, above = ([quantile(p) for p in np.linspace(0.5, p_max, count)] for count in (8, 9))
    return np.array([-q for q in below[:0:-1]] + above) / above[-1]


LEVELS = {8: np.arange(-127.0, 128.0), 4: normal_float_levels()}  # by the number of bits


@dataclass(frozen=True)
class Kind:
    """How numbers are stored.

    Attributes:
        bits: per code, 8 (int8) or 4 (NF4).
        block: how many consecutive numbers share a scale; None: each row has one.
        double: whether the scales are quantized too.
    """

    bits: int
    block: int | None = 64
    double: bool = False

    def __post_init__(self) -> None:
        if self.bits not in LEVELS or (self.block is not None and self.block < 1):
            raise ValueError(f"{self}: a code has 8 or 4 bits, and a block at least one number")
        if self.bits == 4 and (self.block is None or self.block % 4):
            raise ValueError(f"{self}: codes of 4 bits need a block of a multiple of 4 numbers")


KINDS = {"int8": Kind(8, block=None), "int8-block": Kind(8), "nf4": Kind(4, double=True), "nf4-single": Kind(4)}
_OF_SCALES = Kind(8, block=256)  # how double quantization stores scales


def rounded_composed(w: np.ndarray, kind: Kind) -> np.ndarray:
    """What quantization leaves of a matrix: the definition, for small matrices."""
    levels, block = LEVELS[kind.bits], kind.block or w.shape[1]
    blocks = np.pad(w.ravel(), (0, -w.size % block)).reshape(-1, block)
    scales = abs(blocks).max(axis=1) / levels[-1]
    if kind.double:
        scales = rounded_composed((scales - scales.mean())[None], _OF_SCALES)[0] + scales.mean()
    scales = scales[:, None]
    distances = abs(blocks[..., None] / np.where(scales == 0, 1, scales)[..., None] - levels)
    return (scales * levels[distances.argmin(-1)]).ravel()[: w.size].reshape(w.shape)


# --- the packed version -----------------------------------------------------------------------------------------

AT_ONCE = 1 << 18  # numbers that are computed from their codes at a time: 1 MiB in float32


class Quantized(Module):
    """A matrix in 8 or 4 bits per number: a constant, without parameters.

    Attributes:
        shape: of the matrix.
        dtype: of its numbers when they are read: float32, or float64 if it was made from that.
        codes: (blocks, numbers per block) int8; for NF4 (blocks, half of that) uint8, the first of two in the upper
            half of its byte. The last block is padded with zeros.
        scales: one per block, or with double quantization another `Quantized`, of the scales minus their `mean`.
    """

    ndim, device, requires_grad = 2, "cpu", False

    def __init__(self, w: np.ndarray, kind: Kind) -> None:
        """Quantize a matrix of floats. One without values (`nn.shapes_only`) becomes another without values.

        Raises: ValueError if it is not such a matrix, or holds NaN, infinity, or too large a number.
        """
        if w.ndim != 2 or w.dtype.kind != "f":
            raise ValueError(f"Quantized: needs a matrix of floats, not {w.dtype} of shape {w.shape}")
        self.shape, self.kind = w.shape, kind
        self.dtype = np.result_type(w.dtype, np.float32)
        self.block = kind.block or max(w.shape[1], 1)
        blocks = -(-w.size // self.block)
        if not any(w.strides) and not w[:1, :1].any():  # a single 0, broadcast to a shape
            self._keep_scales(np.broadcast_to(self.dtype.type(0), blocks), 0.0)
            code = np.int8(0) if kind.bits == 8 else np.uint8(0)
            codes = np.broadcast_to(code, (blocks, self.block * kind.bits // 8))
        else:
            numbers = np.zeros((blocks, self.block), self.dtype)
            numbers.reshape(-1)[: w.size] = w.reshape(-1)
            codes = self._quantize(numbers)
        self.register_buffer("codes", Tensor.wrap(codes))

    def _quantize(self, numbers: np.ndarray) -> np.ndarray:
        """Choose the scales of (blocks, numbers), which are overwritten; returns the codes."""
        largest = self.dtype.type(LEVELS[self.kind.bits][-1])
        with np.errstate(all="ignore"):
            scales = np.abs(numbers).max(axis=1) / largest
            if not np.isfinite(scales * largest).all():
                raise ValueError("Quantized: the matrix holds NaN, infinity, or numbers too large to be quantized")
            self._keep_scales(scales, scales.mean(dtype=np.float64) if self.kind.double and len(scales) else 0.0)
            scales = self._read_scales()[:, None]
            numbers /= np.where(scales == 0, 1, scales)
        return _encode(numbers, self.kind.bits)

    def _keep_scales(self, scales: np.ndarray, mean: float) -> None:
        """Store the scales (blocks,), quantized if the kind says so."""
        if not self.kind.double:
            self.register_buffer("scales", Tensor.wrap(scales))
            return
        self.register_buffer("mean", Tensor.wrap(np.array(mean, self.dtype)))
        self.scales = Quantized((scales - self.mean.data if mean else scales)[None], _OF_SCALES)

    def _tree(self, seen: set[int]) -> list[str]:
        return [f"Quantized, {self.shape} in {self.kind.bits} bits each"]

    def numel(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The memory of codes and scales."""
        return sum(tensor.data.nbytes for tensor in self.buffers())

    def row_blocks(self) -> Iterator[tuple[slice, np.ndarray]]:
        """The matrix, a few rows (R, C) at a time with their places, always in the same memory."""
        rows, width = self.shape
        unit = self.block // math.gcd(self.block, width)  # after this many rows, a row begins where a block begins
        step = unit * max(1, AT_ONCE // max(1, unit * width))
        scales = self._read_scales()[:, None]
        memory = np.empty((-(-min(step, rows) * width // self.block), self.block), self.dtype)
        for start in range(0, rows, step):
            stop = min(start + step, rows)
            blocks = slice(start * width // self.block, -(-stop * width // self.block))
            numbers = memory[: blocks.stop - blocks.start]
            _decode(self.codes.data[blocks], self.kind.bits, numbers)
            numbers *= scales[blocks]
            yield slice(start, stop), numbers.reshape(-1)[: (stop - start) * width].reshape(stop - start, width)

    def numpy(self) -> np.ndarray:
        """The whole matrix."""
        w = np.empty(self.shape, self.dtype)
        for rows, numbers in self.row_blocks():
            w[rows] = numbers
        return w

    def _read_scales(self) -> np.ndarray:
        return self.scales.numpy()[0] + self.mean.data if self.kind.double else self.scales.data


def _encode(x: np.ndarray, bits: int) -> np.ndarray:
    """The codes of the levels nearest to x (blocks, numbers), which is in units of the scale."""
    if bits == 8:
        return np.clip(np.rint(x), -127, 127).astype(np.int8)
    codes = np.zeros(x.shape, np.uint8)
    for border in (LEVELS[4][1:] + LEVELS[4][:-1]) / 2:  # fifteen comparisons are faster than a binary search
        codes += (x > x.dtype.type(border)).view(np.uint8)
    return codes[:, 0::2] << 4 | codes[:, 1::2]


def _decode(codes: np.ndarray, bits: int, out: np.ndarray) -> None:
    """The levels of codes, in units of the scale."""
    if bits == 8:
        out[...] = codes
    else:
        pairs = np.ascontiguousarray(codes).view(np.uint16)  # without values, it is a single 0
        _quadruples(out.dtype).take(pairs, 0, out.reshape(len(out), out.shape[1] // 4, 4), mode="clip")


@functools.cache
def _quadruples(dtype: np.dtype) -> np.ndarray:
    """The four levels that each pair of bytes encodes: (65,536, 4), 1 MiB in float32."""
    pairs = np.arange(1 << 16, dtype=np.uint16).view(np.uint8).reshape(-1, 2)
    return LEVELS[4].astype(dtype)[np.stack([pairs >> 4, pairs & 15], axis=-1).reshape(-1, 4)]


# --- linear maps ------------------------------------------------------------------------------------------------


def quantized_linear(x: Tensor, weight: Quantized, bias: Tensor | None = None) -> Tensor:
    """y = x W^T + b with a quantized W, which is a constant, as is b.

    Args:
        x: (..., C_in) float tensor on the CPU.
        weight: (C_out, C_in).
        bias: (C_out,) or None.
    Returns: (..., C_out).
    Raises: ValueError if the shapes do not fit.
    """
    noted(*weight.buffers(), *(() if bias is None else (bias,)))
    if is_composed():
        return linear_composed(x, Tensor(weight.numpy()), bias)
    check_linear(x, weight, bias)
    x_shape, x_dtype = x.shape, x.dtype
    inputs = x.data.reshape(-1, x_shape[-1])
    y = np.empty((len(inputs), weight.shape[0]), np.result_type(inputs, weight.dtype))
    for rows, w in weight.row_blocks():
        np.matmul(inputs, w.T, out=y[:, rows])
    if bias is not None:
        y += bias.data

    def backward(dy):
        dy = dy.reshape(-1, weight.shape[0])
        dx = np.zeros((len(dy), weight.shape[1]), y_dtype)
        for rows, w in weight.row_blocks():
            dx += dy[:, rows] @ w
        return (dx.astype(x_dtype, copy=False).reshape(x_shape),)

    y_dtype = y.dtype
    y = y.reshape(*x_shape[:-1], weight.shape[0])
    return node(y, (x,), backward, "quantized_linear", linear=True, uses_result=False)


class QuantizedLinear(Module):
    """A linear map y = x W^T + b whose W is stored in 8 or 4 bits per number. It has no trainable parameters.

    Attributes:
        in_features, out_features: the widths C_in and C_out.
        weight: the `Quantized` matrix (C_out, C_in).
        bias: (C_out,), a constant, or None.
    """

    def __init__(self, linear: Linear, kind: Kind) -> None:
        """Quantize a linear map on the CPU. Raises: ValueError if its weights cannot be quantized."""
        if linear.weight.device != "cpu":
            raise ValueError(f"QuantizedLinear: quantized weights are for the CPU, not for {linear.weight.device}")
        self.out_features, self.in_features = linear.weight.shape
        self.weight = Quantized(linear.weight.data, kind)
        self.register_buffer("bias", None if linear.bias is None else linear.bias.detach())

    def forward(self, x: Tensor) -> Tensor:
        """x (..., in) -> (..., out)."""
        return quantized_linear(x, self.weight, self.bias)


# --- models -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Saving:
    """What quantization changed.

    Attributes:
        weights: numbers that are now quantized.
        bits: per number, including its share of the scales.
        before, after: bytes of all weights of the model.
    """

    weights: int
    bits: float
    before: int
    after: int

    def describe(self) -> str:
        """The same in one line."""
        before, after = (f"{count / 1e6:,.1f} MB" for count in (self.before, self.after))
        return f"{self.weights:,} weights take {self.bits:.3f} bits each; all weights {after} instead of {before}"


def quantize(model: Module, kind: str, targets: Sequence[str] = ("*",)) -> Saving:
    """Quantize the linear maps in a model's blocks, in place and one after the other.

    They hold most weights, and what they compute is added to a sum of many parts. Everything else is unchanged.
    Gains, shifts and biases are few, and each belongs to a whole channel. The rows of the embedding are looked up, not
    multiplied; and the output matrix, often the same, makes the logits: no later layer can repair its errors.

    Args:
        kind: one of `KINDS`.
        targets: patterns such as "*.mlp.*"; only linear maps whose dotted name matches one are quantized.
    Raises: OptionError if there are no such maps, no such kind, or weights that cannot be quantized.
    """
    if kind not in KINDS:
        raise OptionError(f"weights cannot be quantized as {kind!r}, only as {', '.join(KINDS)}")
    found = [
        (name, part)
        for block_name, block in model.named_modules()
        if isinstance(block, Block)
        for name, part in block.named_modules(block_name)
        if type(part) is Linear and any(fnmatchcase(name, target) for target in targets)
    ]
    if not found:
        wanted = f"has a linear map called {' or '.join(targets)}"
        raise OptionError(f"nothing to quantize: no block of this {type(model).__name__} {wanted}")
    before, weights, size = weight_bytes(model), 0, 0
    while found:
        name, part = found.pop(0)  # so that each map is freed when the next one is quantized
        try:
            quantized = replace(model, name, QuantizedLinear(part, KINDS[kind])).weight
        except ValueError as error:
            raise OptionError(f"{name} cannot be quantized: {error}") from None
        weights += quantized.numel()
        size += quantized.nbytes
    return Saving(weights, 8 * size / weights, before, weight_bytes(model))


def weight_bytes(model: Module) -> int:
    """The memory of all weights of a model."""
    return sum(tensor.data.nbytes for tensor in [*model.parameters(), *model.buffers()])
