"""What the evaluations of runs measured besides the loss, each measure in its own panel.

    python -m extra.studies.draw measures out/rewards --columns drawn_right group_right entropy
    python -m extra.studies.draw measures out/rewards out/sums-more --columns exact --out measures.svg measures.csv

Any column of metrics.csv can be named; without names, all that the evaluations of these runs have measured are drawn.
Runs that have no value of a measure are missing in its panel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

from extra.plots.figure import COLOURS, MARKERS, DrawOptions, Picture, count_steps, plain_axes
from extra.plots.loss import names, read_rows, units_of
from tinygrad_lite.config import option
from tinygrad_lite.errors import OptionError
from training.folder import METRICS

IN_A_ROW = 3  # panels
SHARE = "share, 0 to 1"
UNITS = {  # of the measures that are no shares
    **{"loss": "nats per {nats}", "val_loss": "nats per {nats}", "bits_per_char": "bits per {bits}"},
    **{"learning_rate": "learning rate", "grad_norm": "length", "tokens_per_second": "tokens per second"},
    **{"bleu": "0 to 100", "chrf": "0 to 100", "reward": "points per answer", "entropy": "nats per answer"},
}


@dataclass
class MeasuresOptions(DrawOptions):
    """The options of `measures`."""

    columns: list[str] = option([], f"columns of metrics.csv: {', '.join(METRICS[5:])}; none: all that were measured")


def draw_measures(runs: Sequence[str | Path], options: MeasuresOptions) -> Picture:
    """The chosen measures of these runs over their steps.

    Raises: OptionError if a run cannot be read, or if no run has one of them.
    """
    if unknown := [name for name in options.columns if name not in METRICS[1:]]:
        raise OptionError(f"--columns {unknown[0]}: metrics.csv has {', '.join(METRICS[1:])}")
    files = [path / "metrics.csv" if path.is_dir() else path for path in map(Path, runs)]
    found, called = [read_rows(file, METRICS[1:]) for file in files], names(files)
    measured = {name for rows in found for row in rows for name in METRICS[1:] if row[name] is not None}
    columns = options.columns or [name for name in METRICS[5:] if name in measured] or METRICS[5:6]
    if missing := [name for name in columns if name not in measured]:
        has = ", ".join(name for name in METRICS[1:] if name in measured) or "nothing yet"
        raise OptionError(f"--columns {missing[0]}: none of these runs has measured it; they have {has}")
    per = [units_of(file.parent) for file in files]
    per = {name: " or ".join(sorted({each[name] for each in per})) for name in per[0]}
    points = {
        (column, name): [(row["step"], row[column]) for row in rows if row[column] is not None]
        for column in columns
        for name, rows in zip(called, found, strict=True)
    }

    rows, wide = -(-len(columns) // IN_A_ROW), min(len(columns), IN_A_ROW)

    def fill(figure) -> None:
        for number, column in enumerate(columns, start=1):
            axes = figure.add_subplot(rows, wide, number)
            for name, colour, marker in zip(called, cycle(COLOURS), cycle(MARKERS), strict=False):
                if line := points[column, name]:
                    axes.plot(*zip(*line, strict=True), marker, ls="-", color=colour, ms=3.5, label=name)
            axes.set(xlabel="step", ylabel=UNITS.get(column, SHARE).format(**per), title=column.replace("_", " "))
            count_steps(axes.xaxis)
            plain_axes(axes)
        figure.axes[0].legend(frameon=False)

    title, caption = f"Measures over training: {', '.join(called)}", "Each panel is one measure on held-out data."
    table = [(name, column, *point) for (column, name), line in points.items() for point in line]
    table = [("run", "measure", "step", "value"), *table]
    return Picture(title, caption, (2.6 * wide + 1, 3.2 * rows), fill, table, default=files[0].parent / "measures.svg")
