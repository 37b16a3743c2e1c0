"""Finding CuPy and a GPU: everything that can be missing has its own message."""

import builtins
import errno
import os
import sys
import warnings
from importlib import metadata
from types import ModuleType, SimpleNamespace

import pytest

from tinygrad_lite import Tensor, device
from tinygrad_lite.cuda import find
from tinygrad_lite.device import DeviceError, get_device, why_no_cuda, xp_of


class CUDARuntimeError(RuntimeError):
    """What CuPy raises on an error of the CUDA runtime."""


def fail(error):
    raise error


@pytest.fixture
def pretend(monkeypatch):
    """Replace CuPy by an object that works, except as the arguments say."""

    def put(
        cupy="installed",
        packages=("cupy-cuda13x",),
        driver=13000,
        made_for=13020,
        count=lambda: 1,
        memory=lambda: (2 << 30, 8 << 30),
        capability=(9, 0),
        generations=lambda: (75, 80, 90, 120),
        libraries=("cublas", "nvrtc"),
        zeros=lambda *_: 0.0,
    ):
        def version(name):
            return "14.2.0" if name in packages else fail(metadata.PackageNotFoundError(name))

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
        libs = ModuleType("cupy_backends.cuda.libs")
        for name in libraries:
            setattr(libs, name, SimpleNamespace(getSupportedArchs=generations))
        monkeypatch.setattr(device, "_BY_NAME", {name: d for name, d in device._BY_NAME.items() if name != "cuda"})
        monkeypatch.setattr(device, "_BY_TYPE", dict(device._BY_TYPE))
        monkeypatch.setattr(metadata, "version", version)
        monkeypatch.setitem(sys.modules, "cupy", cupy and module)
        for name in ("cupy_backends", "cupy_backends.cuda"):
            monkeypatch.setitem(sys.modules, name, ModuleType(name))
        monkeypatch.setitem(sys.modules, libs.__name__, libs)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        return module

    return put


def sentence(pretend=lambda: None, **settings):
    """The message, in one line; the same as why_no_cuda(). Perhaps with a CuPy of these settings."""
    pretend(**settings)
    with pytest.raises(DeviceError) as caught:
        get_device("cuda")
    said = str(caught.value)
    assert "\n" not in said
    assert said.startswith("device cuda")
    assert why_no_cuda() == said
    assert get_device("auto").name == "cpu"
    return said


HERE = "device cuda: CuPy 14.2.0 is built for CUDA 13.2, the driver for CUDA 13.0, but "


def test_a_missing_cupy_is_reported(pretend):
    said = sentence(pretend, cupy=None, packages=())
    assert said.startswith('device cuda needs CuPy, which is not installed: pip install -e ".[cuda13]"')
    assert '".[cuda12]" if nvidia-smi names a CUDA Version below 13' in said
    with pytest.raises(DeviceError, match="needs CuPy"):
        Tensor([1.0], device="cuda")
    with pytest.raises(DeviceError, match="needs CuPy"):
        Tensor([1.0]).to("cuda")


@pytest.mark.parametrize("wrapped", [True, False])
def test_a_cupy_that_cannot_be_imported_is_reported_with_the_reason(pretend, monkeypatch, wrapped):
    """CuPy wraps the reason in a page of advice; or a module that it needs is missing."""
    pretend()
    monkeypatch.delitem(sys.modules, "cupy")
    real = builtins.__import__

    def refuse(name, *rest):
        if name != "cupy":
            return real(name, *rest)
        if not wrapped:
            raise ModuleNotFoundError("No module named 'fastrlock'", name="fastrlock")
        try:
            raise ImportError("libcudart.so.13: cannot open shared object file\nand more")
        except ImportError as error:
            raise ImportError("\n=====\nFailed to import CuPy.\n\n") from error

    monkeypatch.setattr(builtins, "__import__", refuse)
    reason = "libcudart.so.13: cannot open shared object file" if wrapped else "No module named 'fastrlock'"
    said = sentence()
    assert f"CuPy is installed but cannot be imported ({reason})" in said
    assert 'pip install -e ".[cuda13]"' in said


def test_two_installed_cupys_are_reported(pretend):
    said = sentence(pretend, packages=("cupy-cuda12x", "cupy-cuda13x"))
    assert "cupy-cuda12x and cupy-cuda13x are both installed" in said
    assert "pip uninstall -y cupy-cuda12x cupy-cuda13x, and then pip install -e" in said


def test_a_missing_driver_is_reported(pretend):
    said = sentence(pretend, driver=0, count=lambda: fail(CUDARuntimeError("cudaErrorInsufficientDriver: ...")))
    assert said.startswith("device cuda: CuPy 14.2.0 is built for CUDA 13.2, but there is no NVIDIA driver: install")
    assert "--device cpu" in said


def test_an_old_driver_is_reported(pretend):
    assert sentence(pretend, driver=12040) == (
        "device cuda: CuPy 14.2.0 is built for CUDA 13.2, the driver for CUDA 12.4, which is too old: update the "
        "driver, or install the CuPy for the old one: pip uninstall -y cupy-cuda13x, and then pip install -e "
        '".[cuda12]"'
    )
    # No current CuPy is built for the next one.
    assert sentence(pretend, driver=11080).endswith("the driver for CUDA 11.8, which is too old: update the driver")


def test_a_driver_may_be_newer_than_cupy_and_older_within_a_major_version(pretend):
    for driver, made_for in ((13000, 12090), (12020, 12090), (13000, 13020)):
        pretend(driver=driver, made_for=made_for)
        assert why_no_cuda() == ""


@pytest.mark.parametrize("made_for", [13020, 12090])
def test_a_missing_cublas_or_nvrtc_is_reported(made_for, pretend):
    line = f'install it: pip install -e ".[cuda{made_for // 1000}]"'
    said = sentence(pretend, made_for=made_for, libraries=("nvrtc",))
    assert "but a library of CUDA is missing (cannot import name 'cublas'" in said
    assert said.endswith(line)
    pretend(made_for=made_for, generations=lambda: fail(RuntimeError("no libnvrtc.so.13\nin /usr/lib\n")))
    said = sentence()
    assert "but a library of CUDA is missing (no libnvrtc.so.13); " in said
    assert said.endswith(line)


def test_a_missing_gpu_is_reported(pretend, monkeypatch):
    assert sentence(pretend, count=lambda: 0) == f"{HERE}there is no GPU: use --device cpu"
    pretend(count=lambda: fail(CUDARuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected")))
    assert sentence() == f"{HERE}there is no GPU: use --device cpu"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert sentence() == f"{HERE}there is no GPU (CUDA_VISIBLE_DEVICES is ''): use --device cpu"


def test_a_busy_gpu_is_reported(pretend):
    words = "cudaErrorDevicesUnavailable: CUDA-capable device(s) is/are busy or unavailable"
    for refusal in ("count", "memory"):
        said = sentence(pretend, **{refusal: lambda: fail(CUDARuntimeError(words))})
        assert said.startswith(f"{HERE}the GPU cannot be used ({words}): nvidia-smi shows its state")


def test_an_unsupported_gpu_is_reported(pretend):
    assert sentence(pretend, capability=(6, 1)) == (
        f"{HERE}CUDA 13.2 no longer supports the Big GPU (compute capability 6.1): pip uninstall -y cupy-cuda13x, and "
        'then pip install -e ".[cuda12]"'
    )
    pretend(capability=(3, 7), made_for=12090, generations=lambda: (50, 90))
    assert sentence().endswith("CUDA 12.9 no longer supports the Big GPU (compute capability 3.7); use --device cpu")
    said = sentence(pretend, capability=(12, 0), made_for=12040, generations=lambda: (50, 90))
    assert "CUDA 12.4 does not support the Big GPU (compute capability 12.0) yet: pip uninstall -y cupy-cuda12x" in said
    assert said.endswith('pip install -e ".[cuda13]"')
    pretend(capability=(12, 0), made_for=12040, driver=12080, generations=lambda: (50, 90))
    assert why_no_cuda() == ""  # the driver can compile for it, and there is no newer CuPy for this driver


def test_missing_headers_are_reported_before_the_first_kernel(pretend):
    error = 'kern.cu(4): catastrophic error: cannot open source file "cuda_fp16.h"'
    assert sentence(pretend, zeros=lambda *_: fail(RuntimeError(f"{error}\n\n1 catastrophic error detected"))) == (
        f"{HERE}a one-line kernel cannot be compiled and run ({error}); if headers of CUDA are missing, install "
        'them: pip install -e ".[cuda13]"'
    )


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.ENOSPC])
def test_a_home_that_cannot_be_written_is_reported(pretend, monkeypatch, number):
    """By the first kernel, or already while CuPy is imported."""
    error = OSError(number, os.strerror(number), "/home/me/.cupy/kernel_cache")
    end = (
        f"it cannot keep compiled kernels in /home/me/.cupy/kernel_cache ({os.strerror(number)}): set the environment "
        "variable CUPY_CACHE_DIR to a writable folder with free space"
    )
    assert sentence(pretend, zeros=lambda *_: fail(error)) == HERE + end
    monkeypatch.delitem(sys.modules, "cupy")
    real = builtins.__import__
    monkeypatch.setattr(builtins, "__import__", lambda name, *a: fail(error) if name == "cupy" else real(name, *a))
    assert sentence() == f"device cuda: CuPy is installed, but {end}"


def test_a_warning_of_cupy_is_no_reason_against_a_gpu(pretend):
    """In the tests warnings are errors."""
    pretend(zeros=lambda *_: warnings.warn("this may become slower", stacklevel=1) or 0.0)
    with pytest.warns(UserWarning, match="may become slower"):
        assert why_no_cuda() == ""
    with pytest.raises(UserWarning, match="from now on"):
        warnings.warn("from now on they are errors again", stacklevel=1)


def test_a_gpu_is_registered_once(pretend):
    cupy = pretend()
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
