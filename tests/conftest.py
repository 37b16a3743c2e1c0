"""Fixtures that several test files share."""

import gc
import os
import shutil
import sys
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

# Before NumPy is imported: the tests' matrices are too small to be shared by several threads.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest
from hypothesis import HealthCheck, settings

from tests import places
from tests.emulator.cupy_on_cpu import COMPILER, emulated_cuda
from tests.standin import standin_device
from tests.tiny_runs import ignoring_no_signal, made_up_text, run_training, undone
from tinygrad_lite.device import get_device, why_no_cuda
from tinygrad_lite.errors import CorpusError
from tinygrad_lite.random import manual_seed
from training import setup
from training.corpora import fetch, wheel

# The Pythons that tests start work as they do for most users, whatever whoever starts the tests has switched off: they
# cache compiled files (train.py is started a hundred times), collect what they write, and import from this folder.
for name in ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "PYTHONSAFEPATH"):
    os.environ.pop(name, None)
sys.dont_write_bytecode = False  # in this process as well
WHY_NO_GPU = why_no_cuda()  # empty if there is one
# No test fails because the machine is busy: neither an example nor its making has a time limit. And none fails because
# the current folder cannot be written: examples are kept nowhere.
settings.register_profile("anywhere", deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None)
settings.load_profile("anywhere")


def device_called(kind):
    """The name of a device of this kind, while a test runs; "emulated" is a CPU under the name cuda."""
    if kind == "standin":
        with standin_device() as name:
            yield name
    elif kind == "emulated":
        if not COMPILER:
            pytest.skip("the emulated GPU compiles kernels with g++, which is missing")
        with emulated_cuda() as name:
            yield name
    else:
        if kind == "cuda" and WHY_NO_GPU:
            pytest.skip(WHY_NO_GPU)
        yield kind


@pytest.fixture  # pytest_generate_tests names the devices
def device(request):
    """The name of each device in turn: the CPU, the stand-in for CuPy, an emulated GPU, a GPU where there is one."""
    yield from device_called(request.param)


@pytest.fixture
def cuda(request):
    """The name of the device cuda: emulated, and a GPU where there is one."""
    yield from device_called(request.param)


def pytest_addoption(parser):
    parser.addoption("--emulate-gpu", action="store_true", help="tests marked gpu run on the emulated GPU, slowly")
    parser.addoption("--lacking", metavar="FILE", help="list there the tests that lacked a package, but torch")


def pytest_generate_tests(metafunc):
    """Choose the devices of a test: by the fixtures `device` and `cuda`, or by its marks."""
    # Without a GPU and without `-m gpu`, thousands of tests that would be skipped are not even made.
    is_for_gpu = "gpu" in metafunc.config.getoption("markexpr") or not WHY_NO_GPU
    on_gpu = [pytest.param("cuda", marks=pytest.mark.gpu)] if is_for_gpu else []
    chosen = {"device": ["cpu", "standin", "emulated"], "cuda": ["emulated"]}
    for name in chosen.keys() & {*metafunc.fixturenames}:
        metafunc.parametrize(name, [*chosen[name], *on_gpu], indirect=True)
    mark = metafunc.definition.get_closest_marker
    if not mark("every_device") or chosen.keys() & {*metafunc.fixturenames} or mark("cpu_only"):
        return
    by_default = ["emulated"] if mark("emulated_by_default") else []
    metafunc.parametrize("place", ["cpu", *by_default, *on_gpu], indirect=True)


@pytest.hookimpl(tryfirst=True)  # before marks are evaluated
def pytest_collection_modifyitems(config, items):
    """Mark at once what cannot run here, instead of checking again before each of thousands of tests."""
    for item in items:
        if item.get_closest_marker("without_kernels") and "[emulated" in item.name:
            item.add_marker(pytest.mark.slow)
    if config.getoption("--emulate-gpu") or not WHY_NO_GPU:
        return
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(pytest.mark.skip(reason=WHY_NO_GPU))


@pytest.hookimpl(trylast=True)  # when the fixtures are done
def pytest_runtest_teardown(item):
    """After a test on a GPU: end this process if a kernel has failed, since it can no longer use the GPU.

    pytest-xdist reports the test and starts another process for those that follow.
    """
    if "gpu" not in item.keywords or WHY_NO_GPU:
        return
    try:
        get_device("cuda").synchronize()
    except Exception as error:
        if "PYTEST_XDIST_WORKER" in os.environ:
            os._exit(1)
        pytest.exit(f"the GPU can no longer be used: {error}", returncode=1)


def pytest_terminal_summary(terminalreporter, config):
    """With `-m gpu`, say how many tests were skipped, and why: a skipped test proves nothing. Serves --lacking, too."""
    reports = terminalreporter.stats
    if path := config.getoption("--lacking"):
        skipped = [report for report in reports.get("skipped", []) if "torch" not in getattr(report, "keywords", ())]
        lacking = [report.nodeid for report in skipped if "could not import" in str(report.longrepr)]
        Path(path).write_text("\n".join(lacking), encoding="utf-8")
    if not config.getoption("markexpr").startswith("gpu"):
        return
    reasons = Counter(str(report.longrepr[2]).removeprefix("Skipped: ") for report in reports.get("skipped", []))
    ran = sum(len(reports.get(outcome, [])) for outcome in ("passed", "failed", "error"))
    terminalreporter.section("tests on a GPU")
    terminalreporter.write_line(f"{ran} ran, {reasons.total()} were skipped")
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"{count} skipped: {reason}")


def pytest_collection_finish():
    """Exclude from garbage collection what lives to the end: pytest's items, parsed files."""
    gc.freeze()


@pytest.fixture(autouse=True)
def place(request):
    """The device on which a test makes its tensors; see places.py. Its random numbers depend on no test before it."""
    manual_seed(0)
    kind = getattr(request, "param", "cpu")
    if kind == "cuda" and request.config.getoption("--emulate-gpu"):
        kind = "emulated"
    if kind == "cpu":
        yield kind
        return
    if kind == "emulated" and request.node.get_closest_marker("too_long_to_emulate"):
        pytest.skip("takes too long on the emulated GPU")
    with contextmanager(device_called)(kind) as name, places.tests_on(name):
        yield name


@pytest.fixture(autouse=True, scope="session")
def one_core(tmp_path_factory):
    """Runs use one process unless they request more: starting others would take most of the tests' time.

    They start in the project's folder, a page of help is as wide as on most terminals, and a user who is only a number,
    as in some containers, has a name and a home folder.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(setup, "available_cores", lambda: 1)
        patch.chdir(places.TESTS.parent)
        patch.setenv("COLUMNS", "80")
        if os.path.expanduser("~") == "~":
            patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
            patch.setenv("LOGNAME", "nobody")
        patch.setattr(os, "fsync", lambda file: None)  # no test cuts the power, so waiting for the disk proves nothing
        yield


@pytest.fixture
def workplace(tmp_path, monkeypatch, no_network):
    """A working folder with text.txt in it, and an empty cache of corpora that nothing fills."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TINYGRAD_LITE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "text.txt").write_text(made_up_text(), encoding="utf-8", newline="\n")
    with undone():
        yield tmp_path


@pytest.fixture
def no_signal_ignored():
    """Signals have their usual effect, even if whoever started the tests ignores them, as nohup does."""
    with ignoring_no_signal():
        yield


@pytest.fixture
def no_network(monkeypatch, request):
    """No network, and neither apt-get nor pip: every download fails, unless the test is one of the network."""

    def unreachable(*what):
        raise CorpusError("there is no network here")

    if "network" in request.keywords:
        return
    monkeypatch.setattr(fetch, "debian_folders", unreachable)
    monkeypatch.setattr(fetch, "https_bytes", unreachable)
    monkeypatch.setattr(wheel, "pip_download", unreachable)


@pytest.fixture(scope="module")
def long_trained(tmp_path_factory):
    """The folder of a run; made once per file, because no test changes it."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "text.txt").write_text(made_up_text(), encoding="utf-8")
    settings = {"max_iters": 40, "eval_interval": 40, "eval_iters": 0}
    with undone():
        return run_training(text=folder / "text.txt", out_dir=folder / "run", **settings).path


@pytest.fixture
def trained(workplace, long_trained):
    """A working folder with a copy of the trained run."""
    shutil.copytree(long_trained, "out/goethe")
    return workplace
