"""`python -m benchmarks.visit`: the parts, their time limits, the page. Only what needs no GPU, or an emulated one."""

import csv
import sys
from pathlib import Path

import pytest

import train
from benchmarks import gpu, visit
from benchmarks.visit import RUNS, Part, main
from tests.emulator.cupy_on_cpu import KERNEL
from tests.tiny_runs import ROOT, arguments, made_up_text, run_training
from tests.tinygrad_lite.cuda.every_kernel import call_every_kernel
from tests.tinygrad_lite.cuda.launches import counting
from tinygrad_lite.cuda import launch
from tinygrad_lite.errors import OptionError, UserError
from workshop.cli.command_line import parse_command_line
from workshop.cli.options import build

EVERY_PART = {f"{number}-{part.name}": part for number, run in RUNS.items() for part in run(Path("out"), "")}


def gpu_options(part: Part) -> gpu.GpuOptions:
    parsed = parse_command_line(gpu.GpuOptions, part.command[2:], prog="", description="")
    return build(gpu.GpuOptions, ("", parsed.values))


def test_a_part_that_fails_or_hangs_does_not_stop_the_others(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(visit, "GRACE", 1)
    programs = {
        "works": "print('an answer')",
        "fails": "raise RuntimeError('an illegal memory access')",
        "hangs": "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(600)",
        "stops": "import time\ntry: time.sleep(600)\nexcept KeyboardInterrupt: print('so far: 7')",
        "reads": f"print(open({str(tmp_path / 'run-1.md')!r}).read().count('an answer'))",
    }
    parts = [Part(name, ("-c", text), 1.0 if name in ("hangs", "stops") else 60.0) for name, text in programs.items()]
    parts += [Part("tool", (), 60, tool="no-such-tool"), Part("file", (), 60, needs="no/such/file")]
    monkeypatch.setitem(RUNS, "1", lambda out, text: parts)
    assert main(["1", "--out", str(tmp_path)]) == 1
    page, said = (tmp_path / "run-1.md").read_text(encoding="utf-8"), capsys.readouterr().out
    outcomes = dict(line[2:].split(" | ")[:2] for line in page.split("\n## ")[0].splitlines()[4:])
    skipped = {"tool": "skipped: there is no no-such-tool", "file": "skipped: there is no no/such/file"}
    stopped = dict.fromkeys(("hangs", "stops"), "stopped after 1 s")
    assert outcomes == {"works": "ok", "fails": "failed (status 1)", **stopped, "reads": "ok", **skipped}
    assert "## reads\n\n```\n1\n```" in page  # what came before had been written
    assert "so far: 7" in page
    assert "| hangs | stopped after 1 s |" in said.split("\n\n")[-1]  # at the end all outcomes together
    assert main(["1", "--out", str(tmp_path), "--only", "works"]) == 0
    assert main(["1", "--out", str(tmp_path), "--only", "works", "--minutes", "0.01"]) == 0
    assert "skipped: no time was left" in (tmp_path / "run-1.md").read_text(encoding="utf-8")
    with pytest.raises(OptionError, match="run 5: must be 1, 2, 3 or 4"):
        main(["5", "--out", str(tmp_path)])


@pytest.mark.parametrize("name", EVERY_PART)
def test_every_command_is_one_that_its_program_accepts(name):
    part = EVERY_PART[name]
    words = list(part.command)
    if part.tool:
        words = words[words.index(sys.executable) + 1 :]
    module = words[1] if words[0] == "-m" else words[0].removesuffix(".py")
    if module == "benchmarks.gpu":
        options = gpu_options(part)
        assert gpu.chosen(options.rows, gpu.GROUPS, "rows")
        assert gpu.chosen(options.precisions, gpu.ALL, "precisions")
    elif module == "benchmarks.visit":
        assert words[2] in visit.CHECKS
    elif module == "pytest":
        assert all((ROOT / word).exists() for word in words if word.startswith("tests/"))
    else:
        assert (ROOT / f"{module.replace('.', '/')}.py").exists()
    assert part.seconds <= 9 * 60


def test_all_rows_are_measured_in_all_precisions():
    parts = [part for part in EVERY_PART.values() if "benchmarks.gpu" in part.command and "--quick" not in part.command]
    measured = set()
    for options in map(gpu_options, parts):
        rows, precisions = gpu.chosen(options.rows, gpu.GROUPS, ""), gpu.chosen(options.precisions, gpu.ALL, "")
        measured |= {(row, precision) for row in rows for precision in precisions}
    assert {(row.group, precision) for row in gpu.ROWS for precision in row.precisions} <= measured


def test_every_kernel_is_called():
    kernels = {name for path in launch.SOURCES.glob("*.cu") for name, _ in KERNEL.findall(launch.source(path.stem))}
    with counting() as launches:
        call_every_kernel("cuda")
    assert set(launches.own) == kernels


def test_the_checks_that_need_a_gpu(cuda, capsys, monkeypatch):
    monkeypatch.setattr(sys.modules["cupy"], "show_config", lambda: print("CUDA Root"), raising=False)
    main(["versions"])
    assert capsys.readouterr().out.rstrip().endswith("bfloat16 is supported")
    main(["attention", "1", "2", "40", "32"])
    assert "attention of (1, 2, 40, 32)" in capsys.readouterr().out


@pytest.mark.usefixtures("workplace")
@pytest.mark.slow
def test_two_runs_of_the_same_command_are_compared(capfd, monkeypatch):
    settings = arguments(text=Path("text.txt").absolute(), out_dir=None, max_iters=3)
    visit.same_bytes(*settings)
    assert "the two runs gave the same bytes" in capfd.readouterr().out
    seeds, plain = iter("12"), visit.subprocess.run
    changed = lambda command, **more: plain([*command, "--seed", next(seeds)], **more)  # noqa: E731
    monkeypatch.setattr(visit.subprocess, "run", changed)
    with pytest.raises(UserError, match="different bytes"):
        visit.same_bytes(*settings)


@pytest.mark.usefixtures("workplace")
def test_the_best_loss_of_a_run_is_printed_and_its_tables_copied(capsys):
    run = run_training(sample_tokens=5)
    main(["loss", str(run.path), "copied"])
    with open("copied-metrics.csv", encoding="utf-8", newline="") as file:
        losses = [float(row["val_loss"]) for row in csv.DictReader(file) if row["val_loss"]]
    assert f"best loss {min(losses):.4f} at step" in capsys.readouterr().out
    assert Path("copied-samples.txt").read_bytes() == run.samples.read_bytes()


@pytest.mark.usefixtures("workplace")
def test_the_commands_of_training_are_accepted(capsys):
    """On a CPU, as a dry run."""
    Path("my.txt").write_text(made_up_text(3000), encoding="utf-8")
    for part in (RUNS["4"](Path("out"), "my.txt")[0], Part("", ("", *visit.SAME), 1)):
        words = [word for word in part.command[1:] if word not in ("--device", "cuda", "--dtype", "bfloat16")]
        words = ["my.txt" if word == "README.md" else word for word in words]
        assert train.main([*words, "--dry_run", "--flops_per_second", "1e12"]) == 0
    assert capsys.readouterr().err.count("for the matrix products at 1 TFLOP/s") == 2
