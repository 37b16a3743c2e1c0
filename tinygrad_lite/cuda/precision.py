"""In which precision a GPU multiplies matrices: one switch for the whole program, as for the composed operations.

    float32     as on the CPU: products of float32, exact to 24 bits
    tf32        the same arrays, but the matrix units read only 11 bits of each factor: up to 8 times as fast
    bfloat16    what flows from layer to layer has 8 bits and half the bytes; sums, weights, their gradients, the
                stream that the blocks add to, and the loss stay float32

The range of all three is that of float32, so no loss needs scaling. The last is what PyTorch calls autocast: weights
are rounded to bfloat16 each time they are used, and small updates are not lost, because they go to float32.

Reference: Micikevicius et al. 2018 (arXiv:1710.03740) on weights in float32; Kalamkar et al. 2019 (arXiv:1905.12322) on
bfloat16.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from tinygrad_lite.cli.errors import OptionError
from tinygrad_lite.device import DeviceError, get_device

PRECISIONS = ("float32", "tf32", "bfloat16")
_precision = "float32"


def set_precision(name: str) -> None:
    """Choose one of PRECISIONS for all that follows on a GPU; float64 tensors are always multiplied exactly."""
    global _precision
    if name not in PRECISIONS:
        raise ValueError(f"precision {name!r}: there are {', '.join(PRECISIONS)}")
    if name == "bfloat16":
        bfloat16()  # if it cannot be had, say so now
    _precision = name


def get_precision() -> str:
    """The precision that is chosen."""
    return _precision


def check_precision(dtype: str, device: str) -> None:
    """Raise OptionError if --dtype asks for a precision that --device does not have; DeviceError as `bfloat16`."""
    if dtype not in PRECISIONS[1:]:
        return
    if device != "cuda":
        raise OptionError(
            f"--dtype {dtype} is a precision of a GPU's matrix units: give --device cuda too, or take float32"
        )
    capability = get_device(device).capability
    if capability < 8.0:
        raise OptionError(
            f"--dtype {dtype}: this GPU's matrix units do not have it (its compute capability is {capability}, and 8.0 "
            "is needed): take float32"
        )
    if dtype == "bfloat16":
        bfloat16()  # if it is missing, better to know now


@contextmanager
def precision(name: str) -> Iterator[None]:
    """Inside, products are computed in this precision."""
    before = _precision
    set_precision(name)
    try:
        yield
    finally:
        set_precision(before)


def bfloat16() -> np.dtype:
    """The type of arrays of bfloat16: NumPy itself has none, `ml_dtypes` comes with the extras cuda12 and cuda13.

    Raises: DeviceError if that is not installed.
    """
    try:
        import ml_dtypes
    except ImportError:
        raise DeviceError(
            "--dtype bfloat16 needs the package ml_dtypes, which is not installed: pip install ml_dtypes"
        ) from None

    return np.dtype(ml_dtypes.bfloat16)


def summed_in(dtype: np.dtype) -> np.dtype:
    """The type in which numbers of this type are added up, and which the parameters beside them have."""
    return np.dtype("float64" if dtype == np.float64 else "float32")


def flowing(dtype: np.dtype) -> np.dtype:
    """The type of what an operation hands on, if it was given this one: bfloat16 if that is chosen."""
    return bfloat16() if _precision == "bfloat16" and dtype == np.float32 else dtype
