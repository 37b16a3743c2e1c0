"""Finding CuPy and a GPU: everything that can be missing has its own message."""

import builtins
import errno
import sys
from importlib import metadata
from types import SimpleNamespace

import pytest

from tinygrad_lite import Tensor, device
from tinygrad_lite.device import DeviceError, get_device, why_no_cuda, xp_of


class CUDARuntimeError(RuntimeError):
    """What CuPy raises on an error of the CUDA runtime."""


def fail(error):
    raise error


WORKING = {"refusal": None, "packages": ("cupy-cuda13x",), "driver": 13000, "made_for": 13020, "count": lambda: 1}
WORKING |= {"memory": lambda: (2 << 30, 8 << 30), "visible": None, "capability": (9, 0), "zeros": lambda *_: 0.0}
WORKING |= {"libraries": ("cublas", "nvrtc"), "generations": lambda: (75, 80, 90, 120)}


def pretend(monkeypatch, **settings):
    """Replace CuPy by an object that works, except as the settings say."""
    given = SimpleNamespace(**WORKING | settings)
    major, minor = given.capability
    runtime = SimpleNamespace(
        CUDARuntimeError=CUDARuntimeError,
        driverGetVersion=lambda: given.driver,
        runtimeGetVersion=lambda: given.made_for,
        getDeviceCount=given.count,
        memGetInfo=given.memory,
        getDeviceProperties=lambda _: {"name": b"Big GPU", "major": major, "minor": minor},
    )
    module = SimpleNamespace(
        __version__="14.2.0",
        cuda=SimpleNamespace(runtime=runtime),
        ndarray=type("ndarray", (), {}),
        asarray=lambda x: x,
        asnumpy=lambda x: x,
        zeros=given.zeros,
    )
    libs = SimpleNamespace(**{name: SimpleNamespace(getSupportedArchs=given.generations) for name in given.libraries})
    monkeypatch.setattr(device, "_BY_NAME", {name: d for name, d in device._BY_NAME.items() if name != "cuda"})
    monkeypatch.setattr(device, "_BY_TYPE", dict(device._BY_TYPE))
    monkeypatch.setattr(metadata, "distributions", lambda name: [module] if name in given.packages else [])
    monkeypatch.setitem(sys.modules, "cupy", module if given.packages else None)
    monkeypatch.setitem(sys.modules, "cupy_backends.cuda.libs", libs)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if given.visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given.visible)
    if given.refusal is not None:
        real = builtins.__import__
        monkeypatch.delitem(sys.modules, "cupy")
        monkeypatch.setattr(builtins, "__import__", lambda x, *a: fail(given.refusal) if x == "cupy" else real(x, *a))
    return module


def sentence(monkeypatch, **settings):
    """The one message of a CuPy of these settings, in one line."""
    pretend(monkeypatch, **settings)
    messages = {why_no_cuda()}
    for use in (get_device, Tensor([1.0]).to, lambda name: Tensor([1.0], device=name)):
        with pytest.raises(DeviceError) as caught:
            use("cuda")
        messages.add(str(caught.value))
    (said,) = messages
    assert said.startswith("device cuda")
    assert "\n" not in said
    assert get_device("auto").name == "cpu"
    return said


# CuPy wraps the reason in a page of advice.
WRAPPED = ImportError("\n=====\nFailed to import CuPy.\n\n")
WRAPPED.__cause__ = ImportError("libcudart.so.13: cannot open shared object file\nand more")
NO_DRIVER = CUDARuntimeError("cudaErrorInsufficientDriver: ...")
NO_DEVICE = CUDARuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected")
BUSY = CUDARuntimeError("cudaErrorDevicesUnavailable: CUDA-capable device(s) is/are busy or unavailable")
NO_LIBRARY = RuntimeError("no libnvrtc.so.13\nin /usr/lib\n")
NO_HEADER = RuntimeError('kern.cu(4): catastrophic error: cannot open "cuda_fp16.h"\n\n1 catastrophic error detected')
FULL = OSError(errno.ENOSPC, "No space left", "/home/me/.cupy/kernel_cache")
TOO_NEW = {"capability": (12, 0), "made_for": 12040, "generations": lambda: (50, 90)}
TO_12 = 'pip uninstall -y cupy-cuda13x, and then pip install -e ".[cuda12]"'
UNWRITABLE = (
    "it cannot keep compiled kernels in /home/me/.cupy/kernel_cache (No space left): set the environment variable"
)
SENTENCES = [
    ({"packages": ()}, 'needs CuPy, which is not installed: pip install -e ".[cuda13]" (".[cuda12]" if nvidia-smi'),
    ({"packages": ("cupy-cuda12x", "cupy-cuda13x")}, ": pip uninstall -y cupy-cuda12x cupy-cuda13x, and then pip inst"),
    (
        {"refusal": WRAPPED},
        "cannot be imported (libcudart.so.13: cannot open shared object file); if libraries of CUDA",
    ),
    ({"driver": 0, "count": lambda: fail(NO_DRIVER)}, "but there is no NVIDIA driver: install the one for your GPU ("),
    ({"driver": 12040}, f"which is too old: update the driver, or install the CuPy for the old one: {TO_12}"),
    ({"driver": 11080}, "for CUDA 11.8, which is too old: update the driver"),  # no current CuPy is built for it
    ({"count": lambda: fail(NO_DEVICE)}, "but there is no GPU: use --device cpu"),
    ({"count": lambda: 0, "visible": ""}, "but there is no GPU (CUDA_VISIBLE_DEVICES is ''): use --device cpu"),
    ({"memory": lambda: fail(BUSY)}, f"but the GPU cannot be used ({BUSY}): nvidia-smi shows its state"),
    ({"capability": (6, 1)}, f"but CUDA 13.2 no longer supports the Big GPU (compute capability 6.1): {TO_12}"),
    (
        TOO_NEW,
        "but CUDA 12.4 does not support the Big GPU (compute capability 12.0) yet: pip uninstall -y cupy-cuda12x",
    ),
    ({"libraries": ("nvrtc",)}, "but a library of CUDA is missing (cannot import name 'cublas'"),
    ({"generations": lambda: fail(NO_LIBRARY)}, '(no libnvrtc.so.13); install it: pip install -e ".[cuda13]"'),
    (
        {"zeros": lambda *_: fail(NO_HEADER)},
        f"cannot be compiled and run ({str(NO_HEADER).splitlines()[0]}); if headers",
    ),
    # by the first kernel, or already while CuPy is imported
    ({"zeros": lambda *_: fail(FULL)}, UNWRITABLE),
    ({"refusal": FULL}, UNWRITABLE),
]


@pytest.mark.parametrize(("settings", "expected"), SENTENCES, ids=range(len(SENTENCES)))
def test_what_is_missing_is_said_in_a_sentence(monkeypatch, settings, expected):
    assert expected in sentence(monkeypatch, **settings)


def test_versions_that_fit_are_no_reason_against_a_gpu(monkeypatch):
    """A driver may be newer than CuPy, older within a major version, and know a GPU that CuPy does not know."""
    for driver, made_for in ((13000, 12090), (12020, 12090), (13000, 13020)):
        pretend(monkeypatch, driver=driver, made_for=made_for)
        assert why_no_cuda() == ""
    pretend(monkeypatch, driver=12080, **TOO_NEW)  # for this driver there is no newer CuPy
    assert why_no_cuda() == ""


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
