"""Measure this project against PyTorch, and write the table.

    python -m benchmarks                       all rows, about twenty minutes
    python -m benchmarks --rows 1,2,5          some of them
    python -m benchmarks --rows 1 --compile    and torch.compile on the CPU
    python -m benchmarks --quick               a few turns: checks that everything runs
    python -m benchmarks --out table.md        also to a file, row by row

The table goes to stdout, everything else to stderr. README.md in this folder says what each row means.
"""

from collections.abc import Sequence
from importlib.util import find_spec

from benchmarks.machine import load
from benchmarks.rows import ROWS, BenchmarkOptions, Finding, Row, measure
from benchmarks.table import conditions, render, spread
from extra.plots.figure import write_or_refuse
from extra.studies.program import chosen
from tinygrad_lite.errors import UserError
from training.cli.command_line import read_command
from training.cli.console import run_command, say


def main(argv: list[str]) -> int:
    """Measure the chosen rows, and write the table after each."""
    options, _ = read_command(BenchmarkOptions, argv, "python -m benchmarks", __doc__.split("\n")[0])
    numbers = chosen(options.rows, [str(row.number) for row in ROWS], "rows")
    rows = [row for row in ROWS if str(row.number) in numbers]
    check_libraries(rows)
    about = conditions(options, load())
    findings: list[Finding] = []
    write(options, findings, about)  # fails at once if the file cannot be written
    for row in rows:
        say(f"row {row.number}: {row.what}")
        findings.append(measure(row, options, options.compile))
        say("  " + ", ".join(f"{side} {spread(values, row.unit)}" for side, values in findings[-1].turns.items()))
        write(options, findings, about)
    print(render(findings, about), end="")
    return 0


def check_libraries(rows: list[Row]) -> None:
    """Raise UserError if a row needs a library that is not installed."""
    for row in rows:
        if missing := [library for library in row.needs if not find_spec(library)]:
            free = ",".join(dict.fromkeys(str(r.number) for r in ROWS if not r.needs))
            needed = f'row {row.number} needs {missing[0]}, which is not installed: pip install -e ".[bench]"'
            raise UserError(f"{needed}; --rows {free} run without it")


def write(options: BenchmarkOptions, findings: Sequence[Finding], about: Sequence[str]) -> None:
    """Write the page to the file, if one is given."""
    if options.out:
        write_or_refuse(options.out, render(findings, about), "--out ")


if __name__ == "__main__":
    run_command("benchmarks", main)
