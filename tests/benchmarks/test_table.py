"""Ratios, quartiles, verdicts and Markdown, on synthetic measurements."""

import pytest

from benchmarks.rows import BenchmarkOptions, Finding, Row
from benchmarks.table import cells, conditions, facts, ratios, render, shown, spread, verdict

TIME = Row(1, "a step", "train", "small", "ms", 1.15, 1.5)
SPEED = Row(6, "writing", "write", "small", "tokens/s", 4, 8)
MEMORY = Row(8, "memory", "train-alone", "small", "MB", 1.0, 0.6)
START = Row(9, "importing", "import", "", "s", 0.15, 0.05)
ENCODING = Row(11, "encoding", "encode", "", "MB/s", 1, 3)
TWO = ["torch", "torch-malloc"]


def finding(row: Row, ours: list[float], torch: list[float] | None = None) -> Finding:
    return Finding(row, {"ours": ours} if torch is None else {"ours": ours, "torch": torch})


def test_ratios_are_taken_turn_by_turn():
    assert ratios(finding(TIME, [10, 20], [15, 10]), "torch") == [1.5, 0.5]  # above 1: we take less time
    assert ratios(finding(SPEED, [100, 80], [50, 160]), "torch") == [2.0, 0.5]  # above 1: we write faster
    assert ratios(finding(MEMORY, [50, 200], [100, 100]), "torch") == [0.5, 2.0]  # below 1: we take less memory


def test_sides_with_different_numbers_of_turns_are_refused():
    with pytest.raises(ValueError, match="zip"):
        ratios(finding(TIME, [1, 2], [1]), "torch")


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        (finding(TIME, [10, 10, 10], [11, 15, 16]), "aim"),  # the median counts
        (finding(TIME, [10], [11.5]), "floor"),
        (finding(TIME, [10], [11.4]), "**no**"),
        (finding(SPEED, [80], [10]), "aim"),
        (finding(SPEED, [39], [10]), "**no**"),
        (finding(MEMORY, [60], [100]), "aim"),
        (finding(MEMORY, [100], [100]), "floor"),
        (finding(MEMORY, [101], [100]), "**no**"),
        (finding(START, [0.05]), "aim"),
        (finding(START, [0.1]), "floor"),
        (finding(START, [0.2]), "**no**"),
        (finding(ENCODING, [3.5]), "aim"),
        (finding(ENCODING, [2.9]), "floor"),
        (finding(ENCODING, [0.9]), "**no**"),
    ],
)
def test_verdict(measured, expected):
    assert verdict(measured) == expected


def test_the_first_torch_column_is_compared_with_the_floor():
    measured = Finding(TIME, {"ours": [10], "torch": [20], "torch-malloc": [5]})
    assert verdict(measured) == "aim"
    assert cells(measured, TWO)[4:7] == [
        "**2.00 (2.00 to 2.00)**",
        "5.00 (5.00 to 5.00) ms",
        "**0.500 (0.500 to 0.500)**",
    ]


def test_numbers_have_three_digits():
    assert [shown(value) for value in (1234.5, 99.96, 1.0, 0.04567)] == ["1,234", "100.", "1.00", "0.0457"]
    assert spread([1.0, 2.0, 3.0], "s") == "2.00 (1.50 to 2.50) s"


def test_the_page_is_a_table_below_its_conditions():
    findings = [finding(TIME, [10], [20]), finding(START, [0.1])]
    findings[0].facts = {"ours": ["2 processes"], "torch": ["threads: 2"]}
    findings[1].facts = {"ours": ["2 processes", "another thing"]}
    page = render(findings, ["Machine: a small one"])
    lines = page.splitlines()
    assert page.endswith("|\n")
    assert lines[2:5] == ["- Machine: a small one", "- This project: 2 processes; another thing", "- torch: threads: 2"]
    table = [line for line in lines if line.startswith("|")]
    assert len(table) == 4
    assert all(line.count("|") == 11 for line in table)
    assert table[2].startswith("| 1 | a step | 10.0 (10.0 to 10.0) ms | 20.0 (20.0 to 20.0) ms | **2.00 (")
    assert facts([]) == []
    findings[0].turns["torch-compiled"] = [5]
    table = [line.split(" | ") for line in render(findings, []).splitlines() if line.startswith("|")]
    assert [table[0][7:9], table[2][7:9], table[3][7:9]] == [
        ["torch.compile", "ratio"],
        ["5.00 (5.00 to 5.00) ms", "**0.500 (0.500 to 0.500)**"],
        ["", ""],
    ]


def test_the_page_names_machine_and_versions():
    lines = conditions(BenchmarkOptions(quick=True, turns=2), "0.5")
    text = "\n".join(lines)
    for part in ("Machine: ", " cores", "numpy 2.", "torch ", "transformers ", "blas", "Turns: 2", "--quick", ": 0.5"):
        assert part.lower() in text.lower(), part
    assert not any("--quick" in line or "minute" in line for line in conditions(BenchmarkOptions(), ""))
