"""Devices: NumPy on the CPU, CuPy on a CUDA GPU, with the same code for both.

The *data* decide. Every array type belongs to one `Device`, which names the module (`xp`) that computes with it; an
operation calls `xp_of(array)` and writes `xp.exp(array)`. Tensors of both devices can be used in one process, and there
is no global switch. CuPy is imported only on request, and only in tinygrad_lite/cuda/. The rest of the engine reaches
that folder in two ways: an operation's version for GPUs through the registry (functional/registry.py), everything else
through `Device.module`.

The rest of the file contains what NumPy and CuPy do differently or not at all: sums that keep their digits, and adding
rows into a table at repeated positions.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from tinygrad_lite.errors import UserError

Array = Any  # numpy.ndarray or cupy.ndarray: whatever a registered Device owns


class DeviceError(UserError):
    """A device that was requested but cannot be used."""


# --- devices -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Device:
    """A kind of array, and the module that computes with it."""

    name: str
    xp: ModuleType
    array_type: type
    from_host: Callable[[np.ndarray], Array]
    to_host: Callable[[Array], np.ndarray]
    synchronize: Callable[[], None]  # wait until all queued work is done (for timing)
    memory: Callable[[], tuple[int, int] | None] = lambda: None  # bytes (free, total) of a GPU
    capability: float = 0.0  # a GPU's compute capability, such as 8.0 or 9.0

    def module(self, name: str) -> ModuleType:
        """A module that only this device has: `get_device("cuda").module("guard")` is tinygrad_lite/cuda/guard.py.

        It is imported on first use, because it needs tensors, and tensors need devices.
        """
        return import_module(f"tinygrad_lite.{self.name}.{name}")


_BY_TYPE: dict[type, Device] = {}
_BY_NAME: dict[str, Device] = {}


def register_device(device: Device) -> None:
    """Register a device under its name and the type of its arrays."""
    _BY_TYPE[device.array_type] = device
    _BY_NAME[device.name] = device


register_device(Device("cpu", np, np.ndarray, np.asarray, np.asarray, lambda: None))


def device_of(array: Array) -> Device:
    """The device on which an array lives."""
    try:
        return _BY_TYPE[type(array)]
    except KeyError:
        known = ", ".join(kind.__name__ for kind in _BY_TYPE)
        raise TypeError(f"a {type(array).__name__} is not an array of a known device ({known})") from None


def xp_of(array: Array) -> ModuleType:
    """The module that computes with an array: numpy or cupy."""
    return device_of(array).xp


def on_host(array: Array) -> np.ndarray:
    """The same numbers on the CPU: the array itself if it is there."""
    return device_of(array).to_host(array)


def is_float(dtype: np.dtype) -> bool:
    """Whether a type has fractions: float16, 32, 64, or bfloat16 (on GPUs only; NumPy lacks it)."""
    return dtype.kind == "f" or dtype.name == "bfloat16"


def get_device(name: str) -> Device:
    """The device called `cpu` or `cuda`; `auto` is `cuda` if it works, else `cpu`.

    Raises: DeviceError with the reason and, if there is one, the command that fixes it.
    """
    if name == "auto":
        name = "cpu" if why_no_cuda() else "cuda"
    if name not in _BY_NAME and name == "cuda":
        from tinygrad_lite.cuda.find import find_cuda

        register_device(find_cuda())
    if name not in _BY_NAME:
        raise DeviceError(f"there is no device {name!r}: use one of {', '.join([*_BY_NAME, 'cuda', 'auto'])}")
    return _BY_NAME[name]


def device_in_use(name: str) -> Device | None:
    """The device of this name if something has asked for it before, else None: looking for a GPU takes a second."""
    return _BY_NAME.get(name)


def why_no_cuda() -> str:
    """The reason why `cuda` cannot be used here; empty if it can."""
    try:
        get_device("cuda")
    except DeviceError as error:
        return str(error)
    return ""


# --- sums -----------------------------------------------------------------------------------------------------

ROWS = 16  # numbers that are added in float32
ONES = np.ones(ROWS, np.float32)  # a product with them is a sum, for which the BLAS library takes half of NumPy's time
LARGE = 1 << 14  # elements; smaller arrays are converted to float64 as a whole
add_up = np.add.reduce  # looked up once, which matters for small sums


def sum_over(array: Array, axes: tuple[int, ...] | None, keepdims: bool = False) -> Array:
    """The sum over these axes (None: all), like `array.sum`, but float32 keeps its digits.

    NumPy adds neighbours in memory pairwise, but rows one after the other, and each float32 addition has an error of up
    to 2^-24 of the sum so far: the sum of a column of ones stops growing at 2^24 = 16,777,216. Here 16 rows at a time
    are added in float32, with an error of at most 15 * 2^-24 = 9e-7 of the sum of all |x|, and these sums in float64.
    """
    if type(array) is not np.ndarray:
        return array.sum(axis=axes, keepdims=keepdims)
    if array.size <= ROWS or array.dtype != np.float32:
        return add_up(array, axes, None, None, keepdims)
    axes = tuple(range(array.ndim)) if axes is None else axes
    if array.size < LARGE or not array.flags.c_contiguous or not axes or axes != tuple(range(axes[0], axes[-1] + 1)):
        return np.asarray(add_up(array, axes, np.float64, keepdims=keepdims), np.float32)
    shape, first, end = array.shape, axes[0], axes[-1] + 1
    before, count, after = map(math.prod, (shape[:first], shape[first:end], shape[end:]))
    x = array.reshape(before, count, after)
    if count <= ROWS or after == 1:
        y = add_up(x, 1)
    else:
        side = max(1, 1024 // after)  # short rows are joined, because NumPy is slow at adding short rows
        whole = count - count % (ROWS * side)
        y = ONES @ x[:, :whole].reshape(before, whole // (ROWS * side), ROWS, side * after)
        y = add_up(y, 1, np.float64).reshape(before, side, after).sum(1)
        if whole < count:
            y += add_up(x[:, whole:], 1, np.float64)
    kept = (1,) * len(axes) if keepdims else ()
    return y.astype(np.float32, copy=False).reshape(shape[:first] + kept + shape[end:])


# --- adding at repeated positions ----------------------------------------------------------------------------

FEW = 1 << 12  # elements; smaller arrays are converted to float64 as a whole


def positions(index: tuple, shape: tuple[int, ...], xp: ModuleType) -> Array:
    """The positions of the elements x[index] in an array x of this shape, counted row by row."""
    total = xp.broadcast_to(xp.zeros((), np.int64), shape)[index]
    for axis, size in enumerate(shape):
        along = xp.arange(size).reshape(-1, *[1] * (len(shape) - axis - 1))
        total = total * size + xp.broadcast_to(along, shape)[index]
    return total


def scatter_add(target: Array, index: Any, values: Array) -> None:
    """target[index] += values, in place; a position that occurs twice receives both values.

    (Plain `target[index] += values` would keep only the last one.) The order of additions is fixed, and on the CPU
    float32 is added in float64: a position may occur thousands of times. For a few elements of a large target, the time
    depends on their number, not on the target's size.

    Args:
        index: as from `raw_index`, or one array.
    """
    index = index if isinstance(index, tuple) else (index,)
    if not [part for part in index if hasattr(part, "dtype")]:  # without arrays, no position occurs twice
        view = target[index]
        view += values
        return
    device, xp = device_of(target), xp_of(target)
    if not values.size or (device.name != "cuda" and target.size <= max(4 * values.size, FEW)):
        sums = xp.zeros(target.shape)
        xp.add.at(sums, index, values.astype(np.float64))
        target += sums.astype(target.dtype)
        return
    # If every part is about one axis, the axes that follow are whole: then rows are added, not single elements.
    is_simple = all(type(part) in (int, slice) or (hasattr(part, "dtype") and part.dtype.kind != "b") for part in index)
    shape, rest = (target.shape[: len(index)], target.shape[len(index) :]) if is_simple else (target.shape, ())
    ids = positions(index, shape, xp)
    if device.name == "cuda":  # sums of bfloat16 would be coarse
        rows = xp.ascontiguousarray(values, None if values.dtype.kind == "f" else np.float32).reshape(ids.size, -1)
        sums = device.module("embedding").sums_by_token(ids.reshape(-1), rows, math.prod(shape), math.prod(rest))
        target += sums.reshape(target.shape).astype(target.dtype, copy=False)
        return
    found, numbers = xp.unique(ids, return_inverse=True)
    sums = xp.zeros((found.size, *rest), target.dtype)  # only those that occur
    scatter_add(sums, numbers.reshape(ids.shape), values)
    target[xp.unravel_index(found, shape)] += sums


def add_rows(out: Array, ids: Array, rows: Array) -> Array:
    """Add rows to the rows of a table, in place: out[i] += the sum of rows[n] over all n with ids[n] == i.

    This is the gradient of a table look-up. Sorting brings equal ids together, and `add.reduceat` sums each group
    pairwise, about ten times as fast as `scatter_add`.

    Args:
        out: (V, C).
        ids: (N,) integers in [0, V).
        rows: (N, C).
    Returns: out.
    """
    if xp_of(rows) is not np:
        scatter_add(out, ids, rows)
    elif len(ids):
        order = np.argsort(ids, kind="stable")
        sorted_ids = ids[order]
        starts = np.flatnonzero(np.r_[True, sorted_ids[1:] != sorted_ids[:-1]])
        out[sorted_ids[starts]] += np.add.reduceat(rows[order], starts, axis=0)
    return out
