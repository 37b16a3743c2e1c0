"""What the trials of disturbed runs have in common: their processes, whole checkpoints, and something at a step."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tinygrad_lite.optim import Optimizer
from training.checkpoint import load_checkpoint
from training.folder import RunFolder


def marked(mark: str) -> dict[int, list[str]]:
    """The processes with this environment variable, NAME=value: their ids, and all their variables."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            variables = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
            if mark in variables:
                found[int(pid)] = variables
    return found


def children_of(pid: int) -> list[int]:
    """The ids of a process's children."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()]


def kill_all(mark: str) -> None:
    """Kill what is left of a trial."""
    for pid in marked(mark):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def wait_until(condition: Callable[[], object], seconds: float = 300, pause: float = 0.02) -> float:
    """Wait for a condition, as long as it may take on a busy machine; returns how long that took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, "waited in vain"
        time.sleep(pause)
    return time.monotonic() - began


def whole_checkpoints(run: RunFolder) -> int:
    """The number of checkpoints in a run's folder, each of which can be loaded."""
    return len([load_checkpoint(path, optimizer=True) for path in run.path.glob("*.safetensors")])


@contextlib.contextmanager
def at_steps(actions: Mapping[int, Callable[[], object]]) -> Iterator[None]:
    """Inside, a run does something after the updates with these numbers."""
    update = Optimizer.step

    def changed(self: Optimizer) -> None:
        update(self)
        actions.get(self.steps, lambda: None)()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Optimizer, "step", changed)
        yield
