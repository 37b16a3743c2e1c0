"""A substitute for CuPy: wrapped NumPy arrays, kernels compiled for the CPU, and cuBLAS on host memory."""

import atexit
import ctypes
import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tests import standin
from tests.standin import StandInArray, StandInModule
from tinygrad_lite import device
from tinygrad_lite.cuda import gemm, launch

try:
    from extra.studies.trials import LARGE
except ImportError:  # without the shelf, nothing measures the rate of large products
    LARGE = {}

COMPILER = shutil.which("g++")
SHIM = Path(__file__).with_name("cuda_on_cpu.h")
FLAGS = ["-O1", "-shared", "-fPIC", "-fno-strict-aliasing", "-fno-threadsafe-statics", "-w"]
LINKED = ("-nodefaultlibs", "-lm", "-lc", "-lgcc")  # without the C++ library, which nothing uses
EXTRA_FLAGS = os.environ.get("CUDA_ON_CPU_FLAGS", "").split()  # such as -fsanitize=address
CUPYS_OPTIONS = ("-ftz=true", "--device-as-default-execution-space")  # that CuPy 14 adds to those of a module
IN_PLACE = ("__setitem__", "fill", "at", "sort")  # functions that write into an argument
KERNEL = re.compile(r'extern "C" __global__ void (?:__launch_bounds__\([^)]*\) )?(\w+)\(([^)]*)\)')
GEOMETRY = ctypes.c_uint * 6  # blocks and threads along three axes
NUMBERS = {
    "long long": (np.int64, ctypes.c_longlong),
    "float": (np.float32, ctypes.c_float),
    "double": (np.float64, ctypes.c_double),
}


class RoundKeys(ctypes.Structure):
    _fields_ = (("at", ctypes.c_uint32 * 2 * 7), ("step_at", ctypes.c_void_p), ("step", ctypes.c_uint32))


POINTERS = {
    "float": ("float32",),
    "double": ("float64",),
    "bf16": ("bfloat16",),
    "long long": ("int64",),
    "int": ("int32",),
    "bool": ("bool",),
    "unsigned char": ("uint8", "bool"),
}


@functools.cache
def build_folder() -> Path:
    """The folder of compiled kernels, in pytest's cache, which may be removed at any time."""
    folder = Path(__file__).parents[2] / ".pytest_cache" / "cuda-on-cpu"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        folder = Path(tempfile.mkdtemp(prefix="cuda-on-cpu-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@functools.cache
def compiled(code: str, options: tuple[str, ...]) -> ctypes.CDLL:
    """A library with a function `launch_NAME` for each kernel NAME."""
    launchers = []
    for name, parameters in KERNEL.findall(code):
        names = ", ".join(re.findall(r"(\w+)\s*(?:,|$)", parameters))
        launchers.append(
            f'extern "C" void launch_{name}(const unsigned* geometry, {parameters}) '
            f"{{ on_cpu::launch(geometry, [=] {{ {name}({names}); }}); }}"
        )
    flags = [*FLAGS, *EXTRA_FLAGS, *(option for option in options if option.startswith(("-D", "-std", "--std")))]
    if "-ftz=true" in options and "-DA=float" in options:  # which affects only float
        flags.append("-DFLUSH_TO_ZERO")
    text = "\n".join([f'#include "{SHIM}"', "#line 1", code, *launchers])
    compiler, headers = Path(COMPILER).resolve(), sorted(SHIM.parent.glob("*.h"))
    facts = [text, *(header.read_text(encoding="utf-8") for header in headers), *flags, *LINKED]
    facts += [str(compiler), str(compiler.stat().st_mtime_ns)]
    library = build_folder() / f"{hashlib.sha256(chr(0).join(facts).encode()).hexdigest()[:32]}.so"
    if not library.exists():
        made = library.with_suffix(f".{os.getpid()}")
        command = [COMPILER, *flags, "-x", "c++", "-", "-o", made, *LINKED]
        done = subprocess.run(command, input=text, capture_output=True, encoding="utf-8")
        if done.returncode:
            raise RuntimeError(f"g++ refuses a kernel:\n{done.stderr}")
        os.replace(made, library)  # complete or not at all, since other processes may read it
    return ctypes.CDLL(str(library))


def meaning(code: str, options: tuple[str, ...], name: str) -> str:
    """The type that a name such as T stands for, defined by the options or in the code."""
    for option in options:
        if option.startswith(f"-D{name}="):
            return option.split("=", 1)[1]
    found = re.search(rf"typedef ([\w ]+) {name};", code)
    return found[1] if found else name


class CUDARuntimeError(RuntimeError):
    """What CuPy raises when the driver refuses."""


class MemoryPool:
    """Where a graph's arrays come from; here they are only kept."""

    def __init__(self) -> None:
        self.arrays: list[np.ndarray] = []

    def malloc(self) -> None:
        """Given to `using_allocator`, which uses the pool."""


@contextmanager
def using_allocator(malloc: Callable) -> Iterator[None]:
    """Inside, arrays come from the pool to which this method belongs, also while a stream is captured."""
    standin.kept = malloc.__self__.arrays
    try:
        yield
    finally:
        standin.kept = None


class Stream:
    """While one is captured, launches and CuPy's own kernels are recorded.

    Whatever the host reads is refused, and so are copies from the host, and allocations outside a graph's own pool.
    """

    recorded: list[Callable] | None = None
    ptr = 1

    def __init__(self, non_blocking: bool = False) -> None:
        self.non_blocking = non_blocking

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def begin_capture(self) -> None:
        if not self.non_blocking:
            raise CUDARuntimeError("cudaErrorStreamCaptureImplicit")
        Stream.recorded, standin.refuse, standin.record = [], self._refuse, self._record

    def end_capture(self) -> "Graph":
        launches, Stream.recorded, standin.refuse, standin.record = Stream.recorded, None, standin.allow, None
        return Graph(launches)

    def _refuse(self, what: str) -> None:
        if what != "an allocation" or standin.kept is None:
            raise CUDARuntimeError(f"cudaErrorStreamCaptureUnsupported: {what}")

    def _record(self, function: Callable, args: tuple, options: dict) -> Any:
        """Record a call of NumPy; at once, it is done only to learn the shape of its result."""
        name, out = getattr(function, "__name__", ""), options.get("out")
        if out is not None or name in IN_PLACE:
            Stream.recorded.append(functools.partial(quietly, function, args, options))
            return standin._wrap(out[0] if isinstance(out, tuple) else out)
        if name in ("item", "tolist"):
            self._refuse("a number that the host reads")
        found = quietly(function, args, options)
        made = standin._wrap(found)
        read = [one for one in (getattr(function, "__self__", None), *args) if isinstance(one, np.ndarray)]
        read += [one for part in args if isinstance(part, (list, tuple)) for one in part if isinstance(one, np.ndarray)]
        is_array = isinstance(found, (np.ndarray, np.generic))
        if name.startswith("empty") or not is_array or any(np.may_share_memory(found, one) for one in read):
            return made
        target = made.hidden
        Stream.recorded.append(lambda: np.copyto(target, quietly(function, args, options)))
        return made

    @classmethod
    def run(cls, launch: Callable) -> None:
        """Launch a kernel, or record it."""
        launch() if cls.recorded is None else cls.recorded.append(launch)


def quietly(function: Callable, args: tuple, options: dict) -> Any:
    with np.errstate(all="ignore"):
        return function(*args, **options)


class Graph:
    """Recorded launches."""

    def __init__(self, launches: list[Callable]) -> None:
        self.launches = launches

    def launch(self) -> None:
        for one in self.launches:
            one()


class RawModule:
    """CUDA source code, compiled when one of its kernels is first requested."""

    def __init__(self, *, code: str, options: tuple[str, ...] = (), backend: str = "nvrtc") -> None:
        self.code, self.options = code, (*options, *CUPYS_OPTIONS)

    def get_function(self, name: str) -> Callable:
        signatures = dict(KERNEL.findall(self.code))
        if name not in signatures:
            raise RuntimeError(f"there is no kernel {name} among {', '.join(signatures)}")
        parameters = [" ".join(p.replace("__restrict__", "").split()) for p in signatures[name].split(",")]
        function = getattr(compiled(self.code, self.options), f"launch_{name}")

        def launch(grid: tuple, block: tuple, args: tuple, shared_mem: int = 0) -> None:
            if shared_mem:
                raise NotImplementedError("shared memory of a size chosen at launch")
            if len(args) != len(parameters):
                raise TypeError(f"{name} takes {len(parameters)} arguments, not {len(args)}")
            geometry = (*grid, *(1,) * (3 - len(grid)), *block, *(1,) * (3 - len(block)))
            if not all(geometry):
                raise ValueError(f"{name}: a grid or block of no threads: {grid}, {block}")
            values = [self._value(name, p, a) for p, a in zip(parameters, args, strict=True)]
            Stream.run(functools.partial(function, GEOMETRY(*geometry), *values))

        return launch

    def _value(self, kernel: str, parameter: str, argument: Any) -> Any:
        """An argument as a C value, if it has the type of the parameter."""
        kind, pointer, _ = re.fullmatch(r"(?:const )?([\w ]+?)\s*(\*?)\s*(\w+)", parameter).groups()
        kind = meaning(self.code, self.options, kind)
        if pointer:
            if type(argument) is np.int64 and argument == 0:
                return ctypes.c_void_p(0)
            if not isinstance(argument, StandInArray) or argument.dtype.name not in POINTERS[kind]:
                what = f"{argument.dtype} array" if hasattr(argument, "dtype") else type(argument).__name__
                raise TypeError(f"{kernel}: a {what} is given for {parameter!r} ({kind})")
            return ctypes.c_void_p(argument.data.ptr)
        if isinstance(argument, np.ndarray):  # passed by value
            if argument.size != 1:
                raise TypeError(f"{kernel}: an array of shape {argument.shape} is given by value, not of one element")
            return getattr(sys.modules[__name__], kind).from_buffer_copy(argument)
        number, c_type = NUMBERS[kind]
        if kind == "long long" and type(argument) is int:
            argument = np.int64(argument)  # an OverflowError, as in CuPy
        if type(argument) is not number:
            raise TypeError(f"{kernel}: a {type(argument).__name__} is given for {parameter!r}, not {number.__name__}")
        return c_type(argument)


# --- cuBLAS: products of matrices stored column by column ----------------------------------------------------

MODES: dict[int, int] = {}  # by handle, as set by setMathMode
STORED = {0: np.dtype("float32"), 1: np.dtype("float64")}
ROUNDED = {68: None, 70: None, 77: 13}  # compute types: how many bits float32 operands lose (TF32 keeps 10)


def stored(code: int) -> np.dtype:
    if code == 14:
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return STORED[code]


def number_at(pointer: int, kind: np.dtype) -> float:
    return float(memory(pointer, 1, kind)[0])


def memory(pointer: int, count: int, kind: np.dtype) -> np.ndarray:
    return np.frombuffer((ctypes.c_char * (count * kind.itemsize)).from_address(pointer), kind)


def matrices(pointer: int, code: int, rows: int, columns: int, ld: int, stride: int, count: int) -> np.ndarray:
    """`count` matrices, each `ld` elements from column to column: an array (count, rows, columns)."""
    if ld < max(1, rows):
        raise ValueError(f"cuBLAS: a leading dimension of {ld} for {rows} rows")
    kind = stored(code)
    flat = memory(pointer, (count - 1) * stride + (columns - 1) * ld + rows, kind)
    return np.lib.stride_tricks.as_strided(
        flat, (count, rows, columns), tuple(n * kind.itemsize for n in (stride, 1, ld))
    )


def gemmStridedBatchedEx(
    handle, transa, transb, m, n, k, alpha, a, a_type, lda, stride_a, b, b_type, ldb, stride_b, beta, c, c_type, ldc,
    stride_c, count, compute_type, algorithm,
):  # fmt: skip
    """C = alpha op(A) op(B) + beta C, for each matrix of the batch."""
    if MODES.get(handle) != 16:
        raise ValueError("cuBLAS: this handle may add parts of a sum in bfloat16")
    scalar = np.dtype("float64" if compute_type == 70 else "float32")
    first = matrices(a, a_type, *((k, m) if transa else (m, k)), lda, stride_a, count).astype(np.float64)
    second = matrices(b, b_type, *((n, k) if transb else (k, n)), ldb, stride_b, count).astype(np.float64)
    out = matrices(c, c_type, m, n, ldc, stride_c, count)
    if ROUNDED[compute_type]:
        first, second = (x.astype(np.float32) for x in (first, second))
        for x in (first, second):
            bits = x.view(np.uint32)
            bits += 1 << 12
            bits &= np.uint32(0xFFFFE000)
        first, second = first.astype(np.float64), second.astype(np.float64)
    with np.errstate(all="ignore"):  # cuBLAS does not warn about NaN and infinity
        product = (first.swapaxes(1, 2) if transa else first) @ (second.swapaxes(1, 2) if transb else second)
        factor = number_at(beta, scalar)
        result = number_at(alpha, scalar) * product
        out[...] = (result + factor * out.astype(np.float64) if factor else result).astype(out.dtype)


def gemmEx(handle, transa, transb, m, n, k, alpha, a, at, lda, b, bt, ldb, beta, c, ct, ldc, compute, algorithm):
    """C = alpha op(A) op(B) + beta C."""
    gemmStridedBatchedEx(
        handle, transa, transb, m, n, k, alpha, a, at, lda, 0, b, bt, ldb, 0, beta, c, ct, ldc, 0, 1, compute, algorithm
    )


def direct() -> tuple[types.SimpleNamespace, int]:
    """cuBLAS's own functions, which may be called while a stream is captured."""

    def recorded(function: Callable) -> Callable:
        return lambda *args: Stream.run(functools.partial(function, *args))

    MODES[1] = 16
    nothing = types.SimpleNamespace(set_stream=lambda *_: None, set_workspace=lambda *_: None)
    nothing.gemmEx, nothing.gemmStridedBatchedEx = recorded(gemmEx), recorded(gemmStridedBatchedEx)
    return nothing, 1


# --- what CuPy does not do with bfloat16 -----------------------------------------------------------------------

ADDABLE = ("int32", "int64", "float16", "float32", "float64", "uint32", "uint64")  # by CuPy's add.at


def without_bfloat16(name: str) -> Callable:
    """NumPy's function of this name, whose result is float32 instead of bfloat16, as in CuPy."""

    def function(*args: Any, **options: Any) -> StandInArray:
        y = getattr(StandInModule(), name)(*args, **options)
        return y.astype("float32") if y.dtype.name == "bfloat16" else y

    return function


def add_at(target: StandInArray, index: Any, values: StandInArray) -> None:
    if target.dtype.name not in ADDABLE:
        raise TypeError(f"cupy.add.at only supports {', '.join(ADDABLE)} as data type")
    np.add.at(target, index, values)


# --- the modules ----------------------------------------------------------------------------------------------


class Event:
    """A time stamp, set by the GPU in CuPy."""

    def record(self) -> None:
        self.time = time.perf_counter()


def pretended_modules() -> dict[str, types.ModuleType]:
    """The modules of CuPy that the project imports."""
    cupy, cuda, libs = StandInModule(), types.SimpleNamespace(), types.ModuleType("cupy_backends.cuda.libs")
    for name, value in {
        "__version__": "14.2 on CPU",
        "ndarray": StandInArray,
        "asnumpy": lambda array: standin.refuse("an array that the host reads") or array.hidden.copy(),
        "RawModule": RawModule,
        "where": without_bfloat16("where"),
        "clip": without_bfloat16("clip"),
        "add": types.SimpleNamespace(at=add_at),
        "cuda": cuda,
        "get_default_memory_pool": lambda: types.SimpleNamespace(used_bytes=lambda: 0, free_all_blocks=lambda: None),
    }.items():
        setattr(cupy, name, value)
    cuda.runtime = types.SimpleNamespace(
        getDeviceCount=lambda: 1,
        CUDARuntimeError=CUDARuntimeError,
        driverGetVersion=lambda: 13000,
        runtimeGetVersion=lambda: 13000,
        memGetInfo=lambda: (8 << 30, 8 << 30),
        getDeviceProperties=lambda number: {"name": b"a CPU in disguise", "major": 9, "minor": 0},
    )
    cuda.get_current_stream = lambda: types.SimpleNamespace(synchronize=lambda: None)
    cuda.Event, cuda.Stream, cuda.MemoryPool, cuda.using_allocator = Event, Stream, MemoryPool, using_allocator
    cuda.get_elapsed_time = lambda begin, end: 1e3 * (end.time - begin.time)
    cuda.device = types.SimpleNamespace(get_cublas_handle=lambda: 0)
    libs.cublas = types.SimpleNamespace(
        gemmEx=gemmEx, gemmStridedBatchedEx=gemmStridedBatchedEx, setMathMode=MODES.__setitem__
    )
    libs.nvrtc = types.SimpleNamespace(getSupportedArchs=lambda: [75, 80, 86, 89, 90, 100, 120])
    backends, backends_cuda = types.ModuleType("cupy_backends"), types.ModuleType("cupy_backends.cuda")
    return {"cupy": cupy, "cupy_backends": backends, "cupy_backends.cuda": backends_cuda, libs.__name__: libs}


def forget() -> None:
    """Forget the kernels and the cuBLAS that are in use."""
    MODES.clear()
    launch.kernel.cache_clear()
    gemm.binding.cache_clear()


@contextmanager
def emulated_cuda() -> Iterator[str]:
    """Inside, device "cuda" is this machine's CPU; yields its name."""
    forget()
    before = {name: sys.modules.get(name) for name in pretended_modules()}
    known = dict(device._BY_NAME), dict(device._BY_TYPE)
    large, LARGE["cuda"] = LARGE.get("cuda"), 64
    own, gemm.direct, workspace, gemm.WORKSPACE = gemm.direct, direct, gemm.WORKSPACE, 64
    device._BY_NAME.pop("cuda", None)
    sys.modules.update(pretended_modules())
    try:
        yield "cuda"
    finally:
        LARGE["cuda"], gemm.direct, gemm.WORKSPACE = large, own, workspace
        forget()  # kernels compiled for the CPU do not run on a GPU
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
        for registry, contents in zip((device._BY_NAME, device._BY_TYPE), known, strict=True):
            registry.clear()
            registry.update(contents)
