"""`python -m benchmarks.overhead`: both sides compute the same, and the table."""

import pytest

from benchmarks import overhead
from benchmarks.overhead import OPERATIONS
from tinygrad_lite import Tensor
from tinygrad_lite.errors import UserError


@pytest.mark.torch
def test_the_command_measures_both_sides_and_refuses_if_they_differ(monkeypatch, capsys):
    pytest.importorskip("torch")
    monkeypatch.setattr(overhead, "CALLS", 2)
    assert overhead.main(["--quick"]) == 0
    assert capsys.readouterr().out.count("\n| `") == len(OPERATIONS)
    monkeypatch.setitem(OPERATIONS, "x + y", lambda x, y: x + (y * 1.001 if isinstance(y, Tensor) else y))
    with pytest.raises(UserError, match=r"x \+ y: the sides compute different numbers"):
        overhead.main(["--quick"])


def test_the_fastest_group_counts_and_the_table_has_the_ratio(monkeypatch):
    times = {"ours": iter([9, 2, 8]), "torch": iter([4, 3, 5])}
    asked = []

    def repeat(side, number, repeat):
        asked.append(side)
        return [1e-6 * number * next(times[side]), 1.0]

    monkeypatch.setattr(overhead.timeit, "repeat", repeat)
    assert overhead.fastest(["ours", "torch"], turns=3, groups=2) == pytest.approx([2, 3])
    assert asked == ["ours", "torch", "torch", "ours", "ours", "torch"]
    lines = overhead.table({"x + y": [4.0, 2.0, 10.0, 20.0]}, ["Machine: a small one"]).splitlines()
    assert lines[-1] == "| `x + y` | 4.00 | 2.00 | **0.50** | 10.00 | 20.00 | **2.00** |"
