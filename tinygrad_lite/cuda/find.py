"""CuPy and the GPU, or one sentence that says what is missing and how to get it.

Six things must fit together: CuPy, which is built for one major version of CUDA; the libraries of that version; its
headers, which CuPy's own kernels include; the driver, which must not be older; a GPU; and its generation (*compute
capability*), which the libraries must support.
"""

import errno
import os
import warnings
from importlib import metadata
from types import ModuleType
from typing import Any

from tinygrad_lite.device import Device, DeviceError

CUPYS = ("cupy", "cupy-cuda11x", "cupy-cuda12x", "cupy-cuda13x")  # packages that all install a module `cupy`
UNWRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT)
INSTALL = 'pip install -e ".[cuda13]" (".[cuda12]" if nvidia-smi names a CUDA Version below 13)'


def find_cuda() -> Device:
    """The device cuda, if CuPy and a GPU are usable.

    Raises: DeviceError that says what was found, what is wrong with it, and how to fix it.
    """
    # CuPy issues many harmless warnings. Where warnings are errors, as in the tests, it could not be imported.
    with warnings.catch_warnings(action="default"):
        return working_cuda()


def working_cuda() -> Device:
    """`find_cuda`, with the warning filters as they are."""
    cupy = import_cupy()
    runtime = cupy.cuda.runtime
    driver, made_for = runtime.driverGetVersion(), runtime.runtimeGetVersion()  # 12040 is CUDA 12.4
    here = f"device cuda: CuPy {cupy.__version__} is built for CUDA {dotted(made_for)}"
    if driver == 0:
        raise DeviceError(
            f"{here}, but there is no NVIDIA driver: install the one for your GPU (if this is a container, start it "
            "with its GPUs, as in docker run --gpus all), or use --device cpu"
        )
    here += f", the driver for CUDA {dotted(driver)}"
    if driver // 1000 < made_for // 1000:
        older = f", or install the CuPy for the old one: {other_cupy(made_for, 12)}" if driver >= 12000 else ""
        raise DeviceError(f"{here}, which is too old: update the driver{older}")
    known = known_to_libraries(here, made_for)
    try:
        count = runtime.getDeviceCount()
        if count:
            runtime.memGetInfo()  # an unavailable GPU raises its error at the first use
    except runtime.CUDARuntimeError as error:
        if "cudaErrorNoDevice" not in str(error):
            raise DeviceError(
                f"{here}, but the GPU cannot be used ({first_line(error)}): nvidia-smi shows its state and what is "
                "using it; or use --device cpu"
            ) from None
        count = 0
    if count == 0:
        hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
        reason = "" if hidden is None else f" (CUDA_VISIBLE_DEVICES is {hidden!r})"
        raise DeviceError(f"{here}, but there is no GPU{reason}: use --device cpu")
    gpu = runtime.getDeviceProperties(0)
    check_generation(here, gpu, known, made_for, driver)
    check_headers(cupy, here, made_for)

    def synchronize() -> None:
        cupy.cuda.get_current_stream().synchronize()

    functions = cupy.asarray, cupy.asnumpy, synchronize, runtime.memGetInfo
    return Device("cuda", cupy, cupy.ndarray, *functions, gpu["major"] + gpu["minor"] / 10)


def import_cupy() -> ModuleType:
    """CuPy, if exactly one package of it is installed and can be imported. Raises: DeviceError if not."""
    installed = [name for name in CUPYS if any(metadata.distributions(name=name))]
    if len(installed) > 1:
        raise DeviceError(
            f"device cuda: {' and '.join(installed)} are both installed, but their files have the same names: "
            f"pip uninstall -y {' '.join(installed)}, and then {INSTALL}"
        )
    try:
        import cupy
    except Exception as error:  # of any type; CuPy's message is a page long, and its cause contains the reason
        if isinstance(error, ModuleNotFoundError) and error.name == "cupy":
            raise DeviceError(f"device cuda needs CuPy, which is not installed: {INSTALL}") from None
        refuse_unwritable(error, "device cuda: CuPy is installed")
        raise DeviceError(
            f"device cuda: CuPy is installed but cannot be imported ({first_line(error.__cause__ or error)}); if "
            f"libraries of CUDA are missing, install them: {INSTALL}"
        ) from None
    return cupy


def known_to_libraries(here: str, made_for: int) -> list[int]:
    """The compute capabilities that NVRTC supports, 90 for 9.0. Raises: DeviceError if NVRTC or cuBLAS is missing."""
    try:
        from cupy_backends.cuda.libs import cublas, nvrtc  # noqa: F401 (imported to see whether it is there)

        return list(nvrtc.getSupportedArchs())
    except Exception as error:  # ImportError, RuntimeError or OSError, depending on the library and on CuPy's version
        raise DeviceError(
            f"{here}, but a library of CUDA is missing ({first_line(error)}); install it: "
            f'pip install -e ".[cuda{made_for // 1000}]"'
        ) from None


def check_generation(here: str, gpu: dict[str, Any], known: list[int], made_for: int, driver: int) -> None:
    """Raise DeviceError if the libraries do not support the GPU, because it is too old or too new."""
    generation, cuda = 10 * gpu["major"] + gpu["minor"], f"CUDA {dotted(made_for)}"
    name = f"{gpu['name'].decode()} (compute capability {gpu['major']}.{gpu['minor']})"
    if generation < min(known):
        older = f": {other_cupy(made_for, 12)}" if made_for >= 13000 else "; use --device cpu"
        raise DeviceError(f"{here}, but {cuda} no longer supports the {name}{older}")
    if gpu["major"] > max(known) // 10 and driver // 1000 > made_for // 1000:
        raise DeviceError(f"{here}, but {cuda} does not support the {name} yet: {other_cupy(made_for, driver // 1000)}")


def check_headers(cupy: ModuleType, here: str, made_for: int) -> None:
    """Raise DeviceError if an addition fails: CuPy compiles a kernel for it, which includes CUDA headers.

    It takes about a second on a machine where CuPy has never been used; afterwards the kernel is in ~/.cupy.
    """
    try:
        float(cupy.zeros((), "float32") + 1)
    except Exception as error:  # from the compiler, the search for its headers, the disk or the GPU
        refuse_unwritable(error, here)
        raise DeviceError(
            f"{here}, but a one-line kernel cannot be compiled and run ({first_line(error)}); if headers of CUDA "
            f'are missing, install them: pip install -e ".[cuda{made_for // 1000}]"'
        ) from None


def refuse_unwritable(error: Exception, here: str) -> None:
    """Raise DeviceError if CuPy cannot keep its compiled kernels, because the home directory is read-only or full."""
    if isinstance(error, OSError) and error.errno in UNWRITABLE:
        raise DeviceError(
            f"{here}, but it cannot keep compiled kernels in {error.filename or '~/.cupy'} ({error.strerror}): set the "
            "environment variable CUPY_CACHE_DIR to a writable folder with free space"
        ) from None


def other_cupy(made_for: int, major: int) -> str:
    """The commands that replace CuPy with the one for another version of CUDA."""
    return f'pip uninstall -y cupy-cuda{made_for // 1000}x, and then pip install -e ".[cuda{major}]"'


def dotted(version: int) -> str:
    """A version of CUDA as it is usually written: 12.4 for 12040."""
    return f"{version // 1000}.{version % 1000 // 10}"


def first_line(error: BaseException) -> str:
    """The first line of an error's message, cut off after 160 characters."""
    line = str(error).strip().split("\n")[0] or type(error).__name__
    return line if len(line) <= 160 else f"{line[:160]} ..."
