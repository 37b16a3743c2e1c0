"""Broken or malicious packages: the one file that is needed is read, or the package is refused with the reason.

Nothing is ever unpacked into a folder, so names in an archive cannot lead anywhere.
"""

import functools
import io
import itertools
import random
import tarfile
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from extra.corpora.pairs import unzip
from extra.gpt.trained import load_trained
from extra.pretrained.gguf_file import convert
from tests.extra.pretrained.test_gguf_file import write_gguf
from tests.reliability.mutations import harmless, many, odd_bytes, traced
from tests.training.corpora.test_fetch import MEMBER, make_tar, run_dpkg_deb, started_by
from tests.training.corpora.test_wheel import zipped
from tinygrad_lite.errors import CorpusError
from training.corpora import fetch

SEED = 20240713
WHERE = "https://example.org/packed"
POEM = b"Es irrt der Mensch, solang er strebt.\n" * 20
NAMES = ["/etc/passwd", "../../../evil", "./../evil", "C:\\evil", "evil\0x"]
NAMES += ["a" * 300, f"../{MEMBER}", f"/{MEMBER}", ""]
KINDS = [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE]


@pytest.fixture(autouse=True)
def temporary_files_in_the_workplace(workplace, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(workplace))


def entry(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.size, made.linkname = kind, size, link
    return made


def evil_tar(rng: random.Random) -> bytes:
    """An archive of entries that lead elsewhere, perhaps with the wanted file among them."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=rng.choice([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])) as tar:
        for _ in range(rng.randint(0, 6)):
            name = rng.choice([*NAMES, MEMBER])
            tar.addfile(entry(name, rng.choice(KINDS), link=rng.choice(["/etc/hostname", "../../x", MEMBER, name])))
        if rng.random() < 0.7:
            tar.addfile(entry(rng.choice([MEMBER, f"./{MEMBER}"]), size=len(POEM)), io.BytesIO(POEM))
    return buffer.getvalue()


def read_tar(tar: bytes) -> dict[str, bytes]:
    """What is read from a package that dpkg-deb turns into this archive."""
    Path("poems_1.0_all.deb").write_bytes(tar)
    with started_by(run_dpkg_deb):
        return fetch.read_deb("poems", Path(), MEMBER)


@many(150, 3000)
def test_a_broken_package_gives_its_file_or_is_refused(count, workplace, tried_many):
    def read(tar: bytes) -> None:
        found.append(read_tar(tar))

    def attempt(rng):
        tar = evil_tar(rng)
        return functools.partial(read, odd_bytes(rng, tar) if rng.random() < 2 / 3 else tar)

    found = []
    tried_many(count, SEED, "broken packages", attempt, allowed=CorpusError)
    assert sorted(entry.name for entry in workplace.iterdir()) == ["poems_1.0_all.deb", "text.txt"]
    assert found.count({MEMBER: POEM}) > count / 20


SIZE = 2**33  # far more than there is
BOMBS = {
    "file": entry(MEMBER, size=SIZE).tobuf(tarfile.GNU_FORMAT) + make_tar({MEMBER: POEM}),
    "long name": entry("././@LongLink", tarfile.GNUTYPE_LONGNAME, SIZE).tobuf(tarfile.GNU_FORMAT),
    "zeros": entry("x", tarfile.XHDTYPE, 2**23).tobuf(tarfile.GNU_FORMAT) + bytes(2**23),
}


@pytest.mark.parametrize("tar", BOMBS.values(), ids=BOMBS)
def test_a_bomb_in_a_package_is_refused_in_little_memory(tar, workplace, monkeypatch):
    monkeypatch.setattr(fetch, "MAX_UNPACKED", 2**20)
    with traced() as most:
        with harmless(workplace), pytest.raises(CorpusError):
            read_tar(tar)
        assert most() < 3 * len(tar) + 5 * 2**20  # and twice what is allowed


# --- zip --------------------------------------------------------------------------------------------------------------


@many(75, 1500)
def test_a_broken_zip_archive_gives_its_file_or_is_refused(count, workplace, tried_many):
    def attempt(rng):
        compression = rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
        data = zipped(dict.fromkeys(NAMES[:2], b"evil") | {"deu.txt": POEM}, compression)
        return functools.partial(unzip, odd_bytes(rng, data) if rng.random() < 0.9 else data, "deu.txt", WHERE)

    tried_many(count, SEED + 1, "broken zip archives", attempt, allowed=CorpusError)
    assert [entry.name for entry in workplace.iterdir()] == ["text.txt"]


# --- GGUF -------------------------------------------------------------------------------------------------------------


def read_gguf(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder) / "a.gguf", Path(folder) / "made"
        source.write_bytes(data)
        made.mkdir()
        convert(source, made)
        load_trained(made)


@many(300, 4000)
def test_a_broken_gguf_file_is_read_or_refused(count, tried_many, tokenizers):
    write_gguf(Path("small.gguf"))
    data = Path("small.gguf").read_bytes()
    front = data[:12000]  # what describes it
    ends = itertools.cycle(range(0, len(data), 1 + 4 * len(data) // count))  # all of them, once at least

    def attempt(rng):
        at, number = rng.randrange(len(front) - 8), rng.choice([0, 2**31, 2**40, 2**63, 2**64 - 1])  # a count, perhaps
        counted = data[:at] + number.to_bytes(8, "little") + data[at + 8 :]
        broken = rng.choice([data[: next(ends)], odd_bytes(rng, front) + data[len(front) :], counted])
        return functools.partial(read_gguf, broken)

    with np.errstate(all="ignore"):
        refusals = ("CheckpointError", "TokenizerError")
        tried_many(count, SEED + 2, "broken GGUF files", attempt, refusals=refusals, refused=0.5)
