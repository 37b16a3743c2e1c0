"""Pictures with labels from made-up packages, and pictures in files."""

import gzip
import hashlib
import struct
import sys
import zlib
from unittest.mock import Mock

import numpy as np
import pytest

from extra.corpora import packages, pictures
from extra.corpora.pictures import load_pictures, read_picture, table_pictures
from tinygrad_lite.errors import CorpusError, UserError
from training.corpora import fetch

pytestmark = pytest.mark.usefixtures("offline")


def table(side: int, rows: int, highest: int) -> bytes:
    """A table as in the packages, sorted by label."""
    numbers = np.arange(rows)[:, None]
    pixels = (numbers * 7 + np.arange(side * side)) % (highest + 1)
    lines = [",".join(map(str, row)) for row in np.hstack([pixels, numbers * 10 // rows]).tolist()]
    return gzip.compress("\n".join(lines).encode(), mtime=0)


def idx(array: np.ndarray) -> bytes:
    return gzip.compress(struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes())


def test_pictures_are_split_with_equal_shares_and_fetched_once(monkeypatch):
    sizes, said = (1437, 180, 180), []
    data = table(8, sum(sizes), 16)
    pip = Mock(side_effect=lambda wheel, members: dict.fromkeys(members, data))
    monkeypatch.setattr(pictures, "DIGITS_SHA256", hashlib.sha256(data).hexdigest())
    monkeypatch.setattr(packages, "wheel_files", pip)
    found = load_pictures("digits", said.append)
    assert said[0].startswith("digits: pictures with 10 labels, 1,437 for training, 180 for")
    assert found.highest == 16
    whole, seen = table_pictures(data, 8), []
    for part, size in zip((found.train, found.validation, found.test), sizes, strict=True):
        assert (part.pixels.shape, part.pixels.dtype, part.labels.dtype) == ((size, 8, 8), np.uint8, np.uint8)
        assert np.ptp(np.bincount(part.labels, minlength=10)) <= 2
        assert part.labels.tolist() != sorted(part.labels)
        seen += [(picture.tobytes(), label) for picture, label in zip(*part, strict=True)]
    assert sorted(seen) == sorted((picture.tobytes(), label) for picture, label in zip(*whole, strict=True))
    assert (load_pictures("digits", said.append).sha256, pip.call_count) == (found.sha256, 1)


def test_fashion_mnist_is_read_from_the_debian_package(monkeypatch):
    rng, made, split = np.random.default_rng(0), {}, pictures.split_pictures
    for part, count in (("train", 120), ("t10k", 20)):
        made[f"{part}-images-idx3-ubyte.gz"] = idx(rng.integers(0, 256, (count, 28, 28), np.uint8))
        made[f"{part}-labels-idx1-ubyte.gz"] = idx(np.arange(count, dtype=np.uint8) % 10)
    monkeypatch.setattr(pictures, "FASHION_FILES", {name: hashlib.sha256(made[name]).hexdigest() for name in made})
    monkeypatch.setattr(pictures, "split_pictures", lambda found, sizes: split(found, (100, 20)))
    deb = {pictures.FASHION_FOLDER + name: data for name, data in made.items()}
    monkeypatch.setattr(fetch, "debian_folders", lambda wanted: dict.fromkeys(wanted, deb))
    found = load_pictures("fashion-mnist")
    shapes = [part.pixels.shape for part in (found.train, found.validation, found.test)]
    assert shapes == [(100, 28, 28), (20, 28, 28), (20, 28, 28)]
    assert np.bincount(found.validation.labels).tolist() == [2] * 10
    assert found.test.labels.tolist() == [i % 10 for i in range(20)]
    monkeypatch.setattr(fetch, "debian_folders", None)
    assert load_pictures("fashion-mnist").sha256 == found.sha256


REAL = [("digits", "663fe948"), ("mnist-5k", "1f995c5c"), ("fashion-mnist", "08326a2f")]


@pytest.mark.network
@pytest.mark.parametrize(("name", "sha256"), REAL)
def test_the_real_pictures(name, sha256):
    assert load_pictures(name).sha256.startswith(sha256)


def test_what_cannot_be_had_is_one_sentence():
    with pytest.raises(CorpusError, match=r"digits is unavailable .*no network.*; .*: --dataset mnist-5k .from else"):
        load_pictures("digits")


# --- pictures in files ----------------------------------------------------------------------------------------------


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, pixels: bytes = b"", kind: int = 0) -> bytes:
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(pixels)) + chunk(b"IEND", b"")


@pytest.mark.parametrize(("name", "settings"), [("a.png", {}), ("a.jpg", {"quality": 95, "subsampling": 0})])
def test_the_middle_of_a_picture_is_scaled(image, tmp_path, name, settings):
    array = np.zeros((32, 64, 3), np.uint8)
    array[:, 16:48] = (255, 0, 0)  # red and green in the middle, black on both sides
    array[:16, 16:48] = (0, 255, 0)
    image.fromarray(array).save(tmp_path / name, **settings)
    found = read_picture(str(tmp_path / name), 4, 4, colour=True)
    assert (found.shape, found.dtype) == ((4, 4, 3), np.uint8)
    np.testing.assert_allclose(found[1:3, 1:3].astype(int), [[[0, 255, 0]] * 2, [[255, 0, 0]] * 2], atol=2)
    gray = read_picture(str(tmp_path / name), 2, 2)
    np.testing.assert_allclose(gray.astype(int), [[150, 150], [76, 76]], atol=2)


@pytest.mark.parametrize("mode", ["1", "LA", "PA", "I;16", "CMYK", "clear"])
def test_every_kind_of_pixel_is_understood(image, tmp_path, mode):
    if mode == "I;16":
        made = image.fromarray(np.full((6, 6), 65535, np.uint16))
    else:
        made = image.new("RGBA", (6, 6), (0, 0, 0, 0)) if mode == "clear" else image.new("L", (6, 6), 255).convert(mode)
    path = tmp_path / ("a.jpg" if mode == "CMYK" else "a.png")
    (made.convert("P") if mode == "PA" else made).save(path)
    np.testing.assert_array_equal(read_picture(str(path), 3, 3), np.full((3, 3), 255))


NO_PICTURES = [b"GIF89a" + b"\0" * 20, png(8, 8), png(4, 4, b"\0" * 20)[:-30]]
HOSTILE = [
    *((data, "cannot be read as a PNG or JPEG picture") for data in NO_PICTURES),
    (png(9_000, 9_000), r"9,000 × 9,000 pixels, more than 64,000,000 in all: use a smaller picture"),
    (png(1, 64_000_000), r"1 × 64,000,000 pixels, more than 65,535 on a side: use a smaller picture"),
]


@pytest.mark.parametrize(("data", "reason"), HOSTILE)
def test_hostile_pictures_are_refused_in_one_sentence(image, write, data, reason):
    with pytest.raises(CorpusError, match=reason):
        read_picture(write("a.png", data), 8, 8)


def test_without_pillow_one_sentence_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(UserError, match=r'needs the package Pillow, .*: pip install -e "\.\[image\]"'):
        read_picture("a.png", 8, 8)
