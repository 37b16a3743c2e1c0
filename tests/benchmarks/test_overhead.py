"""`python -m benchmarks.overhead`: what the sides compute, and the table."""

import sys

import numpy as np
import pytest

from benchmarks import children, overhead
from benchmarks.children import start
from benchmarks.overhead import OPERATIONS, WAYS, Side

PROGRAM = "from benchmarks import overhead; overhead.CALLS = 2; overhead.serve(overhead.Side('ours').reply)"


@pytest.mark.torch
@pytest.mark.parametrize("way", WAYS)
def test_the_sides_compute_the_same(way):
    pytest.importorskip("torch")
    ours, theirs = Side("ours"), Side("torch")
    for operation in OPERATIONS:
        question = {"operation": operation, "way": way}
        np.testing.assert_allclose(ours.reply(question)["values"], theirs.reply(question)["values"], rtol=1e-5)


def test_the_command_runs(monkeypatch, capsys):
    monkeypatch.setattr(overhead, "find_spec", lambda name: name)
    monkeypatch.setattr(overhead, "start", lambda command, _: start([sys.executable, "-c", PROGRAM], {}))
    monkeypatch.setattr(children, "PAUSE", 0)
    assert overhead.main(["--quick"]) == 0
    assert capsys.readouterr().out.count("\n| `") == len(OPERATIONS)


def test_the_table_has_the_fastest_turns_and_their_ratio():
    ways = [{"ours": [9.0, 4.0, 8.0], "torch": [3.0, 2.0, 5.0]}, {"ours": [10.0], "torch": [20.0]}]
    lines = overhead.table({"x + y": ways}, ["Machine: a small one"]).splitlines()
    assert lines[-1] == "| `x + y` | 4.00 | 2.00 | **0.50** | 10.00 | 20.00 | **2.00** |"
