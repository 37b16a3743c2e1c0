"""How the tests break files: byte by byte at random, and according to their structure.

Everything is drawn from a `random.Random` that the test seeds, so that a failure can be repeated.
"""

import json
import os
import random
import struct
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.reliability.tiny_models import guard
from tinygrad_lite.errors import UserError
from training.checkpoint import KEY

# Values that a field hardly expects: of every type, too large, too small, too deep, and with a terminal's control
# sequences. As JSON, so that each use gets its own copy.
VALUES = (
    *(None, True, False, 0, -1, 1, 2, 255, 2**31, 2**53, 2**63, 10**18, -(10**18), 10**400, 10**4000),
    *(1.5, -0.5, 1e308, float("nan"), float("inf"), "", "x", "a" * 100_000, "\0", "\ud800", "\x1b[2J\x1b]0;evil\x07"),
    *("../../evil", "/etc/hostname", "<eos>", "nan", [], {}, [[]], [0], [-1, -1], ["a"], ["\x1b"], {"a": 1}),
)
ODD = (*map(json.dumps, VALUES), "[" * 900 + "]" * 900)


def many(few: int, lot: int) -> pytest.MarkDecorator:
    """A few cases in the default suite, many under the marker slow."""
    return pytest.mark.parametrize("count", [few, pytest.param(lot, marks=pytest.mark.slow)])


def odd_bytes(rng: random.Random, data: bytes) -> bytes:
    """The data with some bits flipped, bytes replaced, a piece removed, doubled or overwritten, or its end cut off."""
    broken = bytearray(data)
    how = rng.randrange(6)
    start = rng.randrange(len(data))
    end = min(len(data), start + rng.choice([1, 2, 8, 64, 1000]))
    if how == 0:
        for _ in range(rng.choice([1, 2, 8])):
            broken[rng.randrange(len(broken))] ^= 1 << rng.randrange(8)
    elif how == 1:
        for _ in range(rng.choice([1, 2, 8])):
            broken[rng.randrange(len(broken))] = rng.randrange(256)
    elif how == 2:
        del broken[start:end]
    elif how == 3:
        broken[start:start] = broken[start:end]
    elif how == 4:
        broken[start:end] = bytes([rng.choice([0, 0x22, 0x5B, 0x7F, 0xFF])]) * (end - start)
    else:
        del broken[start:]
    return bytes(broken)


def odd_json(rng: random.Random, tree: object) -> object:
    """A copy of the tree with one to three changes: odd values, values of other places, entries added or removed."""
    tree = json.loads(json.dumps(tree))
    for _ in range(rng.choice([1, 1, 2, 3])):
        places = list(places_in(tree))
        if not places:
            break
        node, key = rng.choice(places)
        how = rng.randrange(6)
        if how == 0:
            del node[key]
        elif how == 1 and isinstance(node, dict):
            node[rng.choice(["x", "out_dir", "text", "../evil", "\x1b[2J", ""])] = node[key]
        elif how == 1:
            node.insert(key, node[key])
        elif how == 2 and type(node[key]) in (int, float):
            node[key] += rng.choice([-1, 1, 7, -100, 10**6])
        elif how == 3:
            other, place = rng.choice(places)
            value = dict(places_of(other)).get(place)
            node[key] = json.loads(json.dumps(value))
        else:
            node[key] = json.loads(rng.choice(ODD))
    return tree


def places_in(tree: object, depth: int = 0) -> Iterator[tuple[dict | list, str | int]]:
    """Every place in a tree of JSON: the object or list, and the key or index in it; down to a depth of 20."""
    for key, value in places_of(tree):
        yield tree, key
        if isinstance(value, dict | list) and depth < 20:
            yield from places_in(value, depth + 1)


def places_of(node: object) -> list[tuple[str | int, object]]:
    """The contents of a JSON object or list, by key or index."""
    return list(node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ())


# --- checkpoints ------------------------------------------------------------------------------------------------------


def taken_apart(data: bytes) -> tuple[dict, dict, bytes]:
    """A checkpoint's safetensors header, our description in it, and the bytes of the tensors."""
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    return header, json.loads(header.pop("__metadata__")[KEY]), data[8 + length :]


def put_together(header: dict, info: object, body: bytes, length: int | None = None) -> bytes:
    """The inverse, without the library, which would not write such files."""
    about = info if isinstance(info, str) else json.dumps(info)
    head = json.dumps({**header, "__metadata__": {KEY: about}}).encode("utf-8")
    return struct.pack("<Q", len(head) if length is None else length) + head + body


def changed(data: bytes, part: str, **values: object) -> bytes:
    """A checkpoint with other values in one part of its description ("" is the whole), or for one of its tensors."""
    header, info, body = taken_apart(data)
    ({"": info} | info | header)[part].update(values)
    return put_together(header, info, body)


def odd_checkpoint(rng: random.Random, data: bytes) -> bytes:
    """A checkpoint with damage somewhere: anywhere, in its description, or in the table of its tensors."""
    header, info, body = taken_apart(data)
    how = rng.choice(["bytes", "description", "description", "tensors", "offsets", "values"])
    if how == "bytes":
        return odd_bytes(rng, data)
    if how == "description":
        return put_together(header, odd_json(rng, info), body)
    if how == "tensors":
        return put_together(odd_json(rng, header), info, body)
    name = rng.choice(list(header))
    if how == "offsets":  # overlapping, reversed, beyond the end, negative
        start, end = header[name]["data_offsets"]
        wrong = [(end, start), (start, end + 4), (start + 4, end), (-4, end), (start, 2**63), (0, len(body))]
        moved = rng.choice(wrong)
        header[name] = header[name] | {"data_offsets": list(moved)}
        return put_together(header, info, body)
    start, end = header[name]["data_offsets"]
    numbers = rng.choice([b"\xff", b"\x7f", b"\x00\x00\x80\x7f", b"\x00\x00\xc0\x7f", b"\xff\xff\x7f\x7f", b"\0"])
    filled = (numbers * (end - start))[: end - start]
    return put_together(header, info, body[:start] + filled + body[end:])


# --- the outcomes -----------------------------------------------------------------------------------------------------


class Outcomes(Counter):
    """Counts of what happened to the files: used, or refused with which error, which must give a reason.

    Any other exception fails the test, with the number of the file.
    """

    def tried(self, number: int, use: Callable[[], object], allowed: type[UserError] = UserError) -> None:
        try:
            use()
        except allowed as error:
            if not str(error).strip():
                raise AssertionError(f"file {number}: {type(error).__name__} without a reason") from error
            self[type(error).__name__] += 1
        except BaseException as error:
            error.add_note(f"file {number} of this seed")
            raise
        else:
            self["used"] += 1

    def __str__(self) -> str:
        return ", ".join(f"{name} {count:,}" for name, count in self.most_common())


@contextmanager
def traced() -> Iterator[Callable[[], int]]:
    """Inside, the function that this gives returns the most bytes that Python and NumPy have held at once."""
    tracemalloc.start()
    try:
        yield lambda: tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# --- what must not happen ---------------------------------------------------------------------------------------------

FORBIDDEN = (
    *("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.spawn", "pty.spawn"),
    *("socket.connect", "socket.getaddrinfo", "urllib.Request", "http.client.connect"),
    *("pickle.find_class", "os.symlink", "os.link", "os.chmod", "os.chown"),
)
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC
_watched: list[tuple[Path, list[str]]] = []  # the folder in which writing is allowed, and violations


def _hook(event: str, arguments: tuple) -> None:
    if not _watched:
        return
    folder, violations = _watched[-1]
    if event in FORBIDDEN:
        violations.append(f"{event} {arguments!r}")
    elif event == "open":
        path, _, flags = arguments
        if isinstance(path, str | bytes | os.PathLike) and (flags or 0) & WRITES:
            _check(folder, violations, event, path)
    elif event in ("os.mkdir", "os.rmdir", "os.truncate"):
        _check(folder, violations, event, arguments[0])
    elif event in ("os.rename", "os.remove"):  # these act on a link itself, not on its target
        for path in map(os.fsdecode, arguments[: 2 if event == "os.rename" else 1]):
            _check(folder, violations, event, Path(path).parent)


def _check(folder: Path, violations: list[str], event: str, path: object) -> None:
    whole = Path(os.path.realpath(os.fsdecode(path)))
    if not whole.is_relative_to(folder) and whole != Path(os.devnull) and "__pycache__" not in whole.parts:
        violations.append(f"{event} {whole}")


sys.addaudithook(_hook)


@contextmanager
def harmless(folder: Path) -> Iterator[None]:
    """Inside, an audit hook records files written outside the folder, processes and connections; there must be none.

    A time limit of ten minutes fails the test if a file makes the program hang.
    """
    violations: list[str] = []
    _watched.append((folder.resolve(), violations))
    try:
        with guard(600, "REAL"):
            yield
    finally:
        _watched.pop()
    assert not violations, violations[:3]
