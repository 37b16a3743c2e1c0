"""The differences of macOS and Windows, simulated: the fallbacks work, and the rest does not depend on the system.

docs/machines.md lists what users see.
"""

import ast
import ctypes
import errno
import os
import re
import shutil
import ssl
import stat
import subprocess
import sys
import urllib.error
from contextlib import chdir
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

import train
from tests.tiny_runs import ROOT, arguments, made_up_text, run_training
from tinygrad_lite.errors import CheckpointError, CorpusError, OptionError
from training import checkpoint
from training import folder as run
from training.cli import console, files
from training.corpora import fetch
from training.folder import RunFolder, tune_memory

# --- Windows: locks and renaming ------------------------------------------------------------------------------


class Msvcrt(SimpleNamespace):
    """Windows' module for locks, as far as it is used.

    A lock is on the byte of a file at the handle's position, even beyond its end, and belongs to the handle. Unlocking
    ends it. (Closing the file does too, but it is not specified when.)
    """

    def __init__(self) -> None:
        super().__init__(LK_UNLCK=0, LK_NBLCK=2, owners={})

    def locking(self, handle: int, mode: int, count: int) -> None:
        status = os.fstat(handle)
        byte = (status.st_dev, status.st_ino, os.lseek(handle, 0, os.SEEK_CUR))
        if self.owners.get(byte) != (handle if mode == self.LK_UNLCK else None):
            raise PermissionError(errno.EACCES, "Permission denied")
        self.owners[byte] = None if mode == self.LK_UNLCK else handle


busy = Mock(side_effect=PermissionError(errno.EACCES, "The process cannot access the file"))


@pytest.fixture
def windows(monkeypatch):
    """Windows, as far as it can be simulated: its locks, no fcntl, and folders that cannot be opened or fsynced."""
    for module in (run, files):
        monkeypatch.setattr(module, "POSIX", False)
    monkeypatch.setattr(console, "WINDOWS", True)
    monkeypatch.setitem(sys.modules, "fcntl", None)  # importing it fails
    monkeypatch.setitem(sys.modules, "msvcrt", Msvcrt())
    open_handle, fsync = os.open, os.fsync

    def open_files_only(path, *rest, **named):
        if os.path.isdir(path):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return open_handle(path, *rest, **named)

    def force_files_only(handle):
        assert not stat.S_ISDIR(os.fstat(handle).st_mode), "Windows cannot fsync a folder"
        fsync(handle)

    monkeypatch.setattr(os, "open", open_files_only)
    monkeypatch.setattr(os, "fsync", force_files_only)


@pytest.fixture
def open_files_stay(monkeypatch):
    """As on Windows, a file that this process has open or mapped can be neither replaced nor removed."""
    if not Path("/proc/self/maps").exists():
        pytest.skip("only Linux lists in /proc which files a process has open")

    def unless_open(function):
        def changed(*paths, **named):
            handles = {os.path.realpath(handle) for handle in Path("/proc/self/fd").iterdir()}
            for path in map(os.path.realpath, paths):
                if path in handles or path in Path("/proc/self/maps").read_text(encoding="utf-8"):
                    raise PermissionError(errno.EACCES, "The process cannot access the file", path)
            function(*paths, **named)

        return changed

    for name in ("replace", "unlink"):
        monkeypatch.setattr(os, name, unless_open(getattr(os, name)))


def test_a_folder_is_locked_with_the_functions_of_windows(tmp_path, windows):
    one, other = RunFolder(tmp_path), RunFolder(tmp_path)
    for _ in range(2):
        with one.locked(), pytest.raises(OptionError, match="another run is training in"), other.locked():
            pass
    assert (tmp_path / "lock").read_bytes() == b""  # so that everyone locks the same byte


def test_whole_runs_work_on_windows(workplace, windows, open_files_stay, monkeypatch):
    """A run, a resumed one and one that overwrites it: no POSIX functions, and no file of its own left open."""
    monkeypatch.setattr(files.time, "sleep", lambda seconds: pytest.fail("a file of the run's own was open"))
    folder = run_training(max_iters=4, sample_tokens=5)
    assert train.main(["--resume", "--out_dir=run", "--max_iters=6"]) == 0
    run_training(max_iters=1, overwrite=True)
    assert checkpoint.load_checkpoint(folder.last).step == 1


def test_a_file_opened_by_another_program_is_replaced_a_moment_later(tmp_path, windows, monkeypatch):
    """Windows answers PermissionError until the other program closes the file."""
    waited, replace = [], os.replace

    def busy_at_first(source, target):
        if len(waited) < 3:
            busy()
        replace(source, target)

    monkeypatch.setattr(files.time, "sleep", waited.append)
    monkeypatch.setattr(os, "replace", busy_at_first)
    (tmp_path / "last").write_bytes(b"old")
    checkpoint.save_file(tmp_path / "last", b"new")
    assert ((tmp_path / "last").read_bytes(), waited) == (b"new", [0.1, 0.2, 0.5])


def test_a_file_that_stays_open_is_an_error_that_leaves_the_old_one(tmp_path, monkeypatch):
    waited = []
    monkeypatch.setattr(files.time, "sleep", waited.append)
    monkeypatch.setattr(os, "replace", busy)
    (tmp_path / "last").write_bytes(b"old")
    for posix, times in ((False, 5), (True, 0)):  # on POSIX it means that the folder is not writable: no waiting
        monkeypatch.setattr(files, "POSIX", posix)
        with pytest.raises(CheckpointError, match="the previous file is intact"):
            checkpoint.save_file(tmp_path / "last", b"new")
        assert len(waited) == times
        waited.clear()
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"old"]


# --- everywhere except on Debian ------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [TypeError, OSError, AttributeError])
def test_without_glibc_memory_is_not_tuned(error, monkeypatch):
    """ctypes.CDLL(None) is a TypeError on Windows, and macOS has no mallopt."""
    monkeypatch.setattr(ctypes, "CDLL", Mock(side_effect=error("not here")))
    assert tune_memory() is False


@pytest.mark.parametrize(("platform", "hinted"), [("darwin", True), ("linux", False)])
def test_a_python_without_certificates_says_where_they_are_on_macos(monkeypatch, platform, hinted):
    error = urllib.error.URLError(ssl.SSLCertVerificationError(1, "unable to get local issuer certificate"))
    monkeypatch.setattr(sys, "platform", platform)
    with pytest.raises(CorpusError, match="unable to get local issuer certificate") as refused:
        fetch.https_text("https://example.org/", Mock(side_effect=error))
    assert ("Install Certificates.command" in str(refused.value)) is hinted


# --- terminals and pipes with another encoding ----------------------------------------------------------------

# The encodings of pipes on many Windows systems, and of files on a system without a locale. And Python must complain
# wherever the choice of an encoding is left to the system.
FOREIGN = "PYTHONIOENCODING=cp1252 PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 LC_ALL=C PYTHONWARNDEFAULTENCODING=1"
FOREIGN = dict(word.split("=") for word in f"{FOREIGN} PYTHONWARNINGS=error::EncodingWarning".split())
PROMPT = "Grün – süß ☃"


def run_in_foreign_locale(*words: str, typed: str = "") -> tuple[str, str]:
    """Run a command where nothing is UTF-8 by default: what it wrote to stdout and stderr, both in UTF-8."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **FOREIGN}
    command = [sys.executable, *words]
    done = subprocess.run(command, input=typed.encode(), capture_output=True, check=False, env=environment)
    out, err = done.stdout.decode("utf-8"), done.stderr.decode("utf-8")
    assert (done.returncode, "Traceback" in err, "Warning:" in err) == (0, False, False), err
    return out, err


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with a text and a run made in such an environment."""
    folder = tmp_path_factory.mktemp("foreign")
    with chdir(folder):
        Path("text.txt").write_text(made_up_text(), encoding="utf-8", newline="\n")
        words = arguments(max_iters=2, eval_interval=2, sample_tokens=40, workers=1)
        out, _ = run_in_foreign_locale(str(ROOT / "train.py"), *words)
        assert set("üöß") & set(out)
        assert set("üöß") & set(Path("run", "samples.txt").read_text(encoding="utf-8"))
        yield folder


COMMANDS = [
    ("sample.py run --start FILE:prompt.txt --max_new_tokens 5", "", PROMPT),
    pytest.param("sample.py run --start - --beam 2 --max_new_tokens 5", PROMPT, PROMPT, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("command", "typed", "written"), COMMANDS)
def test_commands_read_and_write_utf8_in_any_locale(trained, command, typed, written):
    Path("prompt.txt").write_text(PROMPT, encoding="utf-8", newline="\n")
    out, err = run_in_foreign_locale(*[str(ROOT / w) if w.endswith(".py") else w for w in command.split()], typed=typed)
    assert written in out
    if typed or "FILE:" in command:
        assert "☃" in err  # in a warning


# --- files that are the same everywhere -----------------------------------------------------------------------


@pytest.mark.skipif(not (ROOT / ".git").exists() or not shutil.which("git"), reason="this is no clone")
def test_lines_end_in_lf_on_every_system(tmp_path):
    """Also where git turns ends of lines into those of Windows, in a folder with a space and an umlaut."""
    place = tmp_path / "für alle"
    subprocess.run(["git", "clone", "-qs", "-c", "core.autocrlf=true", ROOT, place], check=True)
    found = [path for path in place.rglob("*") if path.suffix in (".py", ".sh", ".cu", ".md", ".toml")]
    assert len(found) > 400
    assert [path for path in found if b"\r" in path.read_bytes()] == []


@pytest.mark.parametrize("script", ["train.py", "docs/course/check.py"])
def test_before_the_installation_a_script_says_how_to_install(script):
    """Without the packages, and without the project itself, as for a lone copy of the script."""
    for options, missing in (("-S", "numpy"), ("-SI", "numpy|tinygrad_lite")):
        done = subprocess.run([sys.executable, options, script], capture_output=True, encoding="utf-8", cwd=ROOT)
        assert done.returncode == 1
        expected = rf"{script}: ({missing}) is not installed: run pip install -e \. in the root of the project\n"
        assert re.fullmatch(expected, done.stderr)


COURSE = [f"docs/course/{name}.py" for name in ("check", "run", "capstone/exercise")]
DOORS = ["train.py", "sample.py", "nano.py", *COURSE]
SHELF = ROOT / "extra"  # which may be missing


def test_an_older_python_says_so():
    """Each program is valid syntax for it, and looks at the version before it imports anything of the project."""
    for door in [*DOORS, "training/cli/doorstep.py", *SHELF.glob("studies/__init__.py")]:
        ast.parse((ROOT / door).read_text(encoding="utf-8"), feature_version=(3, 8))
    found = {shutil.which(f"python3.{minor}") for minor in (8, 9, 10)}
    found |= set(map(str, (Path.home() / ".pyenv" / "versions").glob("3.[89].*/bin/python")))
    for python in sorted(found - {None})[:1]:
        for words in [[door] for door in DOORS] + [["-m", "extra.studies.learn"] for _ in SHELF.glob("studies")]:
            done = subprocess.run([python, "-SB", *words], capture_output=True, cwd=ROOT, encoding="utf-8", timeout=300)
            if "command not found" not in done.stderr:  # such as a shim without a version
                assert re.fullmatch(r".* needs? Python 3\.11 or newer.*; this is .*3\.\d+\.\d+.*\n", done.stderr)
                assert done.returncode == 1, python
