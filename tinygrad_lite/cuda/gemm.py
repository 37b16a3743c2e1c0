"""Matrix products on a GPU, by NVIDIA's library cuBLAS.

`cupy.matmul` copies every non-contiguous operand with more than two axes, and supports neither TF32 nor bfloat16.
cuBLAS itself only requires that one of the last two axes is contiguous. The other may have any larger stride (the
*leading dimension*), and so may the matrices of a batch. So a transposed matrix, a few rows of one, or one head of many
need no copy.

cuBLAS stores matrices column by column: it takes a matrix stored row by row for its transpose. Since
(A B)^T = B^T A^T, it is asked for the second factor times the first.

Reference: the cuBLAS manual, cublasGemmEx and cublasGemmStridedBatchedEx.
"""

import ctypes
import functools
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np

from tinygrad_lite.device import Array, xp_of
from tinygrad_lite.precision import bfloat16, get_precision

# cuBLAS's codes for the type of an array (by `dtype.char`, because `dtype.name` is computed at each use), for the
# accumulation type, and for "choose the algorithm".
TYPES = {"f": 0, "d": 1, "E": 14}  # float32, float64, bfloat16
IN_FLOAT32, IN_FLOAT64, IN_TF32 = 68, 70, 77
CHOOSE = -1
NO_ROUNDED_SUMS = 16  # CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION
WORKSPACE = 32 << 20  # bytes, cuBLAS's own choice for Hopper


def gemm(
    a: Array, b: Array, out: Array | None = None, dtype: Any = None, scale: float = 1.0, add: bool = False
) -> Array:
    """scale * (a @ b), over the last two axes; with `add`, added to `out`.

    Args:
        a, b: (M, K) and (K, N), or (..., M, K) and (..., K, N) with the same leading axes, of the same type. float32 is
            rounded to bfloat16 first if that is the precision in use.
        out: (..., M, N), with contiguous rows; a new array if it is not given.
        dtype: the type of a new array, float32 or that of a and b.
    Raises: ValueError if the rows of `out` are not contiguous.
    """
    numbers, kinds = get_precision(), b.dtype.char + a.dtype.char
    if numbers == "bfloat16" and "f" in kinds:
        a, b, kinds = as_bfloat16(a), as_bfloat16(b), "EE"
    if out is None:
        out = xp_of(a).empty((*a.shape[:-1], b.shape[-1]), dtype or a.dtype)
    shape, k = out.shape, a.shape[-1]
    m, n = shape[-2:]
    if 0 in (*shape, k):
        if not add:
            out[...] = 0
        return out
    (a, a_turned, a_leading, a_apart), (b, b_turned, b_leading, b_apart) = laid_out(a), laid_out(b)
    result, out_turned, out_leading, out_apart = laid_out(out)
    if result is not out or out_turned:
        raise ValueError("gemm: the rows of out must be contiguous")
    first, second, type_out = TYPES[kinds[0]], TYPES[kinds[1]], TYPES[out.dtype.char]
    exact = first == TYPES["d"]
    compute = IN_FLOAT64 if exact else IN_TF32 if numbers == "tf32" else IN_FLOAT32
    number = np.float64 if exact else np.float32
    (_, alpha), (_, beta) = scalar(scale, number), scalar(1.0 if add else 0.0, number)
    library, handle = cublas()
    if len(shape) == 2:
        library.gemmEx(
            handle, b_turned, a_turned, n, m, k, alpha, b.data.ptr, first, b_leading, a.data.ptr, second, a_leading,
            beta, out.data.ptr, type_out, out_leading, compute, CHOOSE,
        )  # fmt: skip
    else:
        library.gemmStridedBatchedEx(
            handle, b_turned, a_turned, n, m, k, alpha, b.data.ptr, first, b_leading, b_apart, a.data.ptr, second,
            a_leading, a_apart, beta, out.data.ptr, type_out, out_leading, out_apart, math.prod(shape[:-2]), compute,
            CHOOSE,
        )  # fmt: skip
    return out


def as_bfloat16(x: Array) -> Array:
    """A float32 array rounded to bfloat16; a bfloat16 array unchanged."""
    return x if x.dtype.char == "E" else x.astype(bfloat16())


def laid_out(x: Array) -> tuple[Array, int, int, int]:
    """The layout of an array's matrices: (array, 1 if columns are contiguous else 0, leading dimension, distance).

    An array with a layout that cuBLAS cannot take is copied, and the copy is returned.
    """
    layout = layout_of(x.shape, x.strides, x.itemsize)
    if layout is None:
        x, (rows, columns) = xp_of(x).ascontiguousarray(x), x.shape[-2:]
        layout = 0, columns, rows * columns
    return x, *layout


@functools.lru_cache(maxsize=4096)  # the same in every step
def layout_of(shape: tuple[int, ...], strides: tuple[int, ...], size: int) -> tuple[int, int, int] | None:
    """The layout that `laid_out` returns, for elements of this size; None if cuBLAS cannot take it."""
    (rows, columns), down, right = shape[-2:], strides[-2] // size, strides[-1] // size
    apart = 0 if len(shape) == 2 else distance(shape, strides, size)
    if apart is not None:
        if (right == 1 or columns == 1) and (down >= columns or rows == 1):
            return 0, max(down, columns) if rows > 1 else columns, apart
        if (down == 1 or rows == 1) and (right >= rows or columns == 1):
            return 1, max(right, rows) if columns > 1 else rows, apart
    return None


def distance(shape: tuple[int, ...], strides: tuple[int, ...], size: int) -> int | None:
    """The number of elements from the beginning of each matrix to the next one; None if it varies."""
    apart = None
    inner = 0  # the bytes that the axes after the current one span; a regular stride continues from there
    for length, stride in zip(reversed(shape[:-2]), reversed(strides[:-2]), strict=True):
        if length == 1:
            continue
        if apart is None:
            apart = stride // size
        elif stride != inner:
            return None
        inner = stride * length
    return 0 if apart is None else apart


def joined(arrays: Sequence[Array | None]) -> Array | None:
    """One array with the rows of all of these, without a copy; None unless they follow one another in memory."""
    first = arrays[0]
    if len(arrays) == 1:
        return first
    if any(array is None for array in arrays) or first.base is None:
        return None
    base = first.base.reshape(-1)
    end = start = (first.data.ptr - base.data.ptr) // first.dtype.itemsize
    for array in arrays:
        if array.base is not first.base or array.data.ptr != base.data.ptr + end * first.dtype.itemsize:
            return None
        end += array.size
    return base[start:end].reshape(-1, *first.shape[1:])


@functools.cache
def scalar(value: float, kind: type) -> tuple[np.ndarray, int]:
    """A number on the host, and the address from which cuBLAS reads it; the cache keeps the number alive."""
    kept = np.array(value, kind)
    return kept, kept.ctypes.data


def cublas() -> tuple[Any, int]:
    """CuPy's binding of the library, and the handle for the current GPU and CuPy's current stream.

    cuBLAS may split long sums of bfloat16 into parts, and by default may add these in bfloat16; here that is forbidden.
    """
    if recording is not None:
        return recording
    library, get_handle, known = binding()
    handle = get_handle()
    if handle not in known:
        library.setMathMode(handle, NO_ROUNDED_SUMS)
        known.add(handle)
    return library, handle


@functools.cache  # an import takes a microsecond even the second time
def binding() -> tuple[Any, Callable[[], int], set[int]]:
    """CuPy's binding of the library, the function that finds the handle, and the handles whose mode has been set."""
    import cupy
    from cupy_backends.cuda.libs import cublas as library

    return library, cupy.cuda.device.get_cublas_handle, set()


# --- while a stream is captured (graph.py), when CuPy's binding refuses to be called ------------------------------

recording: tuple[Any, Any] | None = None  # what `cublas` returns then


@contextmanager
def recorded_on(stream: Any, memory: Array) -> Iterator[None]:
    """Inside, products are launched on this stream by cuBLAS's own functions, with this memory for parts of sums.

    Raises: OSError if the library has another name here; RuntimeError if it refuses.
    """
    global recording
    library, handle = direct()
    library.set_stream(handle, stream.ptr)
    library.set_workspace(handle, memory.data.ptr, memory.nbytes)
    recording = library, handle
    try:
        yield
    finally:
        recording = None


@functools.cache
def direct() -> tuple[SimpleNamespace, ctypes.c_void_p]:
    """The library's own functions, with the signatures of CuPy's binding, and a handle for them."""
    import cupy

    # CuPy has loaded the library already, and the same name finds the same one.
    major = cupy.cuda.runtime.runtimeGetVersion() // 1000
    library = ctypes.CDLL(f"cublas64_{major}.dll" if os.name == "nt" else f"libcublas.so.{major}")

    def function(name: str, kinds: str) -> Any:
        found = getattr(library, name)
        found.argtypes, found.restype = [C_TYPES[kind] for kind in kinds], succeeded
        return found

    handle = ctypes.c_void_p()
    function("cublasCreate_v2", "p")(ctypes.byref(handle))
    function("cublasSetMathMode", "pi")(handle, NO_ROUNDED_SUMS)
    functions = SimpleNamespace(
        set_stream=function("cublasSetStream_v2", "pp"),
        set_workspace=function("cublasSetWorkspace_v2", "ppl"),
        gemmEx=function("cublasGemmEx", "piiiiippiipiippiiii"),
        gemmStridedBatchedEx=function("cublasGemmStridedBatchedEx", "piiiiippiilpiilppiiliii"),
    )
    return functions, handle


C_TYPES = {"p": ctypes.c_void_p, "i": ctypes.c_int, "l": ctypes.c_longlong}


def succeeded(status: int) -> None:
    """Raise RuntimeError if a function of cuBLAS returned an error."""
    if status:
        raise RuntimeError(f"cuBLAS: status {status}")
