"""The precision in which a GPU multiplies matrices: one setting for the whole program.

    float32     as on the CPU: products of float32, exact to 24 bits
    tf32        the same arrays, but the matrix units read only 11 bits of each factor: up to 8 times as fast
    bfloat16    activations inside a block have 8 bits and half the bytes; sums, weights, their gradients, the
                residual stream, and the loss stay float32

All three have the range of float32, so the loss needs no scaling. The last is what PyTorch calls autocast: weights are
rounded to bfloat16 each time they are used, and small updates are not lost, because they are made in float32.

Reference: Micikevicius et al. 2018 (arXiv:1710.03740) on weights in float32; Kalamkar et al. 2019 (arXiv:1905.12322) on
bfloat16.
"""

import functools
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from tinygrad_lite.device import Device, DeviceError, device_in_use, get_device
from tinygrad_lite.errors import OptionError

PRECISIONS = ("float32", "tf32", "bfloat16")
FLOAT32, FLOAT64 = np.dtype("float32"), np.dtype("float64")
_precision = "float32"


def set_precision(name: str) -> None:
    """Choose one of PRECISIONS for a GPU from now on; float64 tensors are always multiplied in float64.

    Raises: DeviceError if it is unavailable (see `check_support`).
    """
    global _precision
    if name not in PRECISIONS:
        raise ValueError(f"precision {name!r}: must be one of {', '.join(PRECISIONS)}")
    check_support(name, device_in_use("cuda"))
    _precision = name


def get_precision() -> str:
    """The precision in use."""
    return _precision


def check_precision(dtype: str, device: str) -> None:
    """Raise OptionError if --dtype asks for a GPU's precision on the CPU; DeviceError as in `check_support`."""
    if dtype not in PRECISIONS[1:]:
        return
    if device != "cuda":
        raise OptionError(
            f"--dtype {dtype} is a precision of a GPU's matrix units: give --device cuda too, or use float32"
        )
    check_support(dtype, get_device(device))


def check_support(name: str, gpu: Device | None) -> None:
    """Raise DeviceError if a precision is unavailable on this GPU; without one, only if `ml_dtypes` is missing."""
    if gpu and name != "float32" and gpu.capability < 8.0:
        raise DeviceError(
            f"precision {name}: this GPU's matrix units do not support it (its compute capability is {gpu.capability}, "
            "and 8.0 is needed): use float32"
        )
    if name != "bfloat16":
        return
    dtype = bfloat16()
    try:
        if gpu:
            gpu.xp.empty(0, dtype)
    except (TypeError, ValueError):  # decided when CuPy was imported
        raise DeviceError(
            f"precision bfloat16: CuPy supports it only with NumPy 2.1.2 or newer (this is {np.__version__}), and if "
            'ml_dtypes was installed before CuPy was imported: pip install "numpy>=2.1.2" ml_dtypes, and start again'
        ) from None


@contextmanager
def precision(name: str) -> Iterator[None]:
    """Inside this context, products are computed in this precision."""
    before = _precision
    set_precision(name)
    try:
        yield
    finally:
        set_precision(before)


@functools.cache
def bfloat16() -> np.dtype:
    """The dtype bfloat16. NumPy has none; it comes from `ml_dtypes`, which the extras cuda12 and cuda13 install.

    Raises: DeviceError if `ml_dtypes` is not installed.
    """
    try:
        import ml_dtypes
    except ImportError:
        raise DeviceError(
            "precision bfloat16 needs the package ml_dtypes, which is not installed: pip install ml_dtypes"
        ) from None

    return np.dtype(ml_dtypes.bfloat16)


def accumulation_type(dtype: np.dtype) -> np.dtype:
    """The type in which numbers of this type are summed, and the type of the parameters used with them."""
    return FLOAT64 if dtype == FLOAT64 else FLOAT32


def activation_type(dtype: np.dtype) -> np.dtype:
    """The type of an operation's result for an input of this type: bfloat16 if that is the precision in use."""
    return bfloat16() if _precision == "bfloat16" and dtype == FLOAT32 else dtype
