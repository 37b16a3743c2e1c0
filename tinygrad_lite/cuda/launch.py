"""From a CUDA source file to a running kernel.

A source file does not fix the types of its arrays: `kernel("layer_norm", "layer_norm_forward", X=x.dtype)` compiles
layer_norm.cu with X defined as float, double or bf16 when it is first called with that type. CuPy keeps compiled
kernels in ~/.cupy, so the second or two that this takes is spent only once per machine.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tinygrad_lite.cuda.precision import accumulation_type
from tinygrad_lite.device import Array
from tinygrad_lite.tensor import Tensor

SOURCES = Path(__file__).parent
FLOATS = "fdE"  # the types in which kernels compute: float32, float64, bfloat16 (their `dtype.char`)
C_NAMES = {"float32": "float", "float64": "double", "bfloat16": "bf16", "int64": "long long", "bool": "bool"}
OPTIONS = ("-std=c++17",)
ROWS = 4  # rows of a matrix per block, where each warp takes one


@functools.cache
def kernel(file: str, name: str, **types: Any) -> Callable:
    """The kernel of this name in a source file, compiled with these names defined as types or numbers."""
    import cupy

    return cupy.RawModule(code=source(file), options=(*OPTIONS, *definitions(**types))).get_function(name)


@functools.cache
def source(file: str) -> str:
    """The text of a source file, with common.cuh in front and each `#include` replaced by the file it names."""
    text = f'#include "common.cuh"\n{text_of(f"{file}.cu")}'
    return re.sub(r'^#include "(.+)"$', lambda line: text_of(line[1]), text, flags=re.MULTILINE)


def text_of(name: str) -> str:
    """The text of a file in this folder."""
    return (SOURCES / name).read_text(encoding="utf-8")


def definitions(**types: Any) -> tuple[str, ...]:
    """Compiler options that define each name as a C type or a number, and A as the accumulation type."""
    meanings = {name: C_NAMES.get(getattr(kind, "name", ""), str(kind)) for name, kind in types.items()}
    meanings["A"] = "double" if "double" in meanings.values() else "float"
    return tuple(f"-D{name}={meaning}" for name, meaning in meanings.items())


def are_known(x: Tensor, *parameters: Tensor | None) -> bool:
    """Whether there are kernels for these types: x is one of FLOATS, and its parameters have its accumulation type."""
    return x.dtype.char in FLOATS and all(p is None or p.dtype == accumulation_type(x.dtype) for p in parameters)


def launch(function: Callable, blocks: tuple[int, ...], threads: tuple[int, ...], *arguments: Any) -> None:
    """Launch a kernel, without waiting for its end.

    Args:
        blocks, threads: how many blocks, and threads in each of them, along up to three axes. Without blocks nothing
            is launched.
        arguments: those of the kernel. An integer is passed as `long long`, any other number as `double`, None as a
            null pointer.
    """
    if 0 not in blocks:
        function(blocks, threads, in_c(*arguments))


def in_c(*arguments: Any) -> tuple:
    """The arguments of a kernel in the types that CuPy passes to C."""
    return tuple([to_c(argument) for argument in arguments])


def to_c(argument: Any) -> Any:
    """An argument in the type that CuPy passes to C as described in `launch`; arrays are passed as they are."""
    convert = CONVERSIONS.get(type(argument))
    return argument if convert is None else convert(argument)


CONVERSIONS: dict[type, Callable[[Any], Any]] = {  # looked up, since each launch has about twenty arguments
    **dict.fromkeys((int, bool, np.int32, np.bool_), np.int64),
    **dict.fromkeys((float, np.float32), np.float64),
    type(None): lambda _: np.int64(0),
}


def launch_rows(function: Callable, rows: int, *arguments: Any) -> None:
    """Launch a kernel in which each warp takes one row: blockIdx.x and threadIdx.y select it, threadIdx.x is within it.

    The number of rows is its first argument, because some warps of the last block may have none.
    """
    launch(function, *blocks_of_rows(rows), rows, *arguments)


def blocks_of_rows(rows: int) -> tuple[tuple[int], tuple[int, int]]:
    """The blocks and threads of a kernel in which each warp takes one row."""
    return (-(-rows // ROWS),), (32, ROWS)


def launch_elements(function: Callable, count: int, *arguments: Any) -> None:
    """Launch a kernel in which each thread takes one element or pack; their number is its first argument."""
    launch(function, (-(-count // 256),), (256,), count, *arguments)


def pack(width: int, *arrays: Array | None) -> int:
    """How many neighbours a thread can fetch at once from rows of this width, in all of these arrays: 4 or 1.

    The address of four elements fetched together must be a multiple of their size.
    """
    fits = width % 4 == 0 and all(a is None or a.data.ptr % (4 * a.itemsize) == 0 for a in arrays)
    return 4 if fits else 1
