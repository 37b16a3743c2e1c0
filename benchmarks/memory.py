"""The memory that a process and its descendants use together, now and at its peak.

It is the proportional set size (PSS): every page of memory counts once, in equal shares for the processes that map
it. So shared memory is not counted twice. Linux reports it in /proc/PID/smaps_rollup, see proc(5).
"""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from pathlib import Path
from types import TracebackType

PROC = Path("/proc")
INTERVAL = 0.01  # seconds between two measurements


def is_measurable() -> bool:
    """Whether this system reports the proportional set size."""
    return (PROC / "self" / "smaps_rollup").is_file()


def family_of(pid: int) -> list[int]:
    """A process and all its descendants."""
    children = defaultdict(list)
    for path in PROC.glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            # number (name) state parent ...: the name may hold anything, even brackets and spaces
            after_name = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2]
            children[int(after_name.split()[1])].append(int(path.parent.name))
    family = [pid]
    for member in family:  # grows during the loop
        family += children[member]
    return family


def memory_of(pid: int) -> float:
    """The memory of a process and its descendants now, in megabytes (10^6 bytes)."""
    kibibytes = 0
    for member in family_of(pid):
        with contextlib.suppress(OSError):
            lines = (PROC / str(member) / "smaps_rollup").read_text(encoding="utf-8", errors="replace").splitlines()
            kibibytes += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return kibibytes * 1024 / 1e6


class Peak:
    """Inside a `with` statement, samples the memory that a family of processes uses; `megabytes` is the peak."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.megabytes = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            self.megabytes = max(self.megabytes, memory_of(self.pid))
            if self._over.wait(INTERVAL):
                return
