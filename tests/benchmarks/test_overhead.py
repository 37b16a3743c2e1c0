"""`python -m benchmarks.overhead`: what a side measures, and the table."""

import sys

import numpy as np
import pytest

from benchmarks import children, overhead
from benchmarks.children import start
from benchmarks.overhead import OPERATIONS, WAYS, Side, main, table
from tinygrad_lite.errors import UserError


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_side_computes_the_operation_and_times_it(operation, monkeypatch):
    monkeypatch.setattr(overhead, "CALLS", 2)
    side = Side("ours")
    numbers = {"x": side.x.numpy(), "y": side.y.numpy()}
    z, *nothing = side.reply({"operation": operation, "way": WAYS[0]})["values"]
    expected = np.exp(numbers["x"]) if operation == "x.exp()" else OPERATIONS[operation](**numbers)
    assert z == pytest.approx(float(expected.sum()), rel=1e-6)
    assert nothing == [0.0, 0.0]
    assert side.reply({"begin": 0, "repeats": 3})["values"][0] > 0
    assert side.x.grad is None
    same, *gradients = side.reply({"operation": operation, "way": WAYS[1]})["values"]
    assert same == z
    assert [gradient != 0 for gradient in gradients] == [name in operation.replace("exp", "") for name in "xy"]
    assert side.reply({"begin": 0, "repeats": 3})["values"][0] > 0
    assert [
        float(t.grad.numpy().sum()) if t.grad is not None else 0.0 for t in (side.x, side.y)
    ] == gradients  # not added up


@pytest.mark.torch
@pytest.mark.parametrize("way", WAYS)
def test_the_sides_compute_the_same(way):
    pytest.importorskip("torch")
    ours, theirs = Side("ours"), Side("torch")
    for operation in OPERATIONS:
        question = {"operation": operation, "way": way}
        np.testing.assert_allclose(ours.reply(question)["values"], theirs.reply(question)["values"], rtol=1e-5)


PROGRAM = """
import sys
from benchmarks import overhead
overhead.CALLS = 2
if sys.argv[1] == "wrong":
    overhead.OPERATIONS["x + y"] = lambda x, y: x + y + 1
overhead.serve(overhead.Side("ours").reply)
"""


@pytest.mark.parametrize("second", ["right", "wrong"])
def test_only_sides_that_compute_the_same_numbers_are_compared(second, monkeypatch, capsys):
    names = [second, "right"]
    monkeypatch.setattr(overhead, "find_spec", lambda name: name)
    monkeypatch.setattr(overhead, "OPERATIONS", {"x + y": OPERATIONS["x + y"]})
    monkeypatch.setattr(overhead, "start", lambda command, _: start([sys.executable, "-c", PROGRAM, names.pop()], {}))
    monkeypatch.setattr(children, "PAUSE", 0)
    if second == "right":
        assert main(["--quick"]) == 0
        assert "| `x + y` | " in capsys.readouterr().out
    else:
        with pytest.raises(UserError, match=r"x \+ y: the sides compute different numbers"):
            main(["--quick"])


def test_the_table_has_the_fastest_turns_and_their_ratio():
    ways = [{"ours": [9.0, 4.0, 8.0], "torch": [3.0, 2.0, 5.0]}, {"ours": [10.0], "torch": [20.0]}]
    lines = table({"x + y": ways}, ["Machine: a small one"]).splitlines()
    assert "- Machine: a small one" in lines
    expected = "| `x + y` | 4.00 | 2.00 | **0.50** | 10.00 | 20.00 | **2.00** |"
    assert lines[-1] == expected
    assert {line.count("|") for line in lines if line.startswith("|")} == {8}
