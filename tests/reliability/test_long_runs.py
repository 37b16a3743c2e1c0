"""Long runs: memory and open files stop growing, no reference cycles are left, and no line of the log is missing."""

import functools
import gc
import math
import sys
import time
import tracemalloc
from collections import Counter
from pathlib import Path

import pytest

from tests.reliability.disturbed import children_of
from tests.tiny_runs import LEFT_OUT, arguments, rows, run_training, script
from training.folder import RunFolder

pytestmark = pytest.mark.usefixtures("workplace")

slow = functools.partial(pytest.param, marks=pytest.mark.slow)
needs_proc = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")


CACHES = 64 << 10  # bytes: Python's and NumPy's free lists of small objects may still be filling
LONG = {"block_size": 4, "batch_size": 2, "n_embd": 8, "dropout": 0.1, "sample_tokens": 5, "eval_iters": 2, "keep": 2}


def resident(folder: Path) -> int:
    """The resident memory of a process, in KiB."""
    lines = (folder / "status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


def watch(process, run: RunFolder) -> list[tuple[int, list[int], list[int]]]:
    """Observe a run until it ends: lines of its log, and memory and number of open files of each of its processes."""
    seen = []
    while process.poll() is None:
        try:
            folders = [Path("/proc", str(pid)) for pid in (process.pid, *children_of(process.pid))]
            memory, files = [resident(f) for f in folders], [len(list((f / "fd").iterdir())) for f in folders]
            seen.append((run.metrics.read_bytes().count(b"\n"), memory, files))
        except (OSError, StopIteration):  # it is starting, or ending
            pass
        time.sleep(0.02)
    return seen


@needs_proc
@pytest.mark.parametrize(("count", "workers"), [(600, 1), *(slow(20_000, workers) for workers in (1, 2))])
def test_memory_and_open_files_do_not_grow(count, workers, report):
    """Observed from outside, in a process of its own; the first fifth, in which caches fill, is left out."""
    run = RunFolder("run")
    words = arguments(**LONG, workers=workers, max_iters=count, eval_interval=count // 10)
    process = script("train.py", *words)
    seen = watch(process, run)
    _, err = process.communicate()
    assert process.returncode == 0, err.decode()
    processes, lines = max(len(memory) for _, memory, _ in seen), run.metrics.read_bytes().count(b"\n")
    assert processes == (1 if workers == 1 else 1 + workers)  # Python starts one more, to clean up after the workers
    later = [found[1:] for found in seen if lines / 5 <= found[0] < lines and len(found[1]) == processes]
    assert len(later) >= 10
    quarter = len(later) // 4
    first, last = later[:quarter], later[-quarter:]
    # Files such as the log are open for moments only; what counts is how many are always open.
    handles = [[min(files[p] for _, files in part) for p in range(processes)] for part in (first, last)]
    assert handles[0] == handles[1]
    before, after = ([max(memory[p] for memory, _ in part) for p in range(processes)] for part in (first, last))
    growth = [now / then - 1 for then, now in zip(before, after, strict=True)]
    assert max(growth) < 0.01, f"memory in KiB grew from {before} to {after}"
    check_metrics(run, count)
    report(f"long runs: {count:,} steps, {workers} worker(s): KiB grew from {before} to {after}, by {max(growth):.2%}")


def check_metrics(run: RunFolder, count: int) -> None:
    """There is a complete row for every step and every evaluation, in order, and all numbers are finite."""
    found = rows(run)
    steps = [int(row["step"]) for row in found if row["loss"]]
    evaluations = [int(row["step"]) for row in found if row["val_loss"]]
    every = 10 if "log_interval" in LEFT_OUT else 1
    assert steps == list(range(every, count + 1, every))
    assert evaluations == list(range(0, count + 1, count // 10))
    assert len(found) == len(steps) + len(evaluations)
    for row in found:
        names = "loss learning_rate grad_norm tokens_per_second".split()
        names = names if row["loss"] else ["val_loss", "bits_per_char"]
        assert all(math.isfinite(float(row[name])) for name in names)


@pytest.mark.parametrize(("count", "workers"), [(100, 1), *(slow(4000, workers) for workers in (1, 2))])
def test_steps_leave_no_garbage_and_no_memory(count, workers, report, monkeypatch):
    """Steps, logging, evaluation and checkpoints free all their memory at once, without the garbage collector.

    Allocations are counted here, since resident memory (above) can stay constant while a leak fills the holes in it.
    """
    log, kinds, found, held = RunFolder.log, Counter(), [], []

    def log_and_measure(self, **values):
        log(self, **values)
        if values["step"] == count // 4 and not tracemalloc.is_tracing():  # which makes a run three times as slow
            tracemalloc.start()
        if "loss" in values and values["step"] in (count // 2, count):
            gc.set_debug(gc.DEBUG_SAVEALL if values["step"] == count else 0)  # keep what is found in gc.garbage
            found.append(gc.collect())
            kinds.update(type(thing).__name__ for thing in gc.garbage)
            held.append(tracemalloc.get_traced_memory()[0])

    monkeypatch.setattr(RunFolder, "log", log_and_measure)
    gc.disable()
    try:
        run_training(**LONG, workers=workers, max_iters=count, eval_interval=count // 10)
    finally:
        tracemalloc.stop()
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert len(found) == 2
    assert found[1] == 0, f"reference cycles of {kinds}"
    growth, steps = held[1] - held[0], count - count // 2
    assert growth < CACHES, f"{growth:,} bytes are not freed after {steps:,} steps"
    report(f"long runs: {steps:,} steps, {workers} worker(s): allocations grew by {growth:,} bytes, without cycles")
