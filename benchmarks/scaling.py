"""Measure how the speed of a training step changes with context, width and batch, against PyTorch, and plot it.

    python -m benchmarks.scaling                          a table on stdout, about five minutes
    python -m benchmarks.scaling --out docs/scaling.svg   also a plot

Everything except the varied size is as in the table's first row. The sides take turns as there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.machine import load
from benchmarks.rows import Finding, MeasureOptions, Row, measure
from benchmarks.shapes import SCALES, SHAPES, scaled
from benchmarks.table import conditions, facts, quartiles, ratios, spread
from extra.plots.figure import COLOURS, check_plot, new_figure, own_style, plain_axes, save, write_out
from tinygrad_lite.config import option
from training.cli.command_line import read_command
from training.cli.console import run_command, say

NAMES = {"block_size": "context, tokens", "n_embd": "width (n_embd)", "batch_size": "batch, sequences"}
SIDES = {"ours": "this project", "torch": "PyTorch"}
REPEATS = 3


@dataclass
class ScalingOptions(MeasureOptions):
    """The options of `python -m benchmarks.scaling`."""

    turns: int = option(7, "turns of each side", unit="turns", low=1)
    out: str = option("", "plot to write: .svg, .png or .pdf", unit="file")


def main(argv: list[str]) -> int:
    """Measure, print the table, plot."""
    options, _ = read_command(ScalingOptions, argv, "python -m benchmarks.scaling", __doc__.split("\n")[0])
    if options.out:
        check_plot(options.out, "--out")
    about = conditions(options, load())
    findings: dict[tuple[str, int], Finding] = {}
    for name, values in SCALES.items():
        for value in values:
            say(f"{name} {value}")
            row = Row(1, f"{name} {value}", "train", scaled(name, value), "ms", 1, 1, repeats=REPEATS)
            findings[name, value] = measure(row, options)
    print(table(findings, about), end="")
    if options.out:
        with own_style():
            save(plot(findings), Path(options.out))
    return 0


def tokens_per_second(finding: Finding, side: str) -> list[float]:
    """The speed of each turn."""
    options = SHAPES[finding.row.shape].options
    return [options.batch_size * options.config.block_size / (ms / 1e3) for ms in finding.turns[side]]


def table(findings: dict[tuple[str, int], Finding], about: Sequence[str]) -> str:
    """The page: machine and settings, and a line for each shape."""
    lines = ["# Training speed with context, width and batch", ""]
    lines += [f"- {line}" for line in (*about, *facts(list(findings.values())[:1]))]
    lines += ["", "| | | this project, tokens/s | torch, tokens/s | ratio |", "|---|---|---|---|---|"]
    for (name, value), finding in findings.items():
        speeds = [spread(tokens_per_second(finding, side)) for side in SIDES]
        lines.append(f"| {name} | {value} | {speeds[0]} | {speeds[1]} | **{spread(ratios(finding, 'torch'))}** |")
    return "\n".join(lines) + "\n"


def plot(findings: dict[tuple[str, int], Finding]):
    """Top: the speeds of both; bottom: their ratio; a column for each varied size. Bars show the quartiles."""
    figure = new_figure(9.6, 5)
    axes = figure.subplots(2, len(SCALES), sharey="row", sharex="col")
    for column, (name, values) in enumerate(SCALES.items()):
        above, below = axes[:, column]
        above.set_xscale("log", base=2)
        above.set_yscale("log")
        write_out(above.yaxis)
        for colour, (side, label) in zip(COLOURS, SIDES.items(), strict=False):
            line(above, values, [tokens_per_second(findings[name, value], side) for value in values], colour, label)
        line(below, values, [ratios(findings[name, value], "torch") for value in values], COLOURS[2])
        below.axhline(1, color="black", linewidth=0.8)
        below.set_xlabel(NAMES[name])
        below.set_xticks(values, [str(value) for value in values])
        below.minorticks_off()
        below.set_ylim(bottom=0)
        for part in (above, below):
            plain_axes(part)
    axes[0, 0].set_ylabel("tokens per second")
    axes[1, 0].set_ylabel("speed-up over PyTorch")
    axes[0, 0].legend(frameon=False)
    return figure


def line(axes, values: Sequence[int], turns: Sequence[Sequence[float]], colour: str, label: str = "") -> None:
    """Medians as a line, quartiles as bars."""
    low, median, high = zip(*map(quartiles, turns), strict=True)
    axes.plot(values, median, marker="o", color=colour, label=label)
    axes.vlines(values, low, high, color=colour, linewidth=3, alpha=0.4)


if __name__ == "__main__":
    run_command("benchmarks", main)
