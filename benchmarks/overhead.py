"""Measure the overhead of an operation, against PyTorch: ten operations on 4 × 4 numbers.

    python -m benchmarks.overhead             a table on stdout, about a minute
    python -m benchmarks.overhead --quick     a few turns: checks that everything runs

Each is measured forward, which makes a node of the graph, and forward and backward, which also computes gradients. The
time reported is that of the fastest group of calls: other load on the machine only makes a group slower. Both libraries
are in one process, in which they take turns: so few numbers wake none of their threads.
"""

from __future__ import annotations

import timeit
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np

from benchmarks.machine import load
from benchmarks.rows import QUICK
from benchmarks.table import conditions, markdown
from extra.studies.program import program
from tinygrad_lite import Tensor
from tinygrad_lite.config import option
from tinygrad_lite.errors import UserError
from tinygrad_lite.random import keyed_rng
from training.cli.console import run_command, say

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


@dataclass
class OverheadOptions:
    """The options of `python -m benchmarks.overhead`."""

    turns: int = option(15, "turns of each side", unit="turns", low=1)
    quick: bool = option(False, f"only {QUICK} short turns, to check that everything runs")


@program("benchmarks.overhead", OverheadOptions)
def main(options: OverheadOptions) -> None:
    """Measure the overhead of an operation, against PyTorch: ten operations on 4 × 4 numbers."""
    if find_spec("torch") is None:
        raise UserError('the comparison needs PyTorch, which is not installed: pip install -e ".[bench]"')
    import torch

    if options.quick:
        options.turns = min(QUICK, options.turns)
    about = conditions(options, load())
    arrays = keyed_rng(1, "benchmark").uniform(1, 2, (2, 4, 4)).astype(np.float32)
    makers: tuple[Callable, ...] = (Tensor, torch.tensor)
    sides = [[make(array, requires_grad=True) for array in arrays] for make in makers]
    found: dict[str, list[float]] = {}
    for name, operation in OPERATIONS.items():
        forward, both = zip(*(calls_of(operation, *side) for side in sides), strict=True)
        if not np.allclose(*(numbers_of(call, side) for call, side in zip(both, sides, strict=True)), rtol=1e-5):
            raise UserError(f"{name}: the sides compute different numbers, so their times are meaningless")
        groups = 1 if options.quick else GROUPS
        found[name] = fastest(forward, options.turns, groups) + fastest(both, options.turns, groups)
        say(f"{name}: " + ", ".join(f"{microseconds:.2f} µs" for microseconds in found[name][::2]))
    print(table(found, about), end="")


def calls_of(operation: Callable[[Any, Any], Any], x: Any, y: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """An operation forward, and with its backward pass."""
    dz = operation(x, y).detach() * 0 + 1

    def forward_and_backward() -> Any:
        x.grad = y.grad = None
        z = operation(x, y)
        z.backward(dz)
        return z

    return lambda: operation(x, y), forward_and_backward


def numbers_of(call: Callable[[], Any], side: Sequence[Any]) -> list[float]:
    """The sums of an operation's result and of the gradients that it has computed."""
    tensors = [call(), *(tensor.grad for tensor in side)]
    return [0.0 if tensor is None else float(tensor.detach().numpy().sum()) for tensor in tensors]


def fastest(calls: Sequence[Callable[[], Any]], turns: int, groups: int) -> list[float]:
    """The microseconds of each call, on average over the fastest group of them, where they take turns."""
    best = [float("inf")] * len(calls)
    for turn in range(turns):
        for side in range(len(calls))[:: -1 if turn % 2 else 1]:
            seconds = min(timeit.repeat(calls[side], number=CALLS, repeat=groups))
            best[side] = min(best[side], seconds * 1e6 / CALLS)
    return best


def table(found: dict[str, list[float]], about: Sequence[str]) -> str:
    """The page: machine and settings, and a line for each operation."""
    lines = ["# The cost of an operation on 4 × 4 numbers", "", *(f"- {line}" for line in about), ""]
    header = ["", *(f"{way}: {column}" for way in WAYS for column in ("this project, µs", "torch, µs", "ratio"))]
    rows = []
    for name, times in found.items():
        pairs = zip(times[::2], times[1::2], strict=True)
        cells = [f"{ours:.2f} | {theirs:.2f} | **{theirs / ours:.2f}**" for ours, theirs in pairs]
        rows.append([f"`{name}`", *cells])
    return "\n".join([*lines, markdown(header, rows)])


if __name__ == "__main__":
    run_command("benchmarks", main)
