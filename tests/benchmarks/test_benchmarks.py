"""`python -m benchmarks`: its options, how a row is measured, and our side of each."""

import json
import math
import mmap
import os
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pytest

from benchmarks import __main__ as command
from benchmarks import children, our_side, rows
from benchmarks.children import start
from benchmarks.memory import Peak, family_of, is_measurable, memory_of
from benchmarks.rows import NUMBERS, ROWS, BenchmarkOptions, Finding, measure, rows_asked_for
from benchmarks.shapes import BATCHES, SHAPES, SPECIALS, MadeUpTask
from encoder.vit import ViT
from gpt.model import GPT
from gpt.trained import load_trained
from tinygrad_lite.errors import UserError
from workshop.corpora import fetch
from workshop.run.checkpoint import save_checkpoint

# --- the command line -----------------------------------------------------------------------------------------


def test_rows_are_chosen_by_number():
    assert rows_asked_for("") == list(ROWS)
    assert [row.number for row in rows_asked_for("9, 1")] == [1, 9]
    assert [row.work for row in rows_asked_for("11")] == ["learn", "encode"]
    assert list(range(1, 18)) == NUMBERS


def test_the_table_goes_to_stdout_and_to_the_file(tmp_path, monkeypatch, capsys):
    asked = []

    def measured(row, options, with_compile):
        asked.append((row.work, options.turns))
        return Finding(row, {"ours": [1.0, 2.0]})

    monkeypatch.setattr(command, "measure", measured)
    out = tmp_path / "table.md"
    assert command.main(["--rows", "9,11", "--quick", "--out", str(out)]) == 0
    said = capsys.readouterr()
    assert asked == [("import", 2), ("learn", 2), ("encode", 2)]
    assert said.out == out.read_text(encoding="utf-8")
    assert said.out.count("1.50 (1.25 to 1.75)") == 3
    assert "row 11: encoding it" in said.err


# --- measuring ------------------------------------------------------------------------------------------------

SIDE = """
import json, sys
losses, factor = map(json.loads, sys.argv[1:])
for line in sys.stdin:
    question = json.loads(line)
    answer = {"facts": ["made up"]}
    if question:
        numbers = range(question["begin"], question["begin"] + question["repeats"])
        answer = {"values": [factor * number for number in numbers], "losses": losses}
    print(json.dumps(answer), flush=True)
"""


@pytest.fixture
def sides(monkeypatch):
    """Synthetic sides: by name, the first losses of a side. It takes 1, 2, ... ms, and PyTorch twice as long."""
    losses = {name: [4.0, 4.0] for name in ("ours", "torch", "torch-malloc", "torch-compiled")}

    def start_side(name, row, options):
        factor = "1" if name == "ours" else "2"
        return start([sys.executable, "-c", SIDE, json.dumps(losses[name]), factor], {})

    monkeypatch.setattr(rows, "start_side", start_side)
    monkeypatch.setattr(children, "PAUSE", 0)
    return losses


def test_a_row_is_measured_in_turns(sides):
    finding = measure(ROWS[0], BenchmarkOptions(turns=2, quick=True))
    # The first two times, numbers 0 and 1, do not count.
    assert finding.turns == {"ours": [2, 3], "torch": [4, 6], "torch-malloc": [4, 6]}
    assert finding.facts["torch"] == ["made up"]
    assert list(measure(ROWS[0], BenchmarkOptions(turns=1, quick=True), with_compile=True).turns) == list(sides)
    assert all("torch-compiled" not in row.sides(with_compile=True) for row in ROWS if row.work != "train")


@pytest.mark.parametrize(("loss", "updates"), [([4.01, 4.0], 0), ([4.0, 4.01], 1)])
def test_sides_with_different_first_losses_are_refused(sides, loss, updates):
    sides["torch"] = loss
    with pytest.raises(UserError, match=f"row 1: the losses of the sides after {updates} updates differ"):
        measure(ROWS[0], BenchmarkOptions(turns=1))
    with_dropout = next(row for row in ROWS if row.shape == "baby-dropout")
    assert measure(with_dropout, BenchmarkOptions(turns=1, quick=True)).turns["ours"] == [2]


@pytest.mark.skipif(not is_measurable(), reason="this system does not tell how much memory a process holds")
def test_the_memory_of_each_side_is_measured(sides):
    row = next(row for row in ROWS if row.unit == "MB")
    finding = measure(row, BenchmarkOptions(turns=2, quick=True))
    assert {name: len(values) for name, values in finding.turns.items()} == {"ours": 2, "torch": 2}
    assert 1 < min(finding.turns["ours"]) < 100  # a bare Python holds about 8 MB


@pytest.mark.skipif(not is_measurable(), reason="this system does not tell how much memory a process holds")
def test_the_peak_includes_children():
    before = memory_of(os.getpid())
    with Peak(os.getpid()) as peak:
        block = mmap.mmap(-1, 40_000_000)  # new from the system, even where malloc has kept some that is free
        np.frombuffer(block, np.uint8)[:] = 1
        assert memory_of(os.getpid()) > before + 30
        block.close()
    assert peak.megabytes >= before - 5
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert {os.getpid(), child.pid} <= set(family_of(os.getpid()))
        assert family_of(child.pid) == [child.pid]


# --- our side -------------------------------------------------------------------------------------------------


def test_a_real_side_is_measured(monkeypatch):
    monkeypatch.setattr(children, "PAUSE", 0)
    row = next(row for row in ROWS if row.work == "import")
    finding = measure(row, BenchmarkOptions(turns=1, quick=True))
    assert finding.turns["ours"][0] > 0
    assert any("malloc" in fact for fact in finding.facts["ours"])


@pytest.mark.parametrize("name", SHAPES)
def test_synthetic_batches_fit_the_model(name):
    shape = SHAPES[name]
    first, *_, targets = shape.batches()[0]
    if shape.model is ViT:
        assert first.shape == (shape.options.batch_size, 28, 28, 1)
        assert np.abs(first).max() <= 1
        assert targets.shape == first.shape[:1]
    else:
        assert first.max() < shape.config.vocab_size
        assert first.min() >= 0
        assert shape.tokens == first.shape[1] <= shape.config.block_size
    assert 0 <= targets.min() <= targets.max() < shape.config.vocab_size
    if shape.translates:
        assert 1900 <= first.size + targets.size <= 2200
        assert (targets[:, 0] == SPECIALS["<bos>"]).all()
        assert ((targets == SPECIALS["<eos>"]).sum(axis=1) == 1).all()
        assert not (first == SPECIALS["<eos>"]).any()
    elif shape.model is GPT:
        np.testing.assert_array_equal(first[:, 1:], targets[:, :-1])
    np.testing.assert_array_equal(shape.batches()[0][-1], targets)


def test_words_are_hidden_as_in_training():
    shape = SHAPES["bert"]
    config = shape.config
    (whole, _), (part, _) = (next(MadeUpTask(shape).batches(0, rank, size)) for rank, size in ((0, 1), (1, 2)))
    assert len(whole.places) == len(whole.targets) == 32 * 25  # 40 % of 62, as in sequences of [CLS], 62 tokens, [SEP]
    assert len(part.places) == 16 * 25
    for batch in (whole, part):
        ids, hidden = batch.ids.numpy(), batch.ids.numpy() == config.mask
        np.testing.assert_array_equal(np.flatnonzero(hidden), batch.places.numpy())
        assert (ids[:, 0] == config.cls).all()
        assert (ids[:, -1] == config.sep).all()
        assert not np.isin(batch.targets.numpy(), list(config.specials.values())).any()


@pytest.mark.parametrize("name", ["small", "translation", "bert"])
def test_workers_share_a_batch(name):
    task = MadeUpTask(SHAPES[name])
    for step in (0, BATCHES - 1, BATCHES):
        ((whole, share),) = task.batches(step)
        parts = [next(task.batches(step, rank, 2)) for rank in range(2)]
        assert sum(part for _, part in parts) == share == 1
        rows_of = [sorted(map(tuple, batch[0].numpy().tolist())) for batch, _ in [(whole, share), *parts]]
        assert rows_of[0] == sorted(rows_of[1] + rows_of[2])


@pytest.mark.parametrize("workers", [1, 2])
def test_our_side_learns(workers):
    with ExitStack() as until_end:
        update, comm = our_side.updates_of(SHAPES["small"], workers, until_end)
        losses = [our_side.time_updates(update)(step)["loss"] for step in range(2)]
    assert comm.size == workers
    assert losses[0] == pytest.approx(math.log(SHAPES["small"].vocab_size), abs=0.3)
    assert losses[1] < losses[0]


def test_the_tokens_of_two_shapes_are_compared():
    shape, other = (replace(SHAPES[n], options=replace(SHAPES[n].options, block_size=4)) for n in ("goethe", "small"))
    compare = our_side.compare_writing(shape, other)
    assert all(0 < compare(number)["value"] < 100 for number in range(2))


def test_our_side_generates_until_the_context_is_full():
    shape = SHAPES["small"]
    shape = replace(shape, options=replace(shape.options, n_layer=1, block_size=8))
    assert our_side.write(shape)(0)["value"] > 0
    assert len(our_side.greedy(our_side.make_model(shape), 3, 7)) == 7


def test_a_fresh_checkpoint_can_be_sampled_from(tmp_path):
    save_checkpoint(tmp_path / "best.safetensors", our_side.fresh_checkpoint(SHAPES["small"]))
    trained = load_trained(tmp_path)
    assert trained.tokenizer.encode("\n")
    assert trained.make_model().config == SHAPES["small"].config


@pytest.mark.parametrize("at_hand", [False, True])
def test_a_megabyte_of_german(at_hand, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TINYGRAD_LITE_CACHE", str(tmp_path))
    if at_hand:
        fetch.store("goethe", "Grüße! " * 100, {"source": "this test", "licence": "none"})
    text, source = our_side.german_text()
    assert 1_000_000 - 3 <= len(text.encode("utf-8")) <= 1_000_000
    assert ("Grüße" in text) == at_hand
    assert ("goethe" in source) == at_hand
