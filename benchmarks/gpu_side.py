"""A child process of `python -m benchmarks.gpu`: one side on the GPU, which answers questions on its stdin.

    python -m benchmarks.gpu_side ours cuda
    python -m benchmarks.gpu_side torch cuda quick

`gpu.py` starts these. A question names a method and its arguments. An error is also sent as a reply, so that a row that
fails does not end the others. This file holds what both sides share.
"""

from __future__ import annotations

import contextlib
import math
import sys
import traceback
from collections.abc import Callable
from typing import Any

from benchmarks.children import serve
from benchmarks.shapes import GPU_SHAPES, QUICK_SHAPES, Shape
from benchmarks.steps import Step, time_group, warm_up
from tinygrad_lite.cli.console import run_command
from tinygrad_lite.device import keyed_rng

DO = ("facts", "prepare", "begin", "turn", "kernels")
FIRST_TOKENS = 32  # of a text, on whose log-probabilities the sides must agree


class Side:
    """One side. Its subclasses, one for each library, define the tasks.

    Tasks: "train" a step; "write" a text, with the key-value cache; "product" of two square matrices; "copy" of memory
    on the GPU; "launch", "small product" and "linear", for Python's time to start them.
    """

    def __init__(self, quick: bool) -> None:
        self.shapes: dict[str, Shape] = QUICK_SHAPES if quick else GPU_SHAPES
        self.size = 64 if quick else 8192  # of the matrices: (size, size)
        self.bytes = 2**12 if quick else 2**30  # to copy
        self.tokens = 7 if quick else 255  # of a text, after the first
        self.max_repeats = 2 if quick else 200  # of a task in a turn
        self.ready: dict[str, tuple[Step, str]] = {}  # by variant: the task, and its precision

    def facts(self) -> dict[str, Any]:
        """A description of the side, and the amount of work in each task."""
        raise NotImplementedError

    def check(self, shape: Shape, work: str) -> dict[str, list[float]]:
        """Make the model; returns its results in float32.

        "losses" before and after a step, or "log_probs", those of `made_up_text` that follow its first token.
        """
        raise NotImplementedError

    def work(self, work: str, precision: str, variant: str) -> Step:
        """The function that does a task once, with the model that was made last."""
        raise NotImplementedError

    def in_precision(self, name: str) -> contextlib.AbstractContextManager:
        """Inside, matrix products are computed in this precision."""
        raise NotImplementedError

    def synchronize(self) -> None:
        """Wait for the GPU."""
        raise NotImplementedError

    def release(self) -> None:
        """Drop the model, and free its memory."""
        raise NotImplementedError

    def kernels_of(self, step: Step) -> tuple[list[tuple[str, float]], str]:
        """The kernels of a step in order, with their microseconds on the GPU; and how they were measured."""
        raise NotImplementedError

    def prepare(self, work: str, shape: str) -> dict[str, Any]:
        """Replace the model by one of this shape, if the task needs a model."""
        self.ready.clear()
        self.release()
        return self.check(self.shapes[shape], work) if shape else {}

    def begin(self, work: str, precision: str, variant: str, seconds: float) -> dict[str, Any]:
        """Prepare one variant of a task; returns the number of repeats that take about `seconds`."""
        with self.in_precision(precision):
            step = self.work(work, precision, variant)
            first, repeats = warm_up(step, self.synchronize, seconds, self.max_repeats)
        self.ready[variant] = step, precision
        return {"first_ms": first, "repeats": repeats}

    def turn(self, variant: str, repeats: int, begin: int) -> dict[str, Any]:
        """Do the task `repeats` times; returns its milliseconds, and those that Python needed to launch it."""
        step, precision = self.ready[variant]
        with self.in_precision(precision):
            ms, asked_ms, result = time_group(step, self.synchronize, repeats, begin)
        loss = None if result is None else float(result)
        if loss is not None and not math.isfinite(loss):
            raise ArithmeticError(f"the loss became {loss}, so the times are meaningless")
        return {"ms": ms, "asked_ms": asked_ms, "loss": loss}

    def kernels(self, precision: str) -> dict[str, Any]:
        """The GPU's time in a training step by kernel, for the model that was made last."""
        with self.in_precision(precision):
            step = self.work("train", precision, "")
            warm_up(step, self.synchronize, 0.01)
            ms, _, _ = time_group(step, self.synchronize, min(10, self.max_repeats))
            # Of single steps, with an empty queue: Python waits when about 1,000 kernels are queued, and then its time
            # in a group of steps would be the GPU's.
            asked_ms = min(time_group(step, self.synchronize, 1, number)[1] for number in range(5))
            spent, source = self.kernels_of(step)
        return {"ms": ms, "asked_ms": asked_ms, "kernels": spent, "source": source}


def made_up_text(vocab_size: int, count: int) -> list[int]:
    """Tokens drawn at random, on which both sides are compared.

    Each reads them one by one. Texts that a side chooses itself cannot be compared: an untrained model finds many
    tokens about equally probable, so rounding errors decide, and after one different token the texts have nothing in
    common.
    """
    return keyed_rng(1, "made-up text").integers(0, vocab_size, count).tolist()


def reply_of(side: Side) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A function that answers questions {"do": one of DO, ...}; after an error with {"failed": reason, ...}."""

    def reply(question: dict[str, Any]) -> dict[str, Any]:
        what = {name: value for name, value in question.items() if name != "do"}
        if question["do"] not in DO:
            raise ValueError(f"there is nothing called {question['do']}")
        with contextlib.redirect_stdout(sys.stderr):  # stdout is for replies; libraries may print
            try:
                return getattr(side, question["do"])(**what)
            except Exception as error:
                failed = {
                    "failed": f"{type(error).__name__}: {error}"[:500],
                    "traceback": traceback.format_exc()[-6000:],
                }
            # Outside `except`, so that the error no longer keeps arrays alive.
            try:
                side.synchronize()
            except Exception:
                failed["broken"] = True  # after a failed kernel, this process can no longer use the GPU
            return failed

    return reply


def main(argv: list[str]) -> int:
    """Answer until stdin ends. The arguments: side, device, and optionally "quick"."""
    name, device, *more = argv
    quick = more == ["quick"]
    with contextlib.redirect_stdout(sys.stderr):
        if name == "ours":
            from benchmarks.gpu_ours import Ours

            side: Side = Ours(quick)
        else:
            from benchmarks.gpu_torch import Torch

            side = Torch(quick, device)
    serve(reply_of(side))
    return 0


if __name__ == "__main__":
    run_command("benchmarks", main)
