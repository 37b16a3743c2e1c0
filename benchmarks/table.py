"""The table of the measurements: ratios turn by turn, their medians and quartiles, Markdown."""

import platform
import statistics
from collections.abc import Sequence

from benchmarks.machine import cpu_model, installed, numpy_blas
from benchmarks.rows import MEMORY_TURNS, BenchmarkOptions, Finding, Row
from training.folder import available_cores

SIDES = {"ours": "This project", "torch": "torch", "torch-malloc": "torch, same malloc"}
SIDES |= {"torch-compiled": "torch.compile"}


def ratios(finding: Finding, other: str) -> list[float]:
    """This project compared with another side, turn by turn: above 1 where this project is faster.

    That is theirs / ours for times and ours / theirs for speeds. For memory it is ours / theirs too, so a small ratio
    is good.
    """
    ours_on_top = finding.row.unit == "MB" or not finding.row.less_is_better
    pairs = zip(finding.turns["ours"], finding.turns[other], strict=True)
    return [ours / theirs if ours_on_top else theirs / ours for ours, theirs in pairs]


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Lower quartile, median, upper quartile: a quarter, half and three quarters of the values lie below them.

    Quantiles are interpolated linearly between values; the smallest and largest value are the quantiles 0 and 1.
    """
    if len(values) == 1:
        return values[0], values[0], values[0]
    return tuple(statistics.quantiles(values, n=4, method="inclusive"))


def judged(finding: Finding) -> list[float]:
    """The numbers to compare with floor and aim: the ratios to default torch, or our own without torch."""
    return ratios(finding, "torch") if "torch" in finding.turns else finding.turns["ours"]


def verdict(finding: Finding) -> str:
    """Whether the median reaches the aim, the floor, or neither."""
    median = quartiles(judged(finding))[1]
    for name, bound in (("aim", finding.row.aim), ("floor", finding.row.floor)):
        if median <= bound if finding.row.is_at_most else median >= bound:
            return name
    return "**no**"


def shown(value: float) -> str:
    """Three significant digits; from 100 on, all digits before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:#.3g}"


def spread(values: Sequence[float], unit: str = "") -> str:
    """Median (lower to upper quartile)."""
    low, median, high = map(shown, quartiles(values))
    return f"{median} ({low} to {high})" + (f" {unit}" if unit else "")


def bound(row: Row, value: float) -> str:
    """A floor or aim with its direction and unit."""
    unit = f" {row.unit}" if row.sides() == ("ours",) else ""
    return f"{'≤' if row.is_at_most else '≥'} {value:g}{unit}"


def others(findings: Sequence[Finding]) -> list[str]:
    """The sides to compare with: those that every table has, and what has been measured beyond them."""
    measured = {name for finding in findings for name in finding.turns}
    return [name for name in SIDES if name in ("torch", "torch-malloc") or name in measured - {"ours"}]


def cells(finding: Finding, others: Sequence[str]) -> list[str]:
    """The line of the table."""
    row, turns = finding.row, finding.turns
    line = [str(row.number), row.what, spread(turns["ours"], row.unit)]
    for other in others:
        there = other in turns
        line += [spread(turns[other], row.unit), f"**{spread(ratios(finding, other))}**"] if there else ["", ""]
    return [*line, bound(row, row.floor), bound(row, row.aim), verdict(finding)]


def conditions(options: BenchmarkOptions, load_before: str) -> list[str]:
    """The conditions of the measurement, a line each."""
    versions = ", ".join(f"{name} {installed(name)}" for name in ("numpy", "torch", "transformers"))
    lines = [
        f"Machine: {cpu_model()}, {available_cores()} cores",
        f"Versions: Python {platform.python_version()}, {versions}; NumPy multiplies matrices with {numpy_blas()}",
        f"Turns: {options.turns}, of memory at most {MEMORY_TURNS}",
    ]
    if options.quick:
        lines.append("Made with --quick: the numbers are meaningless")
    return lines + ([f"Load average of the minute before: {load_before}"] if load_before else [])


def facts(findings: Sequence[Finding]) -> list[str]:
    """The facts about the sides, a line for each."""
    said: dict[str, list[str]] = {name: [] for name in SIDES}
    for finding in findings:
        for side, about in finding.facts.items():
            said[side] += [sentence for sentence in about if sentence not in said[side]]
    return [f"{SIDES[side]}: {'; '.join(sentences)}" for side, sentences in said.items() if sentences]


def render(findings: Sequence[Finding], about: Sequence[str]) -> str:
    """The whole page."""
    lines = ["# This project beside PyTorch", ""]
    lines += [f"- {line}" for line in (*about, *facts(findings))]
    lines += [
        "",
        "Numbers are medians over the turns, with quartiles in brackets. A ratio is taken in each turn: torch's time "
        "divided by ours, or our speed divided by torch's, so above 1 this project is faster; for memory ours divided "
        "by torch's. Floor, aim and `reached` refer to torch with its default settings.",
        "",
    ]
    compared = others(findings)
    titles = [title for other in compared for title in (SIDES[other], "ratio")]
    columns = ["row", "work", "this project", *titles, "floor", "aim", "reached"]
    return "\n".join([*lines, markdown(columns, [cells(finding, compared) for finding in findings])])


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table."""
    first, *others = (f"| {' | '.join(line)} |\n" for line in (header, *rows))
    return "".join([first, "|" + "---|" * len(header) + "\n", *others])
