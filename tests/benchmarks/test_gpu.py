"""`python -m benchmarks.gpu`: both sides compute the same, what is timed, and the numbers. No test asserts times."""

import json
import math
import sys
from contextlib import nullcontext

import pytest

from benchmarks import children, gpu
from benchmarks.children import Handle, SideFailed
from benchmarks.gpu import ROWS, Finding, cells, conclusions, crossing, differs, kernel_table, measure, verdict
from benchmarks.gpu_side import WIDTHS, Ours, Side, reply_of
from benchmarks.shapes import GPU_SHAPES
from tinygrad_lite.errors import OptionError, UserError

ROW = {row.group: row for row in reversed(ROWS)}  # of each group the first
WORK = {row.work: row for row in reversed(ROWS)}  # of each task the first
FACTS = {"amounts": {"product": 2e12, "copy": 1e9, "write": 100}, "shapes": {"baby": {"tokens": 1000, "flop": 1e12}}}


def test_the_models_are_those_that_the_rows_name():
    parameters = {name: shape.blueprint.num_parameters() for name, shape in GPU_SHAPES.items()}
    assert (parameters["gpt2"], parameters["baby"]) == (124_439_808, 10_745_088)
    assert round(parameters["translation"] / 1e6, 1) == 63.1
    tokens = {name: shape.target_tokens for name, shape in GPU_SHAPES.items()}
    assert tokens == {"baby": 16_384, "baby-dropout": 16_384, "gpt2": 12_288, "translation": 12_288}
    assert {row.shape for row in ROWS} == {"", *GPU_SHAPES, *(f"width {width}" for width in WIDTHS)}


# --- the sides: ours emulated, PyTorch's on the CPU -----------------------------------------------------------

TASKS = [row for row in ROWS if row.shape != "baby-dropout" and (row.group != "widths" or row.shape == "width 32")]


@pytest.mark.slow
@pytest.mark.parametrize("row", TASKS, ids=lambda row: row.what[:40])
def test_our_side_does_every_task(row, cuda):
    ask = reply_of(Ours(quick=True))
    question = {"do": "prepare", "work": row.work, "shape": row.shape}
    checked = ask(question)
    assert "failed" not in checked, checked
    if row.beside == "cpu":
        assert differs({"ours": checked, "cpu": reply_of(Ours(True, "cpu"))(question)}) == ""
    if row.work == "train":
        before, *after = checked["losses"]
        assert before == pytest.approx(math.log(84 if row.group == "widths" else 70), abs=0.3)
        assert all(loss < before for loss in after)
    elif row.work == "write":
        assert checked["log_probs"] == pytest.approx([-math.log(70)] * 6, abs=0.5)
    begun = ask({"do": "begin", "work": row.work, "precision": "float32", "variant": "ours", "seconds": 0.001})
    assert 1 <= begun["repeats"] <= 2
    turn = ask({"do": "turn", "variant": "ours", "repeats": 1, "begin": 0})
    assert 0 < turn["asked_ms"] <= turn["ms"]


@pytest.mark.slow
def test_kernels_are_seen_by_events_where_cupti_is_unavailable(cuda, monkeypatch, capsys):
    monkeypatch.setattr("benchmarks.gpu_side.seen_by_cupti", lambda step: 1 // 0)
    ask = reply_of(Ours(quick=True))
    assert "driver for CUDA" in ask({"do": "facts"})["about"]
    ask({"do": "prepare", "work": "train", "shape": "baby"})
    answer = ask({"do": "kernels", "precision": "float32"})
    assert answer["source"] == "events"
    names = [name for name, us in answer["kernels"] if us > 0]
    assert {"layer_norm_forward", "product (16, 32) @ (32, 128)"} <= set(names)
    assert "product (64, 64) @ (64, 64)" not in names  # which only keeps the GPU busy before the step
    assert "could not be seen by CUPTI: ZeroDivisionError" in capsys.readouterr().err


@pytest.mark.torch
@pytest.mark.parametrize("row", [row for row in TASKS if row.beside != "cpu"], ids=lambda row: row.what[:40])
def test_both_sides_compute_the_same_and_torch_does_every_task(row, cuda):
    torch = pytest.importorskip("torch")
    from benchmarks.torch_side import OnGPU

    side, before = OnGPU(True, "cpu"), torch.get_float32_matmul_precision()
    asked, question = reply_of(side), {"do": "prepare", "work": row.work, "shape": row.shape}
    check = {"ours": reply_of(Ours(True))(question), "torch": asked(question)}
    assert (differs(check), check["ours"].keys()) == ("", check["torch"].keys())
    for precision in row.precisions:
        asked({"do": "begin", "work": row.work, "precision": precision, "variant": "eager", "seconds": 0.001})
        assert asked({"do": "turn", "variant": "eager", "repeats": 1, "begin": 0})["ms"] > 0
    assert torch.get_float32_matmul_precision() == before
    if row.work == "write":
        pytest.importorskip("transformers")
        assert side.write(torch.float32, "hugging-face")(3) == side.write(torch.float32, "eager")(3)


# --- answering and measuring ----------------------------------------------------------------------------------


class MadeUp(Side):
    """A side whose task is given by the test."""

    def __init__(self, step, synchronize=lambda: None):
        super().__init__(quick=True)
        self.step, self.synchronize, self.in_precision = step, synchronize, lambda name: nullcontext()

    def work(self, work, precision, variant):
        return self.step


def begin(ask):
    return ask({"do": "begin", "work": "train", "precision": "float32", "variant": "ours", "seconds": 0.01})


def test_a_failure_is_sent_as_a_reply():
    answer = begin(reply_of(MadeUp(lambda number: 1 // 0)))
    assert answer["failed"].startswith("ZeroDivisionError: ")
    assert "broken" not in answer
    steps = []  # after the first one, the GPU no longer responds
    assert begin(reply_of(MadeUp(steps.append, lambda: 1 // (1 - len(steps)))))["broken"]
    ask = reply_of(MadeUp(lambda number: math.nan))
    begin(ask)
    assert "the loss became nan" in ask({"do": "turn", "variant": "ours", "repeats": 2, "begin": 0})["failed"]
    with pytest.raises(ValueError, match="nothing called release"):
        ask({"do": "release"})


def test_the_time_that_python_needs_for_a_step_is_measured_with_an_empty_queue():
    """With many steps in the queue Python waits for the GPU, so its time would be the GPU's."""
    queued, lengths = [], []
    side = MadeUp(lambda number: (queued.append(number), lengths.append(len(queued))), queued.clear)
    side.max_repeats, side.kernels_of = 10, lambda step: ([("a", 1.0)], "made up")
    assert reply_of(side)({"do": "kernels", "precision": "float32"})["asked_ms"] > 0
    assert lengths[-15:] == [*range(1, 11), 1, 1, 1, 1, 1]


SIDE = """
import json, sys, time
for line in sys.stdin:
    question = json.loads(line)
    if question.get("shape") == "gpt2":
        time.sleep(600)
    answer = {
        "facts": {"about": "made up", "amounts": {"product": 1e9, "copy": 1e9, "write": 7},
                  "shapes": {"baby": {"tokens": 100, "flop": 1e9}}},
        "prepare": {"losses": [4.0]},
        "begin": {"repeats": 1},
        "turn": {"ms": 2.0, "asked_ms": 1.0},
        "kernels": {"ms": 2.0, "asked_ms": 1.0, "source": "CUPTI", "kernels": [["a_kernel", 100.0]]},
    }[question["do"]]
    if question.get("precision") == "tf32" or question.get("variant") == "compiled":
        answer = {"failed": "no tf32", "traceback": "Traceback: no tf32", "broken": True}
    print(json.dumps(answer), flush=True)
"""


@pytest.fixture
def processes(monkeypatch):
    """Made-up sides; a list of those that were started."""
    started, plain = [], children.start

    def start(command, environment):
        started.append(command[3])
        return plain([sys.executable, "-c", SIDE], environment)

    monkeypatch.setattr(children, "start", start)
    monkeypatch.setattr(gpu, "get_device", lambda name: None)
    monkeypatch.setattr(gpu, "find_spec", lambda name: name)
    return started


def handle(name="ours", patience=30.0):
    return Handle([sys.executable, "-m", "benchmarks.gpu_side", name], math.inf, patience)


def test_a_side_that_hangs_or_breaks_is_started_again(processes, capsys):
    side = handle(patience=1.0)
    for _ in range(2):  # the second time it is not tried
        with pytest.raises(SideFailed, match="no answer within 1 s"):
            side.prepare("train", "gpt2")
    side.patience = 30.0
    side.prepare("train", "baby")
    with pytest.raises(SideFailed, match="no tf32"):
        side.ask(do="begin", precision="tf32")
    assert "Traceback: no tf32" in capsys.readouterr().err
    side.prepare("train", "baby")
    assert side.check == {"losses": [4.0]}
    side.close()
    assert len(processes) == 3


def test_a_row_is_measured_in_turns_and_what_fails_stops_no_other(processes):
    sides = {"ours": handle(), "torch": handle("torch")}
    finding = measure(ROW["baby"], "bfloat16", sides, True, turns=2, seconds=0.1)
    assert (finding.failed, sorted(finding.turns)) == ({"compiled": "no tf32"}, ["eager", "ours"])
    assert finding.ratios("eager") == [1.0, 1.0]
    assert cells(finding, [finding], FACTS)[5] == "torch.compile: failed: no tf32"
    sides["torch"].check = {"losses": [4.001]}
    refused = measure(ROW["baby"], "bfloat16", sides, False, turns=2, seconds=0.1)
    for side in sides.values():
        side.close()
    assert not refused.turns
    assert "failed: not measured: the sides have different losses in float32" in cells(refused, [refused], FACTS)[2]


def test_what_counts_as_the_same():
    assert not differs({"ours": {"losses": [4.0, 3.9]}, "torch": {"losses": [4.0003, 3.903]}})  # as rounding may do
    assert differs({"ours": {"losses": [4.0, 3.9]}, "torch": {"losses": [4.0, 3.91]}})
    assert differs({"ours": {"log_probs": [-4.0]}, "torch": {"log_probs": [math.nan]}})
    assert not differs({"ours": {"losses": [4.0]}})


def test_the_command_records_all_results(processes, tmp_path, capsys):
    out = tmp_path / "results"
    argv = ["--rows", "baby,rates", "--turns", "2", "--compiled", "none", "--profile", "--out", str(out)]
    assert gpu.main(argv) == 0
    said = capsys.readouterr()
    assert said.out.endswith((out / "table.md").read_text(encoding="utf-8"))
    assert "| `a_kernel` | 1 | 100.0 | 100.0% |" in (out / "kernels.md").read_text(encoding="utf-8")
    assert said.out.count("failed: no tf32") == 4  # two rows, two sides
    lines = [json.loads(line) for line in (out / "results.jsonl").read_text(encoding="utf-8").splitlines()]
    measured = [line for line in lines if "turns" in line]
    assert [line["precision"] for line in measured] == "bfloat16 tf32 float32 float32 bfloat16 tf32 float32".split()
    assert measured[0]["ratios"] == {"eager": [1.0, 1.0]}
    # 1e9 operations in 2 ms, and so does one large product.
    assert "| 50,000 tokens/s, 0.500 TFLOP/s, 100% | floor |" in said.out
    assert gpu.main(["--rows", "baby", "--minutes", "1e-9"]) == 1
    assert capsys.readouterr().out.count("skipped: the time limit of 1e-09 minutes is over") == 3
    with pytest.raises(OptionError, match=r"--out .* cannot be written"):
        gpu.main(["--out", str(out / "table.md")])


def test_without_torch_this_project_is_measured_alone(processes, monkeypatch, capsys):
    monkeypatch.setattr(gpu, "find_spec", lambda name: None)
    assert gpu.main(["--rows", "baby", "--precisions", "float32", "--turns", "1", "--quick"]) == 0
    said = capsys.readouterr()
    assert "| float32 | 2.00 (2.00 to 2.00) ms |  |  |  |  |" in said.out
    assert "the numbers are meaningless" in said.out
    assert "torch is not installed" in said.err
    assert processes == ["ours"]
    monkeypatch.setitem(globals(), "SIDE", "")
    with pytest.raises(UserError, match="this project's side cannot be measured"):
        gpu.main([])


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


def test_the_share_is_that_of_the_faster_sides_product_in_the_same_precision():
    rates = [found(WORK["product"], ours=8.0, eager=4.0), found(WORK["product"], "float32", ours=40.0)]
    step = found(ROW["baby"], ours=10.0)
    assert cells(step, [*rates, step], FACTS)[7] == "100,000 tokens/s, 100 TFLOP/s, 20%"


def test_verdict():
    assert verdict(found(ROW["baby"], ours=10.0, eager=20.0, compiled=10.0)) == "aim"
    assert verdict(found(ROW["baby"], ours=10.0, eager=20.0, compiled=9.9)) == "floor"
    assert verdict(found(ROW["gpt2"], ours=10.0, eager=20.0, compiled=9.1)) == "aim"
    assert verdict(found(ROW["gpt2"], ours=10.0, eager=9.0, compiled=8.0)) == "**no**"
    assert verdict(found(ROW["rates"], ours=10.0, eager=10.0)) == ""


def test_the_width_from_which_the_gpu_is_faster():
    assert crossing({32: 2.0, 64: 0.5, 256: 2.0}) == "the GPU is faster from a width of about 128"  # for good, that is
    assert crossing({32: 1.5, 64: 3.0}) == "the GPU is faster at every width measured, from 32"
    assert crossing({32: 1.5, 64: 0.9}).endswith("at the largest, 64, the CPU is")
    rows = [row for row in ROWS if row.group == "widths"]
    findings = [found(row, ours=1.0, cpu=ratio) for row, ratio in zip(rows[:2], (0.5, 2.0), strict=True)]
    said = "CPU and GPU, tf32: the GPU is faster from a width of about 45; largest ratio 2.00, at a width of 64."
    assert conclusions(findings) == [said]


def test_a_table_of_kernels():
    kernels = [["a", 100.0], ["b" * 200, 600.0], ["a", 300.0]]
    page = kernel_table("one step", {"ms": 2.0, "asked_ms": 1.5, "source": "CUPTI", "kernels": kernels}, limit=1)
    assert "takes 2.00 ms, of which Python needs 1.50 ms" in page
    assert "3 kernels and copies, measured with CUPTI, take 1.00 ms" in page
    assert f"| `{'b' * 87}...` | 1 | 600.0 | 60.0% |\n| 1 others | 2 | 400.0 | 40.0% |" in page
