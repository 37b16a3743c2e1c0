"""Drawings as SVG, without a library: lines, boxes and words, and charts with axes.

    page = Page(400, 300, "Two lines")
    chart = Chart(page, 60, 40, 300, 200, x=(0, 100), y=(0, 1))
    chart.axes([0, 50, 100], [0, 1], "step", "share")
    chart.line([0, 100], [0.2, 0.9], COLOURS[0])
    page.write("two.svg")

Places on a page are in pixels from the upper left corner. Where the reader's pages are dark, this one is dark too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from extra.plots.figure import COLOURS, write_or_refuse
from tinygrad_lite.errors import OptionError

PAPER, INK, GREY, GRID, TINT = "#ffffff", "#1f2328", "#8c959f", "#e5e7ea", "#f1f3f5"
DARK = {PAPER: "#0d1117", INK: "#e6edf3", GRID: "#30363d", TINT: "#1a2029", COLOURS[0]: "#3d9fe0"}
__all__ = ["COLOURS", "GREY", "INK", "TINT", "Chart", "Page", "check_plot"]


def check_plot(name: str) -> None:
    """Raise OptionError at once if a drawing cannot be written there at the end."""
    if Path(name).suffix != ".svg":
        raise OptionError(f"--plot {name}: must end with .svg")
    if not Path(name).parent.is_dir():
        raise OptionError(f"--plot {name}: there is no folder {Path(name).parent}; make it first")


def in_dark(colour: str) -> str:
    """What this colour is on dark pages, as a rule of a style sheet."""
    return f'[fill="{colour}"] {{ fill: {DARK[colour]} }} [stroke="{colour}"] {{ stroke: {DARK[colour]} }}'


class Page:
    """A drawing with a title."""

    def __init__(self, width: float, height: float, title: str) -> None:
        font = 'font-family="Helvetica, Arial, sans-serif" font-size="12"'
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" {font} fill="{INK}">',
            f"<title>{escape(title)}</title>",
            f"<style>@media (prefers-color-scheme: dark) {{ {' '.join(map(in_dark, DARK))} }}</style>",
            f'<rect width="{width:g}" height="{height:g}" rx="8" fill="{PAPER}"/>',
        ]
        self.text(14, 24, title, more='font-weight="bold" font-size="14"')

    def text(self, x: float, y: float, words: str, anchor: str = "start", colour: str = INK, more: str = "") -> None:
        """Words whose `start`, `middle` or `end` is at x; `more` holds further SVG attributes."""
        place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
        self.parts.append(f'<text {place} fill="{colour}" {more}>{escape(words)}</text>')

    def line(self, points: Iterable[tuple[float, float]], colour: str = INK, width: float = 1) -> None:
        """A line through points."""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"/>')

    def box(self, x: float, y: float, width: float, height: float, colour: str, opacity: float = 1) -> None:
        """A filled rectangle."""
        size = f'width="{width:.1f}" height="{height:.1f}"'
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" {size} fill="{colour}" fill-opacity="{opacity:.2f}"/>')

    def circle(self, x: float, y: float, radius: float, fill: str, stroke: str = "none") -> None:
        """A circle around a point."""
        place = f'cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}"'
        self.parts.append(f'<circle {place} fill="{fill}" stroke="{stroke}"/>')

    def legend(self, x: float, y: float, names: Iterable[str]) -> None:
        """What lines in the colours of `COLOURS` mean, one below the other."""
        for number, (name, colour) in enumerate(zip(names, COLOURS, strict=False)):
            self.line([(x, y + 18 * number), (x + 24, y + 18 * number)], colour, 2)
            self.text(x + 30, y + 18 * number + 4, name)

    def source(self) -> str:
        """The drawing as a text."""
        return "\n".join([*self.parts, "</svg>", ""])

    def write(self, file: str) -> None:
        """Write the drawing.

        Raises: OptionError if the file cannot be written.
        """
        write_or_refuse(file, self.source())


@dataclass
class Chart:
    """A part of a page with axes.

    Attributes:
        left, top, width, height: the part, in pixels.
        x, y: the numbers at the ends of the axes.
    """

    page: Page
    left: float
    top: float
    width: float
    height: float
    x: tuple[float, float]
    y: tuple[float, float]

    def at(self, x: float, y: float) -> tuple[float, float]:
        """The place of a point on the page."""
        right, up = ((v - low) / (high - low) for v, (low, high) in ((x, self.x), (y, self.y)))
        return self.left + right * self.width, self.top + (1 - up) * self.height

    def axes(self, xs: Sequence[float], ys: Sequence[float], x_name: str = "", y_name: str = "") -> None:
        """A frame, a number at each of these places of the two axes with a thin line, and the names of the axes."""
        for x in xs:
            self.page.line([self.at(x, self.y[0]), self.at(x, self.y[1])], GRID)
            self.page.text(self.at(x, 0)[0], self.top + self.height + 16, f"{x:g}", "middle")
        for y in ys:
            self.page.line([self.at(self.x[0], y), self.at(self.x[1], y)], GRID)
            self.page.text(self.left - 6, self.at(0, y)[1] + 4, f"{y:g}", "end")
        self.page.line([(self.left, self.top), self.at(self.x[0], self.y[0]), self.at(self.x[1], self.y[0])], GREY)
        self.page.text(self.left + self.width / 2, self.top + self.height + 33, x_name, "middle")
        self.page.text(self.left - 28, self.top - 8, y_name)

    def line(self, xs: Iterable[float], ys: Iterable[float], colour: str) -> None:
        """A line through points."""
        self.page.line([self.at(x, y) for x, y in zip(xs, ys, strict=True)], colour, 2)
