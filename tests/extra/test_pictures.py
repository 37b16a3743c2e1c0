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
from tests.extra.plots.test_pictures import contrast, shares
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
def test_a_picture_is_accessible_small_and_complete_in_itself(file):
    root = ElementTree.parse(file).getroot()
    assert root.attrib["viewBox"] == f"0 0 {root.attrib['width']} {root.attrib['height']}"
    names = root.attrib["aria-labelledby"].split()
    assert [(part.tag, part.attrib["id"]) for part in root[:2]] == [(f"{SVG}title", names[0]), (f"{SVG}desc", names[1])]
    assert all(part.text.strip() for part in root[:2])
    source = file.read_text(encoding="utf-8")
    assert len(source.encode()) <= 20_000
    assert not re.search(r"href|<script|url\(|@import|<image", source)
    assert min(map(float, re.findall(r"font(?:-size)?:([\d.]+)px", source))) * 760 >= 13 * float(root.attrib["width"])
    used = {kind for part in root.iter() for kind in part.attrib.get("class", "").split()}
    assert used <= set(re.findall(r"\.([a-z]+)(?=[{.])", pictures.style()))


@every_picture
def test_a_chapter_shows_its_picture_with_an_alternative_text(file):
    page = (file.parent / "README.md").read_text(encoding="utf-8")
    (alternative,) = re.findall(rf"^!\[([^\]\n]+)\]\({file.name}\)$", page, re.MULTILINE)
    assert len(alternative.split()) >= 8


def test_every_other_svg_of_the_course_is_a_measurement():
    """Which a script of its own makes, of the same name; experiment.svg is made by benchmarks.experiments."""
    others = set(pictures.COURSE.glob("*/*.svg")) - set(FILES)
    assert others
    assert {file for file in others if file.name != "experiment.svg" and not file.with_suffix(".py").exists()} == set()


# --- numbers -----------------------------------------------------------------------------------------------------

# A picture, what is replaced in which file of its chapter, and numbers that are then drawn, and were not before.
WIDTH, QKV = "l((3, 4))), TinyTensor(rng.standard_normal((2, 4", "(3, 2, 3, 5, "
CHANGES = [
    ("01-derivatives/picture", "README.md", "Number(3.0)\n>>> y", "Number(4.0)\n>>> y", ["4 · 8 = 32", "value 64"]),
    ("01-derivatives/picture", "engine.py", "(dy * other.value,", "(dy * other.value * 5,", ["1 · 15 = 15", "= 99"]),
    ("02-tensors/picture", "README.md", WIDTH, WIDTH.replace("4", "5"), ["3 × 5", "5 × 2", "2 × 5"]),
    ("06-attention/look-up", "README.md", "query = np.array([1.0, 2", "query = np.array([1.0, 4", ["0.91", ": 11.1"]),
    ("06-attention/mask", "README.md", f"rng.standard_normal({QKV}8))", f"np.ones({QKV}4))", ["2.00", "0.33", "0.20"]),
    ("07-residuals/picture", "stack.py", "depth: int = 50", "depth: int = 20", ["layer 20"]),
    ("07-residuals/picture", "stack.py", "x + f(norm(x))", "x * 2 + f(norm(x))", ["dL/dx: 1.1e+15"]),
    ("08-gpt/picture", "README.md", "n_embd=32) |", "n_embd=16) |", ["T = 116, C = 16, V"]),
    ("10-writing/picture", "README.md", "len(new) * 12 * C * C", "len(new) * 10 * C * C", ["20,480", "2,560"]),
    ("11-translation/picture", "README.md", "n_embd=32, b", "n_embd=16, b", ["C = 16, V = 30"]),
    ("11-translation/picture", "README.md", '[*"wort"]', '[*"Wort"]', [">W<"]),
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


def test_text_is_legible_on_light_and_on_dark_pages():
    """The contrast that WCAG 2.2 asks for (1.4.3): of ink on all boxes, and of coloured text on pages and boxes."""
    for mode, page in enumerate(("#ffffff", "#0d1117")):
        for modes in pictures.COLOURS.values():
            fill, marked, line = modes[mode]
            for text, ground in ((pictures.INK[mode], fill), (pictures.INK[mode], marked), (line, page), (line, fill)):
                assert contrast(shares(text), shares(ground)) >= 4.5, (text, ground)


def test_the_script_writes_all_pictures_and_names_them(tmp_path, monkeypatch, capsys):
    drawn = {name: (lambda name=name: name) for name in pictures.PICTURES}
    for name in drawn:
        (tmp_path / name).parent.mkdir(exist_ok=True)
    monkeypatch.setattr(pictures, "PICTURES", drawn)
    monkeypatch.setattr(pictures, "COURSE", tmp_path)
    assert pictures.main([]) == 0
    assert capsys.readouterr().out.splitlines() == [f"wrote {tmp_path / name}" for name in drawn]
    assert all((tmp_path / name).read_text(encoding="utf-8") == name for name in drawn)
