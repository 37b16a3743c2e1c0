"""The museum of silent bugs: every fault can be planted and taken back, is seen, and is found by the tests it names."""

import inspect
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from extra.museum import __main__ as museum
from extra.museum import scenes
from extra.museum.exhibits import EXHIBITS
from tests.test_imports import ROOT
from text.decoding import sampling

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


def test_a_plant_is_taken_back_after_an_error():
    before = sampling._nucleus.__code__
    with pytest.raises(ZeroDivisionError), EXHIBITS[TOP_P].planted():
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


def test_the_commands_list_show_and_refuse(capsys):
    assert museum.main([]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line[5:] for line in listed] == [exhibit.symptom for exhibit in EXHIBITS]
    assert museum.main([str(TOP_P + 1)]) == 0
    shown = capsys.readouterr().out
    assert "0.41 -> 0.451 █████████               │0.41 -> 0.000\n" in shown
    assert EXHIBITS[TOP_P].threads[0] in shown
    with pytest.raises(museum.OptionError, match="99 is no exhibit: they have the numbers 1 to"):
        museum.main(["99"])


def test_an_exhibit_that_trains_shows_two_curves(capsys, monkeypatch):
    monkeypatch.setitem(EXHIBITS[18].settings, "max_iters", 4)
    assert museum.main(["19"]) == 0
    assert "held-out loss" in capsys.readouterr().out


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
