"""What the evaluations of runs measured besides the loss, each measure in its own panel.

    python -m studies.draw measures out/rewards --columns drawn_right group_right entropy
    python -m studies.draw measures out/rewards out/sums-more --columns exact --out measures.svg measures.csv

Any column of metrics.csv can be named. Runs that have no value of it are missing in its panel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

from studies.pictures.command import DrawOptions
from studies.pictures.loss import names, read_rows
from tinygrad_lite.errors import OptionError
from workshop.cli.options import option
from workshop.figure import COLOURS, MARKERS, Picture, count_steps, plain_axes
from workshop.run.run_folder import METRICS


@dataclass
class MeasuresOptions(DrawOptions):
    """The options of `measures`."""

    columns: list[str] = option(
        ["drawn_right", "group_right", "entropy"], f"columns of metrics.csv: {', '.join(METRICS[5:])}"
    )


def draw_measures(runs: Sequence[str | Path], options: MeasuresOptions) -> Picture:
    """The chosen measures of these runs over their steps.

    Raises: OptionError if a run cannot be read, or if no run has one of them.
    """
    if unknown := [name for name in options.columns if name not in METRICS[1:]]:
        raise OptionError(f"--columns {unknown[0]}: metrics.csv has {', '.join(METRICS[1:])}")
    files = [path / "metrics.csv" if path.is_dir() else path for path in map(Path, runs)]
    found = [read_rows(file, options.columns) for file in files]
    called = names(files)
    points = {
        (column, name): [(row["step"], row[column]) for row in rows if row[column] is not None]
        for column in options.columns
        for name, rows in zip(called, found, strict=True)
    }
    if empty := [c for c in options.columns if not any(points[c, name] for name in called)]:
        raise OptionError(f"--columns {empty[0]}: none of these runs has measured it")

    def fill(figure) -> None:
        panels = figure.subplots(1, len(options.columns), squeeze=False)[0]
        for axes, column in zip(panels, options.columns, strict=True):
            for name, colour, marker in zip(called, cycle(COLOURS), cycle(MARKERS), strict=False):
                if line := points[column, name]:
                    axes.plot(*zip(*line, strict=True), marker, ls="-", color=colour, ms=3.5, label=name)
            axes.set(xlabel="step", title=column.replace("_", " "))
            count_steps(axes.xaxis)
            plain_axes(axes)
        figure.axes[0].legend(frameon=False)

    return Picture(
        title="Measures over training: " + ", ".join(called),
        caption="Each panel shows one measure of the evaluations on held-out data.",
        size=(2.6 * len(options.columns) + 1, 3.2),
        draw=fill,
        table=[("run", "measure", "step", "value")]
        + [(name, column, *point) for (column, name), line in points.items() for point in line],
        default=files[0].parent / "measures.svg",
    )
