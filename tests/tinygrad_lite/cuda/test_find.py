"""Finding CuPy and a GPU: everything that can be missing has its own message."""

import builtins
import errno
import os
import sys
import warnings
from importlib import metadata
from types import SimpleNamespace

import pytest

from tinygrad_lite import Tensor, device
from tinygrad_lite.cuda import find
from tinygrad_lite.device import DeviceError, get_device, why_no_cuda, xp_of


class CUDARuntimeError(RuntimeError):
    """What CuPy raises on an error of the CUDA runtime."""


def fail(error):
    raise error


def pretend(
    monkeypatch,
    refusal=None,
    packages=("cupy-cuda13x",),
    driver=13000,
    made_for=13020,
    count=lambda: 1,
    memory=lambda: (2 << 30, 8 << 30),
    visible=None,
    capability=(9, 0),
    generations=lambda: (75, 80, 90, 120),
    libraries=("cublas", "nvrtc"),
    zeros=lambda *_: 0.0,
):
    """Replace CuPy by an object that works, except as the arguments say."""

    runtime = SimpleNamespace(
        CUDARuntimeError=CUDARuntimeError,
        driverGetVersion=lambda: driver,
        runtimeGetVersion=lambda: made_for,
        getDeviceCount=count,
        memGetInfo=memory,
        getDeviceProperties=lambda _: {"name": b"Big GPU", "major": capability[0], "minor": capability[1]},
    )
    module = SimpleNamespace(
        __version__="14.2.0",
        cuda=SimpleNamespace(runtime=runtime),
        ndarray=type("ndarray", (), {}),
        asarray=lambda x: x,
        asnumpy=lambda x: x,
        zeros=zeros,
    )
    libs = SimpleNamespace(**{name: SimpleNamespace(getSupportedArchs=generations) for name in libraries})
    monkeypatch.setattr(device, "_BY_NAME", {name: d for name, d in device._BY_NAME.items() if name != "cuda"})
    monkeypatch.setattr(device, "_BY_TYPE", dict(device._BY_TYPE))
    monkeypatch.setattr(metadata, "distributions", lambda name: [module] if name in packages else [])
    monkeypatch.setitem(sys.modules, "cupy", module if packages else None)
    monkeypatch.setitem(sys.modules, "cupy_backends.cuda.libs", libs)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    if refusal is not None:
        real = builtins.__import__
        monkeypatch.delitem(sys.modules, "cupy")
        monkeypatch.setattr(builtins, "__import__", lambda x, *a: fail(refusal) if x == "cupy" else real(x, *a))
    return module


def sentence(monkeypatch, made_for=13020, driver=13000, **settings):
    """The one message of a CuPy of these settings, in one line; but for a beginning with both versions of CUDA."""
    pretend(monkeypatch, made_for=made_for, driver=driver, **settings)
    messages = {why_no_cuda()}
    for use in (get_device, Tensor([1.0]).to, lambda name: Tensor([1.0], device=name)):
        with pytest.raises(DeviceError) as caught:
            use("cuda")
        messages.add(str(caught.value))
    (said,) = messages
    assert "\n" not in said
    assert get_device("auto").name == "cpu"
    made_for, driver = (f"{number // 1000}.{number % 1000 // 10}" for number in (made_for, driver))
    return said.removeprefix(f"device cuda: CuPy 14.2.0 is built for CUDA {made_for}, the driver for CUDA {driver}, ")


INSTALL = 'pip install -e ".[cuda13]"'
EITHER = f'{INSTALL} (".[cuda12]" if nvidia-smi names a CUDA Version below 13)'
TO_12 = 'pip uninstall -y cupy-cuda13x, and then pip install -e ".[cuda12]"'
TO_13 = f"pip uninstall -y cupy-cuda12x, and then {INSTALL}"
NO_IMPORT = "device cuda: CuPy is installed but cannot be imported"
LIBRARIES = f"if libraries of CUDA are missing, install them: {EITHER}"
# CuPy wraps the reason in a page of advice; or a module that it needs is missing.
WRAPPED = ImportError("\n=====\nFailed to import CuPy.\n\n")
WRAPPED.__cause__ = ImportError("libcudart.so.13: cannot open shared object file\nand more")
LACKING = ModuleNotFoundError("No module named 'fastrlock'", name="fastrlock")
NO_DRIVER = CUDARuntimeError("cudaErrorInsufficientDriver: ...")
NO_DEVICE = CUDARuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected")
BUSY = CUDARuntimeError("cudaErrorDevicesUnavailable: CUDA-capable device(s) is/are busy or unavailable")
IS_BUSY = f"but the GPU cannot be used ({BUSY}): nvidia-smi shows its state and what is using it; or use --device cpu"
TOO_OLD = "no longer supports the Big GPU (compute capability"
TOO_NEW = {"capability": (12, 0), "made_for": 12040, "generations": lambda: (50, 90)}
HEADER = 'kern.cu(4): catastrophic error: cannot open source file "cuda_fp16.h"'
NO_HEADER = RuntimeError(f"{HEADER}\n\n1 catastrophic error detected")
ADVICE = f"if headers of CUDA are missing, install them: {INSTALL}"
SENTENCES = [
    ({"packages": ()}, f"device cuda needs CuPy, which is not installed: {EITHER}"),
    ({"refusal": WRAPPED}, f"{NO_IMPORT} (libcudart.so.13: cannot open shared object file); {LIBRARIES}"),
    ({"refusal": LACKING}, f"{NO_IMPORT} (No module named 'fastrlock'); {LIBRARIES}"),
    (
        {"packages": ("cupy-cuda12x", "cupy-cuda13x")},
        "device cuda: cupy-cuda12x and cupy-cuda13x are both installed, but their files have the same names: "
        f"pip uninstall -y cupy-cuda12x cupy-cuda13x, and then {EITHER}",
    ),
    (
        {"driver": 0, "count": lambda: fail(NO_DRIVER)},
        "device cuda: CuPy 14.2.0 is built for CUDA 13.2, but there is no NVIDIA driver: install the one for your GPU "
        "(if this is a container, start it with its GPUs, as in docker run --gpus all), or use --device cpu",
    ),
    ({"driver": 12040}, f"which is too old: update the driver, or install the CuPy for the old one: {TO_12}"),
    ({"driver": 11080}, "which is too old: update the driver"),  # no current CuPy is built for it
    ({"count": lambda: 0}, "but there is no GPU: use --device cpu"),
    ({"count": lambda: fail(NO_DEVICE)}, "but there is no GPU: use --device cpu"),
    ({"count": lambda: 0, "visible": ""}, "but there is no GPU (CUDA_VISIBLE_DEVICES is ''): use --device cpu"),
    ({"count": lambda: fail(BUSY)}, IS_BUSY),
    ({"memory": lambda: fail(BUSY)}, IS_BUSY),
    ({"capability": (6, 1)}, f"but CUDA 13.2 {TOO_OLD} 6.1): {TO_12}"),
    ({"capability": (3, 7), "made_for": 12090}, f"but CUDA 12.9 {TOO_OLD} 3.7); use --device cpu"),
    (TOO_NEW, f"but CUDA 12.4 does not support the Big GPU (compute capability 12.0) yet: {TO_13}"),
    ({"zeros": lambda *_: fail(NO_HEADER)}, f"but a one-line kernel cannot be compiled and run ({HEADER}); {ADVICE}"),
]


@pytest.mark.parametrize(("settings", "expected"), SENTENCES, ids=range(len(SENTENCES)))
def test_what_is_missing_is_said_in_a_sentence(monkeypatch, settings, expected):
    assert sentence(monkeypatch, **settings) == expected


@pytest.mark.parametrize("made_for", [13020, 12090])
def test_a_missing_cublas_or_nvrtc_is_reported(made_for, monkeypatch):
    error = RuntimeError("no libnvrtc.so.13\nin /usr/lib\n")
    found = {"cannot import name 'cublas'": sentence(monkeypatch, made_for, libraries=("nvrtc",))}
    found["no libnvrtc.so.13); "] = sentence(monkeypatch, made_for, generations=lambda: fail(error))
    for reason, said in found.items():
        assert said.startswith(f"but a library of CUDA is missing ({reason}")
        assert said.endswith(f'install it: pip install -e ".[cuda{made_for // 1000}]"')


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.ENOSPC])
def test_a_home_that_cannot_be_written_is_reported(monkeypatch, number):
    """By the first kernel, or already while CuPy is imported."""
    error = OSError(number, os.strerror(number), "/home/me/.cupy/kernel_cache")
    end = (
        f"but it cannot keep compiled kernels in /home/me/.cupy/kernel_cache ({os.strerror(number)}): set the "
        "environment variable CUPY_CACHE_DIR to a writable folder with free space"
    )
    assert sentence(monkeypatch, zeros=lambda *_: fail(error)) == end
    assert sentence(monkeypatch, refusal=error) == f"device cuda: CuPy is installed, {end}"


def test_versions_that_fit_are_no_reason_against_a_gpu(monkeypatch):
    """A driver may be newer than CuPy, older within a major version, and know a GPU that CuPy does not know."""
    for driver, made_for in ((13000, 12090), (12020, 12090), (13000, 13020)):
        pretend(monkeypatch, driver=driver, made_for=made_for)
        assert why_no_cuda() == ""
    pretend(monkeypatch, driver=12080, **TOO_NEW)  # for this driver there is no newer CuPy
    assert why_no_cuda() == ""


def test_a_warning_of_cupy_is_no_reason_against_a_gpu(monkeypatch):
    """In the tests warnings are errors."""
    pretend(monkeypatch, zeros=lambda *_: warnings.warn("this may become slower", stacklevel=1) or 0.0)
    with pytest.warns(UserWarning, match="may become slower"):
        assert why_no_cuda() == ""
    with pytest.raises(UserWarning, match="from now on"):
        warnings.warn("from now on they are errors again", stacklevel=1)


def test_a_gpu_is_registered_once(monkeypatch):
    cupy = pretend(monkeypatch)
    found = get_device("auto")
    assert found.name == "cuda"
    assert found.xp is cupy
    assert get_device("cuda") is found
    assert xp_of(cupy.ndarray()) is cupy
    assert why_no_cuda() == ""
    assert found.memory() == (2 << 30, 8 << 30)
    assert get_device("cpu").memory() is None


def test_the_quoted_error_stays_short():
    assert find.first_line(RuntimeError("x" * 999)) == "x" * 160 + " ..."
    assert find.first_line(KeyError()) == "KeyError"
