"""The results of experiments: the rows of a CSV file, as a Markdown table, and as a plot.

`experiments.py` says what the columns mean.
"""

import csv
import io
import statistics
from collections.abc import Sequence
from pathlib import Path

from extra.plots.figure import COLOURS, check_file, new_figure, own_style, plain_axes, save
from tinygrad_lite.errors import OptionError, UserError
from training.checkpoint import write_atomically
from training.cli.console import say

COLUMNS = (
    *("name", "seed", "options", "commit", "processor", "workers", "steps", "seconds", "seconds_per_step"),
    *("parameters", "train_loss", "checkpoint", "val_loss", "bits_per_char", "last_bits_per_char", "best_step"),
    *("accuracy", "test_accuracy", "trained", "base_bits_per_char"),
)

Row = dict[str, str]


def read_rows(file: Path) -> list[Row]:
    """The rows of a file of results; none if it is missing.

    Raises: UserError if it holds anything else.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise UserError(f"{file} cannot be read: {error}") from None
    reader = csv.DictReader(io.StringIO(text))
    rows = list(reader)
    if tuple(reader.fieldnames or ()) != COLUMNS or any(None in row or None in row.values() for row in rows):
        raise UserError(f"{file} does not have the columns {', '.join(COLUMNS)}: move it away")
    return rows


def write_rows(file: Path, rows: Sequence[Row]) -> None:
    """Replace a file of results, all or nothing."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, out.getvalue().encode("utf-8"))


def grouped(rows: Sequence[Row], names: Sequence[str]) -> list[list[Row]]:
    """The runs of each of these settings, in this order.

    Runs belong together if name, options, commit, processor and number of workers are the same.
    """
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in sorted((row for row in rows if row["name"] in names), key=lambda row: names.index(row["name"])):
        groups.setdefault(tuple(row[c] for c in ("name", "options", "commit", "processor", "workers")), []).append(row)
    return list(groups.values())


def table(groups: Sequence[Sequence[Row]]) -> str:
    """The results in Markdown: for every setting the mean over its seeds, followed by ± their standard deviation."""
    columns: dict[str, tuple[str, int]] = {
        "bits per character": ("bits_per_char", 3),
        "of the last step": ("last_bits_per_char", 3),
        "on the base's text": ("base_bits_per_char", 3),
        "accuracy": ("accuracy", 3),
        "on the test part": ("test_accuracy", 3),
        "validation loss": ("val_loss", 3),
        "training loss": ("train_loss", 3),
        "steps": ("steps", 0),
        "seconds": ("seconds", 0),
        "seconds per step": ("seconds_per_step", 4),
        "parameters": ("parameters", 0),
        "trained": ("trained", 0),
    }
    lines = [["setting", "runs", *columns, "commit"], ["---"] * (len(columns) + 3)]
    for group in groups:
        cells = [spread([row[column] for row in group], digits) for column, digits in columns.values()]
        lines.append([group[0]["name"], str(len(group)), *cells, group[0]["commit"]])
    machines = dict.fromkeys(f"{row['processor']}, {row['workers']} processes" for group in groups for row in group)
    listed = "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
    return f"{listed}\nMean over the runs ± their standard deviation. Measured on: {'; '.join(machines)}.\n"


def plot(groups: Sequence[Sequence[Row]], baseline: str, file: Path) -> None:
    """A line for every setting, from top to bottom: a point for each run, and their mean as a bar.

    Bits per character; the validation loss in nats per token if a run has no such measure.

    Raises: OptionError if there is no such baseline, or the file cannot be written.
    """
    check_file(str(file), "--plot")
    in_bits = all(row["bits_per_char"] for group in groups for row in group)
    values = [[float(row["bits_per_char" if in_bits else "val_loss"]) for row in group] for group in groups]
    names = [group[0]["name"] for group in groups]
    with own_style():
        figure = new_figure(7.2, 0.8 + 0.24 * len(groups))
        axes = figure.add_subplot()
        if baseline:
            if baseline not in names:
                raise OptionError(f"--baseline {baseline}: there are runs of {', '.join(names)}")
            axes.axvline(statistics.mean(values[names.index(baseline)]), color=COLOURS[1], linewidth=0.8)
        for height, numbers in enumerate(values):
            axes.plot(numbers, [height] * len(numbers), "o", color=COLOURS[0], markersize=4, alpha=0.7)
            axes.plot([statistics.mean(numbers)], [height], "|", color=COLOURS[0], markersize=11)
        axes.set_yticks(range(len(names)), names, parse_math=False)
        axes.set_ylim(len(names) - 0.4, -0.6)  # the first on top
        plain_axes(axes, "x")
        axes.set_xlabel("bits per character" if in_bits else "validation loss, nats per token")
        save(figure, file)
    say(f"wrote {file}")


def spread(values: Sequence[str], digits: int) -> str:
    """Mean and standard deviation (of a sample: divided by n - 1), as text.

    >>> spread(["1.0", "2.0", "3.0"], 2), spread(["7"], 0), spread([""], 3)
    ('2.00 ± 1.00', '7', '')
    """
    numbers = [float(value) for value in values if value]
    if not numbers:
        return ""
    deviation = f" ± {statistics.stdev(numbers):,.{digits}f}" if len(set(numbers)) > 1 else ""
    return f"{statistics.mean(numbers):,.{digits}f}{deviation}"
