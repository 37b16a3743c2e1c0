"""Broken or malicious packages: the one file that is needed is read, or the package is refused with the reason.

Nothing is ever unpacked into a folder, so names in an archive cannot lead anywhere.
"""

import functools
import io
import itertools
import lzma
import random
import shutil
import tarfile
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from extra.corpora.pairs import unzip
from extra.corpora.pictures import read_picture
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
def test_a_broken_package_gives_its_file_or_is_refused(count, workplace, tried_many, report):
    right = 0

    def read(tar: bytes) -> None:
        nonlocal right
        right += read_tar(tar) == {MEMBER: POEM}

    def attempt(rng):
        tar = evil_tar(rng)
        return functools.partial(read, odd_bytes(rng, tar) if rng.random() < 2 / 3 else tar)

    tried_many(count, SEED, "broken packages", attempt, allowed=CorpusError)
    assert sorted(entry.name for entry in workplace.iterdir()) == ["poems_1.0_all.deb", "text.txt"]
    assert right > count / 20
    report(f"hostile files: {right:,} of the packages gave the whole right text")


@pytest.mark.parametrize("kind", KINDS)
def test_a_link_or_a_device_in_place_of_the_file_is_not_followed(kind, workplace):
    (workplace / "secret").write_text("secret", encoding="utf-8")
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.addfile(entry(MEMBER, kind, link=str(workplace / "secret")))
    with harmless(workplace), pytest.raises(CorpusError, match="has no file"):
        read_tar(buffer.getvalue())


def sparse_header(size: int) -> bytes:
    """The header of a sparse file that is one hole of this size."""
    head = bytearray(entry(MEMBER, tarfile.GNUTYPE_SPARSE).tobuf(tarfile.GNU_FORMAT))
    head[483:495] = tarfile.itn(size, 12, tarfile.GNU_FORMAT)
    head[148:156] = b"%06o\0 " % tarfile.calc_chksums(bytes(head))[0]
    return bytes(head)


def bombs() -> dict[str, bytes]:
    """Archives whose headers claim far more data than there is."""
    size = 2**33
    claims = {
        "file": entry(MEMBER, size=size).tobuf(tarfile.GNU_FORMAT),
        "other file": entry("first", size=size).tobuf(tarfile.GNU_FORMAT),
        "long name": entry("././@LongLink", tarfile.GNUTYPE_LONGNAME, size).tobuf(tarfile.GNU_FORMAT),
        "pax header": entry("x", tarfile.XHDTYPE, size).tobuf(tarfile.GNU_FORMAT),
        "pax for all": entry("x", tarfile.XGLTYPE, size).tobuf(tarfile.GNU_FORMAT),
        "sparse": sparse_header(size),
    }
    return {name: head + make_tar({MEMBER: POEM}) for name, head in claims.items()}


@pytest.mark.parametrize("bomb", [*bombs(), "zeros"])
def test_a_bomb_in_a_package_is_refused_in_little_memory(bomb, workplace, monkeypatch):
    monkeypatch.setattr(fetch, "MAX_UNPACKED", 2**20)
    size = 2**23
    tar = bombs().get(bomb) or entry("x", tarfile.XHDTYPE, size).tobuf(tarfile.GNU_FORMAT) + bytes(size)
    with traced() as most:
        with harmless(workplace), pytest.raises(CorpusError):
            read_tar(tar)
        assert most() < 3 * len(tar) + 5 * 2**20  # and twice what is allowed


def make_ar(parts: dict[str, bytes]) -> bytes:
    archive = b"!<arch>\n"
    for name, content in parts.items():
        archive += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n".encode("ascii")
        archive += content + b"\n" * (len(content) % 2)
    return archive


@pytest.mark.skipif(not shutil.which("dpkg-deb"), reason="dpkg-deb is Debian's")
def test_the_real_dpkg_deb_unpacks_up_to_the_limit(workplace, monkeypatch):
    def read(files: dict[str, bytes]) -> dict[str, bytes]:
        control = lzma.compress(make_tar({"./control": b"Package: poems\nVersion: 1\nArchitecture: all\n"}))
        data = lzma.compress(make_tar(files))
        deb = make_ar({"debian-binary": b"2.0\n", "control.tar.xz": control, "data.tar.xz": data})
        Path("poems_1_all.deb").write_bytes(deb)
        return fetch.read_deb("poems", Path(), MEMBER)

    assert read({MEMBER: POEM}) == {MEMBER: POEM}
    monkeypatch.setattr(fetch, "MAX_UNPACKED", 2**20)
    with pytest.raises(CorpusError, match="cannot unpack"):
        read({"big": bytes(2**23), MEMBER: POEM})
    Path("poems_1_all.deb").write_bytes(b"no archive")
    with pytest.raises(CorpusError, match=r"`dpkg-deb` cannot unpack poems_1_all\.deb: .*end of file"):
        fetch.read_deb("poems", Path(), MEMBER)


# --- zip --------------------------------------------------------------------------------------------------------------


@many(75, 1500)
def test_a_broken_zip_archive_gives_its_file_or_is_refused(count, workplace, tried_many):
    right = 0

    def read(data: bytes) -> None:
        nonlocal right
        right += unzip(data, "deu.txt", WHERE) == POEM.decode()

    def attempt(rng):
        compression = rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
        others = dict.fromkeys(rng.sample(NAMES[:4], rng.randint(0, 3)), b"evil")
        data = zipped(others | {"deu.txt": POEM}, compression)
        return functools.partial(read, odd_bytes(rng, data) if rng.random() < 0.9 else data)

    tried_many(count, SEED + 1, "broken zip archives", attempt, allowed=CorpusError)
    assert [entry.name for entry in workplace.iterdir()] == ["text.txt"]
    assert right


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


# --- pictures ---------------------------------------------------------------------------------------------------------


@many(100, 2000)
def test_a_damaged_picture_gives_an_array_or_is_refused(count, tried_many, image):
    files = []
    for kind in ("PNG", "JPEG"):
        buffer = io.BytesIO()
        image.fromarray(np.arange(300, dtype=np.uint8).reshape(10, 10, 3)).save(buffer, kind)
        files.append(buffer.getvalue())

    def read() -> None:
        assert read_picture("a.png", 4, 4).shape == (4, 4)

    def attempt(rng):
        Path("a.png").write_bytes(odd_bytes(rng, rng.choice(files)))
        return read

    tried_many(count, SEED + 3, "damaged pictures", attempt, allowed=CorpusError, refused=0.2)
