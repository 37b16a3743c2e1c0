"""Draw the diagrams of the course: SVG files in the folders of the chapters.

    python docs/course/pictures.py     writes all of them, always the same

The numbers are those of the chapters: `example` runs blocks of a chapter's page and returns the names that they define.
Coordinates are those of SVG, with y downwards, in a picture 760 wide. A `kind` is one or more classes of the style
sheet: a colour, or `small`, `bold`, `code` for text. Blue is computed from the data, green is learned, and orange has
to do with gradients.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import sys
from html import escape
from pathlib import Path
from typing import Any

COURSE = Path(__file__).resolve().parent
WIDTH = 760
# Each colour on light and on dark pages: the fill of a box, that of a marked box, and lines and text.
COLOURS = {
    "grey": (("#f6f8fa", "#d1d9e0", "#59636e"), ("#161b22", "#3d444d", "#9198a1")),
    "blue": (("#ddf4ff", "#a5d6ff", "#0550ae"), ("#0c2138", "#184c86", "#79c0ff")),
    "green": (("#dafbe1", "#aceebb", "#116329"), ("#0b2a17", "#1b5c2e", "#56d364")),
    "orange": (("#fff1e5", "#ffd8b5", "#953800"), ("#33200d", "#7a3d0c", "#f0a35e")),
}
INK = ("#1f2328", "#e6edf3")
SHAPES = (
    "text{font:15px system-ui,sans-serif}.small{font-size:13px}.bold{font-weight:600}"
    ".code{font-family:ui-monospace,monospace}path{stroke-width:1.8}.thick{stroke-width:5}.dashed{stroke-dasharray:5 4}"
)


def style() -> str:
    """The style sheet: the shapes, then the colours for light pages and for dark ones."""

    def colours(mode: int) -> str:
        rules = [f"text{{fill:{INK[mode]}}}"]
        for name, modes in COLOURS.items():
            fill, marked, line = modes[mode]
            rules.append(f".{name}{{fill:{fill};stroke:{line}}}.{name}.on{{fill:{marked}}}path.{name}{{fill:none}}")
            rules.append(f"text.{name}{{fill:{line};stroke:none}}path.{name}.head{{fill:{line}}}")
        return "".join(rules)

    return f"<style>{SHAPES}{colours(0)}\n@media (prefers-color-scheme:dark){{{colours(1)}}}</style>\n"


def picture(title: str, description: str, height: int, *parts: str) -> str:
    """The whole file."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        f'role="img" aria-labelledby="title about">\n<title id="title">{escape(title)}</title>\n'
        f'<desc id="about">{escape(description)}</desc>\n{style()}{"".join(parts)}</svg>\n'
    )


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "middle") -> str:
    """One line of text, whose middle is at the height y; x is its middle, start or end."""
    return f'<text x="{x:g}" y="{y + 5:g}" text-anchor="{anchor}" class="{kind}">{escape(words)}</text>\n'


def lines(x: float, y: float, *words: str, kind: str = "", anchor: str = "start", step: float = 21) -> str:
    """Lines of text below each other. One that begins with a kind and a bar, as in "orange|dy", has that kind, too."""
    parts = [line.rpartition("|") for line in words]
    return "".join(
        text(x, y + step * n, line, f"{kind} {own}".strip(), anchor) for n, (own, _, line) in enumerate(parts)
    )


def box(x: float, y: float, width: float, height: float, *words: str, kind: str = "grey") -> str:
    """A box with lines of text in its middle."""
    shape = f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4" class="{kind}"/>\n'
    return shape + lines(x + width / 2, y + height / 2 - 10.5 * (len(words) - 1), *words, anchor="middle")


def line(*points: tuple[float, float], kind: str = "grey") -> str:
    """A line through points."""
    return f'<path d="M{"L".join(f"{x:g} {y:g}" for x, y in points)}" class="{kind}"/>\n'


def arrow(*points: tuple[float, float], kind: str = "grey") -> str:
    """A line through points, with a head at the last of them."""
    (x0, y0), (x1, y1) = points[-2:]
    length = ((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5
    ex, ey = (x1 - x0) / length, (y1 - y0) / length  # the last part's direction
    bx, by = x1 - 10 * ex, y1 - 10 * ey  # the middle of the head's base
    head = f"M{x1:g} {y1:g}L{bx - 5 * ey:g} {by + 5 * ex:g}L{bx + 5 * ey:g} {by - 5 * ex:g}Z"
    return line(*points[:-1], (bx, by), kind=kind) + f'<path d="{head}" class="{kind} head" stroke="none"/>\n'


def grid(x: float, y: float, width: float, height: float, cells: list[list[str]], kind: Any = "grey") -> str:
    """A table of cells, each of which is `width` wide; `kind` is one for all or a function of row and column."""
    kinds = kind if callable(kind) else lambda row, column: kind
    return "".join(
        box(x + width * c, y + height * r, width, height, *[cell] * bool(cell), kind=kinds(r, c))
        for r, row in enumerate(cells)
        for c, cell in enumerate(row)
    )


def example(chapter: str, *marks: str) -> dict[str, Any]:
    """The names that examples of a chapter define: those blocks of its page in which these strings occur."""
    folder = COURSE / chapter
    blocks = re.findall(
        r"^```python\n(>>>.*?)^```", (folder / "README.md").read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    chosen = [block for block in blocks if any(mark in block for mark in marks)]
    names: dict[str, Any] = {}
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(
                "".join(step.source for block in chosen for step in doctest.DocTestParser().get_examples(block)), names
            )
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - before:  # another chapter may have a file of the same name
            if folder in Path(getattr(sys.modules[name], "__file__", None) or "/").parents:
                del sys.modules[name]
    return names


# --- pictures ----------------------------------------------------------------------------------------------------


def graph() -> str:
    """Chapter 1: y = x² · x, its values and its gradients."""
    y = example("01-derivatives", "y = x**2 * x")["y"]
    u, x = y.parents
    to_u, to_x = y.derivative(y.grad)  # what y passes on
    (through_u,) = u.derivative(u.grad)
    du, dx = y.derivative(1.0)  # the derivatives of the steps
    (step,) = u.derivative(1.0)

    def number(left: float, top: float, name: str, value: float, gradient: str) -> str:
        return box(left, top, 180, 84, f"bold|{name}", f"blue|value {value:g}", f"orange|gradient {gradient}")

    return picture(
        "The graph of y = x² · x",
        "Values flow forward from x to u = x² and to y = u · x. Gradients flow back along the same edges, each "
        "multiplied by the derivative of the step; at x, those of both paths are added.",
        284,
        arrow((8, 24), (58, 24), kind="blue") + text(70, 24, "forward: values", "blue", "start"),
        arrow((58, 50), (8, 50), kind="orange") + text(70, 50, "backward: gradients", "orange", "start"),
        number(10, 180, "x", x.value, f"{to_x:g} + {through_u:g} = {x.grad:g}"),
        number(290, 20, "u = x²", u.value, f"{u.grad:g}"),
        number(570, 180, "y = u · x", y.value, f"{y.grad:g}"),
        arrow((136, 179), (289, 88), kind="blue") + arrow((289, 70), (106, 179), kind="orange"),
        arrow((471, 88), (624, 179), kind="blue") + arrow((654, 179), (471, 70), kind="orange"),
        arrow((191, 214), (569, 214), kind="blue") + arrow((569, 230), (191, 230), kind="orange"),
        lines(8, 98, f"du/dx = 2x = {step:g}", f"passed on: {u.grad:g} · {step:g} = {through_u:g}", kind="orange"),
        lines(604, 98, f"dy/du = x = {du:g}", f"passed on: {y.grad:g} · {du:g} = {to_u:g}", kind="orange"),
        lines(
            380,
            249,
            f"dy/dx = u = {dx:g}",
            f"passed on: {y.grad:g} · {dx:g} = {to_x:g}",
            kind="orange",
            anchor="middle",
        ),
    )


PICTURES = {
    "01-derivatives/picture.svg": graph,
}


def main() -> None:
    """Write all pictures."""
    for name, draw in PICTURES.items():
        (COURSE / name).write_text(draw(), encoding="utf-8", newline="\n")
        print(f"wrote {COURSE / name}")


if __name__ == "__main__":
    main()
