"""The table of the GPU's measurements: numbers with units, ratios, shares, Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.gpu_rows import Finding
from benchmarks.table import shown, spread

COLUMNS = ("row", "precision", "this project", "torch", "ratio", "torch, second variant", "ratio", "speed", "reached")
SECOND = {"compiled": "torch.compile", "hugging-face": "Hugging Face"}


def values(finding: Finding, variant: str, facts: dict[str, Any]) -> list[float]:
    """One number for each turn, in the row's unit."""
    row, turns = finding.row, finding.turns[variant]
    if row.unit == "ms":
        return [turn["ms"] for turn in turns]
    if row.unit == "µs":
        return [1e3 * turn["asked_ms"] for turn in turns]
    amount = facts["amounts"][row.work]
    scale = 1e3 if row.unit == "tokens/s" else 1e-9  # per ms to per second, or to 10^12 per second
    return [amount / turn["ms"] * scale for turn in turns]


def ratios(finding: Finding, variant: str) -> list[float]:
    """The other variant's time divided by ours, turn by turn."""
    part = "asked_ms" if finding.row.unit == "µs" else "ms"
    pairs = zip(finding.turns.get("ours", []), finding.turns.get(variant, []), strict=False)
    return [theirs[part] / ours[part] for ours, theirs in pairs]


def product_rate(findings: Sequence[Finding], precision: str, facts: dict[str, Any]) -> float:
    """TFLOP/s of one large product in this precision, on the faster side; 0 if it was not measured."""
    there = [f for f in findings if f.row.work == "product" and f.precision == precision]
    rates = [statistics.median(values(f, variant, facts)) for f in there for variant in f.turns]
    return max(rates, default=0.0)


def speed(finding: Finding, findings: Sequence[Finding], facts: dict[str, Any]) -> str:
    """Tokens per second of our training step, the rate of its products, and the share of one large product's rate."""
    if finding.row.work != "train" or "ours" not in finding.turns:
        return ""
    ms = statistics.median(values(finding, "ours", facts))
    shape = facts["shapes"][finding.row.shape]
    rate = shape["flop"] / ms / 1e9
    said = f"{shape['tokens'] / ms * 1e3:,.0f} tokens/s, {shown(rate)} TFLOP/s"
    of_one = product_rate(findings, finding.precision, facts)
    return f"{said}, {rate / of_one:.0%}" if of_one else said


def verdict(finding: Finding) -> str:
    """Whether the median ratios reach the aim, the floor, or neither."""
    row = finding.row
    if row.aim and (found := ratios(finding, "compiled")) and statistics.median(found) >= row.aim:
        return "aim"
    if not row.floor or not (found := ratios(finding, "eager")):
        return ""
    return "floor" if statistics.median(found) >= row.floor else "**no**"


def cells(finding: Finding, findings: Sequence[Finding], facts: dict[str, Any]) -> list[str]:
    """The line of the table."""
    row = finding.row
    line = [row.what, finding.precision]
    for variant, side in (("ours", "ours"), ("eager", "torch"), (row.beside, "torch")):
        failed = finding.failed.get(variant) or finding.failed.get(side) or finding.failed.get("row", "")
        there = variant in finding.turns
        cell = spread(values(finding, variant, facts), row.unit) if there else ""
        if failed and (variant != row.beside or variant in finding.failed):
            cell += f" in {len(finding.turns[variant])} turns, then failed: " if there else "failed: "
            cell += escaped(failed)
        if variant in SECOND and cell:
            cell = f"{SECOND[variant]}: {cell}"
        line.append(cell)
        if variant != "ours":
            found = ratios(finding, variant)
            line.append(f"**{spread(found)}**" if found else "")
    return [*line, speed(finding, findings, facts), verdict(finding)]


def escaped(text: str) -> str:
    """A message as the cell of a table."""
    return " ".join(text.replace("|", "/").split())[:160]


def render(findings: Sequence[Finding], about: Sequence[str], facts: dict[str, Any]) -> str:
    """The whole page."""
    lines = ["# This project beside PyTorch on a GPU", ""]
    lines += [f"- {line}" for line in about]
    lines += [
        "",
        "Numbers are medians over the turns, with quartiles in brackets. A ratio is PyTorch's time divided by ours, in "
        "each turn: above 1 this project is faster. Speed: target tokens, the rate of the step's matrix products, "
        "and its share of the rate of one large product in the same precision, in this run. `reached` refers to the "
        "floor, parity with eager torch, and to the aim, a ratio to torch.compile.",
        "",
        "| " + " | ".join(COLUMNS) + " |",
        "|" + "---|" * len(COLUMNS),
    ]
    lines += ["| " + " | ".join(cells(finding, findings, facts)) + " |" for finding in findings]
    return "\n".join(lines) + "\n"
