"""A child process of `python -m benchmarks.gpu`: one side on the GPU, which answers questions on its stdin.

    python -m benchmarks.gpu_side ours cuda
    python -m benchmarks.gpu_side torch cuda quick

`gpu.py` starts these. A question says what to do and with what; an error becomes an answer, too, so that one row that
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

DO = ("facts", "prepare", "begin", "turn", "kernels")
FIRST_TOKENS = 32  # of a text, in which the sides must agree


class Side:
    """What answers. The two sides define their works.

    Works: "train" a step; "write" a text, with the key-value cache; "product" of two square matrices; "copy" of memory
    on the GPU; "launch", "small product" and "linear", for Python's time to start them.
    """

    def __init__(self, quick: bool) -> None:
        self.shapes: dict[str, Shape] = QUICK_SHAPES if quick else GPU_SHAPES
        self.size = 64 if quick else 8192  # of the matrices: (size, size)
        self.bytes = 2**12 if quick else 2**30  # that are copied
        self.tokens = 7 if quick else 255  # of a text, after the first
        self.most = 2 if quick else 200  # pieces of work in a group
        self.ready: dict[str, tuple[Step, str]] = {}  # by variant: what does the work, and in which precision

    def facts(self) -> dict[str, Any]:
        """A description of the side, and the amount of each kind of work."""
        raise NotImplementedError

    def check(self, shape: Shape, work: str) -> dict[str, list[float]]:
        """Make the model, and what it computes in float32: "losses" before and after a step, or "tokens" of a text."""
        raise NotImplementedError

    def work(self, work: str, precision: str, variant: str) -> Step:
        """What does a piece of work, of the model that was made last."""
        raise NotImplementedError

    def in_precision(self, name: str) -> contextlib.AbstractContextManager:
        """Inside, products are computed in this precision."""
        raise NotImplementedError

    def synchronize(self) -> None:
        """Wait for the GPU."""
        raise NotImplementedError

    def release(self) -> None:
        """Drop the model, and free its memory."""
        raise NotImplementedError

    def kernels_of(self, step: Step) -> tuple[list[tuple[str, float]], str]:
        """The kernels of a step with their microseconds on the GPU, one after the other; and how that is known."""
        raise NotImplementedError

    def prepare(self, work: str, shape: str) -> dict[str, Any]:
        """Make the model of this shape, if the work needs one, in place of the one before."""
        self.ready.clear()
        self.release()
        return self.check(self.shapes[shape], work) if shape else {}

    def begin(self, work: str, precision: str, variant: str, seconds: float) -> dict[str, Any]:
        """Prepare one variant of the work; returns how many repeats take about `seconds`."""
        with self.in_precision(precision):
            step = self.work(work, precision, variant)
            first, repeats = warm_up(step, self.synchronize, seconds, self.most)
        self.ready[variant] = step, precision
        return {"first_ms": first, "repeats": repeats}

    def turn(self, variant: str, repeats: int, begin: int) -> dict[str, Any]:
        """Do the work `repeats` times; returns the milliseconds of one, and those that Python needed to start it."""
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
            ms, asked_ms, _ = time_group(step, self.synchronize, min(10, self.most))
            spent, source = self.kernels_of(step)
        return {"ms": ms, "asked_ms": asked_ms, "kernels": spent, "source": source}


def reply_of(side: Side) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Answers to questions {"do": one of DO, ...}; {"failed": why, ...} if something went wrong."""

    def reply(question: dict[str, Any]) -> dict[str, Any]:
        what = {name: value for name, value in question.items() if name != "do"}
        if question["do"] not in DO:
            raise ValueError(f"there is nothing called {question['do']}")
        with contextlib.redirect_stdout(sys.stderr):  # stdout is for answers; libraries may print
            try:
                return getattr(side, question["do"])(**what)
            except Exception as error:
                failed = {
                    "failed": f"{type(error).__name__}: {error}"[:500],
                    "traceback": traceback.format_exc()[-6000:],
                }
            # After `except`, where the error no longer keeps arrays alive.
            try:
                side.synchronize()
            except Exception:
                failed["broken"] = True  # after an error of a kernel, nothing works on this GPU in this process
            return failed

    return reply


def main(argv: list[str]) -> int:
    """Answer until stdin ends. The arguments: side, device, and maybe "quick"."""
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
