"""Ratios and verdicts, on synthetic measurements."""

import pytest

from benchmarks.rows import Finding, Row
from benchmarks.table import ratios, verdict

TIME = Row(1, "a step", "train", "small", "ms", 1.15, 1.5)
SPEED = Row(6, "writing", "write", "small", "tokens/s", 4, 8)
MEMORY = Row(8, "memory", "train-alone", "small", "MB", 1.0, 0.6)
START = Row(9, "importing", "import", "", "s", 0.15, 0.05)


def finding(row: Row, ours: list[float], torch: list[float] | None = None) -> Finding:
    return Finding(row, {"ours": ours} if torch is None else {"ours": ours, "torch": torch})


def test_ratios_are_taken_turn_by_turn():
    assert ratios(finding(TIME, [10, 20], [15, 10]), "torch") == [1.5, 0.5]  # above 1: we take less time
    assert ratios(finding(SPEED, [100, 80], [50, 160]), "torch") == [2.0, 0.5]  # above 1: we write faster
    assert ratios(finding(MEMORY, [50, 200], [100, 100]), "torch") == [0.5, 2.0]  # below 1: we take less memory
    with pytest.raises(ValueError, match="zip"):
        ratios(finding(TIME, [1, 2], [1]), "torch")


VERDICTS = [
    (finding(TIME, [10, 10, 10], [11, 15, 16]), "aim"),  # the median counts
    (finding(TIME, [10], [11.5]), "floor"),
    (finding(SPEED, [39], [10]), "**no**"),
    (finding(MEMORY, [60], [100]), "aim"),
    (finding(MEMORY, [101], [100]), "**no**"),
    (finding(START, [0.1]), "floor"),
]


@pytest.mark.parametrize(("measured", "expected"), VERDICTS)
def test_verdict(measured, expected):
    assert verdict(measured) == expected
