"""Measure this project on a GPU: against PyTorch on the same GPU, and against itself on the CPU.

    python -m benchmarks.gpu --quick                              tiny models: checks in a minute that everything runs
    python -m benchmarks.gpu --out results                        all rows, at most nine minutes
    python -m benchmarks.gpu --rows baby,gpt2 --profile           some rows, and the GPU's time by kernel
    python -m benchmarks.gpu --rows widths --precisions float32   from which width is the GPU faster than the CPU?

Each side is a separate process (gpu_side.py), and they take turns. A row that fails is reported, and the others
continue. The table goes to stdout at the end, everything else to stderr. With --out, the tables are also written to a
folder after each row, and all numbers as a line of JSON for each row (results.jsonl). README.md in this folder says
what each row means.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import platform
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.children import Handle, SideFailed
from benchmarks.gpu_side import WIDTHS, WRITTEN, shape_of
from benchmarks.machine import cpu_model, installed
from benchmarks.table import markdown, shown, spread
from extra.plots.figure import COLOURS, MARKERS, Picture, check_plot, plain_axes, write, write_out
from extra.studies.program import chosen
from tinygrad_lite.config import option
from tinygrad_lite.device import get_device
from tinygrad_lite.errors import OptionError, UserError
from training.cli.command_line import read_command
from training.cli.console import run_command, say
from training.folder import available_cores

# Relative, in float32: losses before the first update and log-probabilities; losses after the update.
SAME_LOSS, SAME_AFTER = 1e-4, 1e-3
ALL, EXACT = ("bfloat16", "tf32", "float32"), ("float32",)
QUICK_TURNS = 2
LONGEST_NAME = 90  # characters of a kernel's name, which may be a whole C++ template
SIDES = {"ours": "This project", "torch": "PyTorch", "cpu": "This project on the CPU"}
BESIDE = {"compiled": "torch.compile", "reduce-overhead": "reduce-overhead", "static": "static cache", "cpu": "CPU"}
EPOCH = 1_000_000  # tokens


@dataclass(frozen=True)
class GpuRow:
    """One line of the table for each precision.

    Attributes:
        group: its name for --rows; several rows may share one.
        what: for the reader.
        work, shape: the task and the model (`gpu_side.py`).
        unit: of the numbers: "ms", "µs" of Python's time, or a unit of speed.
        precisions: those in which the row makes sense.
        beside: additional variants of PyTorch's side; or "cpu", then without PyTorch.
        floor: the ratio to reach against eager PyTorch; 0: none.
        aim: the ratio to reach against the first variant beside; 0: none.
    """

    group: str
    what: str
    work: str
    shape: str
    unit: str
    precisions: tuple[str, ...] = ALL
    beside: tuple[str, ...] = ()
    floor: float = 0.0
    aim: float = 0.0

    @property
    def part(self) -> str:
        """Which of a turn's times counts."""
        return "asked_ms" if self.unit == "µs" else "ms"

    def variants(self, compiled: bool) -> dict[str, str]:
        """What is timed -> the side that does it. What may end its process comes first, before others are ready."""
        if self.beside == ("cpu",):
            return {"cpu": "cpu", "ours": "ours"}
        beside = [name for name in self.beside if compiled or self.work != "train"]
        return {**dict.fromkeys(beside, "torch"), "eager": "torch", "ours": "ours"}


BABY = "6 layers, 6 heads, 384 wide, context 256"
GPT2 = "GPT-2 with 124 million parameters"
BASE = "base Transformer of 2017, 384 pairs of up to 32 tokens, vocabulary 37,000, dropout 0.1"
STEP, WRITING = "training step", "greedy generation with a cache, 255 tokens"
COMPILED = ("compiled", "reduce-overhead")
ROWS = (
    GpuRow("rates", "product of two matrices, 8,192 × 8,192", "product", "", "TFLOP/s"),
    GpuRow("rates", "copy of 1 GiB, read and written", "copy", "", "TB/s", EXACT),
    GpuRow("host", "Python's time to start a kernel", "launch", "", "µs", EXACT),
    GpuRow("host", "Python's time for a product, 64 × 64", "small product", "", "µs", EXACT),
    GpuRow("host", "Python's time for a linear map with its node in the graph", "linear", "", "µs", EXACT),
    GpuRow("baby", f"{STEP}: {BABY}, batch 64", "train", "baby", "ms", ALL, COMPILED, 1, 1),
    GpuRow("gpt2", f"{STEP}: {GPT2}, 12 × 1,024 tokens", "train", "gpt2", "ms", ALL, COMPILED, 1, 0.9),
    GpuRow("padded", f"{STEP}: the same, vocabulary 50,304", "train", "gpt2-padded", "ms", ALL, COMPILED, 1, 0.9),
    GpuRow("dropout", f"{STEP}: {BABY}, batch 64, dropout 0.2", "train", "baby-dropout", "ms", ALL, COMPILED, 1, 1),
    GpuRow("translation", f"{STEP}: {BASE}", "train", "translation", "ms", floor=1),
    *(
        GpuRow("write", f"{WRITING}, {count} at once: {what}", work, shape, "tokens/s", ALL, ("static",), 3, 3)
        for shape, what in (("gpt2", GPT2), ("baby", BABY))
        for work, count in WRITTEN.items()
    ),
    *(
        GpuRow("widths", f"{STEP}: 4 layers, {n} wide, 16 × 128 tokens", "train", f"width {n}", "ms", ALL, ("cpu",))
        for n in WIDTHS
    ),
)
GROUPS = tuple(dict.fromkeys(row.group for row in ROWS))


@dataclass
class GpuOptions:
    """The options of `python -m benchmarks.gpu`."""

    rows: str = option("", f"rows by name, such as baby,gpt2; empty: all ({','.join(GROUPS)})")
    precisions: str = option("", f"precisions, such as bfloat16; empty: all ({','.join(ALL)})")
    compiled: str = option("bfloat16", "precisions in which PyTorch is also compiled, which takes a minute; or none")
    profile: bool = option(False, "a table of the GPU's time by kernel, for each training step compared with PyTorch")
    turns: int = option(5, "turns of each side", unit="turns", low=1)
    seconds: float = option(0.4, "minimum length of a turn", unit="seconds", above=0.0)
    minutes: float = option(9.0, "time limit; rows that have not begun by then are skipped", unit="minutes", above=0.0)
    patience: float = option(120.0, "time limit for one reply of a side", unit="seconds", above=0.0)
    quick: bool = option(False, f"tiny models and {QUICK_TURNS} turns, to check that everything runs")
    out: str = option("", "folder for table.md, kernels.md and results.jsonl")
    plot: str = option("", "image of the rows called widths: .svg, .png or .pdf", unit="file")

    def __post_init__(self) -> None:
        if self.quick:
            self.turns, self.seconds = min(QUICK_TURNS, self.turns), min(0.01, self.seconds)


def main(argv: list[str]) -> int:
    """Measure the chosen rows, and write the table after each."""
    began = time.monotonic()
    options, _ = read_command(GpuOptions, argv, "python -m benchmarks.gpu", __doc__.split("\n")[0])
    groups, precisions = chosen(options.rows, GROUPS, "rows"), chosen(options.precisions, ALL, "precisions")
    compiled = [] if options.compiled == "none" else chosen(options.compiled, ALL, "compiled")
    if options.plot:
        check_plot(options.plot, "--plot")
    get_device("cuda")  # if there is none, this raises the reason
    report, deadline = Report(options), began + 60 * options.minutes
    rows = [row for row in ROWS if row.group in groups]
    names = [name for name in SIDES if any(name in row.variants(True).values() for row in rows)]
    if not find_spec("torch"):
        say("note: torch is not installed, so this project is measured alone")
        names = [name for name in names if name != "torch"]
    quick = ["quick"] if options.quick else []
    commands = {name: [sys.executable, "-m", "benchmarks.gpu_side", name, *quick] for name in names}
    sides = {name: Handle(command, deadline, options.patience) for name, command in commands.items()}
    try:
        meet(sides, report)
        for row, precision in itertools.product(rows, precisions):
            if precision not in row.precisions:
                continue
            if time.monotonic() > deadline:
                reason = f"skipped: the time limit of {options.minutes:g} minutes is over"
                report.add(Finding(row, precision, failed={"row": reason}))
                continue
            settings = (precision in compiled, options.turns, options.seconds)
            report.add(measure(row, precision, sides, *settings))
            if options.profile and row.work == "train" and row.beside != ("cpu",):
                profile(row, precision, sides, report)
    finally:
        for side in sides.values():
            side.close()
        report.show()
        if options.plot and (picture := picture_of(report.findings)):
            write(picture, Path(options.plot))
    return 0 if any("ours" in finding.turns for finding in report.findings) else 1


# --- measuring ------------------------------------------------------------------------------------------------


def meet(sides: dict[str, Handle], report: Report) -> None:
    """Start all sides at the same time and ask for their facts; if any side other than ours fails, continue without it.

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
            say(f"note: {SIDES[name]} cannot be measured ({failure})")
            sides.pop(name).close()


@dataclass
class Finding:
    """What was measured for a row in one precision.

    Attributes:
        turns: by variant, one answer for each turn: {"ms", "asked_ms"}.
        failed: by variant, or by "row" if nothing could be compared, the reason why there are no numbers.
        check: the results of the sides before anything was timed.
    """

    row: GpuRow
    precision: str
    turns: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    check: dict[str, Any] = field(default_factory=dict)

    def values(self, variant: str, facts: dict[str, Any]) -> list[float]:
        """One number for each turn, in the row's unit."""
        times, unit = [turn[self.row.part] for turn in self.turns[variant]], self.row.unit
        if unit in ("ms", "µs"):
            return [ms * (1e3 if unit == "µs" else 1) for ms in times]
        scale = 1e3 if unit == "tokens/s" else 1e-9  # per ms to per second, or to 10^12 per second
        return [facts["amounts"][self.row.work] / ms * scale for ms in times]

    def ratios(self, variant: str) -> list[float]:
        """The other variant's time divided by ours, turn by turn."""
        pairs = zip(self.turns.get("ours", []), self.turns.get(variant, []), strict=False)
        return [theirs[self.row.part] / ours[self.row.part] for ours, theirs in pairs]


def measure(
    row: GpuRow, precision: str, sides: Mapping[str, Handle], compiled: bool, turns: int, seconds: float
) -> Finding:
    """Measure one row in one precision. Errors are stored in the finding.

    Args:
        compiled: whether PyTorch is also compiled.
        seconds: length of a turn.
    """
    finding, variants = Finding(row, precision), row.variants(compiled)
    for name in dict.fromkeys(variants.values()):
        if name in sides:
            with recorded(finding, name):
                sides[name].prepare(row.work, row.shape)
                finding.check[name] = sides[name].check
    if difference := differs(finding.check):
        finding.failed["row"] = f"not measured: {difference}"
        return finding
    repeats: dict[str, int] = {}
    for variant, name in variants.items():
        if name in finding.check:
            with recorded(finding, variant):
                sides[name].prepare(row.work, row.shape)  # again, if another variant ended the process
                question = {"work": row.work, "precision": precision, "variant": variant, "seconds": seconds}
                repeats[variant] = sides[name].ask(do="begin", **question)["repeats"]
    for turn in range(turns):
        for variant in list(repeats) if turn % 2 else list(repeats)[::-1]:
            with recorded(finding, variant):
                question = {"variant": variant, "repeats": repeats[variant], "begin": turn * repeats[variant]}
                answer = sides[variants[variant]].ask(do="turn", **question)
                finding.turns.setdefault(variant, []).append(answer)
            if variant in finding.failed:
                del repeats[variant]
    return finding


@contextlib.contextmanager
def recorded(finding: Finding, name: str) -> Iterator[None]:
    """Within this context a failure is recorded and not raised."""
    try:
        yield
    except SideFailed as failure:
        finding.failed[name] = str(failure)


def differs(check: dict[str, Any]) -> str:
    """How the results of the two sides differ; empty if they agree, or if there is only one side."""
    for one, other in itertools.combinations(check.values(), 2):
        for what, tolerances in (("losses", (SAME_LOSS, SAME_AFTER)), ("log_probs", itertools.repeat(SAME_LOSS))):
            pairs = zip(one.get(what, []), other.get(what, []), tolerances, strict=False)
            if not all(math.isclose(a, b, rel_tol=tolerance) for a, b, tolerance in pairs):
                return f"the sides have different {what} in float32: {one[what]} and {other[what]}"
    return ""


def profile(row: GpuRow, precision: str, sides: Mapping[str, Handle], report: Report) -> None:
    """Write the GPU's time in a step by kernel, for each side that can measure it."""
    for name in ("ours", "torch"):
        if name in sides:
            try:
                sides[name].prepare(row.work, row.shape)
                answer = sides[name].ask(do="kernels", precision=precision)
            except SideFailed as failure:
                say(f"note: no table of kernels for {row.group}, {precision}, {name}: {failure}")
            else:
                report.add_kernels(f"{row.what}, {precision}, {SIDES[name]}", answer)


# --- the tables -----------------------------------------------------------------------------------------------


class Report:
    """The findings so far, and the files that they are written to."""

    def __init__(self, options: GpuOptions) -> None:
        """Raises: OptionError if the folder cannot be written."""
        self.folder = Path(options.out) if options.out else None
        self.findings: list[Finding] = []
        self.kernels: list[str] = []
        self.facts: dict[str, Any] = {}
        versions = ", ".join(f"{name} {installed(name)}" for name in ("numpy", "torch", "transformers", "ml_dtypes"))
        self.about = [
            f"Machine: {cpu_model()}, {available_cores()} cores; Python {platform.python_version()}, {versions}",
            "Made with --quick: the numbers are meaningless" if options.quick else f"Turns: {options.turns}",
            "Precision: float32 without TF32; tf32 for matrix products of float32; bfloat16 for matrix products, with "
            "float32 weights (torch: autocast in training, bfloat16 weights in generation); torch uses its fused "
            "AdamW; the CPU computes in float32",
        ]
        try:
            self.write("results.jsonl", "")
        except OSError as error:
            raise OptionError(f"--out {options.out} cannot be written ({error.strerror}): choose another") from None

    def write(self, name: str, text: str, mode: str = "w") -> None:
        """Write a file of the folder, if there is one."""
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            with open(self.folder / name, mode, encoding="utf-8", newline="\n") as file:
                file.write(text)

    def know(self, side: str, facts: dict[str, Any]) -> None:
        """Store the facts about a side."""
        self.about.append(f"{SIDES[side]}: {facts.pop('about')}")
        self.facts |= facts
        self.note({"side": side, "about": self.about, **facts})

    def note(self, line: dict[str, Any]) -> None:
        """Append a line to results.jsonl."""
        self.write("results.jsonl", json.dumps(line, ensure_ascii=False) + "\n", "a")

    def add(self, finding: Finding) -> None:
        """Write and print the finding for one row in one precision."""
        self.findings.append(finding)
        row = finding.row
        said = [f"{variant} {spread(finding.values(variant, self.facts), row.unit)}" for variant in finding.turns]
        said += [f"{variant} failed: {reason}" for variant, reason in finding.failed.items()]
        say(f"{row.group}, {finding.precision}, {row.what}: " + ", ".join(said))
        found = {variant: finding.ratios(variant) for variant in finding.turns if variant != "ours"}
        self.note({**asdict(finding), "ratios": found})
        self.write("table.md", render(self.findings, self.about, self.facts))

    def add_kernels(self, title: str, answer: dict[str, Any]) -> None:
        """Write the table of a step's kernels."""
        self.kernels.append(kernel_table(title, answer))
        self.note({"kernels of": title, **answer})
        self.write("kernels.md", "\n".join(["# The GPU's time in a training step", "", *self.kernels]))

    def show(self) -> None:
        """Print everything, the table last, so that it is on the screen at the end."""
        table = [render(self.findings, self.about, self.facts)] if self.findings else []
        print("\n".join([*self.kernels, *table]), end="", flush=True)


COLUMNS = ("row", "precision", "this project", "torch", "ratio", "beside", "ratio", "speed", "reached")


def render(findings: Sequence[Finding], about: Sequence[str], facts: dict[str, Any]) -> str:
    """The whole page."""
    lines = ["# This project on a GPU", "", *(f"- {line}" for line in about)]
    lines += [
        "",
        "Numbers are medians over the turns, with quartiles in brackets. A ratio is the other one's time divided by "
        "ours, in each turn: above 1 this project on the GPU is faster. Speed: target tokens, the rate of the step's "
        "matrix products, and its share of the rate of one large product in the same precision, in this run. "
        "`reached` refers to the floor, parity with eager torch, and to the aim, a ratio to torch.compile.",
        "",
        markdown(COLUMNS, [cells(finding, findings, facts) for finding in findings]),
        *conclusions(findings),
    ]
    return "\n".join(lines) + "\n"


def cells(finding: Finding, findings: Sequence[Finding], facts: dict[str, Any]) -> list[str]:
    """The line of the table."""
    row = finding.row
    line = [row.what, finding.precision]
    for variants in (("ours",), ("eager",), row.beside):
        shown_cells, ratios = [], []
        for variant in variants:
            failed = finding.failed.get(variant) or finding.failed.get("cpu" if variant == "cpu" else "torch")
            if variant == "ours":
                failed = finding.failed.get("ours") or finding.failed.get("row")
            there = variant in finding.turns
            cell = spread(finding.values(variant, facts), row.unit) if there else ""
            if failed:
                cell += f" in {len(finding.turns[variant])} turns, then failed: " if there else "failed: "
                cell += " ".join(failed.replace("|", "/").split())[:160]
            shown_cells.append(f"{BESIDE[variant]}: {cell}" if cell and variant in BESIDE else cell)
            ratios.append(f"**{spread(found)}**" if (found := finding.ratios(variant)) else "")
        line += ["; ".join(filter(None, part)) for part in (shown_cells, ratios)[: 1 if variants == ("ours",) else 2]]
    return [*line, speed(finding, findings, facts), verdict(finding)]


def speed(finding: Finding, findings: Sequence[Finding], facts: dict[str, Any]) -> str:
    """Tokens per second of our training step, the rate of its products, and the share of one large product's rate.

    The rate of one product is measured in the same precision, on the faster side.
    """
    if finding.row.work != "train" or "ours" not in finding.turns:
        return ""
    ms, shape = statistics.median(finding.values("ours", facts)), facts["shapes"][finding.row.shape]
    rate = shape["flop"] / ms / 1e9
    said = f"{shape['tokens'] / ms * 1e3:,.0f} tokens/s, {shown(rate)} TFLOP/s"
    same = [one for one in findings if (one.row.work, one.precision) == ("product", finding.precision)]
    of_one = max((statistics.median(one.values(name, facts)) for one in same for name in one.turns), default=0.0)
    return f"{said}, {rate / of_one:.0%}" if of_one else said


def verdict(finding: Finding) -> str:
    """Whether the median ratios reach the aim, the floor, or neither."""
    row = finding.row
    if row.aim and (found := finding.ratios(row.beside[0])) and statistics.median(found) >= row.aim:
        return "aim"
    if not row.floor or not (found := finding.ratios("eager")):
        return ""
    return "floor" if statistics.median(found) >= row.floor else "**no**"


def conclusions(findings: Sequence[Finding]) -> list[str]:
    """For each precision, the width from which the GPU is faster than the CPU, how much faster it is at most, and how
    long both take for an epoch.
    """
    said = []
    for precision in dict.fromkeys(finding.precision for finding in findings):
        beside = {int(f.row.shape.split()[1]): f for f in findings if f.precision == precision and f.ratios("cpu")}
        if not beside:
            continue
        ratios = {width: statistics.median(finding.ratios("cpu")) for width, finding in beside.items()}
        best = max(ratios, key=ratios.__getitem__)
        largest = f"largest ratio {shown(ratios[best])}, at a width of {best}"
        rows = [(str(width), *(shown(epoch_of(one, v)) for v in ("cpu", "ours"))) for width, one in beside.items()]
        epochs = f"An epoch of {EPOCH:,} tokens, in seconds:\n\n{markdown(('width', 'CPU', 'GPU'), rows)}"
        said.append(f"CPU and GPU, {precision}: {crossing(ratios)}; {largest}. {epochs}")
    return said


def picture_of(findings: Sequence[Finding]) -> Picture | None:
    """The time of an epoch by width on logarithmic scales, a line for the CPU and one for each precision of the GPU."""
    lines: dict[str, dict[int, float]] = {}
    for finding in findings:
        if finding.ratios("cpu"):
            width = int(finding.row.shape.split()[1])
            lines.setdefault("CPU", {}).setdefault(width, epoch_of(finding, "cpu"))
            lines.setdefault(f"GPU, {finding.precision}", {})[width] = epoch_of(finding, "ours")
    if not lines:
        return None

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        plain_axes(axes)
        for (name, times), colour, marker in zip(lines.items(), COLOURS, MARKERS, strict=False):
            axes.loglog(list(times), list(times.values()), marker, linestyle="-", color=colour, label=name)
        axes.set(xlabel="width of the model", ylabel=f"seconds per {EPOCH:,} tokens")
        axes.set_xticks(list(lines["CPU"]), list(map(str, lines["CPU"])), minor=False)
        axes.minorticks_off()
        write_out(axes.yaxis, (1,))
        axes.legend(frameon=False)

    caption = "A GPT with 4 layers and heads of 64, trained on 16 × 128 tokens per step. Both axes are logarithmic."
    return Picture("From which width is a GPU faster?", caption, (6.0, 3.8), draw)


def epoch_of(finding: Finding, variant: str) -> float:
    """The seconds of an epoch in steps like this one."""
    steps = EPOCH / shape_of(int(finding.row.shape.split()[1]), quick=False).target_tokens
    return steps * statistics.median(turn["ms"] for turn in finding.turns[variant]) / 1e3


def crossing(ratios: Mapping[int, float]) -> str:
    """The width from which the GPU is faster, by the CPU's time divided by the GPU's for each width.

    Between two widths it is interpolated on logarithmic scales, on which the ratio is nearly a straight line.

    >>> crossing({32: 0.5, 128: 2.0})
    'the GPU is faster from a width of about 64'
    """
    widths = sorted(ratios)
    slower = [width for width in widths if ratios[width] < 1]
    if not slower:
        return f"the GPU is faster at every width measured, from {widths[0]}"
    below = slower[-1]
    if below == widths[-1]:
        return f"there is no width from which the GPU is faster: at the largest, {below}, the CPU is"
    above = widths[widths.index(below) + 1]
    share = math.log(1 / ratios[below]) / math.log(ratios[above] / ratios[below])
    return f"the GPU is faster from a width of about {below * (above / below) ** share:.0f}"


def kernel_table(title: str, answer: dict[str, Any], limit: int = 25) -> str:
    """The page for one step: its kernels by name, the longest times first.

    Args:
        answer: a side's reply to the question "kernels".
    """
    sums: dict[str, list[float]] = {}
    for name, us in answer["kernels"]:
        sums.setdefault(name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 3] + "...", []).append(us)
    total = sum(us for _, us in answer["kernels"])
    ordered = sorted(sums.items(), key=lambda item: -sum(item[1]))
    rest = [us for _, times in ordered[limit:] for us in times]
    entries = [(f"`{name}`", us) for name, us in ordered[:limit]] + [(f"{len(ordered) - limit} others", rest)]
    rows = [(name, str(len(us)), f"{sum(us):.1f}", f"{sum(us) / total:.1%}") for name, us in entries if us and total]
    return (
        f"## {title}\n\n"
        f"A step takes {answer['ms']:.2f} ms, of which Python needs {answer['asked_ms']:.2f} ms to launch it. "
        f"{len(answer['kernels'])} kernels and copies, measured with {answer['source']}, take {total / 1e3:.2f} ms "
        f"on the GPU.\n\n{markdown(('kernel', 'times', 'µs', 'share'), rows)}"
    )


if __name__ == "__main__":
    run_command("benchmarks", main)
