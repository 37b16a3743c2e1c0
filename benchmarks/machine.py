"""The conditions of a measurement: the processors, their load, the versions of the libraries; and the memory in use.

Memory is that of a process and its descendants together, now and at its peak: the proportional set size (PSS), in which
every page of memory counts once, in equal shares for the processes that map it. So shared memory is not counted twice.
Linux reports it in /proc/PID/smaps_rollup, see proc(5).
"""

import contextlib
import platform
import threading
from collections import defaultdict
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

from tinygrad_lite.cuda.find import dotted
from tinygrad_lite.device import get_device

PROC = Path("/proc")
INTERVAL = 0.01  # seconds between two measurements of memory


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


# --- memory ---------------------------------------------------------------------------------------------------


def is_measurable() -> bool:
    """Whether this system reports the proportional set size."""
    return (PROC / "self" / "smaps_rollup").is_file()


def family_of(pid: int) -> list[int]:
    """A process and all its descendants."""
    children = defaultdict(list)
    for path in PROC.glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            # number (name) state parent ...: the name may hold anything, even brackets and spaces
            after_name = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2]
            children[int(after_name.split()[1])].append(int(path.parent.name))
    family = [pid]
    for member in family:  # grows during the loop
        family += children[member]
    return family


def memory_of(pid: int) -> float:
    """The memory of a process and its descendants now, in megabytes (10^6 bytes)."""
    kibibytes = 0
    for member in family_of(pid):
        with contextlib.suppress(OSError):
            lines = (PROC / str(member) / "smaps_rollup").read_text(encoding="utf-8", errors="replace").splitlines()
            kibibytes += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return kibibytes * 1024 / 1e6


@contextlib.contextmanager
def peak(pid: int) -> Iterator[list[float]]:
    """Inside a `with` statement, samples the memory that a family of processes uses: a list of megabytes."""
    sampled, over = [], threading.Event()

    def watch() -> None:
        while not over.wait(INTERVAL):
            sampled.append(memory_of(pid))

    thread = threading.Thread(target=watch, daemon=True)
    sampled.append(memory_of(pid))
    thread.start()
    yield sampled
    over.set()
    thread.join()
