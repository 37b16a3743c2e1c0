"""What several test files share."""

import pytest

from tests.emulator.cupy_on_cpu import COMPILER, emulated_cuda
from tests.standin import standin_device
from tests.tiny_runs import made_up_text, undone
from tinygrad_lite import start
from tinygrad_lite.device import why_no_cuda


def device_called(kind):
    """The device that stands for this kind, while a test runs: "emulated" is a CPU that calls itself cuda."""
    if kind == "standin":
        with standin_device() as name:
            yield name
    elif kind == "emulated":
        if not COMPILER:
            pytest.skip("the emulated GPU compiles kernels with g++, which is not there")
        with emulated_cuda() as name:
            yield name
    else:
        if kind == "cuda" and why_no_cuda():
            pytest.skip(why_no_cuda())
        yield kind


@pytest.fixture(params=["cpu", "standin", "emulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request):
    """The name of each device in turn: the CPU, the stand-in for CuPy, an emulated GPU, a GPU where there is one."""
    yield from device_called(request.param)


@pytest.fixture(params=["emulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def cuda(request):
    """The name of the device cuda: emulated, and a GPU where there is one."""
    yield from device_called(request.param)


@pytest.fixture(autouse=True)
def one_core(monkeypatch):
    """Runs take one process unless they ask for more: starting others would take most of the tests' time."""
    monkeypatch.setattr(start, "available_cores", lambda: 1)


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    """A working folder with text.txt in it, and an empty cache of corpora."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TINYGRAD_LITE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "text.txt").write_text(made_up_text(), encoding="utf-8", newline="\n")
    with undone():
        yield tmp_path
