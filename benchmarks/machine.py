"""The conditions of a measurement: the processors, their load, the versions of the libraries."""

from __future__ import annotations

import contextlib
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

from tinygrad_lite.cuda.find import dotted
from tinygrad_lite.device import get_device


def cpu_model() -> str:
    """The name of the processor."""
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def gpu_model() -> str:
    """The name of the GPU, and the versions of driver and CuPy. Needs a working device cuda."""
    cupy = get_device("cuda").xp

    runtime = cupy.cuda.runtime
    name = runtime.getDeviceProperties(0)["name"].decode()
    driver, toolkit = dotted(runtime.driverGetVersion()), dotted(runtime.runtimeGetVersion())
    return f"{name}; driver for CUDA {driver}, CuPy {cupy.__version__} with CUDA {toolkit}"


def load() -> str:
    """The load average of the last minute: processes that run or wait for a core; empty if unknown."""
    with contextlib.suppress(OSError):
        return Path("/proc/loadavg").read_text(encoding="ascii").split()[0]
    return ""


def installed(library: str) -> str:
    """The version of a library, or "not installed"."""
    try:
        return version(library)
    except PackageNotFoundError:
        return "not installed"


def numpy_blas() -> str:
    """The library that multiplies NumPy's matrices, and the kernels that it chose for this processor."""
    blas = np.show_config(mode="dicts").get("Build Dependencies", {}).get("blas", {})
    about = f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip()
    with contextlib.suppress(ImportError):
        from threadpoolctl import threadpool_info

        kernels = {pool["architecture"] for pool in threadpool_info() if "architecture" in pool}
        about += f" ({', '.join(sorted(kernels))} kernels)" if kernels else ""
    return about
