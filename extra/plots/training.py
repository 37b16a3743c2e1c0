"""Training step by step: the losses of runs, and what their evaluations measured besides.

    python -m extra.studies.draw loss out/goethe                              makes out/goethe/curves.svg
    python -m extra.studies.draw loss out/a out/b --out curves.svg            both in one picture
    python -m extra.studies.draw loss out/goethe --out curves.svg curves.csv --log

Each run has a colour: the thin line is its training loss, the thick one with points its validation loss. A run that
is still training can be drawn too. Runs with different tokenizers are compared in bits per character, because a loss
per token depends on the tokenizer; losses per picture, for example, stay in nats. The horizontal axis is the step,
since metrics.csv contains neither the number of tokens in a step nor its time.

A second picture shows what the evaluations measured besides the loss, each measure in its own panel:

    python -m extra.studies.draw measures out/rewards --columns drawn_right group_right entropy
    python -m extra.studies.draw measures out/rewards out/sums-more --columns exact --out measures.svg measures.csv

Any column of metrics.csv can be named; without names, all that the evaluations of these runs have measured are drawn.
Runs that have no value of a measure are missing in its panel.
"""

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, product
from pathlib import Path

import numpy as np

from extra.plots.figure import COLOURS, MARKERS, DrawOptions, Picture, count_steps, plain_axes, write_out
from tinygrad_lite.config import option
from tinygrad_lite.errors import OptionError
from training.cli.console import say
from training.cli.files import text_of
from training.folder import METRICS, RunFolder

LOSSES = ("loss", "val_loss", "bits_per_char")
# The columns of metrics.csv, whatever the task.
MEASURES = (
    *(*METRICS[1:], *"bits_per_char bleu chrf exact accuracy next_accuracy".split()),
    *"drawn_right group_right reward entropy calls needless_calls".split(),
)
IN_A_ROW = 3  # panels
SHARE = "share, 0 to 1"
UNITS = {  # of the measures that are no shares
    **{"loss": "nats per {nats}", "val_loss": "nats per {nats}", "bits_per_char": "bits per {bits}"},
    **{"learning_rate": "learning rate", "grad_norm": "length", "tokens_per_second": "tokens per second"},
    **{"bleu": "0 to 100", "chrf": "0 to 100", "reward": "points per answer", "entropy": "nats per answer"},
}


@dataclass
class LossOptions(DrawOptions):
    """The options of `loss`."""

    unit: str = option("auto", "auto: bits if there are several runs", choices=("auto", "nats", "bits"))
    smooth: int = option(9, "rows averaged for each point of the training loss; 1: no smoothing", unit="rows", low=1)
    log: bool = option(False, "logarithmic axes, on which a power law is a straight line")


@dataclass
class Run:
    """The contents of a run's metrics.csv, as it is read in nats.

    Attributes:
        training, validation: (2, n), the steps and the loss at each of them.
        bits_per_nat: bits per character, for example, of one nat per token; None if the run has not been evaluated yet.
        per: what one loss belongs to in each unit, such as a token in nats and a character in bits.
    """

    file: Path
    training: np.ndarray
    validation: np.ndarray
    bits_per_nat: float | None
    per: dict[str, str]


# --- reading --------------------------------------------------------------------------------------------------


def read_run(path: Path) -> Run:
    """Read a run's folder, or a metrics.csv.

    Raises: OptionError if there is none, if it is damaged, or if nothing in it can be plotted.
    """
    file = path / "metrics.csv" if path.is_dir() else path
    rows = read_rows(file)
    training, validation = (np.array(points(rows, name)).reshape(-1, 2).T for name in ("loss", "val_loss"))
    if not training.size + validation.size:
        raise OptionError(f"{file} has no losses yet: plot it after the first evaluation of the run")
    factors = [row["bits_per_char"] / row["val_loss"] for row in rows if row["bits_per_char"] and row["val_loss"]]
    # For classes, hidden words and translations, bits are another unit for the same.
    per = units_of(file.parent)
    same = 1 / math.log(2) if per["nats"] == per["bits"] else None
    return Run(file, training, validation, factors[-1] if factors else same, per)


def units_of(folder: Path) -> dict[str, str]:
    """What the losses of a run belong to in each unit, according to its options.json; older runs do not record it."""
    noted = RunFolder(folder).noted_options()
    nats, bits = (str(noted.get(name, ""))[:20] for name in ("loss_per", "bits_per"))
    return {"nats": nats, "bits": bits or nats} if nats else {"nats": "token", "bits": "character"}


def read_rows(file: Path, columns: Sequence[str] = LOSSES) -> list[dict[str, float | None]]:
    """The rows of a metrics.csv: the step and these columns, each None if it was not measured.

    An unfinished last line is ignored: the run may still be writing it, and 2 may become 2.31.
    Raises: OptionError if there is no such file, or if it is damaged or from another program.
    """
    hint = "name the folder of a run, such as out/goethe, or its metrics.csv"
    try:
        text = text_of(file, encoding="utf-8-sig")  # a spreadsheet may have added a byte order mark
        table = csv.reader(io.StringIO(text[: text.rfind("\n") + 1]))
        lines = [(table.line_num, cells) for cells in table if cells]
    except FileNotFoundError:
        raise OptionError(f"there is no {file}: {hint}") from None
    except OSError as error:
        raise OptionError(f"{file} cannot be read ({error.strerror}): {hint}") from None
    except (UnicodeDecodeError, csv.Error):
        raise OptionError(f"{file} is not a table of numbers: {hint}") from None
    if not lines:
        return []
    (_, header), *lines = lines
    if missing := [name for name in ("step", *LOSSES[:2]) if name not in header]:
        raise OptionError(f"{file} is not the table of a run, it has no column {' or '.join(missing)}: {hint}")
    rows = []
    for number, cells in lines:
        try:
            named = dict(zip(header, cells, strict=True))
            row = {name: float(named[name]) if named.get(name) else None for name in columns}
            row["step"] = int(named["step"])
            if not 0 <= row["step"] < 10**15:
                raise ValueError
        except ValueError:
            raise OptionError(f"{file}, line {number} is damaged: correct it by hand, or remove that line") from None
        for name in columns:
            if row[name] is not None and not math.isfinite(row[name]):
                say(f"note: {file}, line {number}: {name} is {row[name]}, which cannot be plotted")
                row[name] = None
        rows.append(row)
    return rows


def points(rows: Sequence[dict[str, float | None]], column: str) -> list[tuple[float, float]]:
    """The steps at which a column was measured, each with what it was."""
    return [(row["step"], row[column]) for row in rows if row[column] is not None]


def names(files: Sequence[Path]) -> list[str]:
    """Names for the runs: their folders, with as many parent folders as are needed to distinguish them.

    >>> names([Path("/out/old/char/metrics.csv"), Path("/out/new/char/metrics.csv")])
    ['old/char', 'new/char']
    """
    whole = [(f.parent if f.name == "metrics.csv" else f.with_suffix("")).parts for f in map(Path.resolve, files)]
    depths = range(1, max(map(len, whole)) + 1)
    depth = next(depth for depth in depths if len({parts[-depth:] for parts in whole}) == len(set(whole)))
    return ["/".join(parts[-depth:]) for parts in whole]


def smoothed(losses: np.ndarray, rows: int) -> np.ndarray:
    """Each loss replaced by the mean of itself and its neighbours, `rows` in all (one fewer if that is even).

    Near the start the window is smaller and stays symmetric: the loss falls steeply there, so averaging the first loss
    with later ones would make the curve begin too low. Near the end, where the loss hardly falls, the window is cut
    off.

    >>> smoothed(np.array([4.0, 2.0, 3.0, 1.0]), 3)
    array([4., 3., 2., 2.])
    """
    sides = [min(i, (rows - 1) // 2) for i in range(len(losses))]
    return np.array([losses[i - k : i + k + 1].mean() for i, k in enumerate(sides)])


def above_zero(curve: np.ndarray) -> np.ndarray:
    """The points that logarithmic axes can show, not the evaluation at step 0: (2, n) -> (2, m)."""
    return curve[:, (curve > 0).all(0)]


# --- drawing ---------------------------------------------------------------------------------------------------


def draw_loss(runs: Sequence[str | Path], options: LossOptions) -> Picture:
    """The training and validation losses of runs.

    Args:
        runs: the folder or the metrics.csv of each.
    Raises: OptionError if a run cannot be read or a unit cannot be computed, or if logarithmic axes have nothing to
        show.
    """
    found = [read_run(Path(path)) for path in runs]
    compares_texts = len(found) > 1 and any(run.per["nats"] != run.per["bits"] for run in found)
    unit = options.unit if options.unit != "auto" else "bits" if compares_texts else "nats"
    for run in found:
        if unit == "bits" and run.bits_per_nat is None:
            raise OptionError(f"{run.file}: bits per {run.per[unit]} need an evaluation; use --unit nats")
        for curve in (run.training, run.validation):
            curve[1] *= run.bits_per_nat if unit == "bits" else 1.0
        if options.log and not above_zero(np.hstack([run.training, run.validation])).size:
            raise OptionError(f"{run.file} has nothing after step 0 yet: omit --log")
    width = (options.smooth - 1) // 2 * 2 + 1
    mean = f", mean of {width} rows" if width > 1 else ""
    called = names([run.file for run in found])
    units = sorted({f"{unit} per {run.per[unit]}" for run in found})
    if len(units) > 1:
        raise OptionError(f"these losses cannot be compared, being {' and '.join(units)}: draw each kind apart")
    rows = [("run", "part", "step", units[0].replace(" ", "_"))]
    for name, run in zip(called, found, strict=True):  # as measured, without smoothing
        for part, curve in (("training", run.training), ("validation", run.validation)):
            rows += [(name, part, int(step), loss) for step, loss in curve.T]
    return Picture(
        title="Loss over training: " + ", ".join(called),
        caption=f"Thick line with points: the loss on held-out data. Thin line: the training loss{mean}. While both "
        "fall together the model still learns what holds for other data too; where the thick line rises it memorises.",
        size=(7.2, 4.2),
        draw=lambda figure: draw_lines(figure, found, called, units[0], options),
        table=rows,
        default=found[0].file.parent / "curves.svg",
    )


def draw_lines(figure, runs: Sequence[Run], called: Sequence[str], unit: str, options: LossOptions) -> None:
    """Fill the figure: two lines for each run, and a legend."""
    axes = figure.add_subplot()
    axes.set(xlabel="step (updates of the weights)", ylabel=f"loss, {unit}")
    thick, thin, labels = [], [], []
    for name, run, colour, marker in zip(called, runs, cycle(COLOURS), cycle(MARKERS), strict=False):
        (steps, losses), validation = run.training, run.validation
        training = np.array([steps, smoothed(losses, options.smooth)])
        if options.log:
            training, validation = above_zero(training), above_zero(validation)
        dot = "." if training.shape[1] == 1 else ""  # a single point does not make a line
        thin += axes.plot(*training, dot, color=colour, linewidth=0.9, alpha=0.55)
        thick += axes.plot(*validation, marker, ls="-", color=colour, lw=1.8, ms=3.5)
        labels.append((name if len(runs) > 1 else "validation") + describe_best(run.validation))
    set_ticks(axes, options.log)

    lines, labels = (thick, labels) if len(runs) > 1 else ([*thick, *thin], [*labels, "training"])
    # matplotlib omits labels that begin with _, so the names are set afterwards.
    legend = axes.legend(lines, ["-"] * len(lines), frameon=False, alignment="left")
    for text, words in zip(legend.get_texts(), labels, strict=True):
        text.set_text(words)


def describe_best(validation: np.ndarray) -> str:
    """The lowest validation loss, for the legend; empty before the first evaluation.

    >>> describe_best(np.array([[0, 250], [4.4, 2.3]]))
    ', best 2.300 at step 250'
    """
    if not validation.size:
        return ""
    step, loss = validation[:, validation[1].argmin()]
    return f", best {loss:.3f} at step {step:,.0f}"


def set_ticks(axes, log: bool) -> None:
    """Write the numbers at the axes as 3, not 3 × 10^0, and as 1,000, not 1e3; and show a light grid."""
    count_steps(axes.xaxis)
    if log:
        axes.set(xscale="log", yscale="log")
        low, high = axes.get_ylim()
        write_out(axes.xaxis)
        write_out(axes.yaxis, (1, 2, 5) if high >= 10 * low else (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8))
    else:
        axes.margins(x=0.02)
    plain_axes(axes)


# --- other measures -------------------------------------------------------------------------------------------


@dataclass
class MeasuresOptions(DrawOptions):
    """The options of `measures`."""

    columns: list[str] = option([], f"columns of metrics.csv: {', '.join(MEASURES[4:])}; none: all that were measured")


def draw_measures(runs: Sequence[str | Path], options: MeasuresOptions) -> Picture:
    """What the evaluations of runs measured besides the loss.

    Raises: OptionError if a run cannot be read, or if no run has one of them.
    """
    if unknown := [name for name in options.columns if name not in MEASURES]:
        raise OptionError(f"--columns {unknown[0]}: metrics.csv has {', '.join(MEASURES)}")
    files = [path / "metrics.csv" if path.is_dir() else path for path in map(Path, runs)]
    found, called = [read_rows(file, MEASURES) for file in files], names(files)
    measured = {name for rows in found for name in MEASURES if points(rows, name)}
    columns = options.columns or [name for name in MEASURES[4:] if name in measured] or MEASURES[4:5]
    if missing := [name for name in columns if name not in measured]:
        has = ", ".join(name for name in MEASURES if name in measured) or "nothing yet"
        raise OptionError(f"--columns {missing[0]}: none of these runs has measured it; they have {has}")
    per = [units_of(file.parent) for file in files]
    per = {name: " or ".join(sorted({each[name] for each in per})) for name in per[0]}
    pairs = product(columns, zip(called, found, strict=True))
    lines = {(column, name): points(rows, column) for column, (name, rows) in pairs}
    rows, wide = -(-len(columns) // IN_A_ROW), min(len(columns), IN_A_ROW)

    def fill(figure) -> None:
        for number, column in enumerate(columns, start=1):
            axes = figure.add_subplot(rows, wide, number)
            for name, colour, marker in zip(called, cycle(COLOURS), cycle(MARKERS), strict=False):
                if line := lines[column, name]:
                    axes.plot(*zip(*line, strict=True), marker, ls="-", color=colour, ms=3.5, label=name)
            axes.set(xlabel="step", ylabel=UNITS.get(column, SHARE).format(**per), title=column.replace("_", " "))
            count_steps(axes.xaxis)
            plain_axes(axes)
        figure.axes[0].legend(frameon=False)

    title, caption = f"Measures over training: {', '.join(called)}", "Each panel is one measure on held-out data."
    table = [(name, column, *point) for (column, name), line in lines.items() for point in line]
    table = [("run", "measure", "step", "value"), *table]
    return Picture(title, caption, (2.6 * wide + 1, 3.2 * rows), fill, table, default=files[0].parent / "measures.svg")
