"""Draw the loss of one run, or of several together, over its steps.

    python -m tinygrad_lite.plot out/goethe-char                                    makes out/goethe-char/curves.svg
    python -m tinygrad_lite.plot out/goethe-char out/goethe-bpe --out curves.svg    both in one picture
    python -m tinygrad_lite.plot out/goethe-char --out curves.svg curves.png --log

Each run has a colour: the thin line is its training loss, the thick one with points its validation loss. A run that
is still at work can be drawn too. Runs with different tokens are compared in bits per character, because a loss per
token depends on what a token is.

The picture depends on nothing but the numbers: drawn again, it has the same bytes. Drawing is the work of matplotlib,
an extra: pip install -e ".[viz]"
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tinygrad_lite.console import run_command, say
from tinygrad_lite.errors import OptionError, UserError
from tinygrad_lite.options import build, option, parse_command_line

SUFFIXES = (".svg", ".png", ".pdf")
# Colours that people with any kind of colour vision can tell apart (Okabe, Ito 2008), and that print well.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
UNITS = {"nats": "nats per token", "bits": "bits per character"}


@dataclass
class PlotOptions:
    """Everything that the plot can be asked for."""

    out: list[str] = option([], "pictures to write, .svg, .png or .pdf; none: curves.svg in the first run's folder")
    unit: str = option("auto", "auto: bits if there are several runs", choices=("auto", *UNITS))
    smooth: int = option(10, "rows of which each point of the training loss is the mean", unit="rows", low=1)
    log: bool = option(False, "logarithmic axes, on which a power law is a straight line")


@dataclass
class Curve:
    """A loss over the steps of a run: both (n,)."""

    steps: np.ndarray
    losses: np.ndarray


@dataclass
class Run:
    """What metrics.csv says about a run, in nats per token.

    Attributes:
        bits_per_nat: bits per character of one nat per token; None if the run was not evaluated yet.
    """

    name: str
    training: Curve
    validation: Curve
    bits_per_nat: float | None


def read_run(path: Path) -> Run:
    """Read a run's folder, or a metrics.csv. Half a row at the end is passed over: the run may be at work.

    Raises: OptionError if there is none, or nothing in it to be drawn.
    """
    file = path / "metrics.csv" if path.is_dir() else path
    try:
        with open(file, encoding="utf-8", newline="") as lines:
            rows = list(csv.DictReader(lines))
    except FileNotFoundError:
        raise OptionError(f"there is no {file}: name the folder of a run, such as out/goethe-char") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise OptionError(f"{file} cannot be read as a table ({error}): name a run's folder or metrics.csv") from None
    training, validation, bits = (_column(rows, name) for name in ("loss", "val_loss", "bits_per_char"))
    if not len(training.steps) and not len(validation.steps):
        raise OptionError(f"{file} has no losses, in columns called step, loss and val_loss: did the run begin?")
    bits_per_nat = bits.losses[-1] / validation.losses[-1] if len(bits.steps) and len(validation.steps) else None
    return Run(file.parent.resolve().name, training, validation, bits_per_nat)


def _column(rows: Sequence[dict], name: str) -> Curve:
    """The numbers of one column, with their steps; rows without are passed over."""
    points = []
    for row in rows:
        try:
            points.append((int(row["step"]), float(row[name])))
        except (KeyError, TypeError, ValueError):
            continue
    steps, losses = np.array(points, float).reshape(-1, 2).T
    return Curve(steps, losses)


def smoothed(curve: Curve, rows: int) -> Curve:
    """Each point replaced by the mean of those around it, as many as `rows`; of fewer at either end.

    >>> smoothed(Curve(np.arange(4), np.array([4.0, 2.0, 3.0, 1.0])), 3).losses
    array([3., 3., 2., 2.])
    """
    window = np.ones(min(rows, max(len(curve.losses), 1)))
    if not len(curve.losses):
        return curve
    sums = np.convolve(curve.losses, window, "same")
    return Curve(curve.steps, sums / np.convolve(np.ones(len(curve.losses)), window, "same"))


def draw(runs: Sequence[Run], options: PlotOptions):
    """The picture, as a matplotlib Figure.

    Raises: UserError if matplotlib is not installed; OptionError if a unit cannot be computed.
    """
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import FuncFormatter, MaxNLocator
    except ImportError:
        raise UserError('drawing needs matplotlib, which is not installed: pip install -e ".[viz]"') from None
    unit = options.unit if options.unit != "auto" else "bits" if len(runs) > 1 else "nats"
    figure = Figure(figsize=(7.2, 4.2), layout="constrained")  # inches
    axes = figure.add_subplot()
    for number, run in enumerate(runs):
        colour, scale = COLOURS[number % len(COLOURS)], 1.0
        if unit == "bits":
            if run.bits_per_nat is None:
                raise OptionError(f"{run.name} was not evaluated yet, so its bits per character are not known")
            scale = run.bits_per_nat
        training, validation = smoothed(run.training, options.smooth), run.validation
        if options.log:  # which has no place for step 0
            validation = Curve(validation.steps[validation.steps > 0], validation.losses[validation.steps > 0])
        name = run.name if len(runs) > 1 else "validation"
        if len(validation.steps):
            best = validation.losses.argmin()
            name += f", best {validation.losses[best] * scale:.3f} at step {validation.steps[best]:,.0f}"
        mean = f", mean of {options.smooth} rows" if options.smooth > 1 else ""
        thin = {"label": f"training{mean}" if len(runs) == 1 else None, "alpha": 0.55, "linewidth": 0.9}
        thick = {"label": name, "linewidth": 1.8, "marker": "o", "markersize": 3.5}
        axes.plot(training.steps, training.losses * scale, color=colour, **thin)
        axes.plot(validation.steps, validation.losses * scale, color=colour, **thick)
    axes.set_xlabel("step")
    axes.set_ylabel(f"loss, {UNITS[unit]}")
    if options.log:
        axes.set_xscale("log")
        axes.set_yscale("log")
        plain = FuncFormatter(lambda value, _: f"{value:g}")  # 2 and 3, not 2 x 10^0
        axes.yaxis.set_major_formatter(plain)
        axes.yaxis.set_minor_formatter(plain)
    else:
        axes.margins(x=0.02)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    title = None if len(runs) == 1 else "thick: validation, thin: training"
    axes.legend(frameon=False, title=title, alignment="left")
    return figure


def save(figure, path: Path) -> None:
    """Write the picture in the format that the file's suffix names, without date or anything else that changes.

    Raises: OptionError if the file cannot be written.
    """
    import matplotlib

    # Text stays text in an SVG, and the names of its parts do not come from random numbers.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "tinygrad_lite"}):
        metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}, ".png": {}}[path.suffix]
        try:
            figure.savefig(path, metadata=metadata, dpi=160)
        except OSError as error:
            raise OptionError(f"--out {path} cannot be written ({error.strerror}): choose another place") from None


def main(argv: list[str]) -> int:
    """Run the command line and return the exit status."""
    parsed = parse_command_line(
        PlotOptions,
        argv,
        prog="python -m tinygrad_lite.plot",
        description="Draw the training and validation losses of runs. RUN is a run's folder or its metrics.csv.",
        positional="RUN ...",
        several=True,
    )
    options = build(PlotOptions, ("command line", parsed.values))
    if not parsed.positionals:
        raise OptionError("name the folder of a run: python -m tinygrad_lite.plot out/goethe-char")
    paths = [Path(name) for name in parsed.positionals]
    first = paths[0] if paths[0].is_dir() else paths[0].parent
    pictures = [Path(name) for name in options.out] or [first / "curves.svg"]
    for picture in pictures:
        if picture.suffix not in SUFFIXES:
            raise OptionError(f"--out {picture}: the name must end with one of {', '.join(SUFFIXES)}")
    figure = draw([read_run(path) for path in paths], options)
    for picture in pictures:
        save(figure, picture)
        say(f"wrote {picture}")
    return 0


if __name__ == "__main__":
    run_command("plot", main)
