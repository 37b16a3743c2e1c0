"""Trials of runs that are killed or stopped at a random moment of their first seconds, with several processes.

    python -m tests.reliability.start_trials          200 kills and 120 signals, about half an hour on two busy cores
    python -m tests.reliability.start_trials 20

Each trial starts a training and kills one of its processes: process 0, each worker and multiprocessing's own helper in
turn. Or it sends a signal that stops a run, to process 0 alone or, as a terminal does, to all. The run must end within
ten seconds, with the expected status and one sentence, without a process that is left behind, and with whole
checkpoints. Every fifth of those that left a checkpoint is resumed, and must then have the bytes of a run that nothing
has disturbed. Needs Linux's /proc.
"""

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.reliability.disturbed import kill_all, marked, wait_until, whole_checkpoints
from tests.tiny_runs import ROOT, arguments, made_up_text, same, script
from training.checkpoint import load_checkpoint
from training.folder import RunFolder

IN_TIME = 10.0  # seconds from the failure to the end
FIRST = 5.0  # seconds after the start in which something goes wrong
SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")
RUN = {"max_iters": 3000, "eval_interval": 100, "eval_iters": 1, "dropout": 0.1, "batch_size": 8, "out_dir": None}


def family(mark: str) -> dict[str, int]:
    """The processes of a run: process 0, worker 1 and so on, and the helper of multiprocessing."""
    found, workers = {}, []
    for pid in marked(f"TRIAL={mark}"):
        with contextlib.suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            if b"spawn_main" in command:
                workers.append(pid)
            else:
                found["helper" if b"resource_tracker" in command else "process 0"] = pid
    return found | {f"worker {rank}": pid for rank, pid in enumerate(sorted(workers), start=1)}


def begin(run: RunFolder, words: list[str]) -> subprocess.Popen:
    """Start train.py in a session of its own."""
    return script("train.py", *words, f"--out_dir={run.path}", OPENBLAS_NUM_THREADS="1", TRIAL=str(run.path))


def end(process: subprocess.Popen, run: RunFolder, seconds: float = IN_TIME) -> tuple[int, str]:
    """Wait until all processes of a run have ended; returns the status, and what was said."""
    until, mark = time.monotonic() + seconds, f"TRIAL={run.path}"
    try:
        _, said = process.communicate(timeout=seconds)
        wait_until(lambda: not marked(mark), until - time.monotonic())
    finally:
        kill_all(mark)
    return process.returncode, said.decode()


def undisturbed(folder: Path, workers: int) -> RunFolder:
    """A run to the end."""
    run = RunFolder(folder)
    status, said = end(begin(run, arguments(**RUN, workers=workers)), run, 300)
    assert status == 0, said
    return run


def kill(run: RunFolder, workers: int, victim: str, delay: float) -> str:
    """Kill a process some seconds after the start, or as soon as it exists; returns when that was, in words."""
    process = begin(run, arguments(**RUN, workers=workers))
    time.sleep(delay)
    while process.poll() is None and not (pid := family(str(run.path)).get(victim)):
        time.sleep(0.002)
    if process.poll() is not None:
        return "after the end"
    when = "before the first checkpoint" if not run.last.exists() else "later"
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    if victim == "helper":  # the run does without it
        time.sleep(0.3)
        process.send_signal(signal.SIGTERM)
    status, said = end(process, run)
    if status == 0:
        return "after the end"
    expected = {"process 0": -9, "helper": 143}.get(victim, 1)
    assert status == expected or (victim == "helper" and status == -15), (victim, status, said)
    if expected == 1:
        assert re.search(r"train\.py: worker \d+ \(process \d+\) has ended: SIGKILL", said), said
    assert expected < 0 or "Traceback" not in said, said
    return when


def stop(run: RunFolder, workers: int, name: str, delay: float, to_all: bool) -> str:
    """Send a signal some seconds after the start; returns whether the run had begun, in words."""
    number = getattr(signal, name)
    process = begin(run, arguments(**RUN, workers=workers))
    time.sleep(delay)
    others = [pid for kind, pid in family(str(run.path)).items() if kind != "process 0"] if to_all else []
    for pid in [process.pid, *others]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
    status, said = end(process, run)
    if status == 0:
        return "after the end"
    if f"stopped by {name}" not in said:  # it had not begun to train
        is_starting = "Fatal Python error: init_import_site" in said  # Python itself, which answers Ctrl-C with 1
        assert status in (-number, 128 + number) or is_starting, (status, said)
        return "before the training"
    assert status == 128 + number, (status, said)
    assert "Traceback" not in said, said
    load_checkpoint(run.last)
    return "in the training"


def check(run: RunFolder, whole: RunFolder, resumes: bool) -> None:
    """Assert that the checkpoints are whole; and after a resumption, that nothing shows what has happened."""
    whole_checkpoints(run)
    if resumes:
        status, said = end(begin(run, ["--resume"]), run, 300)
        assert status == 0, said
        same(run, whole)


def trials(number: int, seed: int, folder: Path, resume_every: int = 5) -> Counter:
    """Kill N runs and stop three fifths of N, in the current folder, which has a text; counts what happened."""
    rng, counts, wholes, saved = random.Random(seed), Counter(), {}, 0
    victims = [(n, who) for n in (2, 4) for who in ["process 0", "helper", *(f"worker {i}" for i in range(1, n))]]
    jobs = [("kill", *victims[i % len(victims)]) for i in range(number)]
    jobs += [("stop", (2, 4)[i // 3 % 2], SIGNALS[i % 3]) for i in range(number * 3 // 5)]
    for index, (how, workers, what) in enumerate(jobs):
        run, delay = RunFolder(folder / f"run-{index}"), rng.uniform(0, rng.choice((1.0, FIRST)))
        if how == "kill":
            when = kill(run, workers, what, delay)
        else:
            when = stop(run, workers, what, delay, to_all=rng.random() < 0.5)
        counts[f"{how}: {when}"] += 1
        saved += run.last.exists()
        resumes = run.last.exists() and saved % resume_every == 0
        if resumes and workers not in wholes:
            wholes[workers] = undisturbed(folder / f"whole-{workers}", workers)
        check(run, wholes.get(workers), resumes)
        counts["resumed to the same bytes"] += resumes
        print(f"{index + 1}/{len(jobs)}: {how} {what} of {workers} after {delay:.2f} s, {when}", flush=True)
    return counts


def main() -> None:
    number, seed = (int(word) for word in [*sys.argv[1:], *("200", "20264")[len(sys.argv) - 1 :]])
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("text.txt").write_text(made_up_text(), encoding="utf-8", newline="\n")
        counts = trials(number, seed, Path(folder))
    print(f"with 2 and 4 processes, seed {seed}: {dict(sorted(counts.items()))}; each ended in {IN_TIME:g} s")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
