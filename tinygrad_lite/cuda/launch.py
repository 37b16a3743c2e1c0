"""From a CUDA source file to a running kernel.

A source file leaves open of which type its arrays are: `kernel("layer_norm", "layer_norm_forward", X=x.dtype)` compiles
layer_norm.cu with X defined as float, double or bf16, the first time that it is asked for. CuPy keeps what was compiled
in ~/.cupy, so it takes its second or two only once on a machine.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tinygrad_lite.cuda.precision import summed_in
from tinygrad_lite.device import Array
from tinygrad_lite.tensor import Tensor

SOURCES = Path(__file__).parent
FLOATS = ("float32", "float64", "bfloat16")  # the types in which kernels compute
C_NAMES = {"float32": "float", "float64": "double", "bfloat16": "bf16", "int64": "long long", "bool": "bool"}
OPTIONS = ("-std=c++17",)
ROWS = 4  # rows of a matrix that a block takes, where a warp takes one


@functools.cache
def kernel(file: str, name: str, **types: Any) -> Callable:
    """The kernel of this name in a source file, compiled for these types (and, by capital letters too, numbers)."""
    import cupy

    return cupy.RawModule(code=source(file), options=(*OPTIONS, *definitions(**types))).get_function(name)


@functools.cache
def source(file: str) -> str:
    """The text of a source file, with what all begin with in front, and what it includes in the place where it does."""
    text = f'#include "common.cuh"\n{text_of(f"{file}.cu")}'
    return re.sub(r'^#include "(.+)"$', lambda line: text_of(line[1]), text, flags=re.MULTILINE)


def text_of(name: str) -> str:
    """The text of a file in this folder."""
    return (SOURCES / name).read_text(encoding="utf-8")


def definitions(**types: Any) -> tuple[str, ...]:
    """Compiler options that define each name as a C type or a number, and A as the type in which is added up."""
    meanings = {name: C_NAMES.get(getattr(kind, "name", ""), str(kind)) for name, kind in types.items()}
    meanings["A"] = "double" if "double" in meanings.values() else "float"
    return tuple(f"-D{name}={meaning}" for name, meaning in meanings.items())


def are_known(x: Tensor, *parameters: Tensor | None) -> bool:
    """Whether kernels can do this: x is of a type that they know, and its parameters of that in which is added up."""
    return x.dtype.name in FLOATS and all(p is None or p.dtype == summed_in(x.dtype) for p in parameters)


def launch(function: Callable, blocks: tuple[int, ...], threads: tuple[int, ...], *arguments: Any) -> None:
    """Start a kernel: so many blocks of so many threads (each up to three numbers). It does not wait for the end.

    A whole number is handed over as `long long`, any other as `double`, and None as a pointer to nothing. Nothing is
    started for no blocks.
    """
    if 0 not in blocks:
        function(blocks, threads, tuple(as_c(argument) for argument in arguments))


def as_c(argument: Any) -> Any:
    """An argument of a type that CuPy hands over as C expects it."""
    if isinstance(argument, (int, np.integer)):
        return np.int64(argument)
    if isinstance(argument, (float, np.floating)):
        return np.float64(argument)
    return np.int64(0) if argument is None else argument


def launch_rows(function: Callable, rows: int, *arguments: Any) -> None:
    """Start a kernel in which each warp takes one row: threadIdx.x within the row, blockIdx.x and threadIdx.y for it.

    The number of rows is its first argument: in the last block some warps may have none.
    """
    launch(function, (-(-rows // ROWS),), (32, ROWS), rows, *arguments)


def launch_elements(function: Callable, count: int, *arguments: Any) -> None:
    """Start a kernel in which each thread takes one element, or pack; how many there are is its first argument."""
    launch(function, (-(-count // 256),), (256,), count, *arguments)


def pack(width: int, *arrays: Array | None) -> int:
    """How many neighbours in rows of this width a thread can fetch at once, in all of these arrays: 4, or 1.

    Four elements together must begin at a multiple of their size in memory.
    """
    fits = width % 4 == 0 and all(a is None or a.data.ptr % (4 * a.dtype.itemsize) == 0 for a in arrays)
    return 4 if fits else 1
