"""CuPy and the GPU, or one sentence about what is missing for them and how to get it.

Five things must fit: CuPy, which is made for one major version of CUDA; the libraries of that CUDA; the driver, which
must not be older than it; a GPU; and its generation (*compute capability*), which the libraries must know.
"""

from __future__ import annotations

import os
from importlib import metadata
from types import ModuleType
from typing import Any

from tinygrad_lite.device import Device, DeviceError

CUPYS = ("cupy", "cupy-cuda11x", "cupy-cuda12x", "cupy-cuda13x")  # packages with one and the same module in them
INSTALL = 'pip install -e ".[cuda13]" (".[cuda12]" if nvidia-smi names a CUDA Version below 13)'


def find_cuda() -> Device:
    """CuPy and the GPU, if they can work.

    Raises: DeviceError with what was found, what is wrong with it, and what mends it.
    """
    cupy = import_cupy()
    runtime = cupy.cuda.runtime
    driver, made_for = runtime.driverGetVersion(), runtime.runtimeGetVersion()  # 12040 is CUDA 12.4
    here = f"device cuda: CuPy {cupy.__version__} is made for CUDA {dotted(made_for)}"
    if driver == 0:
        raise DeviceError(
            f"{here}, but there is no NVIDIA driver: install the one for your GPU (if this is a container, start it "
            "with its GPUs, as in docker run --gpus all), or use --device cpu"
        )
    here += f", the driver for CUDA {dotted(driver)}"
    if driver // 1000 < made_for // 1000:
        older = f", or take the CuPy that fits the old one: {other_cupy(made_for, 12)}" if driver >= 12000 else ""
        raise DeviceError(f"{here}, which is too old: update the driver{older}")
    known = known_to_libraries(here, made_for)
    try:
        count = runtime.getDeviceCount()
        if count:
            runtime.memGetInfo()  # a GPU that is not to be had says so when it is first used
    except runtime.CUDARuntimeError as error:
        if "cudaErrorNoDevice" not in str(error):
            raise DeviceError(
                f"{here}, but the GPU cannot be used ({first_line(error)}): nvidia-smi shows its state and who is "
                "using it; or use --device cpu"
            ) from None
        count = 0
    if count == 0:
        hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
        reason = "" if hidden is None else f" (CUDA_VISIBLE_DEVICES is {hidden!r})"
        raise DeviceError(f"{here}, but there is no GPU{reason}: use --device cpu")
    gpu = runtime.getDeviceProperties(0)
    check_generation(here, gpu, known, made_for, driver)
    return Device(
        "cuda",
        cupy,
        cupy.ndarray,
        cupy.asarray,
        cupy.asnumpy,
        lambda: cupy.cuda.get_current_stream().synchronize(),
        runtime.memGetInfo,
        gpu["major"] + gpu["minor"] / 10,
    )


def import_cupy() -> ModuleType:
    """CuPy, if it is installed once and can be imported."""
    installed = [name for name in CUPYS if is_installed(name)]
    if len(installed) > 1:
        raise DeviceError(
            f"device cuda: {' and '.join(installed)} are both installed, but their files have the same names: "
            f"pip uninstall -y {' '.join(installed)}, and then {INSTALL}"
        )
    try:
        import cupy
    except Exception as error:  # of any kind; CuPy's own words are a page, and the reason is what they were caused by
        if isinstance(error, ModuleNotFoundError) and error.name == "cupy":
            raise DeviceError(f"device cuda needs CuPy, which is not installed: {INSTALL}") from None
        raise DeviceError(
            f"device cuda: CuPy is installed but cannot be imported ({first_line(error.__cause__ or error)}); if "
            f"libraries of CUDA are missing, this brings them: {INSTALL}"
        ) from None
    return cupy


def known_to_libraries(here: str, made_for: int) -> list[int]:
    """The generations of GPUs for which NVRTC compiles, once NVRTC and cuBLAS are found; 90 is 9.0."""
    try:
        from cupy_backends.cuda.libs import cublas, nvrtc  # noqa: F401 (imported to see whether it is there)

        return list(nvrtc.getSupportedArchs())
    except Exception as error:  # ImportError, RuntimeError or OSError, depending on the library and on CuPy's version
        raise DeviceError(
            f"{here}, but a library of CUDA is missing ({first_line(error)}); this brings them: "
            f'pip install -e ".[cuda{made_for // 1000}]"'
        ) from None


def check_generation(here: str, gpu: dict[str, Any], known: list[int], made_for: int, driver: int) -> None:
    """Raise DeviceError if the GPU is too old or too new for the libraries."""
    generation = 10 * gpu["major"] + gpu["minor"]
    name = f"{gpu['name'].decode()} (compute capability {gpu['major']}.{gpu['minor']})"
    if generation < min(known):
        older = f": {other_cupy(made_for, 12)}" if made_for >= 13000 else "; use --device cpu"
        raise DeviceError(f"{here}, but that knows the {name} no longer{older}")
    if gpu["major"] > max(known) // 10 and driver // 1000 > made_for // 1000:
        raise DeviceError(f"{here}, but that does not know the {name} yet: {other_cupy(made_for, driver // 1000)}")


def other_cupy(made_for: int, major: int) -> str:
    """The commands that put the CuPy for another CUDA in the place of this one."""
    return f'pip uninstall -y cupy-cuda{made_for // 1000}x, and then pip install -e ".[cuda{major}]"'


def is_installed(package: str) -> bool:
    """Whether pip knows a package of this name here."""
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True


def dotted(version: int) -> str:
    """A version of CUDA as people write it: 12.4 for 12040."""
    return f"{version // 1000}.{version % 1000 // 10}"


def first_line(error: BaseException) -> str:
    """The beginning of what an error says."""
    line = str(error).strip().split("\n")[0] or type(error).__name__
    return line if len(line) <= 160 else f"{line[:160]} ..."
