"""Measure this project beside PyTorch on one GPU: training steps, generation, and their parts.

    python -m benchmarks.gpu --quick                              tiny models: checks in a minute that everything runs
    python -m benchmarks.gpu --out results                        all rows, at most nine minutes
    python -m benchmarks.gpu --rows baby,gpt2 --profile           some rows, and the GPU's time by kernel
    python -m benchmarks.gpu --rows write --precisions bfloat16

Each side is a process of its own; they take turns on the GPU. A row that fails is reported, and the others continue.
The table goes to stdout at the end, everything else to stderr. With --out, the tables are also written to a folder
after each row, and all numbers as a line of JSON for each row (results.jsonl). README.md in this folder says what each
row means.
"""

from __future__ import annotations

import json
import platform
import time
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.gpu_rows import ALL, ROWS, Finding, GpuRow, Handle, SideFailed, chosen, measure
from benchmarks.gpu_table import ratios, render, values
from benchmarks.kernels import kernel_table
from benchmarks.machine import cpu_model, installed
from benchmarks.table import spread
from tinygrad_lite.cli.command_line import parse_command_line
from tinygrad_lite.cli.console import run_command, say
from tinygrad_lite.cli.errors import OptionError, UserError
from tinygrad_lite.cli.options import build, option
from tinygrad_lite.device import get_device
from tinygrad_lite.training.run_folder import available_cores

QUICK_TURNS = 2
GROUPS = tuple(dict.fromkeys(row.group for row in ROWS))


@dataclass
class GpuOptions:
    """The options of `python -m benchmarks.gpu`."""

    rows: str = option("", f"rows by name, such as baby,gpt2; empty: all ({','.join(GROUPS)})")
    precisions: str = option("", f"precisions, such as bfloat16; empty: all ({','.join(ALL)})")
    compiled: str = option("bfloat16", "precisions in which PyTorch is also compiled, which takes a minute; or none")
    profile: bool = option(False, "a table of the GPU's time by kernel, for each training step of both sides")
    turns: int = option(5, "turns of each side", unit="turns", low=1)
    seconds: float = option(0.4, "minimum length of a turn", unit="seconds", above=0.0)
    minutes: float = option(9.0, "time limit; rows that have not begun by then are skipped", unit="minutes", above=0.0)
    patience: float = option(120.0, "time limit for one reply of a side", unit="seconds", above=0.0)
    quick: bool = option(False, f"tiny models and {QUICK_TURNS} turns, to check that everything runs")
    out: str = option("", "folder for table.md, kernels.md and results.jsonl")
    torch_device: str = option("cuda", "where PyTorch computes, for tests", choices=("cuda", "cpu"), hidden=True)

    def __post_init__(self) -> None:
        if self.quick:
            self.turns, self.seconds = min(QUICK_TURNS, self.turns), min(0.01, self.seconds)


def main(argv: list[str]) -> int:
    """Measure the chosen rows, and write the table after each."""
    began = time.monotonic()
    parsed = parse_command_line(GpuOptions, argv, prog="python -m benchmarks.gpu", description=__doc__.split("\n")[0])
    options = build(GpuOptions, ("command line", parsed.values))
    groups, precisions = chosen(options.rows, GROUPS, "rows"), chosen(options.precisions, ALL, "precisions")
    compiled = [] if options.compiled == "none" else chosen(options.compiled, ALL, "compiled")
    get_device("cuda")  # if there is none, this raises the reason
    report = Report(options)
    deadline = began + 60 * options.minutes
    names = {"ours": "cuda"} | ({"torch": options.torch_device} if find_spec("torch") else {})
    if "torch" not in names:
        say("note: torch is not installed, so this project is measured alone")
    settings = (options.quick, deadline, options.patience)
    sides = {name: Handle(name, device, *settings) for name, device in names.items()}
    try:
        meet(sides, report)
        for row in ROWS:
            for precision in precisions if row.group in groups else ():
                if precision not in row.precisions:
                    continue
                if time.monotonic() > deadline:
                    report.add(
                        Finding(
                            row,
                            precision,
                            failed={"row": f"skipped: the time limit of {options.minutes:g} minutes is over"},
                        )
                    )
                    continue
                report.add(measure(row, precision, sides, compiled, options.turns, options.seconds))
                if options.profile and row.work == "train":
                    profile(row, precision, sides, report)
    finally:
        for side in sides.values():
            side.close()
        report.show()
    return 0 if report.measured else 1


def meet(sides: dict[str, Handle], report: Report) -> None:
    """Start both sides at the same time and ask for their facts; if PyTorch's fails, continue without it.

    Raises: UserError if ours cannot be started.
    """
    for side in sides.values():
        side.start()
    for name in list(sides):
        try:
            report.know(name, sides[name].ask(do="facts"))
        except SideFailed as failure:
            if name == "ours":
                raise UserError(f"this project's side cannot be measured: {failure}") from None
            say(f"note: torch cannot be measured ({failure}), so this project is measured alone")
            sides.pop(name).close()


def profile(row: GpuRow, precision: str, sides: dict[str, Handle], report: Report) -> None:
    """Write the GPU's time in a step by kernel, for each side that can measure it."""
    for name, side in sides.items():
        try:
            side.prepare(row)
            answer = side.ask(do="kernels", precision=precision)
        except SideFailed as failure:
            say(f"note: no table of kernels for {row.group}, {precision}, {name}: {failure}")
        else:
            report.add_kernels(f"{row.what}, {precision}, {'this project' if name == 'ours' else 'torch'}", answer)


class Report:
    """The findings so far, and the files that they are written to."""

    def __init__(self, options: GpuOptions) -> None:
        """Raises: OptionError if the folder cannot be written."""
        self.folder = Path(options.out) if options.out else None
        self.findings: list[Finding] = []
        self.kernels: list[str] = []
        self.facts: dict[str, Any] = {}
        asked = "Made with --quick: the numbers are meaningless" if options.quick else f"Turns: {options.turns}"
        versions = ", ".join(f"{name} {installed(name)}" for name in ("numpy", "torch", "transformers", "ml_dtypes"))
        self.about = [
            f"Machine: {cpu_model()}, {available_cores()} cores; Python {platform.python_version()}, {versions}"
        ]
        self.about += [
            asked,
            "Precision: float32 without TF32; tf32 for matrix products of float32; bfloat16 for matrix products, with "
            "float32 weights (torch: autocast in training, bfloat16 weights in generation); torch uses its fused AdamW",
        ]
        if self.folder is not None:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                (self.folder / "kernels.md").unlink(missing_ok=True)
                (self.folder / "results.jsonl").write_text("", encoding="utf-8", newline="\n")
            except OSError as error:
                raise OptionError(f"--out {options.out} cannot be written ({error.strerror}): choose another") from None

    @property
    def measured(self) -> bool:
        """Whether this project has a result."""
        return any("ours" in finding.turns for finding in self.findings)

    def know(self, side: str, facts: dict[str, Any]) -> None:
        """Store the facts about a side."""
        self.about.append(f"{'This project' if side == 'ours' else 'PyTorch'}: {facts.pop('about')}")
        self.facts |= facts
        self.append({"side": side, "about": self.about, **facts})

    def add(self, finding: Finding) -> None:
        """Write and print the finding for one row in one precision."""
        self.findings.append(finding)
        said = [
            f"{variant} {spread(values(finding, variant, self.facts), finding.row.unit)}" for variant in finding.turns
        ]
        said += [f"{variant} failed: {reason}" for variant, reason in finding.failed.items()]
        say(f"{finding.row.group}, {finding.precision}, {finding.row.what}: " + ", ".join(said))
        found = {variant: ratios(finding, variant) for variant in finding.turns if variant != "ours"}
        self.append({**asdict(finding), "ratios": found})
        if self.folder is not None:
            (self.folder / "table.md").write_text(self.page(), encoding="utf-8", newline="\n")

    def add_kernels(self, title: str, answer: dict[str, Any]) -> None:
        """Write the table of a step's kernels."""
        self.kernels.append(kernel_table(title, answer))
        self.append({"kernels of": title, **answer})
        if self.folder is not None:
            page = "\n".join(["# The GPU's time in a training step", "", *self.kernels])
            (self.folder / "kernels.md").write_text(page, encoding="utf-8", newline="\n")

    def append(self, line: dict[str, Any]) -> None:
        """Append a line of JSON to results.jsonl."""
        if self.folder is not None:
            with open(self.folder / "results.jsonl", "a", encoding="utf-8", newline="\n") as file:
                file.write(json.dumps(line, ensure_ascii=False) + "\n")

    def page(self) -> str:
        """The table."""
        return render(self.findings, self.about, self.facts)

    def show(self) -> None:
        """Print everything, the table last, so that it is on the screen at the end."""
        for page in self.kernels:
            print(page)
        if self.findings:
            print(self.page(), end="", flush=True)


if __name__ == "__main__":
    run_command("benchmarks", main)
