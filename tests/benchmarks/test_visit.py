"""`python -m benchmarks.visit`: the parts, their time limits, the page. Only what needs no GPU, or an emulated one."""

import csv
import sys
import time
from pathlib import Path

import pytest

import train
from benchmarks import gpu, visit, visit_checks
from benchmarks.device import DeviceOptions
from benchmarks.gpu_rows import ALL, chosen
from benchmarks.visit import RUNS, Part, carry_out, find_tool, main
from tests.emulator.cupy_on_cpu import KERNEL
from tests.tiny_runs import ROOT, arguments, made_up_text, run_training
from tests.tinygrad_lite.cuda.every_kernel import call_every_kernel
from tests.tinygrad_lite.cuda.launches import counting
from tinygrad_lite.cli.command_line import parse_command_line
from tinygrad_lite.cli.errors import OptionError, UserError
from tinygrad_lite.cli.options import build
from tinygrad_lite.cuda import launch

EVERY_PART = [
    pytest.param(part, id=f"{number}-{part.name}") for number, run in RUNS.items() for part in run(Path("out"), "")
]


def python(name: str, program: str, seconds: float = 60.0, **more: str) -> Part:
    return Part(name, ("-c", program), seconds, **more)


def answers(parts: list[Part], folder: Path, seconds: float = 100.0) -> list[visit.Answer]:
    return carry_out(parts, folder, "run-9", time.monotonic() + visit.GRACE + seconds)


# --- carrying out ---------------------------------------------------------------------------------------------


def test_a_part_that_fails_or_hangs_does_not_stop_the_others(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(visit, "GRACE", 1)
    deaf = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print('deaf', flush=True)"
    parts = [
        python("works", "print('an answer')"),
        python("fails", "print('before'); raise RuntimeError('an illegal memory access')"),
        python("hangs", f"{deaf}; time.sleep(600)", 1.0),
        python("stops", "import time\ntry: time.sleep(600)\nexcept KeyboardInterrupt: print('so far: 7')", 1.0),
        python("ends", "print('another answer')"),
    ]
    found = answers(parts, tmp_path)
    outcomes = ["ok", "failed (status 1)", "stopped after 1 s", "stopped after 1 s", "ok"]
    assert [answer.outcome for answer in found] == outcomes
    assert [answer.lines[-1] for answer in found] == [
        *("an answer", "RuntimeError: an illegal memory access", "deaf", "so far: 7", "another answer")
    ]
    page = (tmp_path / "run-9.md").read_text(encoding="utf-8")
    assert "| fails | failed (status 1) | 0 |" in page
    assert page.count("RuntimeError: an illegal memory access") == 1
    assert "===== stops" in (tmp_path / "run-9.log").read_text(encoding="utf-8")
    said = capsys.readouterr().out
    assert "--- hangs: stopped after 1 s" in said
    assert "| hangs | stopped after 1 s |" in said.split("\n\n")[-1]  # at the end all outcomes together


@pytest.mark.slow
def test_the_children_of_a_part_end_with_it(tmp_path):
    left = tmp_path / "left"
    child = f"import time, pathlib; time.sleep(3); pathlib.Path({str(left)!r}).touch()"
    parts = [python("parent", f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {child!r}])")]
    assert answers(parts, tmp_path)[0].outcome == "ok"
    time.sleep(4)
    assert not left.exists()


def test_each_answer_is_written_before_the_next_part_begins(tmp_path):
    page = tmp_path / "run-9.md"
    parts = [python("one", "print('first answer')"), python("two", f"print(open({str(page)!r}).read())")]
    assert "first answer" in answers(parts, tmp_path)[1].lines


def test_nothing_begins_after_the_deadline(tmp_path):
    found = answers([python("late", "print(1)")], tmp_path, seconds=-1.0)
    assert [answer.outcome for answer in found] == ["skipped: no time was left"]


def test_what_a_part_lacks_is_said(tmp_path):
    parts = [python("tool", "", tool="no-such-tool"), python("file", "", needs="no/such/file")]
    outcomes = [answer.outcome for answer in answers(parts, tmp_path)]
    assert outcomes == ["skipped: there is no no-such-tool", "skipped: there is no no/such/file"]
    assert find_tool("sh") is not None


def test_a_tool_is_found_beside_the_path(tmp_path, monkeypatch):
    (tmp_path / "tools-1").mkdir()
    (tmp_path / "tools-1" / "a-tool").touch(mode=0o755)
    monkeypatch.setattr(visit, "TOOLS", (f"{tmp_path}/tools-*",))
    assert find_tool("a-tool") == str(tmp_path / "tools-1" / "a-tool")


def test_the_command_carries_out_a_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(RUNS, "1", lambda out, text: [python("one", f"print({str(out)!r})"), python("two", "1 / 0")])
    assert main(["1", "--out", str(tmp_path / "new"), "--only", "one"]) == 0
    assert "two" not in capsys.readouterr().out
    assert main(["1", "--out", str(tmp_path / "new")]) == 1
    assert str(tmp_path / "new") in (tmp_path / "new" / "run-1.md").read_text(encoding="utf-8")
    with pytest.raises(OptionError, match="run 5: must be 1, 2, 3 or 4"):
        main(["5", "--out", str(tmp_path)])


# --- the parts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", EVERY_PART)
def test_every_command_is_one_that_its_program_accepts(part, monkeypatch):
    words = list(part.command)
    if part.tool:
        words = words[words.index(sys.executable) + 1 :]
    if words[0] == "-m":
        _, module, *words = words
        if module == "benchmarks.gpu":
            options = build(
                gpu.GpuOptions, ("", parse_command_line(gpu.GpuOptions, words, prog="", description="").values)
            )
            assert chosen(options.rows, gpu.GROUPS, "rows")
            assert chosen(options.precisions, ALL, "precisions")
        elif module == "benchmarks.device":
            build(DeviceOptions, ("", parse_command_line(DeviceOptions, words, prog="", description="").values))
        elif module == "benchmarks.visit_checks":
            assert words[0] in ("versions", "same-bytes", "attention", "loss")
        elif module == "pytest":
            files = [word for word in words if word.startswith("tests/")]
            assert all((ROOT / file).exists() for file in files)
        else:
            assert (ROOT / f"{module.replace('.', '/')}.py").exists()
    else:
        assert (ROOT / words[0]).exists()
    assert part.seconds <= 9 * 60


def test_what_comes_back_is_at_most_eight_files():
    """So that a run is quickly taken away from the machine."""
    for run in RUNS.values():
        files = 2  # page and log
        for part in run(Path("out"), ""):
            files += 3 if "--profile" in part.command else 2 if "benchmarks.gpu" in part.command else 0
            files -= 2 if "--quick" in part.command else 0
            files += "benchmarks.device" in part.command
            files += 2 * ("loss" in part.command)
        assert files <= 8


def test_all_rows_are_measured_in_all_precisions():
    measured = set()
    for run in RUNS.values():
        for part in run(Path("out"), ""):
            if "benchmarks.gpu" in part.command and "--quick" not in part.command:
                given = dict(zip(part.command[2:], part.command[3:], strict=False))
                rows = given.get("--rows", ",".join(gpu.GROUPS)).split(",")
                measured |= {(row, precision) for row in rows for precision in given["--precisions"].split(",")}
    needed = {(row.group, precision) for row in gpu.ROWS for precision in row.precisions}
    assert needed <= measured


# --- the checks -----------------------------------------------------------------------------------------------


def test_every_kernel_is_called():
    kernels = {name for path in launch.SOURCES.glob("*.cu") for name, _ in KERNEL.findall(launch.source(path.stem))}
    with counting() as launches:
        call_every_kernel("cuda")
    assert set(launches.own) == kernels


def test_the_versions_are_printed(cuda, capsys, monkeypatch):
    monkeypatch.setattr(sys.modules["cupy"], "show_config", lambda: print("CUDA Root"), raising=False)
    visit_checks.main(["versions"])
    said = capsys.readouterr().out
    assert "numpy 2." in said
    assert "usable after" in said
    assert said.rstrip().endswith("bfloat16 is supported")


def test_attention_runs_for_a_profiler(cuda, capsys):
    visit_checks.main(["attention", "1", "2", "40", "32"])
    assert "attention of (1, 2, 40, 32)" in capsys.readouterr().out


@pytest.mark.usefixtures("workplace")
@pytest.mark.slow
def test_two_runs_of_the_same_command_are_compared(capfd, monkeypatch):
    text = Path("text.txt").absolute()
    settings = arguments(text=text, out_dir=None, max_iters=3)
    visit_checks.same_bytes(*settings)
    assert "the two runs gave the same bytes" in capfd.readouterr().out
    with pytest.raises(UserError, match="a run failed"):
        visit_checks.same_bytes("no-such-preset")
    seeds, plain = iter("12"), visit_checks.subprocess.run
    monkeypatch.setattr(
        visit_checks.subprocess, "run", lambda command, **more: plain([*command, "--seed", next(seeds)], **more)
    )
    with pytest.raises(UserError, match="different bytes"):
        visit_checks.same_bytes(*settings)


@pytest.mark.usefixtures("workplace")
def test_the_best_loss_of_a_run_is_printed_and_its_tables_copied(capsys):
    run = run_training(sample_tokens=5)
    visit_checks.main(["loss", str(run.path), "copied"])
    with open("copied-metrics.csv", encoding="utf-8", newline="") as file:
        losses = [float(row["val_loss"]) for row in csv.DictReader(file) if row["val_loss"]]
    assert f"best loss {min(losses):.4f} at step" in capsys.readouterr().out
    assert Path("copied-samples.txt").read_bytes() == run.samples.read_bytes()
    with pytest.raises(OptionError, match="must begin with one of versions, same-bytes"):
        visit_checks.main(["lost"])


@pytest.mark.usefixtures("workplace")
def test_the_commands_of_training_are_accepted(capsys):
    """On a CPU, as a dry run."""
    Path("my.txt").write_text(made_up_text(3000), encoding="utf-8")
    for part in (visit.RUNS["4"](Path("out"), "my.txt")[0], Part("", ("", *visit_checks.SAME), 1)):
        words = [word for word in part.command[1:] if word not in ("--device", "cuda", "--dtype", "bfloat16")]
        words = ["my.txt" if word == "README.md" else word for word in words]
        assert train.main([*words, "--dry_run", "--flops_per_second", "1e12"]) == 0
    assert capsys.readouterr().err.count("for the matrix products at 1 TFLOP/s") == 2
