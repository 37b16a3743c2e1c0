"""The rows of the table: what each measures, its floor and aim, and how it is measured."""

import contextlib
import sys
from dataclasses import dataclass, field

from benchmarks.children import Child, ask, limits, start, take_turns
from benchmarks.machine import is_measurable, peak
from benchmarks.shapes import SHAPES
from tinygrad_lite.config import option
from tinygrad_lite.errors import UserError

QUICK = 2  # turns
COMPARED = 2  # losses: before the first update, and after it
SAME_LOSS = 1e-3  # sides whose losses differ by more do not compute the same function
MEMORY_TURNS = 5  # at most; memory varies less from turn to turn than time
OWN_WORK = ("import", "first-character", "learn", "encode", "write-parts")  # not compared with anything


@dataclass
class BenchmarkOptions:
    """The options of `python -m benchmarks`."""

    rows: str = option("", "numbers of the rows, such as 1,2,5; empty: all")
    compile: bool = option(False, "training steps by torch.compile, too, which needs a C++ compiler")
    out: str = option("", "file for the table, besides stdout", unit="file")
    turns: int = option(15, "turns of each side", unit="turns", low=1)
    quick: bool = option(False, f"only {QUICK} turns of one repeat each, to check that everything runs")
    threads: int | None = option(2, "threads of PyTorch; none: its default", low=1)
    workers: int = option(0, "processes of this project for a training step; 0: as many as train.py starts", low=0)

    def __post_init__(self) -> None:
        if self.quick:
            self.turns = min(QUICK, self.turns)


@dataclass(frozen=True)
class Row:
    """One line of the table. Several may share a number, which then refers to all of them.

    Attributes:
        what: for the reader.
        work, shape: the task and the model (`side.py`).
        unit: of the sides' numbers. Less is better for "ms", "s", "MB" and "×", more for all others.
        floor, aim: the bounds to reach: ratios, or numbers in the unit if there is no other side.
        repeats: of the task in a turn.
    """

    number: int
    what: str
    work: str
    shape: str
    unit: str
    floor: float
    aim: float
    repeats: int = 1

    def sides(self, with_compile: bool = False) -> tuple[str, ...]:
        """The sides that take part. Memory is compared only with default torch, since malloc settings change it."""
        if self.work in OWN_WORK:
            return ("ours",)
        compiled = ("torch-compiled",) if with_compile and self.work == "train" else ()
        return ("ours", "torch") if self.unit == "MB" else ("ours", "torch", "torch-malloc", *compiled)

    @property
    def needs(self) -> tuple[str, ...]:
        """Libraries beyond this project's own."""
        if self.work in OWN_WORK:
            return ()
        return ("torch", "transformers") if self.work == "write" else ("torch",)

    @property
    def less_is_better(self) -> bool:
        """Whether a smaller number is better."""
        return self.unit in ("ms", "s", "MB", "×")

    @property
    def is_at_most(self) -> bool:
        """Whether floor and aim are upper bounds.

        Ratios of speeds are above 1 where this project is faster; the ratio of memory is ours divided by theirs.
        """
        return self.unit == "MB" or (self.work in OWN_WORK and self.less_is_better)


@dataclass
class Finding:
    """The results for a row: by side, one number for each turn; and facts about the sides."""

    row: Row
    turns: dict[str, list[float]]
    facts: dict[str, list[str]] = field(default_factory=dict)


SMALL, BABY = "4 layers, 4 heads, 128 wide, context 64", "6 layers, 6 heads, 384 wide, context 256"
TRANSLATION = "translation step: 3 + 3 layers, 4 heads, 256 wide, vocabulary 6,000, 2,112 tokens"
GPT2 = "GPT-2 with 124 million parameters, 1 × 256 tokens"
DEFAULT = "the default preset (4 layers, 4 heads, 128 wide, context 128, batch 8, Muon)"
BERT = "the preset bert-goethe (4 layers, 4 heads, 128 wide, 32 × 64 tokens, 25 of each 64 hidden, Muon)"
VIT = "the preset vit-fashion (4 layers, 4 heads, 96 wide, 64 pictures of 49 patches, Muon)"
HF, UNCACHED = "greedy generation, against Hugging Face", "greedy generation, against torch without a cache"
ROWS = (
    Row(1, f"training step: {SMALL}, batch 12", "train", "small", "ms", 1.15, 1.5, repeats=20),
    Row(2, f"training step: {BABY}, batch 8", "train", "baby", "ms", 1.05, 1.2, repeats=2),
    Row(3, f"training step: {BABY}, batch 8, dropout 0.2", "train", "baby-dropout", "ms", 1.35, 1.6, repeats=2),
    Row(4, f"training step: {GPT2}", "train", "gpt2", "ms", 1.4, 1.6),
    Row(5, TRANSLATION, "train", "translation", "ms", 1.1, 1.4, repeats=4),
    Row(6, f"{HF}: {SMALL}", "write", "small", "tokens/s", 4, 8, repeats=5),
    Row(6, f"{HF}: {BABY}", "write", "baby", "tokens/s", 2, 4),
    Row(7, f"{UNCACHED}: {SMALL}", "write-uncached", "small", "tokens/s", 5, 15, repeats=5),
    Row(7, f"{UNCACHED}: {BABY}", "write-uncached", "baby", "tokens/s", 10, 20),
    Row(8, f"peak memory of a training step: {SMALL}, batch 12", "train-alone", "small", "MB", 1.0, 0.6, repeats=20),
    Row(8, f"peak memory of a training step: {BABY}, batch 8", "train-alone", "baby", "MB", 1.0, 0.6, repeats=2),
    Row(8, f"peak memory of a training step: {GPT2}", "train-alone", "gpt2", "MB", 1.0, 0.6, repeats=2),
    Row(9, "`import tinygrad_lite`, after NumPy", "import", "", "s", 0.15, 0.05),
    Row(10, "`python sample.py` to its first character", "first-character", "", "s", 0.6, 0.3),
    Row(11, "learning 1,000 BPE merges on 1 MB of German", "learn", "", "s", 5, 2),
    Row(11, "encoding it", "encode", "", "MB/s", 1, 3),
    Row(12, f"training step: {DEFAULT}, without dropout", "train", "goethe-no-dropout", "ms", 1.3, 1.5, repeats=10),
    Row(12, f"training step: {DEFAULT}", "train", "goethe", "ms", 1.3, 1.5, repeats=10),
    Row(13, f"peak memory of a training step: {DEFAULT}", "train-alone", "goethe", "MB", 0.6, 0.5, repeats=10),
    Row(14, "a generated token: parts of the default preset / GPT-2's", "write-parts", "goethe", "×", 1.3, 1.15, 2),
    Row(15, f"with `--recompute`: {BABY}, batch 8", "train", "baby-recompute", "ms", 0.8, 1.0, repeats=2),
    Row(15, f"with `--recompute`: {GPT2}", "train", "gpt2-recompute", "ms", 0.8, 1.0),
    Row(15, f"with `--recompute`: {BABY}, batch 8", "train-alone", "baby-recompute", "MB", 0.7, 0.5, repeats=2),
    Row(15, f"with `--recompute`: {GPT2}", "train-alone", "gpt2-recompute", "MB", 0.8, 0.75, repeats=2),
    Row(16, f"training step: {BERT}, without dropout", "train", "bert-no-dropout", "ms", 1.2, 1.5, repeats=3),
    Row(16, f"training step: {BERT}", "train", "bert", "ms", 1.2, 1.5, repeats=3),
    Row(17, f"training step: {VIT}, without dropout", "train", "vit-no-dropout", "ms", 1.2, 1.5, repeats=3),
    Row(17, f"training step: {VIT}", "train", "vit", "ms", 1.2, 1.5, repeats=3),
)


def measure(row: Row, options: BenchmarkOptions, with_compile: bool = False) -> Finding:
    """Measure one row.

    Args:
        with_compile: adds PyTorch with torch.compile to the sides of a training step.
    Raises: UserError if it cannot be measured here, or if two sides do not compute the same.
    """
    repeats = 1 if options.quick else row.repeats
    if row.unit == "MB":
        return measure_memory(row, options, repeats)
    with contextlib.ExitStack() as running:  # at its end their stdin is closed, which ends them
        children, facts, losses = {}, {}, {}
        for name in row.sides(with_compile):
            children[name] = running.enter_context(start_side(name, row, options))
            facts[name] = ask(children[name], {})["facts"]
            # Untimed, for what a library does only the first time, and for comparison.
            losses[name] = ask(children[name], {"begin": 0, "repeats": COMPARED})["losses"]
        check_losses(row, losses)
        return Finding(row, take_turns(children, options.turns, repeats, begin=COMPARED), facts)


def start_side(name: str, row: Row, options: BenchmarkOptions) -> Child:
    """A side in its own process. PyTorch gets its number of threads; ours runs as its scripts do."""
    command = [sys.executable, "-m", "benchmarks.side", name, row.work, row.shape, str(options.workers)]
    return start(command, limits(options.threads) if name != "ours" else {})


def check_losses(row: Row, losses: dict[str, list[float]]) -> None:
    """Raise UserError if the first losses differ: then the sides do not have the same model, weights, batch or update.

    With dropout they always differ, since the libraries drop different elements.
    """
    if not losses["ours"] or SHAPES[row.shape].options.config.dropout:
        return
    for number, values in enumerate(zip(*losses.values(), strict=True)):
        if max(values) - min(values) > SAME_LOSS:
            shown = dict(zip(losses, values, strict=True))
            raise UserError(
                f"row {row.number}: the losses of the sides after {number} updates differ, so their times are "
                f"meaningless: {shown}"
            )


def measure_memory(row: Row, options: BenchmarkOptions, repeats: int) -> Finding:
    """The peak memory in each turn, all processes of a side together.

    The sides run one after the other: at the same time, pages of libraries that both use would count as half for each.

    Raises: UserError if the system does not report it.
    """
    if not is_measurable():
        raise UserError(f"row {row.number}: this needs /proc/PID/smaps_rollup, which only Linux has; leave out the row")
    finding = Finding(row, {})
    for name in row.sides():
        with start_side(name, row, options) as child:
            finding.facts[name] = ask(child, {})["facts"]
            finding.turns[name] = []
            ask(child, {"begin": 0, "repeats": 1})  # the optimizer's state, which some allocate in the first step
            for turn in range(min(options.turns, MEMORY_TURNS)):
                with peak(child.pid) as megabytes:
                    ask(child, {"begin": 1 + turn * repeats, "repeats": repeats})
                finding.turns[name].append(max(megabytes))
    return finding
