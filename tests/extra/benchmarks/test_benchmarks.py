"""`python -m benchmarks`: how a row is measured, and the table."""

from contextlib import nullcontext
from dataclasses import replace

import pytest

from benchmarks import __main__ as command
from benchmarks import children, rows
from benchmarks.rows import ROWS, BenchmarkOptions, Finding, Row, measure
from benchmarks.table import ratios, verdict
from tinygrad_lite.errors import UserError


def test_the_table_goes_to_stdout_and_to_the_file(tmp_path, monkeypatch, ran):
    monkeypatch.setattr(command, "measure", lambda row, options, _: Finding(row, {"ours": [1.0, options.turns]}))
    out = tmp_path / "table.md"
    said = ran(command.main, "--rows", "11, 9", "--quick", "--out", out)
    assert said.out == out.read_text(encoding="utf-8")
    assert said.out.count("1.50 (1.25 to 1.75)") == 3  # row 9, and two rows with the number 11
    assert "- Made with --quick: the numbers are meaningless\n" in said.out


def test_a_row_is_measured_in_turns_and_not_if_the_first_losses_differ(monkeypatch):
    """On synthetic sides: repeat n takes n ms, and PyTorch's twice as long."""
    losses, asked = {name: [4.0, 4.0] for name in ("ours", "torch", "torch-malloc")}, []

    def answer(name, question):
        if not question:
            return {"facts": ["made up"]}
        asked.append(f"{name}{question['begin']}+{question['repeats']}")
        numbers = range(question["begin"], question["begin"] + question["repeats"])
        return {"values": [number * (1 if name == "ours" else 2) for number in numbers], "losses": losses[name]}

    monkeypatch.setattr(rows, "start_side", lambda name, row, options: nullcontext(name))
    for module in (rows, children):
        monkeypatch.setattr(module, "ask", answer)
    monkeypatch.setattr(children, "PAUSE", 0)
    finding = measure(replace(ROWS[0], repeats=3), BenchmarkOptions(turns=2))
    # The first two times, numbers 0 and 1, do not count; of three in a turn, the median does.
    assert finding.turns == {"ours": [3, 6], "torch": [6, 12], "torch-malloc": [6, 12]}
    assert finding.facts["torch"] == ["made up"]
    assert asked[:3] == ["ours0+2", "torch0+2", "torch-malloc0+2"]
    assert asked[3:] == "ours2+3 torch2+3 torch-malloc2+3 torch-malloc5+3 torch5+3 ours5+3".split()
    losses["torch"] = [4.0, 4.01]
    with pytest.raises(UserError, match="row 1: the losses of the sides after 1 updates differ"):
        measure(ROWS[0], BenchmarkOptions(turns=1))


# --- the table, on synthetic measurements -----------------------------------------------------------------------------


TIME = Row(1, "a step", "train", "small", "ms", 1.15, 1.5)
SPEED = Row(6, "writing", "write", "small", "tokens/s", 4, 8)
MEMORY = Row(8, "memory", "train-alone", "small", "MB", 1.0, 0.6)
START = Row(9, "importing", "import", "", "s", 0.15, 0.05)


def finding(row: Row, ours: list[float], torch: list[float] | None = None) -> Finding:
    return Finding(row, {"ours": ours} if torch is None else {"ours": ours, "torch": torch})


def test_ratios_are_taken_turn_by_turn():
    assert ratios(finding(TIME, [10, 20], [15, 10]), "torch") == [1.5, 0.5]  # above 1: we take less time
    assert ratios(finding(SPEED, [100, 80], [50, 160]), "torch") == [2.0, 0.5]  # above 1: we write faster
    assert ratios(finding(MEMORY, [50, 200], [100, 100]), "torch") == [0.5, 2.0]  # below 1: we take less memory


def test_verdict():
    assert verdict(finding(TIME, [10, 10, 10], [11, 15, 16])) == "aim"  # the median counts
    assert verdict(finding(TIME, [10], [11.5])) == verdict(finding(START, [0.1])) == "floor"
    assert verdict(finding(SPEED, [39], [10])) == verdict(finding(MEMORY, [101], [100])) == "**no**"
    assert verdict(finding(MEMORY, [60], [100])) == "aim"
