"""Chapter 11's picture of a translation: which letter each letter attends to."""

from pathlib import Path

from docs.course import check
from tests.tiny_runs import PAIRS, run_training

alignment = check.load(Path(__file__).parents[3] / "docs/course/11-translation/alignment.py")


def test_a_run_that_reverses_shows_a_row_for_each_letter(workplace, capsys):
    run_training("reverse", **PAIRS | {"max_iters": 2, "eval_pairs": 0})
    capsys.readouterr()
    assert alignment.main(["run", "abc"]) == 0
    first, *rows = capsys.readouterr().out.splitlines()
    assert first.split() == ["a", "b", "c"]
    assert rows
    assert all(row.count("#") == 1 and row.count(".") == 2 and row.endswith("%") for row in rows)
