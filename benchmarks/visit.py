"""Everything that only a GPU can answer, in four runs of at most ten minutes on a machine without network.

    python -m benchmarks.visit 1 --out results     right: tests, memory errors, races, the same bytes twice
    python -m benchmarks.visit 2 --out results     fast: training steps against PyTorch, the time of each kernel
    python -m benchmarks.visit 3 --out results     the other rows and precisions; CPU and GPU by width
    python -m benchmarks.visit 4 --out results     nanoGPT's baby GPT trained to the end, and a larger corpus

A run consists of parts. Each is a separate process with a time limit, so a part that fails or hangs does not stop the
others. After each part the page results/run-1.md is written again, and what a part prints goes at once to
results/run-1.log: nothing is lost when the machine is taken away. README.md in this folder says how to prepare.
Some parts are small programs of this file (CHECKS), such as `python -m benchmarks.visit versions`.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.machine import cpu_model, gpu_model, installed
from tinygrad_lite import functional as F
from tinygrad_lite.config import option
from tinygrad_lite.device import get_device
from tinygrad_lite.errors import OptionError, UserError
from tinygrad_lite.nn import Parameter
from tinygrad_lite.precision import precision
from tinygrad_lite.random import keyed_rng
from tinygrad_lite.tensor import Tensor
from training.cli.command_line import read_command
from training.cli.console import run_command
from training.folder import METRICS, RunFolder, available_cores

ROOT = Path(__file__).parent.parent
CORPORA = Path(os.environ.get("TINYGRAD_LITE_CACHE") or ROOT / ".corpora")  # the corpora that were brought along
GRACE = 15  # seconds in which an interrupted part may print what it has so far
SHOWN = 15  # last lines of a part, for the page and for stdout
TESTS = ("-m", "pytest", "-W", "default", "-q", "--tb=short", "-p", "no:cacheprovider")
PACKAGES = "numpy ml_dtypes safetensors threadpoolctl pytest pytest-xdist hypothesis torch transformers triton".split()
ATTENTION = (12, 12, 1024, 64)  # B, H, T, D of GPT-2's training step
SAME = ("baby-gpt", "--text", "README.md", "--max_iters", "60", "--eval_interval", "60", "--eval_iters", "4")
TOOLS = ("/opt/nvidia/nsight-compute/*", "/usr/local/cuda*/bin", "/usr/local/cuda*/compute-sanitizer")  # beside PATH


@dataclass(frozen=True)
class Part:
    """One question to the GPU.

    Attributes:
        name: for the page.
        command: the arguments of Python, or of a tool that runs it.
        seconds: time limit.
        tool: the program that runs Python, such as ncu; empty: none.
        needs: a file without which the part is skipped; empty: none.
    """

    name: str
    command: tuple[str, ...]
    seconds: float
    tool: str = ""
    needs: str = ""


@dataclass
class Answer:
    """What came out: "ok", "failed (status 1)", "stopped after 60 s" or "skipped: why"; and the last lines printed."""

    part: Part
    outcome: str
    seconds: float = 0.0
    lines: Sequence[str] = ()


@dataclass
class VisitOptions:
    """The options of `python -m benchmarks.visit`."""

    out: str = option(os.environ.get("OUT", "results"), "folder for the answers")
    minutes: float = option(9.0, "time limit of the run", unit="minutes", above=0.0)
    text: str = option("", "text for the baby GPT instead of the corpus goethe", unit="file")
    only: str = option("", "only the parts with these names, such as versions,tests")


def main(argv: list[str]) -> int:
    """Carry out one run, or one of the checks. Returns: 1 if a part failed or was stopped."""
    if argv and argv[0] in CHECKS:
        CHECKS[argv[0]](*argv[1:])
        return 0
    options, [number] = read_command(
        VisitOptions,
        argv,
        "python -m benchmarks.visit",
        __doc__.split("\n")[0],
        "RUN",
        "1",
        about_positional="1, 2, 3 or 4",
    )
    if number not in ("1", "2", "3", "4"):
        raise OptionError(f"run {number}: must be 1, 2, 3 or 4")
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    wanted = options.only.split(",") if options.only else []
    parts = [part for part in RUNS[number](out.absolute(), options.text) if not wanted or part.name in wanted]
    answers = carry_out(parts, out, f"run-{number}", time.monotonic() + 60 * options.minutes)
    return int(any(answer.outcome.startswith(("failed", "stopped")) for answer in answers))


# --- the four runs ---------------------------------------------------------------------------------------------


def right(out: Path, text: str) -> list[Part]:
    """Run 1: does it work, and does it compute what a CPU computes?"""
    checks, kernels = ("-m", "benchmarks.visit"), ("-m", "tests.tinygrad_lite.cuda.every_kernel")
    compare = ("-m", "gpu", "-n", "4", "tests/tinygrad_lite/cuda/test_same_as_cpu.py")
    sanitizer = ("--report-api-errors", "no", "--error-exitcode", "9", "--tool")  # CuPy asks for what may be missing
    return [
        Part("versions", (*checks, "versions"), 60),
        Part("every kernel", kernels, 60),
        Part("same as CPU", (*TESTS, *compare), 100),
        Part("same bytes", (*checks, "same-bytes"), 60),
        Part("quick", ("-m", "benchmarks.gpu", "--quick", "--compiled", "none", "--minutes", "1.5"), 100),
        Part("memory errors", (*sanitizer, "memcheck", sys.executable, *kernels), 150, "compute-sanitizer"),
        Part("races", (*sanitizer, "racecheck", sys.executable, *kernels), 150, "compute-sanitizer"),
        Part("tests", (*TESTS, "-m", "gpu and not network", "-n", "8", "--maxfail", "80"), 400),
    ]


def fast(out: Path, text: str) -> list[Part]:
    """Run 2: how long do training steps take in bfloat16, and why?"""
    sections = [part for name in ("SpeedOfLight", "Occupancy", "WarpStateStats") for part in ("--section", name)]
    look = ("--clock-control", "none", "--kernel-name", "regex:flash", "--launch-count", "8", *sections)
    return [
        gpu_table(out, "steps", ("--rows", "rates,host,baby,gpt2,padded", "--precisions", "bfloat16", "--profile"), 6),
        Part("attention", (*look, sys.executable, "-m", "benchmarks.visit", "attention"), 90, "ncu"),
        gpu_table(out, "host", ("--rows", "rates,host", "--precisions", "float32"), 1),
    ]


def others(out: Path, text: str) -> list[Part]:
    """Run 3: the other rows, the other precisions, and the width from which a GPU is faster."""
    few, few_widths = ("--turns", "2", "--seconds", "0.2", "--compiled", "none"), ("--turns", "3", "--seconds", "0.2")
    beside = "rates,host,baby,gpt2,padded,dropout,translation,write"
    return [
        gpu_table(out, "bfloat16", ("--rows", "dropout,translation,write", "--precisions", "bfloat16"), 4),
        gpu_table(out, "exact", ("--rows", beside, "--precisions", "tf32,float32", *few), 3),
        gpu_table(out, "widths", ("--rows", "widths", "--precisions", "float32,bfloat16,tf32", *few_widths), 2),
    ]


def trained(out: Path, text: str) -> list[Part]:
    """Run 4: nanoGPT's headline, then a larger text."""
    parts = []
    for name, preset, seconds in (("baby", "baby-gpt", 240), ("works", "goethe-works", 420)):
        folder = Path(tempfile.gettempdir()) / "visit" / name
        own, corpus = text and name == "baby", {"baby": "goethe", "works": "goethe-works"}[name]
        needs = text if own else str(CORPORA / f"{corpus}.txt")
        train = ("train.py", preset, "--device", "cuda", "--dtype", "bfloat16", "--overwrite", "--out_dir", str(folder))
        parts += [
            Part(f"{name}: training", (*train, *(("--text", text) if own else ())), seconds, needs=needs),
            Part(f"{name}: loss", ("-m", "benchmarks.visit", "loss", str(folder), str(out / name)), 30),
            Part(f"{name}: text", ("sample.py", str(folder), "--device", "cuda", "--max_new_tokens", "400"), 40),
        ]
    return parts


def gpu_table(out: Path, name: str, arguments: Sequence[str], minutes: float) -> Part:
    """A part that measures rows of `benchmarks.gpu`, which ends by itself shortly after its minutes."""
    command = ("-m", "benchmarks.gpu", *arguments, "--minutes", f"{minutes:g}", "--out", str(out / name))
    return Part(name, command, 60 * minutes + 30)


RUNS = {"1": right, "2": fast, "3": others, "4": trained}


# --- carrying out ----------------------------------------------------------------------------------------------


def carry_out(parts: Sequence[Part], out: Path, name: str, deadline: float) -> list[Answer]:
    """Do one part after the other until the deadline (time.monotonic); write the page after each."""
    answers: list[Answer] = []
    with open(out / f"{name}.log", "wb") as log:
        for part in parts:
            left = deadline - time.monotonic() - GRACE
            answers.append(answer_of(replace(part, seconds=min(part.seconds, left)), log))
            (out / f"{name}.md").write_text(page(name, answers), encoding="utf-8", newline="\n")
            print("\n".join(summary(answers[-1])), flush=True)
    print("\n".join(["", *outcomes(answers)]), flush=True)
    return answers


def answer_of(part: Part, log) -> Answer:
    """Run a part; what it prints is appended to the log."""
    command = [sys.executable, *part.command]
    if part.seconds <= 0:
        return Answer(part, "skipped: no time was left")
    if part.needs and not Path(part.needs).exists():
        return Answer(part, f"skipped: there is no {part.needs}")
    if part.tool:
        tool = find_tool(part.tool)
        if tool is None:
            return Answer(part, f"skipped: there is no {part.tool}")
        command = [tool, *part.command]
    log.write(f"\n===== {part.name}: {' '.join(command)}\n".encode())
    log.flush()
    start, began = log.tell(), time.monotonic()
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment(), start_new_session=True
    )
    outcome = end_of(process, part.seconds)
    with open(log.name, "rb") as written:
        written.seek(start)
        text = written.read().decode("utf-8", "replace")
    log.seek(0, os.SEEK_END)
    # A progress bar writes over its line again and again.
    lines = [line.rsplit("\r", 1)[-1] for line in text.rstrip().split("\n")]
    return Answer(part, outcome, time.monotonic() - began, lines[-SHOWN:] if outcome == "ok" else lines[-3 * SHOWN :])


def end_of(process: subprocess.Popen, seconds: float) -> str:
    """Wait for a process, and say how it ended. After its time it is interrupted, and then killed with its children."""
    try:
        status = process.wait(seconds)
        return "ok" if status == 0 else f"failed (status {status})"
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)  # pytest and train.py then say how far they came
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
        return f"stopped after {seconds:.0f} s"
    finally:
        kill_group = getattr(os, "killpg", None)  # Windows has none
        if kill_group:
            with contextlib.suppress(ProcessLookupError):
                kill_group(process.pid, 9)
        process.kill()
        process.wait()


def environment() -> dict[str, str]:
    """The variables of a part: nothing is fetched, no output is buffered."""
    made = {"PYTHONUNBUFFERED": "1", "HF_HUB_OFFLINE": "1", "TINYGRAD_LITE_CACHE": str(CORPORA)}
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return os.environ | made | {"PYTHONPATH": path}


def find_tool(name: str) -> str | None:
    """The path of a tool of NVIDIA, or None."""
    folders = [str(path) for pattern in TOOLS for path in sorted(Path("/").glob(pattern[1:]))]
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(folders))


def summary(answer: Answer) -> Iterator[str]:
    """An answer for a terminal: its last lines, more of them if it failed."""
    yield f"--- {answer.part.name}: {answer.outcome}, {answer.seconds:.0f} s"
    yield from (line[:200] for line in answer.lines[-(SHOWN // 3 if answer.outcome == "ok" else SHOWN) :])


def outcomes(answers: Sequence[Answer]) -> list[str]:
    """A table with a line for each part."""
    lines = ["| part | outcome | seconds |", "|---|---|---|"]
    return lines + [f"| {answer.part.name} | {answer.outcome} | {answer.seconds:.0f} |" for answer in answers]


def page(name: str, answers: Sequence[Answer]) -> str:
    """All answers so far."""
    lines = [f"# {name}", "", *outcomes(answers)]
    for answer in answers:
        lines += ["", f"## {answer.part.name}", "", "```", *answer.lines, "```"]
    return "\n".join(lines) + "\n"


# --- the checks: small programs among the parts ----------------------------------------------------------------


def versions() -> None:
    """Print what matters about the machine."""
    print(f"Python {sys.version.split()[0]}; {cpu_model()}, {available_cores()} cores")
    print(", ".join(f"{name} {installed(name)}" for name in PACKAGES), flush=True)
    began = time.perf_counter()
    cupy = get_device("cuda").xp  # compiles a kernel
    print(f"{gpu_model()}; usable after {time.perf_counter() - began:.1f} s", flush=True)
    cupy.show_config()
    with precision("bfloat16"):
        print("bfloat16 is supported")


def same_bytes(*arguments: str) -> None:
    """Train twice with the same command.

    Raises: UserError if the checkpoints differ.
    """
    settings = arguments or (*SAME, "--device", "cuda", "--dtype", "bfloat16")
    with tempfile.TemporaryDirectory(prefix="tinygrad_lite-") as folder:
        runs = [RunFolder(Path(folder) / name) for name in ("one", "two")]
        for run in runs:
            command = [sys.executable, str(ROOT / "train.py"), *settings, "--out_dir", str(run.path)]
            if subprocess.run(command, cwd=ROOT).returncode:
                raise UserError("a run failed")
        found = [hashlib.sha256(run.last.read_bytes()).hexdigest() for run in runs]
    print("\n".join(found))
    if found[0] != found[1]:
        raise UserError("the two runs gave different bytes")
    print("the two runs gave the same bytes")


def attention(*sizes: str) -> None:
    """Attention in bfloat16, forward and backward, three times."""
    shape = tuple(map(int, sizes)) or ATTENTION
    q, k, v = (Parameter(keyed_rng(1, name).standard_normal(shape, "float32")) for name in "qkv")
    place = get_device("cuda")
    for x in (q, k, v):
        x.data = place.from_host(x.data)
    unit = Tensor.eye(shape[-1], device="cuda")
    with precision("bfloat16"):
        for _ in range(3):
            y = F.scaled_dot_product_attention(*(F.linear(x, unit) for x in (q, k, v)), is_causal=True)
            y.backward(y.detach())
    place.synchronize()
    print(f"attention of {shape}: the mean of |dq| is {float(abs(q.grad.data).mean()):.4g}")


def loss(folder: str, prefix: str) -> None:
    """Print the evaluations of a run, and copy its tables to PREFIX-metrics.csv and PREFIX-samples.txt.

    Raises: UserError if there is none.
    """
    run = RunFolder(folder)
    with open(run.metrics, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, METRICS))[1:]
    for path in (run.metrics, run.samples):
        if path.exists():
            shutil.copyfile(path, f"{prefix}-{path.name}")
    evaluated = [(int(row["step"]), float(row["val_loss"])) for row in rows if row["val_loss"]]
    speeds = sorted(float(row["tokens_per_second"]) for row in rows if row["tokens_per_second"])
    if not evaluated:
        raise UserError(f"there is no evaluation in {run.metrics}")
    print(" ".join(f"{step}: {value:.4f}" for step, value in evaluated))
    step, best = min(evaluated, key=lambda one: one[1])
    speed = f"; {speeds[len(speeds) // 2]:,.0f} tokens/s" if speeds else ""
    print(f"best loss {best:.4f} at step {step:,} of {evaluated[-1][0]:,}{speed}")


CHECKS = {"versions": versions, "same-bytes": same_bytes, "attention": attention, "loss": loss}


if __name__ == "__main__":
    run_command("benchmarks", main)
