"""Measure the overhead of an operation, against PyTorch: ten operations on 4 × 4 numbers.

    python -m benchmarks.overhead             a table on stdout, about a minute
    python -m benchmarks.overhead --quick     a few turns: checks that everything runs

Each is measured forward, which makes a node of the graph, and forward and backward, which also computes gradients. The
time reported is that of the fastest group of calls: other load on the machine only makes a group slower.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np

from benchmarks.children import ask, serve, start, take_turns
from benchmarks.machine import load
from benchmarks.rows import QUICK
from benchmarks.table import conditions
from tinygrad_lite import Tensor
from tinygrad_lite.config import option
from tinygrad_lite.errors import UserError
from tinygrad_lite.random import keyed_rng
from training.cli.command_line import read_command
from training.cli.console import run_command, say

SIDES = ("ours", "torch")
WAYS = ("forward", "forward and backward")
CALLS, GROUPS = 200, 10  # calls that are timed together; such groups in a turn
OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {  # the same in both libraries
    "x + y": lambda x, y: x + y,
    "x * y": lambda x, y: x * y,
    "y + 1": lambda x, y: y + 1,
    "y * 0.5": lambda x, y: y * 0.5,
    "x.sum()": lambda x, y: x.sum(),
    "x.mean()": lambda x, y: x.mean(),
    "x @ y": lambda x, y: x @ y,
    "x.exp()": lambda x, y: x.exp(),
    "x.reshape(2, 8)": lambda x, y: x.reshape(2, 8),
    "x[1:3]": lambda x, y: x[1:3],
}

Turns = dict[str, list[float]]  # by side, the microseconds of a call, one number for each turn


@dataclass
class OverheadOptions:
    """The options of `python -m benchmarks.overhead`."""

    turns: int = option(15, "turns of each side", unit="turns", low=1)
    quick: bool = option(False, f"only {QUICK} short turns, to check that everything runs")
    side: str = option("", "for the child processes: ours or torch", hidden=True)


def main(argv: list[str]) -> int:
    """Measure and print the table; with --side, answer as a child process."""
    options, _ = read_command(OverheadOptions, argv, "python -m benchmarks.overhead", __doc__.split("\n")[0])
    if options.side:
        serve(Side(options.side).reply)
        return 0
    if find_spec("torch") is None:
        raise UserError('the comparison needs PyTorch, which is not installed: pip install -e ".[bench]"')
    if options.quick:
        options.turns = min(QUICK, options.turns)
    about = conditions(options, load())
    found: dict[str, list[Turns]] = {}
    with ExitStack() as running:  # at its end their stdin is closed, which ends them
        command = [sys.executable, "-m", "benchmarks.overhead", "--side"]
        children = {name: running.enter_context(start([*command, name], {})) for name in SIDES}
        for operation in OPERATIONS:
            found[operation] = []
            for way in WAYS:
                answers = [ask(child, {"operation": operation, "way": way})["values"] for child in children.values()]
                if not np.allclose(*answers, rtol=1e-5):
                    raise UserError(f"{operation}: the sides compute different numbers, so their times are meaningless")
                found[operation].append(take_turns(children, options.turns, 1 if options.quick else GROUPS))
            say(f"{operation}: " + ", ".join(f"{min(turns['ours']):.2f} µs" for turns in found[operation]))
    print(table(found, about), end="")
    return 0


class Side:
    """One side in its child process: it prepares an operation, then times its calls."""

    def __init__(self, name: str) -> None:
        arrays = keyed_rng(1, "benchmark").uniform(1, 2, (2, 4, 4)).astype(np.float32)
        if name == "ours":
            self.x, self.y = (Tensor(array, requires_grad=True) for array in arrays)
            self.ones_like = lambda z: z.ones_like()
        else:
            import torch

            self.x, self.y = (torch.tensor(array, requires_grad=True) for array in arrays)
            self.ones_like = torch.ones_like
        self.call: Callable[[], Any] = lambda: None

    def reply(self, question: dict[str, Any]) -> dict[str, Any]:
        """The results of an operation, or the microseconds of a call in the fastest group."""
        if "operation" in question:
            return {"values": self.prepare(OPERATIONS[question["operation"]], question["way"])}
        return {"values": [min(time_calls(self.call) for _ in range(question["repeats"]))]}

    def prepare(self, operation: Callable[[Any, Any], Any], way: str) -> list[float]:
        """Make `call`, and call it once; returns the sums of its result and of the gradients."""
        x, y = self.x, self.y
        dz = self.ones_like(operation(x, y).detach())

        def forward_and_backward() -> Any:
            x.grad = y.grad = None
            z = operation(x, y)
            z.backward(dz)
            return z

        x.grad = y.grad = None
        self.call = (lambda: operation(x, y)) if way == WAYS[0] else forward_and_backward
        tensors = [self.call(), x.grad, y.grad]
        return [0.0 if tensor is None else float(tensor.detach().numpy().sum()) for tensor in tensors]


def time_calls(call: Callable[[], Any]) -> float:
    """Microseconds of a call, on average over a group of them."""
    began = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - began) * 1e6 / CALLS


def table(found: dict[str, list[Turns]], about: Sequence[str]) -> str:
    """The page: machine and settings, and a line for each operation."""
    columns = "this project, µs | torch, µs | ratio"
    lines = ["# The cost of an operation on 4 × 4 numbers", "", *(f"- {line}" for line in about), ""]
    lines += [f"| | {WAYS[0]}: {columns} | {WAYS[1]}: {columns} |", "|" + "---|" * 7]
    for operation, ways in found.items():
        cells = [f"`{operation}`"]
        for turns in ways:
            ours, theirs = (min(turns[side]) for side in SIDES)
            cells += [f"{ours:.2f}", f"{theirs:.2f}", f"**{theirs / ours:.2f}**"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    run_command("benchmarks", main)
