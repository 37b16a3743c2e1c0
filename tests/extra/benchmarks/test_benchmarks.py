"""`python -m benchmarks`: its options, how a row is measured, and our side of each."""

import json
import math
import sys
from contextlib import ExitStack
from dataclasses import replace

import pytest

from benchmarks import __main__ as command
from benchmarks import children, our_side, rows
from benchmarks.children import start
from benchmarks.machine import is_measurable
from benchmarks.rows import ROWS, BenchmarkOptions, Finding, Row, measure
from benchmarks.shapes import BATCHES, SHAPES, MadeUpTask
from benchmarks.table import ratios, verdict
from tinygrad_lite.errors import UserError

SIDE = """
import json, sys
losses, factor = map(json.loads, sys.argv[1:3])
for line in sys.stdin:
    question = json.loads(line)
    answer = {"facts": ["made up"]}
    if question:
        with open(sys.argv[4], "a") as log:
            log.write(f"{sys.argv[3]}{question['begin']}+{question['repeats']} ")
        numbers = range(question["begin"], question["begin"] + question["repeats"])
        answer = {"values": [factor * number for number in numbers], "losses": losses[:2]}
    print(json.dumps(answer), flush=True)
"""


@pytest.fixture
def sides(monkeypatch, tmp_path):
    """Synthetic sides: by name, the first losses of a side. It takes 1, 2, ... ms, and PyTorch twice as long."""
    losses = {name: [4.0, 4.0] for name in ("ours", "torch", "torch-malloc", "torch-compiled")}

    def start_side(name, row, options):
        factor = "1" if name == "ours" else "2"
        log = str(tmp_path / "log")
        return start([sys.executable, "-c", SIDE, json.dumps(losses[name]), factor, name, log], {})

    monkeypatch.setattr(rows, "start_side", start_side)
    monkeypatch.setattr(children, "PAUSE", 0)
    return losses


def test_the_table_goes_to_stdout_and_to_the_file(tmp_path, monkeypatch, ran):
    monkeypatch.setattr(command, "measure", lambda row, options, _: Finding(row, {"ours": [1.0, options.turns]}))
    out = tmp_path / "table.md"
    said = ran(command.main, "--rows", "11, 9", "--quick", "--out", out)
    assert said.out == out.read_text(encoding="utf-8")
    assert said.out.count("1.50 (1.25 to 1.75)") == 3  # row 9, and two rows with the number 11
    assert "- Made with --quick: the numbers are meaningless\n" in said.out
    assert "row 11: encoding it" in said.err


def test_a_row_is_measured_in_turns_and_not_if_the_first_losses_differ(sides, tmp_path):
    finding = measure(replace(ROWS[0], repeats=3), BenchmarkOptions(turns=2))
    # The first two times, numbers 0 and 1, do not count; of three in a turn, the median does.
    assert finding.turns == {"ours": [3, 6], "torch": [6, 12], "torch-malloc": [6, 12]}
    assert finding.facts["torch"] == ["made up"]
    asked = (tmp_path / "log").read_text().split()
    assert asked[:3] == ["ours0+2", "torch0+2", "torch-malloc0+2"]
    assert asked[3:] == "ours2+3 torch2+3 torch-malloc2+3 torch-malloc5+3 torch5+3 ours5+3".split()
    assert list(measure(ROWS[0], BenchmarkOptions(turns=1, quick=True), with_compile=True).turns) == list(sides)
    sides["torch"] = [4.0, 4.01]
    with pytest.raises(UserError, match="row 1: the losses of the sides after 1 updates differ"):
        measure(ROWS[0], BenchmarkOptions(turns=1))
    sides["torch"] = None  # an error in the side, which ends with its status
    with pytest.raises(SystemExit, match=r"^1$"):
        measure(ROWS[0], BenchmarkOptions(turns=1))


@pytest.mark.skipif(not is_measurable(), reason="this system does not tell how much memory a process holds")
def test_the_memory_of_each_side_is_measured(sides):
    row = next(row for row in ROWS if row.unit == "MB")
    finding = measure(row, BenchmarkOptions(turns=2, quick=True))
    assert {name: len(values) for name, values in finding.turns.items()} == {"ours": 2, "torch": 2}
    assert 1 < min(finding.turns["ours"]) < 100  # a bare Python holds about 8 MB


def test_a_real_side_is_measured(monkeypatch):
    monkeypatch.setattr(children, "PAUSE", 0)
    finding = measure(next(row for row in ROWS if row.work == "import"), BenchmarkOptions(turns=1, quick=True))
    assert finding.turns["ours"][0] > 0


@pytest.mark.parametrize("name", ["small", "translation", "bert", "vit"])
def test_workers_share_a_batch_that_fits_the_model(name):
    task, targets = MadeUpTask(SHAPES[name]), SHAPES[name].batches()[0][-1]
    assert 0 <= targets.min() <= targets.max() < SHAPES[name].config.vocab_size
    for step in (0, BATCHES - 1, BATCHES):
        ((whole, share),) = task.batches(step)
        parts = [next(task.batches(step, rank, 2)) for rank in range(2)]
        assert sum(part for _, part in parts) == share == 1
        rows_of = [sorted(row.tobytes() for row in batch[0].numpy()) for batch, _ in [(whole, share), *parts]]
        assert rows_of[0] == sorted(rows_of[1] + rows_of[2])


@pytest.mark.parametrize("workers", [1, 2])
def test_our_side_learns(workers):
    with ExitStack() as until_end:
        update, comm = our_side.updates_of(*our_side.parts_of(SHAPES["small"], workers), until_end)
        losses = [our_side.timed(update)(step)["loss"] for step in range(2)]
    assert comm.size == workers
    assert losses[0] == pytest.approx(math.log(SHAPES["small"].vocab_size), abs=0.3)
    assert losses[1] < losses[0]


def test_our_side_writes():
    shape, other = (replace(SHAPES[n], options=SHAPES[n].options.changed(block_size=4)) for n in ("goethe", "small"))
    assert 0 < our_side.compare_writing(shape, other)(0)["value"] < 100
    assert our_side.greedy(our_side.make_model(shape), [3, 4], 3).shape == (2, 3)


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
    with pytest.raises(ValueError, match="zip"):
        ratios(finding(TIME, [1, 2], [1]), "torch")


def test_verdict():
    assert verdict(finding(TIME, [10, 10, 10], [11, 15, 16])) == "aim"  # the median counts
    assert verdict(finding(TIME, [10], [11.5])) == verdict(finding(START, [0.1])) == "floor"
    assert verdict(finding(SPEED, [39], [10])) == verdict(finding(MEMORY, [101], [100])) == "**no**"
    assert verdict(finding(MEMORY, [60], [100])) == "aim"
