"""Trials of failures of a run that mpirun started, each at a random moment.

    python -m tests.extra.reliability.mpi_trials          20 of each kind, about 20 minutes
    python -m tests.extra.reliability.mpi_trials 3 kill

Each trial starts a training, waits until a checkpoint exists, lets something go wrong, and asserts how it ends: in
time, with the expected exit status, with one sentence, without a process that is left behind, and with whole
checkpoints. Every second one is resumed, and must then have the bytes of a run that nothing has disturbed.

With the environment variable FAIL="rank place number how", this file is also the program that fails.
"""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import train
from extra.mpi.mpirun import on_all_ranks
from tests.reliability.disturbed import kill_all, marked, wait_until, whole_checkpoints
from tests.tiny_runs import ROOT, arguments, made_up_text, same
from tinygrad_lite.optim import Optimizer
from training.folder import RunFolder

KINDS = {  # the exit status of mpirun
    "kill": 9,
    "exception": 1,
    "exception under -m mpi4py": 1,
    "sys.exit": 1,
    "Ctrl-C": 130,
    "SIGTERM": 143,
}
IN_TIME = 10.0  # seconds from the failure to the end
STEPS = 1200
RUN = arguments(max_iters=STEPS, eval_interval=20, dropout=0.1, keep=2, out_dir=None)
MPIRUN = str(Path(sys.prefix, "bin", "mpirun"))


def fail_as_asked() -> None:
    """In the rank that FAIL names, let an error occur at the n-th call of a function."""
    rank, place, number, how = os.environ["FAIL"].split()
    if os.environ["PMI_RANK"] != rank:
        return
    places = {"update": (Optimizer, "step"), "batch": (Optimizer, "zero_grad"), "evaluation": (train, "evaluate")}
    owner, name = places[place]
    function, calls = getattr(owner, name), 0

    def failing(*args, **kwargs):
        nonlocal calls
        calls += 1
        if calls == int(number):
            Path(os.environ["FAILED"]).write_text(str(time.time()))
            if how == "exit":
                sys.exit(3)
            raise KeyError("made up")
        return function(*args, **kwargs)

    setattr(owner, name, failing)


def processes(mark: str) -> dict[str, int]:
    """The processes with this environment variable, by their rank; mpirun and its helpers have other names."""
    found = {}
    for pid, variables in marked(f"TRIAL={mark}").items():
        rank = next((v.removeprefix("PMI_RANK=") for v in variables if v.startswith("PMI_RANK=")), "")
        found[rank or f"helper {pid}"] = pid
    return found


def under(launcher: list, program: list, folder: Path | None = None, **settings: str) -> subprocess.Popen:
    """Start a Python program under mpirun, in a folder, with these environment variables."""
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)} | settings
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen([*map(str, launcher), *map(str, program)], env=environment, cwd=folder, **pipes)


def on(ranks: int) -> list:
    """The command that starts a program on N ranks of this machine."""
    return [MPIRUN, "-n", ranks, sys.executable]


TWO = on(2)


def start(folder: Path, words: list[str], launcher: list = TWO, **settings: str) -> subprocess.Popen:
    """Start this file under mpirun."""
    program = [Path(__file__).resolve(), *words, f"--out_dir={folder}"]
    return under(launcher, program, folder.parent, TRIAL=str(folder), **settings)


def trial(kind: str, rng: random.Random, folder: Path, whole: RunFolder | None = None) -> float:
    """Let a run fail; returns the seconds from the failure to the end.

    Args:
        whole: a run to the end that nothing has disturbed; with it, the failed one is resumed and compared.
    """
    failed, run = folder.with_suffix(".failed"), RunFolder(folder)
    place, how = rng.choice(["update", "batch", "evaluation"]), "exit" if kind == "sys.exit" else "raise"
    number = rng.randrange(2, 12) if place == "evaluation" else rng.randrange(25, STEPS // 2)
    settings = {"FAIL": f"1 {place} {number} {how}", "FAILED": str(failed)} if KINDS[kind] == 1 else {}
    process = start(folder, RUN, [*TWO, *(["-m", "mpi4py"] if "mpi4py" in kind else [])], **settings)
    try:
        wait_until(run.last.exists, 120)
        if settings:
            wait_until(failed.exists, 240)
        else:
            time.sleep(rng.uniform(0, 1))
            signals = {"kill": signal.SIGKILL, "Ctrl-C": signal.SIGINT, "SIGTERM": signal.SIGTERM}
            victim = processes(str(folder))[rng.choice("01")] if kind == "kill" else process.pid
            os.kill(victim, signals[kind])
        began = time.monotonic()
        said, _ = process.communicate(timeout=IN_TIME)
        took = time.monotonic() - began
        wait_until(lambda: not processes(str(folder)), IN_TIME - took)
    finally:
        kill_all(f"TRIAL={folder}")
    assert process.returncode == KINDS[kind], (process.returncode, said)
    assert "Traceback" not in said, said
    sentences = {
        "kill": r"EXIT CODE: 9",
        "Ctrl-C": r"stopped by SIGINT after \d+ steps",
        "SIGTERM": r"stopped by SIGTERM after \d+ steps",
        "sys.exit": r"train.py: rank 1 has failed: SystemExit: 3 \(mpi_trials.py, line \d+, on .*--resume continues",
    }
    pattern = sentences.get(kind, r"train.py: rank 1 has failed: KeyError: 'made up' \(mpi_trials.py, line \d+, on ")
    assert len(re.findall(pattern, said)) == 1, said
    whole_checkpoints(run)
    if whole:
        process = start(run.path, ["--resume"])
        said = process.communicate(timeout=300)[0]
        assert process.returncode == 0, said
        same(run, whole)
    return took


def main(argv: list[str]) -> int:
    """All trials; prints a line for each kind."""
    number, kinds = int(argv[0]) if argv else 20, argv[1:] or KINDS
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "text.txt").write_text(made_up_text(), encoding="utf-8")
        whole = RunFolder(Path(place) / "whole")
        process = start(whole.path, RUN)
        assert process.wait() == 0, process.stdout.read()
        for kind in kinds:
            rng, times = random.Random(kind), []
            for count in range(number):
                folder = Path(place) / f"{kind.replace(' ', '-')}-{count}"
                times.append(trial(kind, rng, folder, whole if count % 2 else None))
                shutil.rmtree(folder)
            print(f"{kind}: {number} trials, all ended as they must, at most {max(times):.1f} s later", flush=True)
    return 0


if __name__ == "__main__":
    if "PMI_RANK" not in os.environ:
        sys.exit(main(sys.argv[1:]))
    from training.cli.console import run_command

    if "FAIL" in os.environ:
        fail_as_asked()
    run_command("train.py", on_all_ranks(train.main))
