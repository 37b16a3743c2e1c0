"""The rows of `python -m benchmarks.gpu`, and how one is measured by two processes that take turns."""

from __future__ import annotations

import contextlib
import itertools
import math
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.children import Child, ask, start
from tinygrad_lite.cli.errors import OptionError, UserError

# Relative, in float32: losses before the first update and log-probabilities; losses after the update.
SAME_LOSS, SAME_AFTER = 1e-4, 1e-3
ALL = ("bfloat16", "tf32", "float32")


@dataclass(frozen=True)
class GpuRow:
    """One line of the table for each precision.

    Attributes:
        group: its name for --rows; several rows may have one.
        what: for the reader.
        work, shape: the task and the model (`gpu_side.py`).
        unit: of the numbers: "ms", "µs" of Python's time, or that of a speed.
        precisions: those in which the row makes sense.
        beside: PyTorch's second variant, "compiled" or "hugging-face".
        floor: the ratio to reach against eager PyTorch; 0: none.
        aim: the ratio to reach against the compiled variant; 0: none.
    """

    group: str
    what: str
    work: str
    shape: str
    unit: str
    precisions: tuple[str, ...] = ALL
    beside: str = ""
    floor: float = 0.0
    aim: float = 0.0


BABY = "6 layers, 6 heads, 384 wide, context 256"
GPT2 = "GPT-2 with 124 million parameters"
BASE = "base Transformer of 2017, 384 pairs of up to 32 tokens, vocabulary 37,000, dropout 0.1"
STEP, WRITING = "training step", "greedy generation with a cache, 255 tokens"
EXACT = ("float32",)
ROWS = (
    GpuRow("rates", "product of two matrices, 8,192 × 8,192", "product", "", "TFLOP/s"),
    GpuRow("rates", "copy of 1 GiB, read and written", "copy", "", "TB/s", EXACT),
    GpuRow("host", "Python's time to start a kernel", "launch", "", "µs", EXACT),
    GpuRow("host", "Python's time for a product, 64 × 64", "small product", "", "µs", EXACT),
    GpuRow("host", "Python's time for a linear map with its node in the graph", "linear", "", "µs", EXACT),
    GpuRow("baby", f"{STEP}: {BABY}, batch 64", "train", "baby", "ms", ALL, "compiled", 1, 1),
    GpuRow("gpt2", f"{STEP}: {GPT2}, 12 × 1,024 tokens", "train", "gpt2", "ms", ALL, "compiled", 1, 0.9),
    GpuRow("dropout", f"{STEP}: {BABY}, batch 64, dropout 0.2", "train", "baby-dropout", "ms", ALL, "compiled", 1, 1),
    GpuRow("translation", f"{STEP}: {BASE}", "train", "translation", "ms", floor=1),
    GpuRow("write", f"{WRITING}: {BABY}", "write", "baby", "tokens/s", ALL, "hugging-face", 1),
    GpuRow("write", f"{WRITING}: {GPT2}", "write", "gpt2", "tokens/s", ALL, "hugging-face", 1),
)


@dataclass
class Finding:
    """What was measured for a row in one precision.

    Attributes:
        turns: by variant, one answer for each turn: {"ms", "asked_ms", "loss"}.
        failed: by variant, or by "row" if nothing could be compared, the reason why there are no numbers.
        check: the results of the sides before anything was timed.
    """

    row: GpuRow
    precision: str
    turns: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    check: dict[str, Any] = field(default_factory=dict)


def chosen(text: str, known: Sequence[str], name: str) -> list[str]:
    """The names in a text like "baby,gpt2", in the order of `known`; all if it is empty.

    Raises: OptionError for anything else.
    """
    parts = [part.strip() for part in text.split(",")] if text else list(known)
    if unknown := [part for part in parts if part not in known]:
        raise OptionError(f"--{name} {text}: there is no {unknown[0]!r}, only {', '.join(known)}")
    return [one for one in known if one in parts]


# --- the two processes ----------------------------------------------------------------------------------------


class SideFailed(Exception):
    """A side could not answer a question."""


class Handle:
    """The parent's end of a side: starts its process, and starts it again if it is broken."""

    def __init__(self, name: str, device: str, quick: bool, deadline: float, patience: float) -> None:
        """A side by its name.

        Args:
            deadline: the end of all measurements (time.monotonic).
            patience: time limit for a reply, in seconds.
        """
        self.name, self.device, self.quick = name, device, quick
        self.deadline, self.patience = deadline, patience
        self.process: Child | None = None
        self.prepared: tuple[str, str] | None = None
        self.check: dict[str, Any] = {}
        self.impossible: dict[tuple[str, str], str] = {}  # models that could not be prepared, and why

    def start(self) -> None:
        """Start the process, which takes some time."""
        self.process = start_side(self.name, self.device, self.quick)

    def ask(self, **question: Any) -> dict[str, Any]:
        """Ask a question, and wait for the reply.

        Raises: SideFailed with the reason if there is none.
        """
        if self.process is None:
            self.start()
        allowed = max(1.0, min(self.patience, self.deadline - time.monotonic()))
        timer = threading.Timer(allowed, self.process.kill)
        began = time.monotonic()
        timer.start()
        try:
            answer = ask(self.process, question)
        except (UserError, SystemExit, ValueError) as error:
            self.close()
            if time.monotonic() - began >= allowed:
                raise SideFailed(f"no answer within {allowed:.0f} s") from None
            raise SideFailed(f"the process ended ({error})") from None
        finally:
            timer.cancel()
        if "failed" in answer:
            print(answer.get("traceback", ""), file=sys.stderr, flush=True)
            if answer.get("broken"):
                self.close()
            raise SideFailed(answer["failed"])
        return answer

    def prepare(self, row: GpuRow) -> None:
        """Let the side make the model of a row, unless it already has it.

        Raises: SideFailed if that fails; it is not tried again for the row's other precisions.
        """
        wanted = row.work, row.shape
        if wanted in self.impossible:
            raise SideFailed(self.impossible[wanted])
        if self.prepared != wanted:
            self.prepared = None
            try:
                self.check = self.ask(do="prepare", work=row.work, shape=row.shape)
            except SideFailed as failure:
                self.impossible[wanted] = str(failure)
                raise
            self.prepared = wanted

    def close(self) -> None:
        """End the process."""
        process, self.process, self.prepared = self.process, None, None
        if process is not None:
            process.kill()
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            process.stdout.close()
            process.wait()


def start_side(name: str, device: str, quick: bool) -> Child:
    """A side in a process of its own."""
    return start([sys.executable, "-m", "benchmarks.gpu_side", name, device, *(["quick"] if quick else [])], {})


# --- measuring ------------------------------------------------------------------------------------------------


def measure(
    row: GpuRow, precision: str, sides: dict[str, Handle], compiled: Sequence[str], turns: int, seconds: float
) -> Finding:
    """Measure one row in one precision. Errors are stored in the finding.

    Args:
        sides: "ours", and "torch" if it is installed.
        compiled: the precisions in which PyTorch is also compiled.
        seconds: length of a turn.
    """
    finding = Finding(row, precision)
    for name, side in sides.items():
        try:
            side.prepare(row)
            finding.check[name] = side.check
        except SideFailed as failure:
            finding.failed[name] = str(failure)
    if difference := differs(finding.check):
        finding.failed["row"] = f"not measured: {difference}"
        return finding
    names = variants_of(row, precision, compiled)
    variants = {variant: sides[name] for variant, name in names if name in finding.check}
    repeats: dict[str, int] = {}
    for variant, side in variants.items():
        with recorded(finding, variant):
            side.prepare(row)  # again, if another variant has ended the process
            answer = side.ask(do="begin", work=row.work, precision=precision, variant=variant, seconds=seconds)
            repeats[variant] = answer["repeats"]
    for turn in range(turns):
        for variant in list(repeats) if turn % 2 else list(repeats)[::-1]:
            with recorded(finding, variant):
                begin = turn * repeats[variant]
                answer = variants[variant].ask(do="turn", variant=variant, repeats=repeats[variant], begin=begin)
                finding.turns.setdefault(variant, []).append(answer)
            if variant in finding.failed:
                del repeats[variant]
    return finding


@contextlib.contextmanager
def recorded(finding: Finding, variant: str) -> Iterator[None]:
    """Inside, a failure is recorded and not raised."""
    try:
        yield
    except SideFailed as failure:
        finding.failed[variant] = str(failure)


def variants_of(row: GpuRow, precision: str, compiled: Sequence[str]) -> list[tuple[str, str]]:
    """What is timed, as (variant, side). Variants that may end their process come first, before others are ready."""
    beside = [] if not row.beside or (row.beside == "compiled" and precision not in compiled) else [row.beside]
    return [(variant, "torch") for variant in [*beside, "eager"]] + [("ours", "ours")]


def differs(check: dict[str, Any]) -> str:
    """How the results of the two sides differ; empty if they agree, or if there is only one side."""
    if len(check) < 2:
        return ""
    ours, theirs = check["ours"], check["torch"]
    for what, tolerances in (("losses", (SAME_LOSS, SAME_AFTER)), ("log_probs", itertools.repeat(SAME_LOSS))):
        pairs = zip(ours.get(what, []), theirs.get(what, []), tolerances, strict=False)
        if not all(math.isclose(a, b, rel_tol=tolerance) for a, b, tolerance in pairs):
            return f"the sides have different {what} in float32: {ours[what]} and {theirs[what]}"
    return ""
