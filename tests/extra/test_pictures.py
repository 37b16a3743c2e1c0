"""The diagrams of the course: the files are what docs/course/pictures.py draws, from the numbers of the chapters.

The drawings of docs/claims.py are those of the numbers in docs/experiments.
"""

import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest

from docs import claims
from docs.course import pictures
from tinygrad_lite.random import random_key

FILES = [pictures.COURSE / name for name in pictures.PICTURES]
DRAWN = {pictures.COURSE / name: draw for name, draw in pictures.PICTURES.items()}
DRAWN |= {claims.DOCS / name: lambda draw=draw: draw().source() for name, draw in claims.DRAWINGS.items()}
SVG = "{http://www.w3.org/2000/svg}"
every_picture = pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.name}")


@pytest.fixture(autouse=True)
def seed():
    """Undoes the seed that an example sets."""
    with random_key(0):
        yield


@pytest.mark.parametrize("file", DRAWN, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_a_file_is_what_the_script_draws(file):
    script = "course/pictures" if file in FILES else "claims"
    assert file.read_bytes() == DRAWN[file]().encode(), f"run python docs/{script}.py"


@every_picture
def test_a_picture_has_a_title_and_a_description_and_is_complete_in_itself(file):
    root = ElementTree.parse(file).getroot()
    assert [part.tag for part in root[:2]] == [f"{SVG}title", f"{SVG}desc"]
    assert all(part.text.strip() for part in root[:2])
    assert root.attrib["aria-labelledby"].split() == [part.attrib["id"] for part in root[:2]]
    assert not re.search(r"href|<script|url\(|@import|<image", file.read_text(encoding="utf-8"))


@every_picture
def test_a_chapter_shows_its_picture_with_an_alternative_text(file):
    page = (file.parent / "README.md").read_text(encoding="utf-8")
    (alternative,) = re.findall(rf"^!\[([^\]\n]+)\]\({file.name}\)$", page, re.MULTILINE)
    assert len(alternative.split()) >= 8


# --- numbers -----------------------------------------------------------------------------------------------------

# A picture, what is replaced in which file of its chapter, and numbers that are then drawn, and were not before.
WIDTH = "l((3, 4))), TinyTensor(rng.standard_normal((2, 4"
CHANGES = [
    ("01-derivatives/picture", "README.md", "Number(3.0)\n>>> y", "Number(4.0)\n>>> y", ["4 · 8 = 32", "value 64"]),
    ("02-tensors/picture", "README.md", WIDTH, WIDTH.replace("4", "5"), ["3 × 5", "5 × 2", "2 × 5"]),
    ("06-attention/look-up", "README.md", "query = np.array([1.0, 2", "query = np.array([1.0, 4", ["0.91", ": 11.1"]),
    ("07-residuals/picture", "stack.py", "depth: int = 50", "depth: int = 20", ["layer 20"]),
    ("08-gpt/picture", "README.md", "n_embd=32) |", "n_embd=16) |", ["T = 116, C = 16, V"]),
    ("11-translation/picture", "README.md", "n_embd=32, b", "n_embd=16, b", ["C = 16, V = 30"]),
]


@pytest.mark.parametrize(("name", "file", "old", "new", "shown"), CHANGES)
def test_a_picture_shows_the_numbers_of_its_chapter(name, file, old, new, shown, tmp_path, monkeypatch):
    name += ".svg"
    folder = shutil.copytree((pictures.COURSE / name).parent, tmp_path / Path(name).parent)
    before = pictures.PICTURES[name]()
    source = (folder / file).read_text(encoding="utf-8")
    assert old in source
    (folder / file).write_text(source.replace(old, new), encoding="utf-8")
    monkeypatch.setattr(pictures, "COURSE", tmp_path)
    after = pictures.PICTURES[name]()
    assert [(text in before, text in after) for text in shown] == [(False, True)] * len(shown)
