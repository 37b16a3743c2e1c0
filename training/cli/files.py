"""Files: only regular ones of a reasonable size are read, and one that is written is complete or absent.

Files are named by a user, or come from anyone. A FIFO may keep its reader waiting for ever, a device such as /dev/zero
has no end, and a huge file fills the memory. A full disk or a crash must not destroy what a file held before.
"""

import contextlib
import errno
import os
import secrets
import stat
import time
from pathlib import Path

from tinygrad_lite.errors import CorpusError

POSIX = os.name == "posix"  # Linux and macOS
TEMPORARY = "*.????????.tmp"  # the name of a file that is being written
MAX_BYTES = 2**30  # of a text
MAX_SETTINGS = 2**27  # of a file of settings, or of a tokenizer
POINTER = b"version https://git-lfs."  # what begins a file of Git LFS that stands for another
SHORTEST, MAX_HIGH = 16, 4  # of a text in UTF-16 that is recognised: its bytes, and the values of every other byte


def read_file(path: str | Path, most: int = MAX_BYTES) -> bytes:
    """The bytes of a regular file.

    Raises: OSError, whose `strerror` is the reason, if it has more than `most` bytes, is something else, or cannot be
        read.
    """
    try:
        found = os.stat(path)
    except ValueError as error:
        raise OSError(errno.EINVAL, f"its name cannot be used: {error}", str(path)) from None
    if not stat.S_ISREG(found.st_mode):
        what = "is a folder" if stat.S_ISDIR(found.st_mode) else "is not a regular file"
        raise OSError(errno.EINVAL, f"it {what}", str(path))
    if found.st_size > most:
        raise OSError(errno.EFBIG, f"it has more than {most:,} bytes: use a smaller file", str(path))
    refuse_pointer(path)
    return Path(path).read_bytes()


def refuse_pointer(path: str | Path) -> None:
    """Raise OSError, whose `strerror` is the reason, if a file only says where Git LFS has the real one."""
    with open(path, "rb") as file:
        if file.read(len(POINTER)) == POINTER:
            raise OSError(errno.EINVAL, "it is a pointer of Git LFS: fetch the file with git lfs pull", str(path))


def read_named(path: str | Path, most: int = MAX_BYTES) -> bytes:
    """The bytes of a file of data that a user names; CorpusError if there is none, or if it cannot be read."""
    if not str(path):
        raise CorpusError("the name of a file is empty: write one")
    try:
        return read_file(path, most)
    except FileNotFoundError:
        raise CorpusError(f"there is no file {path}") from None
    except OSError as error:
        raise CorpusError(f"{path} cannot be read: {error.strerror}") from None


def decode_utf8(data: bytes, what: str, advice: str = "") -> str:
    """The text in `data`; if it is not UTF-8, a CorpusError names `what` and the first invalid byte.

    UTF-16 of most letters is valid UTF-8, too, but every other byte has one of a few values, of which one is 0.
    """
    for first, order in ((1, "LE"), (0, "BE")):
        high = {*data[first::2]} if 0 in data else {}
        if len(data) >= SHORTEST and 0 in high and len(high) <= MAX_HIGH and any(data):
            name = f"UTF-{16 if any(data[first + 1 :: 4]) else 32}{order}"
            raise CorpusError(f"{what} is not UTF-8 but, it seems, {name}: convert it with iconv -f {name} -t UTF-8")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        wrong = f"byte 0x{data[error.start]:02x} at byte offset {error.start}"
        raise CorpusError(f"{what} is not UTF-8 ({wrong}){advice}") from None


def text_named(path: str | Path, most: int = MAX_BYTES) -> str:
    """The text of a file that a user names, without a byte order mark; CorpusError if it cannot be read as UTF-8."""
    return decode_utf8(read_named(path, most), str(path), ": save it as UTF-8").removeprefix("\ufeff")


def lines_of(text: str) -> list[str]:
    """The lines of a text: "\\n" or "\\r\\n" ends one, or "\\r" in a text without "\\n", and nothing else does.

    A final line end does not start another line. Any other "\\r" becomes a space.

    >>> lines_of("one\\r\\ntwo\\u2028\\x0c and a half\\n"), lines_of("one\\rtwo")
    (['one', 'two\\u2028\\x0c and a half'], ['one', 'two'])
    """
    text = text.replace("\r\n", "\n")
    lines = text.replace("\r", " " if "\n" in text.rstrip() else "\n").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def text_of(path: Path, most: int = MAX_BYTES, encoding: str = "utf-8", errors: str = "strict") -> str:
    r"""The text of a regular file, each end of a line as \n; raises as `read_file` and decoding do."""
    return read_file(path, most).decode(encoding, errors).replace("\r\n", "\n").replace("\r", "\n")


def write_atomically(path: Path, data: bytes) -> None:
    """Replace a file by new contents so that a crash at any moment leaves the old file or the new one, never a part.

    It is written to a temporary file beside it, with the rights that every new file gets, synced to the disk, and then
    renamed, which is atomic. A link of that name is replaced, not followed.

    Raises: OSError if it cannot be written; an older file of that name is then intact.
    """
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")  # another process may write the same file
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        replace(temporary, path)
        if POSIX:  # syncing the folder writes the rename to the disk
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
    except BaseException:
        with contextlib.suppress(OSError):  # it may be missing, or a virus scanner may have it open
            os.unlink(temporary)
        raise


def replace(temporary: Path, path: Path) -> None:
    """Rename a file to the name of another, which it replaces.

    Windows does not allow that while a program has the old file open, such as sample.py or a virus scanner. That is
    usually brief, so renaming is retried for a few seconds.
    """
    for seconds in () if POSIX else (0.1, 0.2, 0.5, 1.0, 2.0):
        try:
            os.replace(temporary, path)
            return
        except PermissionError:
            time.sleep(seconds)
    os.replace(temporary, path)
