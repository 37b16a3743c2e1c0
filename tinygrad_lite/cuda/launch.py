"""From a CUDA source file to a running kernel.

A source file does not fix the types of its arrays: `kernel("layer_norm", "layer_norm_forward", X=x.dtype)` compiles
layer_norm.cu with X defined as float, double or bf16 when it is first called with that type. CuPy keeps compiled
kernels in ~/.cupy, so the second or two that this takes is spent only once per machine.

CuPy does not check what it passes to a kernel. The bits of the integer 1, read as a `double`, are 4.9e-324; and if an
argument is missing, the kernel reads whatever follows the others. So the parameters of a kernel are read from its
source file: the number of arguments must match, and each is converted to the declared type.
"""

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tinygrad_lite.device import Array
from tinygrad_lite.precision import accumulation_type
from tinygrad_lite.tensor import Tensor

SOURCES = Path(__file__).parent
FLOATS = "fdE"  # the types in which kernels compute: float32, float64, bfloat16 (their `dtype.char`)
C_NAMES = {"float32": "float", "float64": "double", "bfloat16": "bf16", "int64": "long long", "bool": "bool"}
ROWS = 4  # rows of a matrix per block, where each warp takes one


@dataclass(frozen=True)
class Kernel:
    """A compiled kernel.

    Attributes:
        run: CuPy's function run(blocks, threads, arguments), which takes arguments as `in_c` returns them.
        parameters: for each name, the function that converts an argument to the type of the parameter.
    """

    name: str
    run: Callable
    parameters: dict[str, Callable[[Any], Any]]

    def in_c(self, *arguments: Any) -> tuple:
        """The arguments in the types that the kernel declares; TypeError if their number, or one of them, is wrong."""
        if len(arguments) != len(self.parameters):
            raise TypeError(f"kernel {self.name} takes {len(self.parameters)} arguments, not {len(arguments)}")
        # A step passes a thousand arguments. Nearly all are arrays or Python integers, which CuPy takes as they are.
        converted = []
        try:
            for convert, argument in zip(self.parameters.values(), arguments, strict=True):
                if convert is integer:
                    is_ready = type(argument) is int and -LARGEST <= argument <= LARGEST
                else:
                    is_ready = convert is pointer and argument is not None
                converted.append(argument if is_ready else convert(argument))
        except (TypeError, ValueError, OverflowError) as error:
            raise TypeError(f"kernel {self.name}, parameter {[*self.parameters][len(converted)]}: {error}") from error
        return tuple(converted)


@functools.cache
def kernel(file: str, name: str, **types: Any) -> Kernel:
    """The kernel of this name in a source file, compiled with these names defined as types or numbers."""
    import cupy

    code, defined = source(file), definitions(**types)
    run = cupy.RawModule(code=code, options=("-std=c++17", *defined)).get_function(name)
    return Kernel(name, run, parameters_of(code, name, defined[-1].removeprefix("-DA=")))


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
    """Whether kernels can take these: the type of x is one of FLOATS, and its parameters have its accumulation type.

    A parameter that is a vector must be contiguous.
    """
    total = accumulation_type(x.dtype)
    for p in parameters:
        if p is not None and (p.dtype != total or (p.ndim == 1 and not p.data.flags.c_contiguous)):
            return False
    return x.dtype.char in FLOATS


def parameters_of(code: str, name: str, accumulation: str) -> dict[str, Callable[[Any], Any]]:
    """The `parameters` of a kernel in this source text, where A means this type."""
    declared = re.search(rf"__global__ void .*\b{name}\(([^)]*)\)", code)[1].split(",")
    words = [text.replace("*", " * ").split() for text in declared]
    scalars = SCALARS | {"A": SCALARS[accumulation]}
    return {parameter: pointer if "*" in kind else scalars[" ".join(kind)] for *kind, parameter in words}


def pointer(x: Array | None) -> Any:
    """An array as it is, None as a null pointer."""
    return NULL if x is None else x


def integer(x: Any) -> np.int64:
    """A whole number as `long long`."""
    number = int(x)
    if number != x:
        raise ValueError(f"{x!r} is not an integer")
    return np.int64(number)


NULL = np.int64(0)
LARGEST = 2**63 - 1
SCALARS = {  # no kernel has scalars of other types
    "long long": integer,
    "float": lambda x: np.float32(float(x)),
    "double": lambda x: np.float64(float(x)),
    "RoundKeys": lambda x: x,  # a NumPy array of one element, whose bytes CuPy passes by value
}


def launch(function: Kernel, blocks: tuple[int, ...], threads: tuple[int, ...], *arguments: Any) -> None:
    """Launch a kernel without waiting for it to finish.

    Args:
        blocks, threads: the number of blocks, and of threads in each, along up to three axes. With no blocks, nothing
            is launched.
        arguments: those of the kernel; None is a null pointer.
    """
    if 0 not in blocks:
        function.run(blocks, threads, function.in_c(*arguments))


def launch_rows(function: Kernel, rows: int, *arguments: Any) -> None:
    """Launch a kernel in which each warp takes one row: blockIdx.x and threadIdx.y select it, threadIdx.x is within it.

    The number of rows is its first argument, because some warps of the last block may have none.
    """
    launch(function, *blocks_of_rows(rows), rows, *arguments)


def blocks_of_rows(rows: int) -> tuple[tuple[int], tuple[int, int]]:
    """The blocks and threads of a kernel in which each warp takes one row."""
    return (-(-rows // ROWS),), (32, ROWS)


def launch_elements(function: Kernel, count: int, *arguments: Any) -> None:
    """Launch a kernel in which each thread takes one element or pack; their number is its first argument."""
    launch(function, (-(-count // 256),), (256,), count, *arguments)


def launch_packs(file: str, name: str, arrays: Sequence[Array | None], *others: Any, **types: Any) -> None:
    """Launch a kernel in which each thread takes a pack of neighbouring numbers of contiguous arrays of one size.

    Its arguments are the number of packs, these arrays and all others.
    """
    size, packed = arrays[0].size, pack(arrays[0].size, *arrays)
    launch_elements(kernel(file, name, **types, PACK=packed), size // packed, *arrays, *others)


def pack(width: int, *arrays: Array | None) -> int:
    """How many neighbouring numbers a thread can fetch at once from rows of this width, in all of these arrays: 4 or 1.

    The address of four elements fetched together must be a multiple of their total size.
    """
    if width % 4:
        return 1
    for array in arrays:
        if array is not None and array.data.ptr % (4 * array.itemsize):
            return 1
    return 4
