"""Ways to fetch a text, and the cache, so that each text is downloaded only once.

There are two sources: files inside Debian packages, fetched with apt-get (`debian_files`, `debian_folders`), and plain
text at an https:// address (`https_text`). Neither needs root or changes the system, and both limit how much they read,
so that a broken or hostile source causes an error instead of exhausting the memory.
`store` and `recall` keep a text and a few facts about it in the cache folder.
"""

import hashlib
import http.client
import io
import json
import os
import shutil
import ssl
import subprocess
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from tinygrad_lite.errors import CorpusError, counted
from training.cli.console import run_apart
from training.cli.files import POSIX, decode_utf8, read_file, write_atomically

GITHUB = "https://raw.githubusercontent.com/"
MAX_BYTES = 24 * 2**20  # of a file at an https:// address: the largest here, Tatoeba, has 10 MB, and grows
MAX_UNPACKED = 128 * 2**20  # all files of a package together; the dictionary's has 26 MB
MAX_LISTS = 2**30  # bytes of each list of packages
APT_TIMEOUT = 180  # seconds for each call of apt-get; the package lists have about 10 MB
HTTPS_TIMEOUT = 30  # seconds without a byte


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How to make a named data set.

    Attributes:
        make: fetches and cleans it.
        expected: the SHA-256 of the data when this was written; None if it is unknown, or if they change.
    """

    source: str
    licence: str
    make: Callable[[], Any]
    expected: str | None = None


def sha256(text: str) -> str:
    """The fingerprint of a text: SHA-256 of its UTF-8 bytes, 64 hexadecimal digits."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def check_sha256(data: bytes, expected: str, what: str) -> None:
    """Raise CorpusError, naming `what`, if the SHA-256 of the data is not the expected one."""
    found = hashlib.sha256(data).hexdigest()
    if found != expected:
        raise CorpusError(f"{what} is not the expected file: its sha256 is {found}, not {expected}")


@contextmanager
def advising(what: str, *instead: str) -> Iterator[None]:
    """Within this context `what` is fetched: a CorpusError becomes one that also says what works meanwhile."""
    try:
        yield
    except CorpusError as error:
        reason = error.__cause__ if isinstance(error.__cause__, CorpusError) else error
        raise CorpusError(
            f"{what} is unavailable ({reason}); try again with a network, once is enough; what works meanwhile: "
            f"{', '.join(instead)}; without a text: python train.py reverse, python -m extra.studies.learn, docs/course"
        ) from error


# ----------------------------------------------------------------------------------------- Debian packages


def debian_files(wanted: dict[str, str]) -> dict[str, str]:
    """Download Debian packages and read one text file from each.

    apt-get gets private folders for its package lists and its cache, so that it works without root and does not change
    the system; it checks the signatures itself. This takes about five seconds and 13 MB.

    Args:
        wanted: package name -> path of the file inside the package, without a leading slash.
    Returns: package name -> content of the file.
    Raises: CorpusError with the reason if there is no apt-get, no network, or no such file in the package.
    """
    found = debian_folders(wanted)
    return {name: decode_utf8(found[name][path], f"{name}'s {path}") for name, path in wanted.items()}


def debian_folders(wanted: dict[str, str]) -> dict[str, dict[str, bytes]]:
    """Download Debian packages and read all files with certain paths from each; otherwise like `debian_files`.

    Args:
        wanted: package name -> the paths inside the package, with * for any characters, such as usr/share/poems/*.txt.
    Returns: package name -> path -> content of the file.
    """
    with apt_folder(sorted(wanted)) as (folder, _):
        return {package: read_deb(package, folder, paths) for package, paths in wanted.items()}


@contextmanager
def apt_folder(packages: Sequence[str] = (), languages: Sequence[str] = ("none",)) -> Iterator[tuple[Path, list[str]]]:
    """A temporary folder with everything that apt-get downloads, its lists in `lists`, and the lines of its stderr.

    Args:
        packages: those to download as .deb files.
        languages: those of the package descriptions among the lists.
    Raises: CorpusError with the reason if there is no apt-get, or if a package cannot be downloaded.
    """
    if shutil.which("apt-get") is None:
        raise CorpusError("this system has no apt-get")
    with tempfile.TemporaryDirectory(prefix="tinygrad_lite-") as temporary:
        folder = Path(temporary)
        for subfolder in ("lists/partial", "cache/archives/partial"):
            (folder / subfolder).mkdir(parents=True)
        # A system may be set up to do something after every update, such as emptying its own cache of packages.
        cleared = ("APT::Update::Post-Invoke", "APT::Update::Post-Invoke-Success", "Acquire::Languages")
        settings = [
            *(f"#clear {name};" for name in cleared),
            *(f'Acquire::Languages:: "{language}";' for language in languages),
            f'Dir::State::Lists "{folder / "lists"}";',
            f'Dir::Cache "{folder / "cache"}";',
            'Acquire { GzipIndexes "false"; http::Timeout "20"; https::Timeout "20"; };',
        ]
        (folder / "apt.conf").write_text("\n".join(settings), encoding="utf-8", newline="\n")
        complaints: list[str] = []
        for command in (["update"], ["download", *packages])[: 2 if packages else 1]:
            words = ["apt-get", "-q", "-c", str(folder / "apt.conf"), *command]
            done = run_bounded(f"apt-get {command[0]}", words, folder, APT_TIMEOUT, MAX_LISTS)
            complaints += done.stderr.decode("utf-8", "replace").splitlines()
        # A failed `update` may concern a source that does not matter here: what is needed is missing later.
        if packages and done.returncode != 0:
            raise CorpusError(f"`apt-get download` failed: {telling_line(complaints)}")
        yield folder, complaints


def telling_line(complaints: list[str]) -> str:
    """The line of apt-get's stderr that names the error: the last one, with one exception.

    Without a network, `update` succeeds with warnings, and only `download` fails, because the lists are missing.
    "Unable to locate package" would then be misleading, so a failure to fetch takes precedence.

        >>> telling_line(["W: Failed to fetch a", "E: Unable to locate package b"])
        'Failed to fetch a'
    """
    lines = [line.strip() for line in complaints if line.strip()] or ["it gave no reason"]
    unfetched = [line for line in lines if "Failed to fetch" in line]
    return (unfetched or lines)[-1].removeprefix("E: ").removeprefix("W: ").rstrip(" :")


def read_deb(package: str, folder: Path, paths: str) -> dict[str, bytes]:
    """Read the files with certain paths, with * for any characters, from the downloaded file of a package.

    dpkg-deb turns it into a tar archive, in a temporary file without a name. Only regular files are read, whatever else
    the archive names; of several with the same path, the first.

    Args:
        folder: holds the file, whose name is package_version_architecture.deb.
    Raises: CorpusError if the package is missing or damaged, has no such file, or has more than MAX_UNPACKED bytes.
    """
    deb = next(folder.glob(f"{package}_*.deb"), None)
    if deb is None:
        raise CorpusError(f"`apt-get download` left no file of the package {package}")
    found, room = {}, MAX_UNPACKED
    with tempfile.TemporaryFile() as unpacked:
        words = ["dpkg-deb", "--fsys-tarfile", str(deb)]
        done = run_bounded(f"dpkg-deb {deb.name}", words, folder, 60, MAX_UNPACKED, stdout=unpacked)
        if done.returncode != 0:
            raise CorpusError(f"`dpkg-deb` cannot unpack {deb.name}: {done.stderr.decode('utf-8', 'replace').strip()}")
        unpacked.seek(0)
        data = io.BytesIO(unpacked.read())  # with a file, tarfile would trust the sizes that an archive states
    try:
        with tarfile.open(fileobj=data, mode="r:") as tar:
            for entry in tar:
                path = str(PurePosixPath(entry.name))
                if entry.isfile() and path not in found and fnmatchcase(path, paths):
                    room -= entry.size  # a sparse file can be larger than the archive
                    if room < 0:
                        raise ValueError(f"its files have more than {MAX_UNPACKED:,} bytes")
                    found[path] = tar.extractfile(entry).read()
    except (tarfile.TarError, EOFError, OSError, ValueError) as error:
        raise CorpusError(f"{deb.name} cannot be read as a Debian package: {error}") from error
    if not found:
        raise CorpusError(f"{deb.name} has no file {paths}; the package has changed")
    return found


def run_bounded(
    name: str, command: list[str], folder: Path, seconds: int, size: int, memory: int = 0, **others: Any
) -> subprocess.CompletedProcess:
    """Run a program as `run_apart` does, for at most so many seconds, and within the bounds of `bound`.

    Args:
        others: further settings of subprocess.run.
    Raises: CorpusError, naming the program, if it cannot be started, or does not end in time.
    """
    limit = partial(bound, size, memory) if POSIX else None
    try:
        return run_apart(command, folder, timeout=seconds, preexec_fn=limit, **others)
    except subprocess.TimeoutExpired:
        raise CorpusError(f"`{name}` did not end within {seconds} s") from None
    except OSError as error:
        raise CorpusError(f"`{name}` cannot be started: {error}") from error


def bound(size: int, memory: int = 0) -> None:
    """Prevent this process from writing a file of more bytes than this, and from taking more memory, if it is not 0.

    It is not for Windows, which lacks `resource`; macOS does not limit memory.
    """
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    if memory and sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


# ----------------------------------------------------------------------------------------------------- https


class OnlyHttps(urllib.request.HTTPRedirectHandler):
    """Follows redirects to https:// addresses only: plain http could be altered in transit."""

    def redirect_request(self, req, fp, code, msg, headers, newurl):
        """The redirected request; CorpusError if its address is not https://."""
        if not newurl.startswith("https://"):
            raise CorpusError(f"{req.full_url} redirects to {newurl}, which is not https://")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def https_text(url: str, open_url: Callable | None = None) -> str:
    """Download a page of plain text; for arguments and errors see `https_bytes`."""
    return decode_utf8(https_bytes(url, open_url), url)


def https_bytes(url: str, open_url: Callable | None = None) -> bytes:
    """Download a file.

    Args:
        url: starts with https://.
        open_url: replaces the `open` method of a urllib opener in tests.
    Raises: CorpusError with the reason if the file is unavailable or has more than MAX_BYTES.
    """
    if not url.startswith("https://"):
        raise CorpusError(f"{url} is not an https:// address")
    open_url = open_url or urllib.request.build_opener(OnlyHttps).open
    request = urllib.request.Request(url, headers={"User-Agent": "tinygrad_lite (reads a training text)"})
    try:
        with open_url(request, timeout=HTTPS_TIMEOUT) as response:
            data = response.read(MAX_BYTES + 1)
            missing = getattr(response, "length", None)  # read(n) silently returns less if the connection ends
    except urllib.error.HTTPError as error:
        error.close()
        raise CorpusError(f"{url} answered {error.code} {error.reason}") from None
    except urllib.error.URLError as error:
        hint = ""
        if sys.platform == "darwin" and isinstance(error.reason, ssl.SSLCertVerificationError):
            hint = " (a Python from python.org needs its Install Certificates.command to be run once)"
        raise CorpusError(f"{url} cannot be reached: {error.reason}{hint}") from None
    except (OSError, http.client.HTTPException, ValueError) as error:  # ValueError: a redirect to a malformed address
        raise CorpusError(f"the download of {url} failed: {error!r}") from None
    if len(data) > MAX_BYTES:
        raise CorpusError(f"{url} has more than {MAX_BYTES:,} bytes, too large for a text")
    if missing:
        raise CorpusError(f"the download of {url} failed: it lacks {counted(missing, 'byte')}")
    return data


# ----------------------------------------------------------------------------------------------------- cache


def cache_folder() -> Path:
    """$TINYGRAD_LITE_CACHE, else $XDG_CACHE_HOME/tinygrad_lite, else ~/.cache/tinygrad_lite, on every system.

    Raises: CorpusError if there is no home folder, as in some containers.
    """
    if own := os.environ.get("TINYGRAD_LITE_CACHE"):
        return Path(own)
    parent = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if parent.startswith("~"):
        raise CorpusError("there is no home folder for the cache; set the environment variable TINYGRAD_LITE_CACHE")
    return Path(parent) / "tinygrad_lite"


def store(name: str, text: str, facts: dict[str, str]) -> None:
    """Store a text in the cache as NAME.txt, and its hash and other facts as NAME.json.

    Each file is complete or absent.
    Raises OSError if the cache cannot be written, CorpusError if there is no folder for it.
    """
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    about = json.dumps({**facts, "sha256": sha256(text)}, ensure_ascii=False, indent=1, sort_keys=True) + "\n"
    write_atomically(folder / f"{name}.txt", text.encode("utf-8"))
    write_atomically(folder / f"{name}.json", about.encode("utf-8"))


def recall(name: str) -> tuple[str, dict[str, str]] | None:
    """A text from the cache and the facts stored with it, or None if there is none.

    Raises CorpusError if the entry is damaged: unreadable, incomplete, or with a hash other than the stored one.
    """
    folder = cache_folder()
    text_path, about_path = folder / f"{name}.txt", folder / f"{name}.json"
    try:
        if not text_path.exists() and not about_path.exists():
            return None
        text = read_file(text_path).decode("utf-8")
        facts = json.loads(read_file(about_path))
        intact = facts["sha256"] == sha256(text)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        intact = False
    if not intact:
        raise CorpusError(f"{text_path} is damaged or cannot be read")
    return text, facts


def from_cache(name: str, what: str, rules: str | None, read: Callable, say: Callable) -> object | None:
    """What `read` makes of a text in the cache, or None if there is none or it can no longer be trusted.

    Args:
        what: the name of the corpus for messages.
        rules: the current cleaning rules, by which the text must have been made; None: it is used in any case.
        say: takes each line meant for the user.
    """
    try:
        text, facts = recall(name) or (None, {})
        return read(text) if text is not None and rules in (None, facts.get("rules")) else None
    except CorpusError as error:
        say(f"the {what} is fetched again, because {error}")
        return None


def keep(name: str, what: str, text: str, recipe: Recipe, rules: str, say: Callable) -> None:
    """Store a text, as `store` does; if the cache cannot be written, this only costs a later download."""
    if recipe.expected is None:
        say(f"sha256 {sha256(text)}: stored in the cache, because there is no known one to compare it with")
    try:
        store(name, text, {"source": recipe.source, "licence": recipe.licence, "rules": rules})
    except (OSError, CorpusError) as error:
        say(f"the {what} cannot be cached: {error}")
