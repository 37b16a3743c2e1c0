"""The museum of silent bugs: every fault can be planted and taken back, is seen, and is found by the tests it names."""

import inspect
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from docs import museum_curves
from extra.museum import __main__ as museum
from extra.museum import scenes
from extra.museum.exhibits import EXHIBITS, Exhibit
from tests.test_imports import ROOT
from text.decoding import sampling

DOCS = ROOT / "docs"
TITLES = [exhibit.title for exhibit in EXHIBITS]
TOP_P = TITLES.index("Top-p without the token that crosses the threshold")
# Plants the fault of this number, and runs the tests that are named after it.
EXAM = "import sys, pytest; from extra.museum.exhibits import EXHIBITS\n"
EXAM += "with EXHIBITS[int(sys.argv[1])].planted(): sys.exit(pytest.main(sys.argv[2:]))"


def test_every_plant_fits_changes_something_and_is_taken_back():
    assert len({*TITLES}) == len(EXHIBITS) >= 25
    for exhibit in EXHIBITS:
        with exhibit.planted() as function:
            faulty = function.__code__
        sound = function.__code__
        assert faulty is not sound
        assert faulty.co_qualname == sound.co_qualname, exhibit.title
        assert inspect.getsource(function).count(exhibit.right) == 1
        assert [faulty.co_code, faulty.co_consts, faulty.co_names] != [sound.co_code, sound.co_consts, sound.co_names]


def test_a_plant_that_does_not_fit_is_refused_and_one_is_taken_back_after_an_error():
    exhibit = EXHIBITS[TOP_P]
    misfit = Exhibit(**vars(exhibit) | {"right": "no such line"})
    with pytest.raises(ValueError, match="to unpack"), misfit.planted():
        pass
    before = sampling._nucleus.__code__
    with pytest.raises(ZeroDivisionError), exhibit.planted():
        len({sampling._nucleus.__code__, before}) / 0
    assert sampling._nucleus.__code__ is before


def test_every_exhibit_is_complete_and_its_tests_exist():
    for exhibit in EXHIBITS:
        assert callable(getattr(scenes, exhibit.scene)), exhibit.title
        assert exhibit.threads
        assert all(re.fullmatch(r"https://github\.com/[\w.-]+/[\w.-]+/(issues|pull)/\d+", t) for t in exhibit.threads)
        assert exhibit.question.endswith("?")
        assert 2 <= len(exhibit.hints) <= 3
        assert 2 <= len(re.findall(r"[.?](?:\s|\)|$)", exhibit.answer)) <= 5, exhibit.title
        assert exhibit.tests
        for test in exhibit.tests:
            path, _, name = test.partition("::")
            assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), test


def test_the_page_lists_all_exhibits():
    rows = re.findall(r"^\| (\d+) \| (.+) \|$", (ROOT / "docs" / "museum.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == [(str(number), exhibit.symptom) for number, exhibit in enumerate(EXHIBITS, start=1)]


def test_the_page_shows_every_exhibit_once_in_small_drawings_and_says_no_more():
    numbers = [number for _, part in museum_curves.GROUPS.values() for number in part]
    assert sorted(numbers) == [*range(1, len(EXHIBITS) + 1)]
    page = (DOCS / "museum.md").read_text(encoding="utf-8")
    drawings = {file.name: file.read_text(encoding="utf-8") for file in (DOCS / "extra").glob("museum-*.svg")}
    assert [*re.findall(r"\(extra/(museum-\w+\.svg)\)", page)] == [
        f"museum-{name}.svg" for name, _ in museum_curves.GROUPS.values() if name
    ]
    assert len("".join([page, *drawings.values()]).encode()) <= 150_000
    for number, exhibit in enumerate(EXHIBITS, start=1):
        assert f"{number}. {exhibit.symptom}:" in page or re.search(rf"!\[[\d, ]*\b{number}\b[\d, ]* of the list", page)
        assert exhibit.title not in page


def test_the_part_of_the_page_is_made_of_the_scenes_and_made_again(tmp_path, monkeypatch):
    monkeypatch.setattr(museum_curves, "GROUPS", {"Rates": ("rates", (19,)), "Tokens": ("", (TOP_P + 1,))})
    monkeypatch.setitem(EXHIBITS[18].settings, "max_iters", 4)
    page = tmp_path / "page.md"
    (tmp_path / "extra").mkdir()
    page.write_text("Before.\n\n## Adding one\n\nAfter.\n", encoding="utf-8")
    assert museum_curves.main([str(page)]) == 0
    made = page.read_text(encoding="utf-8")
    assert made.startswith("Before.\n\n## Rates\n\n![19 of the list above: curves without and with")
    assert "0.41 -> 0.451 █████████               │0.41 -> 0.000\n" in made
    assert made.endswith("```\n\n## Adding one\n\nAfter.\n")
    assert (tmp_path / "extra" / "museum-rates.svg").read_text(encoding="utf-8").count('stroke-width="2"') == 4
    monkeypatch.setattr(museum_curves, "GROUPS", {"Rates": ("", (TOP_P + 1,))})
    assert museum_curves.main([str(page)]) == 0
    made = page.read_text(encoding="utf-8")
    assert (made.count("##"), made.count("│"), made.count("After.")) == (2, 4, 1)


def test_the_commands_list_show_and_refuse(capsys):
    assert museum.main([]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line[5:] for line in listed] == [exhibit.symptom for exhibit in EXHIBITS]
    assert museum.main([str(TOP_P + 1)]) == 0
    shown = capsys.readouterr().out
    assert "0.41 -> 0.451 █████████               │0.41 -> 0.000\n" in shown
    assert EXHIBITS[TOP_P].threads[0] in shown
    for word in ("0", "99", "x"):
        with pytest.raises(museum.OptionError, match=f"{word} is no exhibit: they have the numbers 1 to"):
            museum.main([word])


@pytest.mark.slow
@pytest.mark.parametrize("exhibit", EXHIBITS, ids=TITLES)
def test_the_two_sides_of_an_exhibit_differ(exhibit):
    _, *lines = museum.shown(exhibit)
    if exhibit.scene != "training" and "probabilities" not in exhibit.symptom:  # then a loss says too little
        lines = [line for line in lines if "held-out loss" not in line]
    assert any(left.strip() != right.strip() for left, _, right in (line.partition("│") for line in lines))


@pytest.mark.slow
def test_the_tests_find_every_exhibit():
    """Each is planted in a process of its own, in which all of its tests must fail; without it the suite passes."""

    def failures(number):
        tests = EXHIBITS[number].tests
        words = [*"-q -n 0 -p no:cacheprovider --no-header --tb=no".split(), *tests]
        command = [sys.executable, "-c", EXAM, str(number), *words]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", check=False)
        found = set(re.findall(r"^FAILED (\S+?)(?:\[| |$)", done.stdout, re.MULTILINE))
        return number, {*tests} - found, done.stdout[-1500:]

    with ThreadPoolExecutor(2) as pool:
        for number, missed, said in pool.map(failures, range(len(EXHIBITS))):
            assert not missed, f"{number + 1}: {EXHIBITS[number].title}: {missed}\n{said}"
