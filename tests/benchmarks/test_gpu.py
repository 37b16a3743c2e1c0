"""`python -m benchmarks.gpu`: the sides, the processes, what is measured, and the results. No test asserts times."""

import json
import math
import sys
from contextlib import nullcontext

import pytest

from benchmarks import gpu, gpu_rows
from benchmarks.children import start
from benchmarks.gpu_ours import Ours
from benchmarks.gpu_rows import ROWS, Finding, GpuRow, Handle, SideFailed, chosen, differs, measure, variants_of
from benchmarks.gpu_side import Side, reply_of
from benchmarks.gpu_table import cells, product_rate, ratios, render, values, verdict
from benchmarks.kernels import kernel_table
from benchmarks.shapes import GPU_SHAPES, QUICK_SHAPES, SPECIALS
from benchmarks.steps import time_group, warm_up
from tinygrad_lite.cli.errors import OptionError, UserError

ROW = {row.group: row for row in reversed(ROWS)}  # of each group the first
FACTS = {"amounts": {"product": 2e12, "copy": 1e9, "write": 100}, "shapes": {"baby": {"tokens": 1000, "flop": 1e12}}}


# --- shapes and time ------------------------------------------------------------------------------------------


def test_the_models_are_those_that_the_rows_name():
    parameters = {name: shape.blueprint.num_parameters() for name, shape in GPU_SHAPES.items()}
    assert parameters["gpt2"] == 124_439_808
    assert parameters["baby"] == parameters["baby-dropout"] == 10_745_088
    assert round(parameters["translation"] / 1e6, 1) == 63.1
    tokens = {name: shape.target_tokens for name, shape in GPU_SHAPES.items()}
    assert tokens == {"baby": 16_384, "baby-dropout": 16_384, "gpt2": 12_288, "translation": 12_288}
    assert {row.shape for row in ROWS} - {""} == GPU_SHAPES.keys() == QUICK_SHAPES.keys()


@pytest.mark.parametrize("name", QUICK_SHAPES)
def test_tiny_batches_fit_the_model(name):
    shape = QUICK_SHAPES[name]
    first, second = shape.batches()[0]
    assert max(first.max(), second.max()) < shape.config.vocab_size
    assert first.size == shape.target_tokens
    if shape.translates:
        assert first.shape == (3, 8)
        assert second.shape == (3, 9)
        assert ((second == SPECIALS["<eos>"]).sum(axis=1) == 1).all()


def test_a_group_is_timed_when_the_device_has_caught_up():
    done = []
    ms, asked, result = time_group(lambda n: done.append(n) or n, lambda: done.append("waited"), repeats=3, begin=5)
    assert done == ["waited", 5, 6, 7, "waited"]
    assert result == 7
    assert 0 < asked <= ms


def test_warming_up_gives_the_size_of_a_group():
    assert warm_up(lambda n: None, lambda: None, seconds=10.0, max_repeats=50)[1] == 50
    assert warm_up(lambda n: None, lambda: None, seconds=1e-12)[1] == 1


# --- our side, emulated ---------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("row", [row for row in ROWS if row.shape != "baby-dropout"], ids=lambda row: row.what[:40])
def test_our_side_does_every_task(row, cuda):
    ask = reply_of(Ours(quick=True))
    checked = ask({"do": "prepare", "work": row.work, "shape": row.shape})
    assert "failed" not in checked, checked
    if row.work == "train":
        before, *after = checked["losses"]
        assert before == pytest.approx(math.log(70), abs=0.3)
        assert all(loss < before for loss in after)
    elif row.work == "write":
        assert checked["log_probs"] == pytest.approx([-math.log(70)] * 6, abs=0.5)
    begun = ask({"do": "begin", "work": row.work, "precision": "float32", "variant": "ours", "seconds": 0.001})
    assert 1 <= begun["repeats"] <= 2
    turn = ask({"do": "turn", "variant": "ours", "repeats": 1, "begin": 0})
    assert 0 < turn["asked_ms"] <= turn["ms"]
    assert (turn["loss"] is not None) == (row.work == "train")


def test_our_side_says_what_it_is(cuda):
    ask = reply_of(Ours(quick=True))
    facts = ask({"do": "facts"})
    assert "driver for CUDA" in facts["about"]
    assert facts["amounts"]["product"] == 2 * 64**3
    assert facts["shapes"].keys() == QUICK_SHAPES.keys()
    assert json.loads(json.dumps(facts)) == facts


@pytest.mark.slow
def test_kernels_are_seen_by_events_where_cupti_is_unavailable(cuda, monkeypatch, capsys):
    def unknown(step):
        raise RuntimeError("no CUPTI")

    monkeypatch.setattr("benchmarks.gpu_ours.seen_by_cupti", unknown)
    ask = reply_of(Ours(quick=True))
    ask({"do": "prepare", "work": "train", "shape": "baby"})
    answer = ask({"do": "kernels", "precision": "float32"})
    assert answer["source"] == "events"
    names = [name for name, us in answer["kernels"] if us > 0]
    assert "layer_norm_forward" in names
    assert "product (16, 32) @ (32, 128)" in names
    assert "no CUPTI" in capsys.readouterr().err
    again = ask({"do": "turn", "variant": "ours", "repeats": 1, "begin": 0})
    assert "KeyError" in again["failed"]  # it was not begun


def test_a_table_of_kernels():
    answer = {
        "ms": 2.0,
        "asked_ms": 1.5,
        "source": "CUPTI",
        "kernels": [["a", 100.0], ["b" * 200, 600.0], ["a", 300.0]],
    }
    page = kernel_table("one step", answer, limit=1)
    assert "takes 2.00 ms, of which Python needs 1.50 ms" in page
    assert "3 kernels and copies, measured with CUPTI, take 1.00 ms" in page
    assert f"| `{'b' * 87}...` | 1 | 600.0 | 60.0% |" in page
    assert "| 1 others | 2 | 400.0 | 40.0% |" in page
    assert "0 kernels" in kernel_table("nothing", answer | {"kernels": []})


def test_the_time_that_python_needs_for_a_step_is_measured_with_an_empty_queue():
    """With many steps in the queue Python waits for the GPU, so its time would be the GPU's."""
    queued, lengths = [], []
    side = MadeUp(lambda number: (queued.append(number), lengths.append(len(queued))), queued.clear)
    side.max_repeats, side.kernels_of = 10, lambda step: ([("a", 1.0)], "made up")
    answer = reply_of(side)({"do": "kernels", "precision": "float32"})
    assert lengths[-5:] == [1] * 5
    assert lengths[-15:-5] == list(range(1, 11))
    assert answer["asked_ms"] > 0


# --- answering ------------------------------------------------------------------------------------------------


class MadeUp(Side):
    """A side whose task is given by the test."""

    def __init__(self, step, synchronize=lambda: None):
        super().__init__(quick=True)
        self.step, self.synchronize = step, synchronize

    def facts(self):
        print("a library speaks")
        return {"about": "made up"}

    def work(self, work, precision, variant):
        return self.step

    def in_precision(self, name):
        return nullcontext()


def begin(ask):
    return ask({"do": "begin", "work": "train", "precision": "float32", "variant": "ours", "seconds": 0.01})


def test_output_of_a_library_is_not_a_reply(capsys):
    assert reply_of(MadeUp(None))({"do": "facts"}) == {"about": "made up"}
    said = capsys.readouterr()
    assert said.out == ""
    assert "a library speaks" in said.err


def test_a_failure_is_sent_as_a_reply():
    answer = begin(reply_of(MadeUp(lambda number: 1 // 0)))
    assert answer["failed"].startswith("ZeroDivisionError: ")
    assert "1 // 0" in answer["traceback"]
    assert "broken" not in answer


def test_a_gpu_that_no_longer_responds_is_reported_as_broken():
    def synchronize():
        if steps:
            raise RuntimeError("an illegal memory access was encountered")

    steps = []
    answer = begin(reply_of(MadeUp(steps.append, synchronize)))
    assert answer["broken"]
    assert "illegal memory access" in answer["failed"]


def test_a_loss_that_is_not_finite_is_a_failure():
    ask = reply_of(MadeUp(lambda number: math.nan))
    begin(ask)
    answer = ask({"do": "turn", "variant": "ours", "repeats": 2, "begin": 0})
    assert answer["failed"] == "ArithmeticError: the loss became nan, so the times are meaningless"


def test_only_questions_are_answered():
    with pytest.raises(ValueError, match="nothing called release"):
        reply_of(MadeUp(None))({"do": "release"})


# --- measuring ------------------------------------------------------------------------------------------------


class Answers:
    """Replaces a handle: replies from a dictionary, some of them failures."""

    def __init__(self, name, log, check=None, failing=()):
        self.name, self.log, self.check, self.failing = name, log, check or {"losses": [4.0, 3.9]}, failing

    def prepare(self, row):
        if "prepare" in self.failing:
            raise SideFailed("cannot be prepared")

    def ask(self, do, variant, **more):
        self.log.append((do, variant))
        if (do, variant) in self.failing:
            raise SideFailed(f"{variant} cannot {do}")
        ms = {"ours": 2.0, "eager": 4.0}.get(variant, 3.0)
        return {"repeats": 3} if do == "begin" else {"ms": ms, "asked_ms": 1.0, "loss": 4.0}


def sides(ours=(), theirs=(), **check):
    log = []
    return {"ours": Answers("ours", log, failing=ours), "torch": Answers("torch", log, failing=theirs, **check)}


def test_a_row_is_measured_in_turns():
    both = sides()
    finding = measure(ROW["baby"], "bfloat16", both, ["bfloat16"], turns=2, seconds=0.1)
    assert not finding.failed
    assert ratios(finding, "eager") == [2.0, 2.0]
    assert ratios(finding, "compiled") == [1.5, 1.5]
    turns = [variant for do, variant in both["ours"].log if do == "turn"]
    assert turns == ["ours", "eager", "compiled", "compiled", "eager", "ours"]
    assert both["ours"].log[0] == ("begin", "compiled")  # what may end its process comes first


def test_a_failed_compilation_does_not_stop_the_others():
    finding = measure(ROW["baby"], "tf32", sides(theirs=[("begin", "compiled")]), ["tf32"], 2, 0.1)
    assert finding.failed == {"compiled": "compiled cannot begin"}
    assert sorted(finding.turns) == ["eager", "ours"]
    line = cells(finding, [finding], FACTS)
    assert line[5] == "torch.compile: failed: compiled cannot begin"
    assert line[4] == "**2.00 (2.00 to 2.00)**"


def test_if_ours_fails_torch_is_still_measured():
    finding = measure(ROW["baby"], "tf32", sides(ours=["prepare"]), [], 1, 0.1)
    assert finding.failed == {"ours": "cannot be prepared"}
    assert sorted(finding.turns) == ["eager"]
    assert cells(finding, [finding], FACTS)[2:6] == ["failed: cannot be prepared", "4.00 (4.00 to 4.00) ms", "", ""]
    assert verdict(finding) == ""


def test_a_failure_in_a_turn_is_reported_beside_the_numbers():
    finding = measure(ROW["baby"], "tf32", sides(ours=[("turn", "ours")]), [], 3, 0.1)
    assert len(finding.turns["eager"]) == 3
    assert "ours" not in finding.turns
    finding.turns["ours"] = [{"ms": 2.0}]
    assert cells(finding, [finding], FACTS)[2].endswith(" ms in 1 turns, then failed: ours cannot turn")


def test_sides_that_do_not_compute_the_same_are_refused():
    finding = measure(ROW["baby"], "bfloat16", sides(check={"losses": [4.001, 3.9]}), [], 2, 0.1)
    assert finding.failed["row"].startswith("not measured: the sides have different losses in float32: [4.0, 3.9] and ")
    assert not finding.turns
    assert "failed: not measured" in cells(finding, [finding], FACTS)[2]


@pytest.mark.parametrize(
    ("ours", "theirs", "differ"),
    [
        ({"losses": [4.0, 3.9]}, {"losses": [4.0003, 3.903]}, False),
        ({"losses": [4.0, 3.9]}, {"losses": [4.0, 3.91]}, True),
        ({"losses": [4.0]}, {"losses": [float("nan")]}, True),
        ({"log_probs": [-4.0, -3.0]}, {"log_probs": [-4.0002, -3.0002]}, False),  # as rounding may do
        ({"log_probs": [-4.0, -3.0]}, {"log_probs": [-4.0, -3.01]}, True),
        ({"log_probs": [-4.0]}, {"log_probs": [float("nan")]}, True),
        ({}, {}, False),
    ],
)
def test_what_counts_as_the_same(ours, theirs, differ):
    assert bool(differs({"ours": ours, "torch": theirs})) == differ
    assert not differs({"ours": ours})


def test_torch_is_compiled_only_on_request():
    assert variants_of(ROW["gpt2"], "tf32", ["bfloat16"]) == [("eager", "torch"), ("ours", "ours")]
    assert variants_of(ROW["gpt2"], "tf32", ["tf32"])[0] == ("compiled", "torch")
    assert variants_of(ROW["write"], "tf32", [])[0] == ("hugging-face", "torch")


# --- the processes --------------------------------------------------------------------------------------------

SIDE = """
import json, sys, time
for line in sys.stdin:
    question = json.loads(line)
    if question["do"] == "prepare" and question["shape"] == "gpt2":
        time.sleep(600)
    answer = {
        "facts": {"about": "made up", "amounts": {"product": 1e9, "copy": 1e9, "write": 7},
                  "shapes": {"baby": {"tokens": 100, "flop": 1e9}}},
        "prepare": {"losses": [4.0]},
        "begin": {"repeats": 1},
        "turn": {"ms": 2.0, "asked_ms": 1.0, "loss": 4.0},
        "kernels": {"ms": 2.0, "asked_ms": 1.0, "source": "CUPTI", "kernels": [["a_kernel", 100.0]]},
    }[question["do"]]
    if question.get("precision") == "tf32":
        answer = {"failed": "no tf32", "traceback": "Traceback: no tf32", "broken": True}
    print(json.dumps(answer), flush=True)
"""


@pytest.fixture
def processes(monkeypatch):
    """Synthetic sides; a list of those that were started."""
    started = []

    def start_side(name, device, quick):
        started.append((name, device, quick))
        return start([sys.executable, "-c", SIDE], {})

    monkeypatch.setattr(gpu_rows, "start_side", start_side)
    monkeypatch.setattr(gpu, "get_device", lambda name: None)
    monkeypatch.setattr(gpu, "find_spec", lambda name: name)
    return started


def handle(patience: float = 30.0) -> Handle:
    return Handle("ours", "cuda", False, math.inf, patience)


def test_a_side_that_does_not_reply_is_ended_and_started_again(processes):
    side = handle(patience=1.0)
    for _ in range(2):  # the second time it is not tried
        with pytest.raises(SideFailed, match="no answer within 1 s"):
            side.prepare(ROW["gpt2"])
    assert side.process is None
    side.patience = 30.0
    side.prepare(ROW["baby"])
    assert side.check == {"losses": [4.0]}
    side.close()
    assert len(processes) == 2


def test_a_side_that_is_broken_is_started_again(processes, capsys):
    side = handle()
    side.prepare(ROW["baby"])
    with pytest.raises(SideFailed, match="no tf32"):
        side.ask(do="begin", precision="tf32")
    assert "Traceback: no tf32" in capsys.readouterr().err
    assert (side.process, side.prepared) == (None, None)
    side.prepare(ROW["baby"])
    side.close()
    assert len(processes) == 2


def test_a_side_that_ends_by_itself_is_a_failure(monkeypatch):
    monkeypatch.setattr(gpu_rows, "start_side", lambda *_: start([sys.executable, "-c", "print('no JSON')"], {}))
    with pytest.raises(SideFailed, match="the process ended"):
        handle().ask(do="facts")


def test_the_command_records_all_results(processes, tmp_path, capsys):
    out = tmp_path / "results"
    argv = ["--rows", "baby,rates", "--turns", "2", "--compiled", "none", "--profile", "--out", str(out)]
    assert gpu.main(argv) == 0
    said = capsys.readouterr()
    assert said.out.endswith((out / "table.md").read_text(encoding="utf-8"))
    assert "| `a_kernel` | 1 | 100.0 | 100.0% |" in (out / "kernels.md").read_text(encoding="utf-8")
    assert said.out.count("failed: no tf32") == 4  # two rows, two sides
    lines = [json.loads(line) for line in (out / "results.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["side"] for line in lines[:2]] == ["ours", "torch"]
    measured = [line for line in lines if "turns" in line]
    precisions = "bfloat16 tf32 float32 float32 bfloat16 tf32 float32".split()
    assert [line["precision"] for line in measured] == precisions
    assert measured[0]["ratios"] == {"eager": [1.0, 1.0]}
    assert measured[1]["failed"] == {"eager": "no tf32", "ours": "no tf32"}
    # 1e9 operations in 2 ms, and so does one large product.
    assert "| 50,000 tokens/s, 0.500 TFLOP/s, 100% | floor |" in said.out
    assert [name for name, _, _ in processes[:2]] == ["ours", "torch"]


def test_rows_after_the_time_limit_are_skipped(processes, capsys):
    assert gpu.main(["--rows", "baby", "--minutes", "1e-9"]) == 1
    said = capsys.readouterr().out
    assert said.count("skipped: the time limit of 1e-09 minutes is over") >= 3


def test_without_torch_this_project_is_measured_alone(processes, monkeypatch, capsys):
    monkeypatch.setattr(gpu, "find_spec", lambda name: None)
    assert gpu.main(["--rows", "baby", "--precisions", "float32", "--turns", "1", "--quick"]) == 0
    said = capsys.readouterr()
    assert "| float32 | 2.00 (2.00 to 2.00) ms |  |  |  |  |" in said.out
    assert "the numbers are meaningless" in said.out
    assert "torch is not installed" in said.err
    assert processes == [("ours", "cuda", True)]


def test_our_side_must_start(monkeypatch, processes):
    monkeypatch.setattr(gpu_rows, "start_side", lambda *_: start([sys.executable, "-c", ""], {}))
    with pytest.raises(UserError, match="this project's side cannot be measured"):
        gpu.main([])


@pytest.mark.parametrize(
    "argv", [["--rows", "large"], ["--precisions", "fp8"], ["--compiled", "all"], ["--turns", "0"]]
)
def test_wrong_options_are_refused(argv):
    with pytest.raises(OptionError, match=argv[0]):
        gpu.main(argv)


def test_a_folder_that_cannot_be_written_is_refused_at_once(processes, tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(OptionError, match=r"--out .* cannot be written"):
        gpu.main(["--out", str(tmp_path / "file")])
    assert processes == []


def test_names_are_chosen_in_their_own_order():
    assert chosen("gpt2, baby", ("baby", "gpt2"), "rows") == ["baby", "gpt2"]
    assert chosen("", ("a", "b"), "rows") == ["a", "b"]


# --- numbers --------------------------------------------------------------------------------------------------


def found(row: GpuRow, precision: str = "tf32", **ms: float) -> Finding:
    turns = {variant: [{"ms": value, "asked_ms": value / 4, "loss": None}] for variant, value in ms.items()}
    return Finding(row, precision, turns)


def test_numbers_in_their_units():
    product, copy, launch = (next(row for row in ROWS if row.work == work) for work in ("product", "copy", "launch"))
    assert values(found(ROW["baby"], ours=2.0), "ours", FACTS) == [2.0]
    assert values(found(product, ours=2.0), "ours", FACTS) == pytest.approx([1000.0])  # TFLOP/s
    assert values(found(copy, ours=2.0), "ours", FACTS) == pytest.approx([0.5])  # TB/s
    assert values(found(ROW["write"], ours=50.0), "ours", FACTS) == [2000.0]  # tokens/s
    assert values(found(launch, ours=0.02), "ours", FACTS) == [5.0]  # µs of Python's
    assert ratios(found(launch, ours=0.02, eager=0.04), "eager") == [2.0]


def test_the_rate_of_a_product_is_that_of_the_faster_side_in_the_same_precision():
    product = next(row for row in ROWS if row.work == "product")
    rates = [found(product, "tf32", ours=8.0, eager=4.0), found(product, "float32", ours=40.0)]
    assert product_rate(rates, "tf32", FACTS) == pytest.approx(500)
    assert product_rate(rates, "float32", FACTS) == pytest.approx(50)
    assert product_rate(rates, "bfloat16", FACTS) == 0
    step = found(ROW["baby"], "tf32", ours=10.0)
    assert cells(step, [*rates, step], FACTS)[7] == "100,000 tokens/s, 100 TFLOP/s, 20%"


@pytest.mark.parametrize(
    ("group", "ms", "expected"),
    [
        ("baby", {"ours": 10.0, "eager": 20.0, "compiled": 10.0}, "aim"),
        ("baby", {"ours": 10.0, "eager": 20.0, "compiled": 9.9}, "floor"),
        ("gpt2", {"ours": 10.0, "eager": 20.0, "compiled": 9.1}, "aim"),
        ("gpt2", {"ours": 10.0, "eager": 9.0, "compiled": 8.0}, "**no**"),
        ("translation", {"ours": 10.0, "eager": 10.0}, "floor"),
        ("translation", {"ours": 10.0}, ""),
        ("rates", {"ours": 10.0, "eager": 10.0}, ""),
    ],
)
def test_verdict(group, ms, expected):
    assert verdict(found(ROW[group], **ms)) == expected


def test_every_line_has_all_columns():
    findings = [found(row, **({} if row.group == "host" else {"ours": 1.0})) for row in ROWS]
    facts = FACTS | {"shapes": dict.fromkeys(GPU_SHAPES, FACTS["shapes"]["baby"])}
    findings[0].failed["eager"] = "a | in a\nmessage"
    page = render(findings, ["one", "two"], facts)
    lines = [line for line in page.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in lines} == {10}
    assert "failed: a / in a message" in page
