"""Two programs timed side by side: each in its own process, started once, taking turns.

The parent sends a line of JSON to a child's stdin and waits for the line of JSON that the child prints. The other
child sleeps, waiting for its stdin. So both are affected alike by other load on the machine, neither takes cores from
the other, and the ratio of a turn's times is meaningful.

In one process it would not be: idle threads of each library spin for a while and keep the cores busy.
"""

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tinygrad_lite.errors import UserError

# The number of threads; the libraries read these when they start.
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
PAUSE = 0.05  # seconds between turns, during which the other side's threads stop spinning and go to sleep

Child = subprocess.Popen


def limits(threads: int | None) -> dict[str, str]:
    """The environment variables that limit a child to this number of threads; none: its library's default."""
    return {name: str(threads) for name in THREADS} if threads else {}


def start(command: Sequence[str], environment: Mapping[str, str]) -> Child:
    """Start a child with these environment variables in addition to ours. A `with` statement ends the child."""
    pipe = subprocess.PIPE
    environment = {**os.environ, **environment}
    return subprocess.Popen(list(command), stdin=pipe, stdout=pipe, text=True, encoding="utf-8", env=environment)


def ask(child: Child, question: dict[str, Any]) -> dict[str, Any]:
    """Ask a child one question and wait for the reply.

    Raises: SystemExit if the child failed and printed the reason; UserError if it was killed.
    """
    try:
        child.stdin.write(json.dumps(question) + "\n")
        child.stdin.flush()
    except BrokenPipeError:  # it has ended, so there is no reply either
        with contextlib.suppress(BrokenPipeError):  # closing tries again to send what was written
            child.stdin.close()
    line = child.stdout.readline()
    if not line:
        status = child.wait()
        if status > 0:
            sys.exit(status)  # it has printed the reason
        raise UserError(f"one side was killed (status {status}): is there enough memory for both?")
    return json.loads(line)


def serve(reply: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """In a child: reply to each question until stdin ends. The parent handles Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for line in sys.stdin:
        print(json.dumps(reply(json.loads(line))), flush=True)


def take_turns(children: Mapping[str, Child], turns: int, repeats: int, begin: int = 0) -> dict[str, list[float]]:
    """Let each child do its work in turns.

    A child gets {"begin": b, "repeats": r} and replies {"values": [...]}, one number for each of the r repeats, which
    are numbered b, b + 1, ... The order of the children alternates from turn to turn.

    Returns: by child, the median of each turn.
    """
    medians: dict[str, list[float]] = {name: [] for name in children}
    for turn in range(turns):
        for name in list(children) if turn % 2 == 0 else list(children)[::-1]:
            time.sleep(PAUSE)
            answer = ask(children[name], {"begin": begin + turn * repeats, "repeats": repeats})
            medians[name].append(statistics.median(answer["values"]))
    return medians


class SideFailed(Exception):
    """A side could not answer a question."""


class Handle:
    """The parent's end of a side that may fail: starts its process, and starts it again if it is broken."""

    def __init__(self, command: Sequence[str], deadline: float, patience: float) -> None:
        """A side by its command.

        Args:
            deadline: the end of all measurements (time.monotonic).
            patience: time limit for a reply, in seconds.
        """
        self.command, self.deadline, self.patience = command, deadline, patience
        self.process: Child | None = None
        self.prepared: tuple[str, str] | None = None
        self.check: dict[str, Any] = {}
        self.impossible: dict[tuple[str, str], str] = {}  # models that could not be prepared, and why

    def start(self) -> None:
        """Start the process, which takes some time."""
        self.process = start(self.command, {})

    def ask(self, **question: Any) -> dict[str, Any]:
        """Ask a question, and wait for the reply.

        Raises: SideFailed with the reason if there is none.
        """
        if self.process is None:
            self.start()
        allowed = max(1.0, min(self.patience, self.deadline - time.monotonic()))
        timer, began = threading.Timer(allowed, self.process.kill), time.monotonic()
        timer.start()
        try:
            answer = ask(self.process, question)
        except (UserError, SystemExit, ValueError) as error:
            self.close()
            late = time.monotonic() - began >= allowed
            reason = f"no answer within {allowed:.0f} s" if late else f"the process ended ({error})"
            raise SideFailed(reason) from None
        finally:
            timer.cancel()
        if "failed" in answer:
            print(answer.get("traceback", ""), file=sys.stderr, flush=True)
            if answer.get("broken"):
                self.close()
            raise SideFailed(answer["failed"])
        return answer

    def prepare(self, work: str, shape: str) -> None:
        """Let the side make the model for a task, unless it already has it.

        Raises: SideFailed if that fails; it is not tried again.
        """
        wanted = work, shape
        if wanted in self.impossible:
            raise SideFailed(self.impossible[wanted])
        if self.prepared != wanted:
            self.prepared = None
            try:
                self.check = self.ask(do="prepare", work=work, shape=shape)
            except SideFailed as failure:
                self.impossible[wanted] = str(failure)
                raise
            self.prepared = wanted

    def close(self) -> None:
        """End the process."""
        process, self.process, self.prepared = self.process, None, None
        if process is not None:
            with contextlib.suppress(BrokenPipeError), process:  # whose end closes the pipes, and waits
                process.kill()
