"""What is different on macOS and Windows, switched on here: the fallbacks work, and the rest does not depend on it."""

import ast
import ctypes
import errno
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.test_layers import FILES, TREES
from tests.tiny_runs import arguments, run_training, script
from tinygrad_lite import checkpoint, console, run
from tinygrad_lite.checkpoint import write_atomically
from tinygrad_lite.console import wants_colour
from tinygrad_lite.errors import CheckpointError, CorpusError, OptionError
from tinygrad_lite.run import RunFolder, tune_memory
from tinygrad_lite.text import fetch

# Modules of Python that only POSIX has, or that are something else elsewhere.
POSIX_ONLY = {"fcntl", "grp", "posix", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty"}
WINDOWS_ONLY = {"msvcrt", "winreg", "winsound"}
WESTERN = {"PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0", "LC_ALL": "C"}  # the encoding of many a Windows


def test_no_module_imports_at_its_top_what_one_system_lacks():
    for name, tree in TREES.items():
        for statement in tree.body:
            modules = []
            if isinstance(statement, ast.Import):
                modules = [alias.name for alias in statement.names]
            elif isinstance(statement, ast.ImportFrom):
                modules = [statement.module]
            assert not {m.split(".")[0] for m in modules} & (POSIX_ONLY | WINDOWS_ONLY), FILES[name]


# --- Windows: locks, renaming, colours ------------------------------------------------------------------------


class Msvcrt(SimpleNamespace):
    """Windows' module for locks, as far as it is used: a byte of a file is locked by one handle only."""

    def __init__(self) -> None:
        super().__init__(LK_NBLCK=2, locked={})

    def locking(self, handle: int, mode: int, count: int) -> None:
        status = os.fstat(handle)
        key = (status.st_dev, status.st_ino)
        owner = self.locked.get(key)
        if owner is not None and owner != handle and os.path.exists(f"/proc/self/fd/{owner}"):
            raise OSError(errno.EACCES, "Permission denied")
        self.locked[key] = handle


def test_a_folder_is_locked_by_what_windows_has(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "POSIX", False)
    monkeypatch.setitem(sys.modules, "fcntl", None)  # importing it fails
    monkeypatch.setitem(sys.modules, "msvcrt", Msvcrt())
    with (
        RunFolder(tmp_path).locked(),
        pytest.raises(OptionError, match="another run is training in"),
        RunFolder(tmp_path).locked(),
    ):
        pass
    with RunFolder(tmp_path).locked():
        pass


def test_a_whole_run_without_anything_of_posix(workplace, monkeypatch):
    monkeypatch.setattr(run, "POSIX", False)
    monkeypatch.setattr(checkpoint, "POSIX", False)
    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", Msvcrt())
    fsync = os.fsync

    def only_files(handle):
        assert not os.path.isdir(f"/proc/self/fd/{handle}"), "Windows cannot fsync a folder"
        fsync(handle)

    monkeypatch.setattr(os, "fsync", only_files)
    folder = run_training(max_iters=4, keep=1)
    assert folder.best.exists()
    assert len(folder.kept()) == 1


def test_a_file_that_someone_has_open_is_replaced_a_moment_later(tmp_path, monkeypatch):
    """Windows answers PermissionError until the other program closes the file."""
    waited, replace = [], os.replace

    def busy(source, target):
        if len(waited) < 3:
            raise PermissionError(errno.EACCES, "The process cannot access the file")
        replace(source, target)

    monkeypatch.setattr(checkpoint, "POSIX", False)
    monkeypatch.setattr(checkpoint.time, "sleep", waited.append)
    monkeypatch.setattr(os, "replace", busy)
    (tmp_path / "last").write_bytes(b"old")
    write_atomically(tmp_path / "last", b"new")
    assert (tmp_path / "last").read_bytes() == b"new"
    assert waited == [0.1, 0.2, 0.5]


def test_a_file_that_stays_open_is_an_error_that_leaves_the_old_one(tmp_path, monkeypatch):
    def busy(source, target):
        raise PermissionError(errno.EACCES, "The process cannot access the file")

    waited = []
    monkeypatch.setattr(checkpoint.time, "sleep", waited.append)
    monkeypatch.setattr(os, "replace", busy)
    (tmp_path / "last").write_bytes(b"old")
    for posix, times in ((False, 5), (True, 0)):  # on POSIX it means that the folder may not be written: no waiting
        monkeypatch.setattr(checkpoint, "POSIX", posix)
        with pytest.raises(CheckpointError, match="what was there before is intact"):
            write_atomically(tmp_path / "last", b"new")
        assert len(waited) == times
        waited.clear()
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"old"]


@pytest.mark.parametrize(("variable", "expected"), [(None, False), ("WT_SESSION", True), ("TERM", True)])
def test_the_old_console_of_windows_gets_no_colours(variable, expected, monkeypatch):
    for name in ("WT_SESSION", "TERM", "ConEmuANSI", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    if variable:
        monkeypatch.setenv(variable, "xterm")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(console, "WINDOWS", True)
    assert wants_colour() is expected
    monkeypatch.setattr(console, "WINDOWS", False)
    assert wants_colour()


# --- everywhere but on Linux with glibc -----------------------------------------------------------------------


@pytest.mark.parametrize("error", [TypeError, OSError, AttributeError])
def test_without_glibc_the_memory_is_left_as_it_is(error, monkeypatch):
    """ctypes.CDLL(None) is a TypeError on Windows, and macOS has no mallopt."""

    def none_of_it(name):
        raise error("not here")

    monkeypatch.setattr(ctypes, "CDLL", none_of_it)
    assert tune_memory() is False


def test_without_apt_the_corpus_says_so(monkeypatch):
    monkeypatch.setattr(fetch.shutil, "which", lambda name: None)
    with pytest.raises(CorpusError, match="this system has no apt-get"):
        fetch.debian_files({"package": "file"})


def test_the_cache_is_in_the_users_own_folder(monkeypatch, tmp_path):
    for name in ("TINYGRAD_LITE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))  # what Windows calls it
    assert fetch.cache_folder() == tmp_path / ".cache" / "tinygrad_lite"


# --- terminals and pipes with another encoding ----------------------------------------------------------------


def test_the_scripts_write_utf8_into_a_pipe_whatever_the_system_speaks(workplace):
    (workplace / "prompt.txt").write_text("Grün – süß ☃", encoding="utf-8")
    training = ["train.py", *arguments(max_iters=2, eval_interval=2, sample_tokens=40)]
    sampling = ["sample.py", "run", "--start", "FILE:prompt.txt", "--max_new_tokens", "5"]
    for words, beginning in ((training, ""), (sampling, "Grün – süß ☃")):
        process = script(*words, **WESTERN)
        text, said = process.communicate(timeout=60)
        assert process.returncode == 0, said
        assert text.decode("utf-8").startswith(beginning)
        assert b"Traceback" not in said
        said.decode("cp1252")


def test_ends_of_lines_are_the_same_bytes_everywhere(workplace):
    folder = run_training(max_iters=4, sample_tokens=30)
    for path in (folder.metrics, folder.samples, folder.options):
        assert b"\r" not in path.read_bytes(), path
    text = Path("text.txt")
    before = run_training(out_dir="one", max_iters=2).last.read_bytes()
    text.write_bytes(text.read_bytes().replace(b"\n", b"\r\n"))  # as an editor on Windows writes it
    assert run_training(out_dir="two", max_iters=2).last.read_bytes() == before
