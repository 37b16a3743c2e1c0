"""Two programs timed side by side: each in a process of its own, started once, taking turns.

The parent asks with a line of JSON on a child's stdin and waits for the line of JSON that the child prints. A child
that was not asked waits for its stdin, that is, it sleeps. So both meet the same busy and quiet moments of the
machine, none of them takes the cores from the other, and the ratio of a turn's times means something.

In one process it would not: the idle threads of either library spin for a while and keep the cores busy.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tinygrad_lite.cli.errors import UserError

# How many threads: read by the libraries when they start.
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
PAUSE = 0.05  # seconds between turns, in which the threads of the side before stop spinning and fall asleep

Child = subprocess.Popen


def limits(threads: int | None) -> dict[str, str]:
    """The environment variables that give a child so many threads; none: as many as its library takes."""
    return {name: str(threads) for name in THREADS} if threads else {}


def start(command: Sequence[str], environment: Mapping[str, str]) -> Child:
    """Start a child with these environment variables besides our own. Used in a `with`, it ends with it."""
    pipe = subprocess.PIPE
    environment = {**os.environ, **environment}
    return subprocess.Popen(list(command), stdin=pipe, stdout=pipe, text=True, encoding="utf-8", env=environment)


def ask(child: Child, question: dict[str, Any]) -> dict[str, Any]:
    """Put one question to a child and wait for the answer.

    Raises: SystemExit if it failed and has said why; UserError if something outside ended it.
    """
    try:
        child.stdin.write(json.dumps(question) + "\n")
        child.stdin.flush()
    except BrokenPipeError:  # it has ended; then there is no answer either
        with contextlib.suppress(BrokenPipeError):  # closing tries once more to hand over what was written
            child.stdin.close()
    line = child.stdout.readline()
    if not line:
        status = child.wait()
        if status > 0:
            sys.exit(status)  # it has said why
        raise UserError(f"one side was ended from outside (status {status}): is there enough memory for both?")
    return json.loads(line)


def serve(reply: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """In a child: reply to each question until stdin ends. Ctrl-C is the parent's business."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for line in sys.stdin:
        print(json.dumps(reply(json.loads(line))), flush=True)


def take_turns(children: Mapping[str, Child], turns: int, repeats: int, begin: int = 0) -> dict[str, list[float]]:
    """Let each child do its work in turns.

    A child gets {"begin": b, "repeats": r} and answers {"values": [...]}, one number for each time it did the work.
    It may count the times: those of a turn are b, b + 1, ... Who goes first changes from turn to turn.

    Returns: by child, the median of each turn.
    """
    medians: dict[str, list[float]] = {name: [] for name in children}
    for turn in range(turns):
        for name in list(children) if turn % 2 == 0 else list(children)[::-1]:
            time.sleep(PAUSE)
            answer = ask(children[name], {"begin": begin + turn * repeats, "repeats": repeats})
            medians[name].append(statistics.median(answer["values"]))
    return medians
