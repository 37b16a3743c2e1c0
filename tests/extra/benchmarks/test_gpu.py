"""`python -m benchmarks.gpu`: both sides compute the same, what is timed, and the numbers. No test asserts times."""

import re

import numpy as np
import pytest

from benchmarks.gpu import ROWS, Finding, cells, conclusions, crossing, differs, render, verdict
from benchmarks.gpu_side import WRITTEN, Ours, reply_of
from benchmarks.shapes import GPU_SHAPES

ROW = {row.group: row for row in reversed(ROWS)}  # of each group the first
WORK = {row.work: row for row in reversed(ROWS)}  # of each task the first
FACTS = {"amounts": {"product": 2e12, "copy": 1e9, "write": 100}, "shapes": {"baby": {"tokens": 1000, "flop": 1e12}}}
TASKS = [row for row in ROWS if row.shape != "baby-dropout" and (row.group != "widths" or row.shape == "width 32")]


def test_the_models_are_those_that_the_rows_name():
    parameters = {name: shape.blueprint.num_parameters() for name, shape in GPU_SHAPES.items()}
    assert (parameters["gpt2"], parameters["baby"]) == (124_439_808, 10_745_088)
    assert round(parameters["translation"] / 1e6, 1) == 63.1


# --- the sides: ours emulated, PyTorch's on the CPU -----------------------------------------------------------


@pytest.mark.torch
@pytest.mark.parametrize("row", [row for row in TASKS if row.beside != ("cpu",)], ids=lambda row: row.what[:40])
def test_both_sides_compute_the_same_and_torch_does_every_task(row, cuda, torch):
    from benchmarks.torch_side import TorchSide

    torch.set_num_threads(1)  # more of them would wait for the cores that other tests keep busy
    side, before = TorchSide(True, "cpu"), torch.get_float32_matmul_precision()
    asked, question = reply_of(side), {"do": "prepare", "work": row.work, "shape": row.shape}
    check = {"ours": reply_of(Ours(True))(question), "torch": asked(question)}
    assert (differs(check), check["ours"].keys()) == ("", check["torch"].keys())
    if row.work in WRITTEN:
        pytest.importorskip("transformers")
    for precision in row.precisions:
        asked({"do": "begin", "work": row.work, "precision": precision, "variant": "eager", "seconds": 0.001})
        assert asked({"do": "turn", "variant": "eager", "repeats": 1, "begin": 0})["ms"] > 0
    assert torch.get_float32_matmul_precision() == before
    if row.work in WRITTEN:  # a task that needs transformers: both caches give the same texts
        texts = [side.write(row.work, torch.float32, variant)(3) for variant in ("static", "eager")]
        assert texts[0] == texts[1]
        assert np.shape(texts[0]) == (WRITTEN[row.work], 1 + side.tokens)


# --- numbers --------------------------------------------------------------------------------------------------


def found(row, precision="tf32", **ms):
    turns = {variant: [{"ms": value, "asked_ms": value / 4}] for variant, value in ms.items()}
    return Finding(row, precision, turns)


def test_numbers_in_their_units():
    assert found(ROW["baby"], ours=2.0).values("ours", FACTS) == [2.0]
    assert found(WORK["product"], ours=2.0).values("ours", FACTS) == pytest.approx([1000.0])  # TFLOP/s
    assert found(WORK["copy"], ours=2.0).values("ours", FACTS) == pytest.approx([0.5])  # TB/s
    assert found(WORK["write"], ours=50.0).values("ours", FACTS) == [2000.0]  # tokens/s
    assert found(WORK["launch"], ours=0.02).values("ours", FACTS) == [5.0]  # µs of Python's
    assert found(WORK["launch"], ours=0.02, eager=0.04).ratios("eager") == [2.0]
    # The share is that of the faster side's product in the same precision.
    rates = [found(WORK["product"], ours=8.0, eager=4.0), found(WORK["product"], "float32", ours=40.0)]
    step = found(ROW["baby"], ours=10.0)
    assert cells(step, [*rates, step], FACTS)[7] == "100,000 tokens/s, 100 TFLOP/s, 20%"


def test_each_number_is_in_its_column_of_the_table():
    finding = found(ROW["baby"], ours=10.0, eager=20.0, compiled=30.0)
    (table,) = re.findall(r"^\| row .*\n\|---.*\n\|.*$", render([finding], [], FACTS), re.MULTILINE)
    header, _, line = (row.strip("| ").split(" | ") for row in table.split("\n"))
    shown = dict(zip(header, line, strict=True))
    assert (shown["precision"], shown["this project"]) == ("tf32", "10.0 (10.0 to 10.0) ms")
    assert (shown["torch"], shown["reached"]) == ("20.0 (20.0 to 20.0) ms", "aim")
    assert shown["beside"] == "torch.compile: 30.0 (30.0 to 30.0) ms"


def test_verdict():
    assert verdict(found(ROW["baby"], ours=10.0, eager=20.0, compiled=10.0)) == "aim"
    assert verdict(found(ROW["baby"], ours=10.0, eager=20.0, compiled=9.9)) == "floor"
    assert verdict(found(ROW["gpt2"], ours=10.0, eager=9.0, compiled=8.0)) == "**no**"
    assert verdict(found(ROW["rates"], ours=10.0, eager=10.0)) == ""


def test_what_is_said_of_widths():
    assert crossing({32: 2.0, 64: 0.5, 256: 2.0}) == "the GPU is faster from a width of about 128"  # for good, that is
    rows = [row for row in ROWS if row.group == "widths"]
    findings = [found(row, ours=1.0, cpu=ratio) for row, ratio in zip(rows[:2], (0.5, 2.0), strict=True)]
    said = "CPU and GPU, tf32: the GPU is faster from a width of about 45; largest ratio 2.00, at a width of 64."
    epochs = "| width | CPU | GPU |\n|---|---|---|\n| 32 | 0.244 | 0.488 |\n| 64 | 0.977 | 0.488 |\n"
    assert "\n".join(conclusions(findings)) == f"{said} An epoch of 1,000,000 tokens, in seconds:\n\n{epochs}"
