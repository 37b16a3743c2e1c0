"""Lines of boxes, each with a text: how tokens.py and merges.py draw tokens."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from extra.plots.figure import Picture

TEXT_SIZE = 8  # points
LETTER = 0.64 * TEXT_SIZE / 72  # the width of a letter of the typewriter font, in inches
LINE = 0.24  # inches from one line of boxes to the next
WIDTH = 100  # letters
MAX_TEXT = 1000  # characters
FILLS = ("#d3e8f5", "#fdefc3")  # of neighbouring tokens, in turn


class Line(NamedTuple):
    """A line of the picture: words in front, and boxes, each a text and a colour; more lines if they do not fit.

    Words without boxes are a heading.
    """

    words: str
    boxes: Sequence[tuple[str, str]] = ()


def picture(title: str, caption: str, lines: Sequence[Line], rows: Sequence, has_text: bool = False) -> Picture:
    """The picture of lines of boxes."""
    placed = list(lay_out(lines))
    height = max(row for row, *_ in placed) + 1.2
    widest = max([column + len(text) + 1 for _, column, text, _, _ in placed])

    def draw(figure) -> None:
        axes = figure.add_subplot()
        axes.set_axis_off()
        axes.set(xlim=(0, widest), ylim=(height, 0))
        for row, column, text, fill, is_heading in placed:
            if fill:
                axes.barh(row + 0.5, len(text) + 0.9, 0.8, column, color=fill, edgecolor="#888888", linewidth=0.4)
            style = {"fontweight": "bold", "family": "sans-serif"} if is_heading else {"family": "monospace"}
            place, side = (column + len(text) / 2 + 0.45, "center") if fill else (column, "left")
            axes.text(place, row + 0.52, text, ha=side, va="center", fontsize=TEXT_SIZE, **style)

    text = "\n".join(
        (f"{line.words}: " if line.boxes else line.words) + "|".join(text for text, _ in line.boxes) for line in lines
    )
    return Picture(title, caption, (widest * LETTER, height * LINE), draw, table=rows, text=text if has_text else "")


def lay_out(lines: Sequence[Line]) -> Iterator[tuple[float, float, str, str, bool]]:
    """Where everything goes: (row, column, text, colour of the box, whether it is a heading)."""
    row = 0.0
    for words, boxes in lines:
        if words:
            yield row, 0, words, "", not boxes
        indent = column = len(words) + 1 if words and boxes else 0
        for text, fill in boxes:
            if column + len(text) + 1 > WIDTH and column > indent:
                row, column = row + 1, indent
            yield row, column, text, fill, False
            column += len(text) + 1
        row += 1 if words or boxes else 0.5
