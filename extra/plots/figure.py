"""A picture and the files it is written to: with matplotlib as .svg, .png or .pdf, and as data.

    picture = Picture(title, caption, (7.2, 4.2), draw, table=rows)
    write(picture, Path("a.svg"))
    write(picture, Path("a.csv"))

An image depends only on the numbers: the same version of matplotlib writes the same bytes, whatever the user's style.
An .svg is dark where its reader prefers that.
matplotlib is an extra, imported in this file alone: pip install -e ".[viz]"
"""

import csv
import io
import os
import re
import textwrap
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tinygrad_lite.config import option
from tinygrad_lite.errors import OptionError, UserError
from training.cli.console import say, visible
from training.cli.files import write_atomically

# Suppresses the program name and the time in each format.
METADATA = {
    ".svg": {"Date": None, "Creator": None},
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
# Colours that are distinct for any kind of colour vision (Okabe, Ito 2008, two of them darker), and in print: their
# contrast with the page is at least 3, light or dark. Markers help where there is no colour; 7 and 11 have no common
# divisor, so 77 lines look different.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#BF8600", "#3A96CC", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "*")
MAX_INCHES = 100  # a larger picture takes minutes and gigabytes
CAPTION_SIZE = 8  # points
LETTER = 0.55 * CAPTION_SIZE / 72  # the mean width of a letter of the caption, in inches
LINE = 1.3 * CAPTION_SIZE / 72  # the height of a line of the caption, in inches
LUMA = (0.2126, 0.7152, 0.0722)  # of red, green and blue, of each from 0 to 1
BLACK, WHITE = 0.96, 0.09  # their values on a dark page


@dataclass
class DrawOptions:
    """The option of all pictures that `python -m extra.studies.draw` draws."""

    out: list[str] = option(
        [],
        "files to write: the picture as .svg, .png or .pdf, its numbers as .csv (tables) or .npz (arrays)",
        is_path=True,
    )


@dataclass
class Picture:
    """What a picture shows, how to read it, and its numbers.

    Attributes:
        title: what is shown.
        caption: how to read it; wrapped, below the charts.
        size: width and height of the charts in inches, without title and caption.
        draw: fills an empty matplotlib Figure with the charts.
        table: the numbers for a .csv: rows, the first with the names of the columns.
        arrays: the numbers for a .npz, by name. A picture has a table or arrays.
        text: the same for a terminal; empty if there is no such form.
        default: the file to write if none is named.
        has_photographs: whether it shows pictures, which stay as they are on a dark page.
    """

    title: str
    caption: str
    size: tuple[float, float]
    draw: Callable[[Any], None]
    table: Sequence[Sequence[Any]] = ()
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    text: str = ""
    default: Path | None = None
    has_photographs: bool = False


# --- matplotlib -----------------------------------------------------------------------------------------------


@contextmanager
def own_style() -> Iterator[None]:
    """Within this context matplotlib uses its default style, not the user's, and no random numbers in an SVG.

    Raises: UserError if it is not installed.
    """
    try:
        import matplotlib
    except ImportError:
        raise UserError('plotting needs matplotlib, which is not installed: pip install -e ".[viz]"') from None
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        # Text remains searchable text; the salt replaces random numbers.
        matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "tinygrad_lite"})
        yield


def new_figure(width: float, height: float):
    """An empty matplotlib Figure of this size in inches; call it inside `own_style`."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def save(figure, path: Path, has_photographs: bool = False) -> None:
    """Write a figure in the format of the file's suffix; an .svg follows the theme of its reader.

    Call it inside `own_style`.

    Raises: OptionError if the file cannot be written.
    """
    suffix, image = path.suffix.lower(), io.BytesIO()
    with warnings.catch_warnings():  # an SVG can show letters that matplotlib's font lacks
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure.savefig(image, format=suffix[1:], metadata=METADATA[suffix], dpi=160)
    data = image.getvalue()
    if suffix == ".svg":
        data = with_dark_theme(data.decode("utf-8"), has_photographs)
    write_or_refuse(path, data)


def with_dark_theme(svg: str, has_photographs: bool = False) -> str:
    """An SVG whose colours c = (red, green, blue) become, where its reader prefers dark pages,

        BLACK + (BLACK - WHITE) (c - 2 Y),    Y = LUMA c

    so light becomes dark and dark light, and a hue stays the same.
    """
    matrix = (BLACK - WHITE) * (np.eye(3) - 2 * np.array(LUMA))
    rows = [" ".join(f"{number:.4f}" for number in [*row, 0, BLACK]) for row in matrix]
    what = "path, text" if has_photographs else "svg > g"
    style = (
        f"<style>@media (prefers-color-scheme: dark) {{ {what} {{ filter: url(#dark) }} }}</style>\n"
        '<filter id="dark" filterUnits="userSpaceOnUse" x="-100%" y="-100%" width="300%" height="300%" '
        f'color-interpolation-filters="sRGB"><feColorMatrix values="{" ".join(rows)} 0 0 0 1 0"/></filter>'
    )
    return re.sub(r"(<svg\b[^>]*>)", lambda start: f"{start[1]}\n{style}", svg, count=1)


def plain_axes(axes, grid: str = "both") -> None:
    """A light grid behind the lines, and no frame at the top and on the right."""
    axes.grid(axis=grid, color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def count_steps(axis) -> None:
    """Whole numbers on an axis, written as 1,000, not 1e3."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins=8, integer=True, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def write_out(axis, digits: Sequence[float] = (1, 2, 5)) -> None:
    """Few numbers on a logarithmic axis, written with all digits: 0.5, 1, 2, ... 500, 1,000.

    Args:
        digits: the numbers to write between 1 and 10, and likewise in every other decade.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis.set_major_locator(LogLocator(subs=digits))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.12g}"))


def check_finite(numbers: np.ndarray, what: str) -> None:
    """Raise UserError if some of the numbers are NaN or infinite."""
    if not np.isfinite(numbers).all():
        raise UserError(f"{what} contains NaN or infinity, which cannot be drawn: its training has failed")


# --- files ----------------------------------------------------------------------------------------------------


def check_file(name: str, label: str, *others: str) -> None:
    """Raise OptionError if a file is neither an image nor of the other kinds given.

    Args:
        label: the option that names it.
        others: suffixes that are allowed besides those of images.
    """
    allowed = (*METADATA, *others)
    if Path(name).suffix.lower() not in allowed:
        raise OptionError(f"{label} {name}: must end with one of {', '.join(allowed)}")


def check_folder(name: str, label: str) -> None:
    """Raise OptionError before all work if the folder of a file is missing, in which the result is to be written."""
    if not Path(name).parent.is_dir():
        raise OptionError(f"{label} {name}: there is no folder {Path(name).parent}")


def check_plot(name: str, label: str) -> None:
    """Raise at once whatever would prevent a plot at the end: a file that is not an image, or missing matplotlib."""
    check_file(name, label)
    with own_style():
        pass


def write(picture: Picture, path: Path) -> None:
    """Write a picture, or its numbers, in the format of the file's suffix.

    Raises: OptionError if its numbers have another format, if the image would be too large, or if the file cannot be
        written; UserError if matplotlib is not installed.
    """
    suffix, suffix_of_numbers = path.suffix.lower(), ".npz" if picture.arrays else ".csv"
    if suffix in METADATA:
        if max(picture.size) > MAX_INCHES:
            size = "{:.0f} by {:.0f} inches, more than {}".format(*picture.size, MAX_INCHES)
            advice = "show less of it, as the options of --help allow"
            raise OptionError(f"{path}: the picture would measure {size}: {advice}")
        with own_style():
            save(compose(picture), path, picture.has_photographs)
    elif suffix != suffix_of_numbers:
        raise OptionError(f"{path}: the numbers of this picture are written as {suffix_of_numbers}")
    elif picture.arrays:
        np.savez(numbers := io.BytesIO(), **picture.arrays)
        write_or_refuse(path, numbers.getvalue())
    else:
        csv.writer(table := io.StringIO(), lineterminator="\n").writerows(picture.table)
        write_or_refuse(path, table.getvalue())


def write_each(picture: Picture, *files: str | Path) -> None:
    """Write a picture, or its numbers, to each of these files, and say so. Raises: as `write`."""
    for file in files:
        write(picture, Path(file))
        say(f"wrote {file}")


def compose(picture: Picture):
    """The picture as a matplotlib Figure: title, charts, caption; call it inside `own_style`."""
    width = max(picture.size[0], 4.5)
    letters = int((width - 0.3) / LETTER)
    title = textwrap.wrap(visible(picture.title), max(20, int(letters * 0.7)))
    caption = textwrap.wrap(visible(picture.caption), letters)
    figure = new_figure(width, picture.size[1] + 0.25 * len(title) + LINE * len(caption) + 0.2)
    picture.draw(figure)
    figure.suptitle("\n".join(title), x=0.15 / width, ha="left", fontsize=11, fontweight="bold")
    figure.supxlabel("\n".join(caption), x=0.15 / width, ha="left", fontsize=CAPTION_SIZE, color="#444444")
    for text in figure.findobj(lambda part: hasattr(part, "set_parse_math")):
        text.set_parse_math(False)  # a dollar sign does not begin a formula
    return figure


def write_or_refuse(path: Path | str, data: bytes | str, option: str = "") -> None:
    """Write a file that a user names, all or nothing; text as UTF-8.

    A link is followed, and into a FIFO or a device, such as /dev/stdout, the data are written.

    Args:
        option: what preceded its name on the command line.
    Raises: OptionError if it cannot be written.
    """
    data = data.encode("utf-8") if isinstance(data, str) else data
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            Path(path).write_bytes(data)
        else:
            write_atomically(Path(os.path.realpath(path)), data)
    except OSError as error:
        raise OptionError(f"{option}{path} cannot be written ({error.strerror}): choose another file") from None
