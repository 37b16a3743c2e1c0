"""The part of docs/museum.md that shows what silent bugs look like, and its drawings in docs/extra.

    python docs/museum_curves.py [PAGE]          a minute or two; the page is docs/museum.md unless another is named

A group of GROUPS is a section of the page, before "Adding one". Exhibits whose scene is a curve share a drawing; of the
others the page has the text that `python -m extra.museum` shows. What the faults are, it does not say.
"""

import sys
import textwrap
from contextlib import nullcontext
from pathlib import Path

from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).parents[1]))  # where train.py is, which is in no package
sys.path.insert(0, str(Path(__file__).parent / "course" / "15-inside"))
import svg

from extra.museum import __main__ as museum
from extra.museum import scenes
from extra.museum.exhibits import EXHIBITS, Exhibit
from extra.plots.figure import write_or_refuse
from training.cli.console import run_command

# The exhibits by what one sees first; the name of a drawing.
GROUPS = {
    "The loss is too good": ("good", (3, 4, 5, 13, 21)),
    "The loss is too high": ("high", (1, 2, 6, 8, 9, 12, 14, 22)),
    "The loss jumps, wanders or comes back": ("wanders", (7, 10, 15, 16, 17, 18)),
    "The learning rate has another shape": ("rate", (19, 20)),
    "The text falls apart": ("", (11, 28, 29, 32, 33, 34)),
    "The text depends on the other rows of its batch": ("", (30, 31, 36)),
    "The tokens that may be drawn are others": ("", (23, 24, 25, 26, 27)),
    "The translation is too long, too short or a guess": ("", (35, 37, 38)),
    "Letters and tokens": ("", (39, 40, 41)),
}
LAST = "## Adding one\n"  # the section behind them
WATCHED = {"training": "training loss", "held-out": "held-out loss", "rate": "learning rate"}
POINTS = 100  # of a curve
WIDTH, HEIGHT, PANEL = 372, 196, 120  # of a panel with its words, and of its curves


def curves(exhibit: Exhibit) -> list[list[float]]:
    """The numbers of a scene without and with the fault."""
    both = []
    for fault in (nullcontext(), exhibit.planted()):
        with fault, threadpool_limits(1):
            both.append(getattr(scenes, exhibit.scene)(**exhibit.settings)[0])
    return both


def drawing(title: str, numbers: tuple[int, ...]) -> svg.Page:
    """A panel for each of these exhibits, two in a row."""
    rows = -(-len(numbers) // 2)
    page = svg.Page(2 * WIDTH + 16, 46 + rows * HEIGHT, title)
    page.legend(2 * WIDTH - 250, 20, ["without the fault"])
    page.line([(2 * WIDTH - 105, 20), (2 * WIDTH - 81, 20)], svg.COLOURS[1], 2)
    page.text(2 * WIDTH - 75, 24, "with it")
    for place, number in enumerate(numbers):
        exhibit, left, top = EXHIBITS[number - 1], 44 + place % 2 * WIDTH, 46 + place // 2 * HEIGHT
        for line, words in enumerate(textwrap.wrap(f"{number}. {exhibit.symptom}", 54)):
            page.text(left - 30, top + 12 + 15 * line, words)
        sides = curves(exhibit)
        low, high = min(map(min, sides)), max(map(max, sides))
        low = 0 if low < high / 2 else low
        chart = svg.Chart(page, left, top + 40, WIDTH - 60, PANEL, x=(0, len(sides[0])), y=(low, high))
        page.text(left + WIDTH - 62, top + 54, WATCHED[exhibit.settings.get("watch", "training")], "end", svg.GREY)
        chart.axes([0, len(sides[0]) // 2, len(sides[0])], [float(f"{low:.2g}"), float(f"{high:.2g}")])
        for side, colour in zip(sides, svg.COLOURS, strict=False):
            chosen = range(0, len(side), max(1, len(side) // POINTS))
            chart.line(chosen, (side[i] for i in chosen), colour)
    return page


def section(title: str, name: str, numbers: tuple[int, ...], folder: Path) -> str:
    """A section of the page, whose drawing is written to extra/ in the folder."""
    drawn = [number for number in numbers if EXHIBITS[number - 1].scene == "training"]
    parts = [f"## {title}\n"]
    if drawn:
        drawing(title, drawn).write(str(folder / "extra" / f"museum-{name}.svg"))
        listed = ", ".join(map(str, drawn))
        parts.append(f"![{listed} of the list above: curves without and with the fault](extra/museum-{name}.svg)\n")
    for number in numbers:
        if number not in drawn:
            sides = "\n".join(museum.shown(EXHIBITS[number - 1]))
            parts.append(f"{number}. {EXHIBITS[number - 1].symptom}:\n\n```text\n{sides}\n```\n")
    return "\n".join(parts)


def main(argv: list[str]) -> int:
    """Write the sections and the drawings."""
    page = Path(argv[0]) if argv else Path(__file__).parent / "museum.md"
    text = page.read_text(encoding="utf-8")
    before = text.partition(f"## {next(iter(GROUPS))}\n")[0].partition(LAST)[0]
    sections = [section(title, name, numbers, page.parent) for title, (name, numbers) in GROUPS.items()]
    write_or_refuse(str(page), "\n".join([before.rstrip() + "\n", *sections, LAST + text.partition(LAST)[2]]))
    return 0


if __name__ == "__main__":
    run_command("museum_curves", main, __doc__)
