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
    clock = iter([0, 9, 0, 4, 0, 3, 0, 2, 0, 8, 0, 5])  # the beginning and the end of each group
    monkeypatch.setattr(overhead.time, "perf_counter", lambda: 1e-6 * overhead.CALLS * next(clock))
    called = []
    calls = [lambda: called.append("ours"), lambda: called.append("torch")]
    assert overhead.fastest(calls, turns=3, groups=1) == pytest.approx([2, 3])
    assert called[:: overhead.CALLS] == ["ours", "torch", "torch", "ours", "ours", "torch"]
    lines = overhead.table({"x + y": [4.0, 2.0, 10.0, 20.0]}, ["Machine: a small one"]).splitlines()
    assert lines[-1] == "| `x + y` | 4.00 | 2.00 | **0.50** | 10.00 | 20.00 | **2.00** |"
