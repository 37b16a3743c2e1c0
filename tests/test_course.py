"""The course: blanks fail, solutions pass, and what a chapter shows is what the files contain.

The `>>>` examples of the chapters are run by test_docs.py.
"""

import ast
import inspect
import re
import shutil
import textwrap
from pathlib import Path

import numpy as np
import pytest

from docs.course import check as course
from docs.course import mark
from docs.course.compare import same
from tests.gpt.saved_models import saved_gpt
from tests.test_imports import FILES, ROOT
from text.tokenizers.char import CharTokenizer
from tinygrad_lite.errors import OptionError, UserError
from training.corpora.texts import Corpus

CAPSTONE = ROOT / "docs" / "course" / "capstone"
CHAPTERS = sorted((ROOT / "docs" / "course").glob("[0-9][0-9]-*/README.md"))
CHAPTERS, LATER = CHAPTERS[:12], CHAPTERS[12:]  # those of the core, and those that may need the shelf
SOURCES = [path for name, path in FILES.items() if not f"{name}.".startswith("benchmarks.")]
# 23 has two long tables, the others have experiments.
MOST_WORDS = {"15-inside": 1700, "17-encoders": 1900, "23-faults": 2000, "24-order": 1500}
MOST_EXERCISES = {"15-inside": 7, "23-faults": 8}
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
    assert 2 <= len(before) <= MOST_EXERCISES.get(folder.name, 4)
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
    prose = re.sub(r"^```.*?^```|^</?details.*?$", "", text, flags=re.MULTILINE | re.DOTALL)
    assert 600 <= len(prose.split()) <= MOST_WORDS.get(page.parent.name, 1300)
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


# --- experiments ---------------------------------------------------------------------------------------------------


def test_attention_becomes_a_support_vector_machine(monkeypatch, capsys):
    svm = course.load(CHAPTERS[5].parent / "svm.py")
    np.testing.assert_allclose(svm.hard_margin(np.array([[1.0, 0], [0, 2], [3, 3]])), [1, 0.5])  # the third has 4.5
    given = svm.problem(1)
    path = list(svm.train(given, 100))
    rows = svm.constraints(given.x, given.z, path[-1][1].argmax(axis=1))
    solution = svm.hard_margin(rows)
    assert (rows @ solution).min() == pytest.approx(1)
    assert svm.angle(path[1][0].ravel(), solution) > 60
    assert svm.angle(path[-1][0].ravel(), solution) < 7
    monkeypatch.setattr(svm, "SEEDS", range(1))
    monkeypatch.setattr(svm, "STEPS", (1, 100))
    assert svm.main([]) == 0
    assert "0 of 1 layers chose the best token of every text" in capsys.readouterr().out


def test_counting_finds_which_word_translates_which():
    counting = course.load(CHAPTERS[10].parent / "counting.py")
    pairs = [("das Haus", "the house"), ("das Buch", "the book"), ("ein Buch", "a book")]
    best = counting.dictionary(pairs, rounds=5)
    assert best | {counting.NOTHING: ""} == {"das": "the", "Haus": "house", "Buch": "book", "ein": "a", "": ""}
    assert counting.translate("ein Haus, das Buch!", best) == "a house, the book!"
    assert counting.words("Wie geht's, Eva?") == ["Wie", "geht", "'", "s", ",", "Eva", "?"]


def test_what_is_copied_and_how_uncertain_a_model_was(monkeypatch, workplace, capsys):
    copied = course.load(CHAPTERS[9].parent / "copied.py")
    assert copied.four_words("Wer reitet, so spät!") == [("Wer", "reitet", "so", "spät")]
    assert copied.longest_copy("xyabcdz abc", "abcde, abcd") == "abcd"
    text = "Wer reitet so spät durch Nacht und Wind? " * 20
    saved_gpt(workplace / "run" / "last.safetensors", CharTokenizer.train(text), block_size=64)
    model = copied.load_trained(workplace / "run").make_model()
    prompts = np.array([[1, 2, 3], [4, 5, 6]])
    written, entropies = copied.continued(model, prompts, 1.0, 9)
    assert written.shape == entropies.shape == (2, 9)
    again = copied.continued(model, prompts, 1.0, 9, given=written)[1]
    np.testing.assert_allclose(again, entropies, rtol=1e-6)
    monkeypatch.setattr(copied, "load_corpus", lambda name: Corpus(name, text, "", "", ""))
    for name, value in {"ROWS": 3, "LENGTH": 20, "PLACES": ((0, 20),)}.items():
        monkeypatch.setattr(copied, name, value)
    copied.main(["run"])
    assert len(capsys.readouterr().out.splitlines()) == 2 * (2 + len(copied.TEMPERATURES)) + 1


# --- the program that checks -------------------------------------------------------------------------------------


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """A copy of the first chapter, which may be changed."""
    monkeypatch.setattr(course, "COURSE", tmp_path)
    for folder in (CHAPTERS[0].parent, CAPSTONE):
        shutil.copytree(folder, tmp_path / folder.name)
    return tmp_path / CHAPTERS[0].parent.name


def answer(folder: Path, old: str, new: str) -> None:
    file = course.answers_in(folder)
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new, 1), encoding="utf-8")


def test_the_check_says_what_is_right_and_gives_one_hint(copy, capsys):
    answer(copy, "lambda dy: ...", "lambda dy: (dy * (x.value > 0),)")
    answer(copy, "SHARED = ...", "SHARED: tuple[int, ...] | int\nSHARED = 12")
    assert course.main(["1"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("quotient: still blank\nrelu: right\nSHARED: 12 is not the derivative\nbackward: ")
    assert (out.count("hint for"), "--solution" in out) == (1, False)
    answer(copy, "lambda dq: ...", "lambda dq: (dq / 0, 0)")
    for offered in (False, True):  # from the second wrong try on
        assert course.main(["1"]) == 1
        out = capsys.readouterr().out
        assert re.match(r"quotient: line \d+: ZeroDivisionError: ", out)
        assert ("--solution quotient shows the answer" in out) == offered
    assert course.main([]) == 0
    assert capsys.readouterr().out == "chapter  1: 1 of 4 right\ncapstone: 0 of 16 right\n"


WRONG = [
    ([[1, 2], [3, 5]], [[1, 2], [3, 4]], "x: at [1, 1] yours is 5, it must be 4 (1 of 4 are wrong)"),
    ([1.0, np.nan], [1.0, 1.0], "x: at [1] yours is nan, it must be 1 (1 of 2 are wrong)"),
    (1.0001, 1.00001, "x: yours is 1.0001, it must be 1.00001"),
    ([1, 2], [1, 2, 3], "x: the shape of yours is (2,), it must be (3,)"),
]


@pytest.mark.parametrize(("answer", "right", "sentence"), WRONG)
def test_the_first_wrong_place_is_named(answer, right, sentence):
    same(right, right, "x")
    with pytest.raises(AssertionError) as error:
        same(answer, right, "x")
    assert str(error.value) == sentence


def test_answers_are_written_to_a_copy_that_git_ignores(copy, capsys):
    """So the project's own tests, which read exercise.py, and its updates do not see them."""
    before, nano = {path: path.read_bytes() for path in copy.parent.rglob("*.py")}, ROOT / "nano.py"
    for word, folder, answers in ("1", copy, copy / "solution.py"), ("capstone", copy.parent / "capstone", nano):
        assert course.main([word]) == 1
        file = copy.parent / "answers" / folder.name / "exercise.py"
        assert file.read_bytes() == before[folder / "exercise.py"]
        shutil.copy(answers, course.answers_in(folder))
        assert course.main([word]) == 0
    capsys.readouterr()
    assert course.main([]) == 0
    assert capsys.readouterr() == ("chapter  1: 4 of 4 right\ncapstone: 16 of 16 right\n", "")
    assert {path: path.read_bytes() for path in before} == before
    assert "docs/course/answers/" in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()


def test_a_class_is_marked_whatever_its_answers_do(tmp_path, capsys):
    chapter, place = CHAPTERS[0].parent, tmp_path / "class"
    right = "print('x' * 10**6)\n" + (chapter / "solution.py").read_text(encoding="utf-8")
    for person, code in {"Jörg Groß/answers": right, "d": "import os; os._exit(3)"}.items():
        folder = place / person / chapter.name
        folder.mkdir(parents=True)
        (folder / "exercise.py").write_text(code, encoding="utf-8")
    shutil.make_archive(place / "f", "zip", place / "Jörg Groß")
    (place / "g.zip").write_text("no zip", encoding="utf-8")
    assert mark.main([str(place), f"--out={tmp_path / 'marks.csv'}"]) == 0
    assert (tmp_path / "marks.csv").read_text(encoding="utf-8") == ",1\nJörg Groß,4 of 4\nd,0\nf.zip,4 of 4\n"
    assert "g.zip is not a zip file" in capsys.readouterr().err
    assert mark.right_answers(chapter, b"while True: pass", 0.5) == "not finished after 0.5 s"
    with pytest.raises(UserError, match=r"there are no answers in .*: each folder or zip file"):
        mark.main([str(place / "d")])


def test_a_solution_is_shown_only_when_asked_for(copy, capsys):
    assert course.main(["1", "--solution", "relu"]) == 0
    shown = capsys.readouterr().out
    assert shown.strip() == inspect.getsource(course.load(copy / "solution.py").relu).strip()
    (copy / "solution.py").unlink()  # as a teacher hands the course out
    with pytest.raises(OptionError, match="--solution relu: this copy of the course has no solutions"):
        course.main(["1", "--solution", "relu"])


# --- the capstone ------------------------------------------------------------------------------------------------

# A mistake in each piece of nano.py: what is written in place of what.
MISTAKES = {
    "Tensor.__mul__": ("(other, lambda dy: dy * a)", "(other, lambda dy: dy * b)"),
    "Tensor.__matmul__": ("dy @ b.swapaxes(-1, -2)", "dy @ b.swapaxes(-2, -1) * 2"),
    "Tensor.__pow__": ("** (n - 1)", "** n"),
    "Tensor.exp": ("dy * y", "dy"),
    "Tensor.sum": (", keepdims=True", ""),
    "Tensor.__getitem__": ("np.add.at(dx, places, dy)", "dx[places] = dy"),
    "Tensor.backward": ("-tensor.time", "tensor.time"),
    "unbroadcast": (", keepdims=True", ""),
    "GPT.logits": (".relu() ** 2", ".relu()"),
    "GPT.attention": ("-np.inf", "0"),
    "GPT.loss": ("x = x + -x.data.max(-1, keepdims=True)", "pass"),
    "norm": ("1e-5", "1e-2"),
    "softmax": ("x + -x.data.max(-1, keepdims=True)", "x"),
    "turned": ("(x @ quarter) * sin", "(x @ quarter) * sin * -1.0"),
    "AdamW.step": ("max(1.0, length)", "length"),
}


@pytest.fixture
def solved(tmp_path):
    """The capstone's folder, with the text of nano.py as its exercise."""
    folder = shutil.copytree(CAPSTONE, tmp_path / "capstone")
    shutil.copy(ROOT / "nano.py", folder / "exercise.py")
    return folder


def test_the_capstone_is_nano_py_with_blanks(solved):
    blank, right = (course.named(folder / "exercise.py") for folder in (CAPSTONE, solved))
    assert course.blanks(CAPSTONE / "exercise.py") == {*MISTAKES, "Tensor", "GPT", "AdamW"}
    assert blank.keys() == right.keys()
    for name, part in right.items():
        if name in MISTAKES:
            assert ast.dump(blank[name].args) == ast.dump(part.args), name
            assert ast.get_docstring(blank[name]) == ast.get_docstring(part), name
        elif name and not isinstance(part, ast.ClassDef):
            assert ast.dump(blank[name]) == ast.dump(part), name


def test_a_mistake_in_any_piece_of_the_capstone_is_named(solved):
    right = (solved / "exercise.py").read_text(encoding="utf-8")
    for names in (list(MISTAKES)[::2], list(MISTAKES)[1::2]):
        text = right
        for name in names:
            piece = textwrap.indent(course.solution(solved, name), "    " * name.count("."))
            old, new = MISTAKES[name]
            assert piece in right, name
            assert old in piece, name
            text = text.replace(piece, piece.replace(old, new, 1), 1)
        (solved / "exercise.py").write_text(text, encoding="utf-8")
        found = course.check(solved, names=MISTAKES)
        assert [outcome.name for outcome in found if not outcome.is_right] == names
