"""The race: how few bits per character can one model reach on the held-out tenth in 100 seconds on two cores?

    python -m benchmarks.race mine.toml              measure what the recipe costs, train eight seeds, and judge
    python -m benchmarks.race mine.toml --cost       only what it costs, a minute
    python -m benchmarks.race mine.toml --seeds 101  try it, without a claim to the record
    python -m benchmarks.race                        the records

A recipe is a preset of a GPT, such as `goethe` or a file of your own; docs/race.md has the rules. Its results are added
to docs/experiments/race-TEXT.csv, where the column `seconds` is the cost, and `options` has what the recipe changes in
the preset `goethe`, so that a row says what was trained, whatever becomes of the file. A run that has a row is not
repeated.

**The cost is counted in work, not in time**, so that everybody can enter with any machine. In turns, a fixed amount of
NumPy's work is timed in two processes (the calibration), and some steps of the recipe. The ratio of both times hardly
depends on the machine. The cost in seconds follows from a constant, with which the preset `goethe` costs 100.

**The verdict is an exact permutation test** (Fisher 1935): if two recipes were equally good, their 16 results could
have been dealt to them in any of 12,870 ways. p is the share of these ways that favour the new recipe as much as the
results do, or more.
"""

import itertools
import multiprocessing
import shlex
import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.experiments import RESULTS, Run, Setting, code_commit, missing, plan, train_all
from benchmarks.our_side import updates_of
from benchmarks.results import Row, read_rows, spread
from extra.families import FAMILIES, GPT
from tinygrad_lite.config import option
from tinygrad_lite.errors import OptionError, UserError
from training.cli.command_line import read_command
from training.cli.console import run_command, say
from training.cli.options import values_of
from training.folder import tune_memory
from training.start import read_setup

BUDGET = 100.0  # seconds
TOLERANCE = 1.03  # measurements of the same cost differ by as much
SECONDS = 0.151  # what one calibration costs: with this, the preset goethe costs 100 seconds
SEEDS = tuple("12345678")  # a record needs all of them
LEVEL = 0.01  # and p below this against the standing record
TEXTS = ("goethe", "plays")
TURNS, STEPS, ROUNDS = 50, 4, 60  # of a cost: turns, steps of the recipe in each, rounds of a calibration


@dataclass
class RaceOptions:
    """The options of `python -m benchmarks.race`."""

    seeds: str = option(
        "1,2,3,4,5,6,7,8", "seeds; a record needs these eight, and who only tries takes others, such as 101,102"
    )
    cost: bool = option(False, "measure what the recipe costs, and stop")


def main(argv: list[str]) -> int:
    """Run the command line and return the exit status."""
    about = "the recipe: a preset's name, or a file such as mine.toml"
    options, names = read_command(
        RaceOptions, argv, "python -m benchmarks.race", __doc__.split("\n")[0], "RECIPE", about_positional=about
    )
    if not names:
        if options != RaceOptions():
            raise OptionError("name a recipe, as in: python -m benchmarks.race goethe")
        for file in sorted(RESULTS.glob("race-*.csv")):
            print(f"{file.stem}:\n\n{table(read_rows(file))}")
        return 0
    runs, results = entries(names[0], options.seeds)
    if "dirty" in code_commit():
        say("warning: the code has changes that are not committed, so nobody can repeat these runs")
    to_do = missing(runs, read_rows(results))
    if to_do or options.cost:
        cost, steps = cost_of(runs[0]), runs[0].setup.options.max_iters
        say(f"{steps:,} steps cost {cost:.1f} of {BUDGET:.0f} seconds")
        if cost > BUDGET * TOLERANCE:
            raise UserError(f"{names[0]} costs too much: use at most {int(steps * BUDGET / cost):,} steps")
    if not options.cost:
        train_all(to_do, results, "", seconds=f"{cost:.1f}" if to_do else "")
        print(table(read_rows(results)))
    return 0


def entries(recipe: str, seeds: str) -> tuple[list[Run], Path]:
    """The runs of a recipe, and the file of its results.

    Raises: OptionError if it does not take part.
    """
    if Path(recipe).suffix and not Path(recipe).is_file():
        raise OptionError(f"there is no file {recipe}")
    base, setup = (read_setup([name, "--overwrite"], FAMILIES) for name in ("goethe", recipe))
    options, usual = setup.options, values_of(base.options)
    if setup.family is not GPT or options.text or options.dataset not in TEXTS or options.device != "cpu":
        raise OptionError(f"{recipe}: the race is for GPTs on a CPU that learn from one of {', '.join(TEXTS)}")
    changed = {name: value for name, value in values_of(options).items() if value != usual[name]}
    # The held-out text is read before the first step and after the last one, so that it chooses nothing.
    fixed = {"workers": min(2, options.max_workers()), "sample_tokens": 0, "patience": 0, "eval_interval": 1_000_000}
    words = ["goethe"]
    for name, value in (changed | fixed).items():
        if name not in ("out_dir", "seed"):
            values = value if isinstance(value, list) else [value]
            # None, True and False are written as on the command line.
            words += [f"--{name}", *(str(v).lower() if isinstance(v, bool | None) else str(v) for v in values)]
    runs = plan([Setting(Path(recipe).stem, shlex.join(words), seeds)])
    others = bool(setup.trained or options.teachers or options.replay)
    return runs, RESULTS / f"race-{options.dataset}{'-other-text' * others}.csv"


# --- the cost -------------------------------------------------------------------------------------------------


def calibration(number: int) -> float:
    """Seconds that one process takes for ROUNDS of products, exponentials and sums, such as those of training."""
    rng = np.random.default_rng(number)
    x, w = (0.1 * rng.standard_normal(shape, np.float32) for shape in ((512, 128), (128, 512)))
    began = time.perf_counter()
    for _ in range(ROUNDS):
        p = np.exp(x @ w)
        p /= p.sum(-1, keepdims=True)
        p @ w.T, x.T @ p  # as in a backward pass
    return time.perf_counter() - began


def cost_of(run: Run) -> float:
    """What all steps of a run cost, in seconds of the race; a step costs the same throughout.

    It is the median over many short turns, each of which times a few steps between two calibrations.
    """
    tune_memory()
    context, ratios = multiprocessing.get_context("spawn"), []
    with ExitStack() as until_end, context.Pool(2, threadpool_limits, (1,)) as pool:
        task = run.setup.make_task()
        options, model = run.setup.options, run.setup.make_model(task.tokenizer)
        update, _ = updates_of(options, model, task, until_end)
        before = None
        for turn in range(TURNS + 1):
            began = time.perf_counter()
            for step in range(turn * STEPS, (turn + 1) * STEPS):
                update(step)
            seconds = time.perf_counter() - began
            after = statistics.mean(pool.map(calibration, (0, 1), 1))
            if before:  # the first turn is for what a library does only the first time
                ratios.append(seconds / STEPS / (before + after) * 2)
            before = after
    return statistics.median(ratios) * SECONDS * options.max_iters


# --- the verdict ----------------------------------------------------------------------------------------------


def p_value(new: Sequence[float], standing: Sequence[float]) -> float:
    """The share of the ways to deal all results to two recipes that favour the new one at least as much.

    >>> p_value([1.0, 2.0], [3.0, 4.0])  # one of six ways
    0.16666666666666666
    """
    sums = [sum(dealt) for dealt in itertools.combinations([*new, *standing], len(new))]
    return float(np.mean(np.array(sums) <= sum(new) + 1e-9))


def table(rows: Sequence[Row]) -> str:
    """The recipes in the order of entering, in Markdown, each with p against the record of its day."""
    lines = "| recipe | seeds | bits per character | cost, s | p | commit |\n|---|---|---|---|---|---|\n"
    standing: list[float] = []
    groups: dict[tuple, list[Row]] = {}
    for row in rows:
        groups.setdefault((row["name"], row["commit"], row["options"], row["seed"] in SEEDS), []).append(row)
    for (name, commit, *_), group in groups.items():
        bits = [float(row["last_bits_per_char"]) for row in group]
        p = p_value(bits, standing) if standing else None
        mark, told = "", "" if p is None else f"{p:.4f}"
        if {row["seed"] for row in group} == {*SEEDS} and (p is None or p < LEVEL):
            mark, standing = "**", bits
        found = spread([row["last_bits_per_char"] for row in group], 4)
        cost = statistics.mean(float(row["seconds"]) for row in group)
        lines += f"| {mark}{name}{mark} | {len(bits)} | {found} | {cost:.1f} | {told} | {commit} |\n"
    return f"{lines}\nMean ± standard deviation; bold: a record.\n"


if __name__ == "__main__":
    run_command("benchmarks.race", main)
