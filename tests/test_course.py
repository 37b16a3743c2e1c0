"""The course: blanks fail, solutions pass, and what a chapter shows is what the files contain.

The `>>>` examples of the chapters are run by test_docs.py.
"""

import inspect
import re
import shutil
from pathlib import Path

import pytest

from docs.course import check as course
from tests.test_imports import FILES
from tinygrad_lite.errors import OptionError, UserError

ROOT = Path(__file__).parent.parent
CHAPTERS = sorted((ROOT / "docs" / "course").glob("[0-9][0-9]-*/README.md"))
SOURCES = [path for name, path in FILES.items() if not f"{name}.".startswith("benchmarks.")]
every_chapter = pytest.mark.parametrize("page", CHAPTERS, ids=lambda page: page.parent.name)


def stripped(text: str) -> str:
    """The lines of some code without their indentation."""
    return "\n".join(line.strip() for line in text.strip().splitlines())


@every_chapter
def test_exercises_fail_on_their_blanks_and_pass_when_solved(page):
    folder = page.parent
    before = list(course.check(folder))
    assert [outcome.wrong for outcome in before] == ["still blank"] * len(before)
    assert all(outcome.hint for outcome in before)
    assert 2 <= len(before) <= 4
    unsolved, checks = course.load(folder / "exercise.py"), course.load(folder / "checks.py")
    for outcome in before:
        try:
            getattr(checks, outcome.name)(unsolved)
        except Exception:  # whatever a blank leads to
            continue
        pytest.fail(f"the check of {outcome.name} passes on the blank")
    assert [outcome.wrong for outcome in course.check(folder, "solution.py")] == [""] * len(before)


@every_chapter
def test_a_chapter_names_its_exercises_and_is_neither_too_short_nor_too_long(page):
    text = page.read_text(encoding="utf-8")
    for outcome in course.check(page.parent):
        assert f"`{outcome.name}`" in text
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    assert 600 <= len(prose.split()) <= (1900 if page.parent.name == "12-speed" else 1500)  # which has memory, too
    assert "**Predict.**" in text
    number, _, title = text.splitlines()[0].removeprefix("# ").partition(". ")
    assert page.parent.name.startswith(f"{int(number):02}-")
    assert f"[{number}. {title}]({page.parent.name}/README.md)" in (page.parents[1] / "README.md").read_text("utf-8")


@every_chapter
def test_code_that_a_chapter_quotes_is_in_a_file(page):
    files = [stripped(path.read_text(encoding="utf-8")) for path in (*page.parent.glob("*.py"), *SOURCES)]
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        if ">>>" not in block:
            for piece in block.split("...\n"):  # an omission
                assert any(stripped(piece) in text for text in files), f"in no file:\n{piece}"


# --- the program that checks -------------------------------------------------------------------------------------


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """A copy of the first chapter, which may be changed."""
    monkeypatch.setattr(course, "COURSE", tmp_path)
    folder = tmp_path / CHAPTERS[0].parent.name
    shutil.copytree(CHAPTERS[0].parent, folder)
    return folder


def answer(folder: Path, old: str, new: str) -> None:
    file = folder / "exercise.py"
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new, 1), encoding="utf-8")


def test_the_check_says_what_is_right_and_gives_one_hint(copy, capsys):
    answer(copy, "lambda dy: ...", "lambda dy: (dy * (x.value > 0),)")
    answer(copy, "SHARED = ...", "SHARED: tuple[int, ...] | int\nSHARED = 12")
    assert course.main(["1"]) == 1
    out = capsys.readouterr().out
    assert out.startswith(
        "quotient: still blank\nrelu: right\nSHARED: 12 is not the derivative\nbackward: still blank\n"
    )
    assert out.count("hint for") == 1
    assert "--solution quotient" in out
    assert course.main([]) == 0
    assert capsys.readouterr().out == "chapter  1: 1 of 4 right\n"


def test_the_check_is_silent_about_hints_when_all_is_right(copy, capsys):
    shutil.copy(copy / "solution.py", copy / "exercise.py")
    assert course.main(["1"]) == 0
    assert capsys.readouterr().out == "quotient: right\nrelu: right\nSHARED: right\nbackward: right\n"


def test_an_answer_s_own_error_is_told_with_its_line(copy, capsys):
    answer(copy, "lambda dq: ...", "lambda dq: (dq / 0, 0)")
    assert course.main(["1"]) == 1
    assert re.match(r"quotient: line \d+: ZeroDivisionError: ", capsys.readouterr().out)
    answer(copy, "SHARED = ...", "SHARED = (")
    with pytest.raises(UserError, match=r"exercise.py cannot be run: line \d+: SyntaxError: "):
        course.main(["1"])


def test_a_solution_is_shown_only_when_asked_for(copy, capsys):
    assert course.main(["1", "--solution", "relu"]) == 0
    shown = capsys.readouterr().out
    assert shown.strip() == inspect.getsource(course.load(copy / "solution.py").relu).strip()
    with pytest.raises(OptionError, match="--solution rel: this chapter has no such exercise; did you mean relu"):
        course.main(["1", "--solution", "rel"])
    with pytest.raises(OptionError, match="there is no chapter 2: choose one of 1"):
        course.main(["2"])
