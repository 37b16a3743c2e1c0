"""Trials of runs that are killed or stopped at a random moment of their first seconds, with several processes.

    python -m tests.reliability.start_trials          200 kills and 120 signals, about half an hour on two busy cores
    python -m tests.reliability.start_trials 20

Each trial starts a training and kills one of its processes, process 0 and each worker in turn. Or it sends a signal
that stops a run to process 0. The run must end within ten seconds, with the expected status and one sentence, without a
process that is left behind, and with whole checkpoints. Needs Linux's /proc.
"""

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
from tests.tiny_runs import arguments, made_up_text, script
from training.folder import RunFolder

IN_TIME = 10.0  # seconds from the failure to the end
FIRST = 5.0  # seconds after the start in which something goes wrong
SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")
RUN = {"max_iters": 3000, "eval_interval": 100, "eval_iters": 1, "dropout": 0.1, "batch_size": 8, "out_dir": None}


def workers_of(run: RunFolder) -> list[int]:
    """The ids of a run's workers, in the order of their ranks."""
    pids = sorted(marked(f"TRIAL={run.path}"))
    return [pid for pid in pids if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def end(process: subprocess.Popen, run: RunFolder) -> tuple[int, str]:
    """Wait until all processes of a run have ended; returns the status, and what was said."""
    began, mark = time.monotonic(), f"TRIAL={run.path}"
    try:
        _, said = process.communicate(timeout=IN_TIME)
        wait_until(lambda: not marked(mark), began + IN_TIME - time.monotonic())
    finally:
        kill_all(mark)
    return process.returncode, said.decode()


def kill(process: subprocess.Popen, run: RunFolder, rank: int) -> str:
    """Kill process 0 or a worker, as soon as it exists; returns when that was, in words."""
    while process.poll() is None and len(workers_of(run)) < rank:
        time.sleep(0.002)
    if process.poll() is not None:
        return "after the end"
    when = "later" if run.last.exists() else "before the first checkpoint"
    os.kill(workers_of(run)[rank - 1] if rank else process.pid, signal.SIGKILL)
    status, said = end(process, run)
    if status == 0:
        return "after the end"
    assert status == (1 if rank else -9), (rank, status, said)
    if rank:
        assert re.search(r"train\.py: worker \d+ \(process \d+\) has ended: SIGKILL", said), said
        assert "Traceback" not in said, said
    return when


def stop(process: subprocess.Popen, run: RunFolder, name: str) -> str:
    """Send a signal; returns whether the run had begun, in words."""
    number = getattr(signal, name)
    process.send_signal(number)
    status, said = end(process, run)
    if status == 0:
        return "after the end"
    if f"stopped by {name}" not in said:  # it had not begun to train
        is_starting = "Fatal Python error: init_import_site" in said  # Python itself, which answers Ctrl-C with 1
        assert status in (-number, 128 + number) or is_starting, (status, said)
        return "before the training"
    assert status == 128 + number, (status, said)
    assert "Traceback" not in said, said
    assert run.last.exists()
    return "in the training"


def main() -> None:
    number, seed = (int(word) for word in [*sys.argv[1:], *("200", "20264")[len(sys.argv) - 1 :]])
    rng, counts = random.Random(seed), Counter()
    victims = [(kill, workers, rank) for workers in (2, 4) for rank in range(workers)]
    signals = [(stop, workers, name) for workers in (2, 4) for name in SIGNALS]
    jobs = [victims[i % len(victims)] for i in range(number)]
    jobs += [signals[i % len(signals)] for i in range(number * 3 // 5)]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("text.txt").write_text(made_up_text(), encoding="utf-8", newline="\n")
        for index, (disturb, workers, what) in enumerate(jobs):
            run, delay = RunFolder(Path(folder, f"run-{index}")), rng.uniform(0, rng.choice((1.0, FIRST)))
            words = arguments(**RUN, workers=workers)
            settings = {"OPENBLAS_NUM_THREADS": "1", "TRIAL": str(run.path)}
            process = script("train.py", *words, f"--out_dir={run.path}", **settings)
            time.sleep(delay)
            when = disturb(process, run, what)
            whole_checkpoints(run)
            counts[f"{disturb.__name__}: {when}"] += 1
            print(f"{index + 1}/{len(jobs)}: {disturb.__name__} {what} of {workers} after {delay:.2f} s, {when}")
    print(f"with 2 and 4 processes, seed {seed}: {dict(sorted(counts.items()))}; each ended in {IN_TIME:g} s")


if __name__ == "__main__":
    main()
