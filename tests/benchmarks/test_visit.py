"""`python -m benchmarks.visit`: the parts, their time limits, the page. Only what needs no GPU, or an emulated one."""

import sys
from pathlib import Path

from benchmarks import gpu, visit
from benchmarks.visit import RUNS, Part
from tests.emulator.cupy_on_cpu import KERNEL
from tests.tiny_runs import ROOT
from tests.tinygrad_lite.cuda.every_kernel import call_every_kernel
from tests.tinygrad_lite.cuda.launches import counting
from tinygrad_lite.cuda import launch
from training.cli.command_line import parse_command_line
from training.cli.options import build


def test_a_part_that_fails_or_hangs_does_not_stop_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(visit, "GRACE", 0.1)
    programs = {
        "fails": "raise RuntimeError('an illegal memory access')",
        "hangs": "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(600)",
        "works": f"print(open({str(tmp_path / 'run-1.md')!r}).read().count('illegal') > 0)",
    }
    parts = [Part(name, ("-c", text), 1.0 if name == "hangs" else 60.0) for name, text in programs.items()]
    parts += [Part("tool", (), 60, tool="no-such-tool"), Part("file", (), 60, needs="no/such/file")]
    monkeypatch.setitem(RUNS, "1", lambda out, text: parts)
    assert visit.main(["1", "--out", str(tmp_path)]) == 1
    page = (tmp_path / "run-1.md").read_text(encoding="utf-8")
    outcomes = dict(line[2:].split(" | ")[:2] for line in page.split("\n## ")[0].splitlines()[4:])
    skipped = {"tool": "skipped: there is no no-such-tool", "file": "skipped: there is no no/such/file"}
    assert outcomes == {"fails": "failed (status 1)", "hangs": "stopped after 1 s", "works": "ok", **skipped}
    assert "## works\n\n```\nTrue\n```" in page  # what came before had been written
    assert visit.main(["1", "--out", str(tmp_path), "--only", "works", "--minutes", "0.001"]) == 0
    assert "skipped: no time was left" in (tmp_path / "run-1.md").read_text(encoding="utf-8")


def test_every_command_is_one_that_its_program_accepts_and_all_rows_are_measured():
    measured = set()
    for part in (part for run in RUNS.values() for part in run(Path("out"), "")):
        words = list(part.command)
        if part.tool:
            words = words[words.index(sys.executable) + 1 :]
        module = words[1] if words[0] == "-m" else words[0].removesuffix(".py")
        if module == "benchmarks.gpu":
            values, _ = parse_command_line(gpu.GpuOptions, words[2:], prog="", description="")
            options = build(gpu.GpuOptions, ("", values))
            rows, precisions = gpu.chosen(options.rows, gpu.GROUPS, ""), gpu.chosen(options.precisions, gpu.ALL, "")
            measured |= {(row, precision) for row in rows for precision in precisions if not options.quick}
        elif module == "benchmarks.visit":
            assert words[2] in visit.CHECKS
        elif module == "pytest":
            assert all((ROOT / word).exists() for word in words if word.startswith("tests/"))
        else:
            assert (ROOT / f"{module.replace('.', '/')}.py").exists()
    assert {(row.group, precision) for row in gpu.ROWS for precision in row.precisions} <= measured


def test_every_kernel_is_called():
    kernels = {name for path in launch.SOURCES.glob("*.cu") for name, _ in KERNEL.findall(launch.source(path.stem))}
    with counting() as launches:
        call_every_kernel("cuda")
    assert set(launches.own) == kernels


def test_the_checks_that_need_a_gpu(cuda, capsys, monkeypatch):
    monkeypatch.setattr(sys.modules["cupy"], "show_config", lambda: print("CUDA Root"), raising=False)
    visit.main(["versions"])
    assert capsys.readouterr().out.rstrip().endswith("bfloat16 is supported")
    visit.main(["attention", "1", "2", "40", "32"])
    assert "attention of (1, 2, 40, 32)" in capsys.readouterr().out
