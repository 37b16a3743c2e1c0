"""The drawings of claims that lectures make and that were tried here, beside the pages that tell of them.

    python docs/claims.py          writes all of them, always the same, from the numbers in docs/experiments

The pages say which commands gave these numbers.
"""

import csv
import math
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # where the project's packages are
sys.path.insert(0, str(Path(__file__).parent / "course" / "15-inside"))
import svg

from training.cli.console import run_command

DOCS = Path(__file__).resolve().parent
Row = dict[str, str]
MODELS = ("convolutions", "Transformer")


def rows(name: str, **wanted: str) -> list[Row]:
    """The rows of a file of docs/experiments that have these values."""
    with (DOCS / "experiments" / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return [row for row in csv.DictReader(file) if wanted.items() <= row.items()]


def numbers(chosen: Iterable[Row], column: str) -> list[float]:
    """A column of rows."""
    return [float(row[column]) for row in chosen]


def dots(chart: svg.Chart, xs: Sequence[float], ys: Sequence[float], colour: str, around: Iterable[float] = ()) -> None:
    """A line with a dot at each point, and how far each point's values lie around it."""
    chart.line(xs, ys, colour)
    for x, y in zip(xs, ys, strict=True):
        chart.page.circle(*chart.at(x, y), 3.5, colour)
    for x, y, deviation in zip(xs, ys, around, strict=False):
        chart.page.line([chart.at(x, y - deviation), chart.at(x, y + deviation)], colour)


def logarithmic(chart: svg.Chart, xs: Iterable[float], ys: Sequence[float], x_name: str, y_name: str = "") -> None:
    """Axes of a chart whose x are logarithms: the numbers themselves stand at these places."""
    chart.axes([], ys, x_name)
    chart.page.text(chart.left - 28, chart.top - 14, y_name)
    for x in xs:
        place = chart.at(math.log10(x), chart.y[0])
        chart.page.line([place, (place[0], place[1] + 4)], svg.GREY)
        chart.page.text(place[0], place[1] + 17, f"{x:,g}", "middle")


def counting() -> svg.Page:
    """BLEU of a counted dictionary and of networks, by the number of pairs that they learn from."""
    page = svg.Page(560, 350, "Counting translates: BLEU on the captions of Multi30k")
    chart = svg.Chart(page, 44, 66, 300, 230, x=(2.9, math.log10(28995)), y=(0, 45))
    pairs = [1000, 3000, 10000, 28995]
    logarithmic(chart, pairs, range(0, 50, 10), "pairs of sentences to learn from", "BLEU")
    counted = rows("counting", dataset="multi30k", rounds="5")
    means = [statistics.mean(numbers((row for row in counted if int(row["pairs"]) == n), "bleu")) for n in pairs]
    without, *attentive = numbers((row for row in rows("bleu") if row["model"].startswith("LSTM")), "bleu")
    shorter, longer = numbers((row for row in rows("bleu") if row["model"].startswith("larger")), "bleu")
    for name, found, colour in (
        ("counting, no network", means, svg.COLOURS[0]),
        ("small Transformer", numbers(rows("bleu", model="small Transformer"), "bleu"), svg.COLOURS[1]),
        ("LSTMs with attention (six)", attentive, svg.COLOURS[2]),
        ("LSTMs without attention", [without], svg.COLOURS[2]),
        ("larger Transformer, 2,000 steps", [shorter], svg.COLOURS[3]),
        ("larger Transformer, 6,000 steps", [longer], svg.COLOURS[3]),
    ):
        grows = len(found) == len(pairs)  # the others have learned from all pairs
        dots(chart, [math.log10(n) for n in (pairs if grows else [28995] * len(found))], found, colour)
        right, height = chart.at(chart.x[1], found[-1] if grows else statistics.mean(found))
        page.text(right + 10, height + 4, name)
    return page


def pictures(experiment: str, title: str, ways: Sequence[str], lowest: int, x_name: str) -> svg.Page:
    """Percent right against pictures to learn from: a panel for each model, a line for each way."""
    page = svg.Page(600, 330, title)
    page.legend(24, 46, ways)
    for place, model in enumerate(MODELS):
        found = [rows("transfer", experiment=experiment, model=model, way=way) for way in ways]
        counts = numbers(found[0], "pictures")
        places = [math.log10(n) for n in counts]
        chart = svg.Chart(page, 44 + 290 * place, 104, 240, 180, (places[0] - 0.15, places[-1] + 0.15), (lowest, 100))
        logarithmic(chart, counts, range(lowest, 101, 20), x_name, "% right" * (place == 0))
        page.text(chart.left + chart.width / 2, 90, model, "middle", more='font-weight="bold"')
        for side, colour in zip(found, svg.COLOURS, strict=False):
            around = [float(row["deviation"] or 0) for row in side]
            dots(chart, places, numbers(side, "percent_right"), colour, around)
    return page


def shuffled() -> svg.Page:
    """What two models lose when all pixels are shuffled."""
    title = "Clothing, with its pixels shuffled"
    return pictures("pictures", title, ("as they are", "pixels shuffled"), 40, "pictures to learn from")


def transfer() -> svg.Page:
    """What clothing is worth for learning digits."""
    title = "Digits, after clothing or from nothing"
    return pictures("digits", title, ("from nothing", "after clothing"), 20, "digits to learn from")


def evolution() -> svg.Page:
    """The best of two searches so far, and today's parts."""
    page = svg.Page(560, 330, "The best setting so far, by evolution and by chance")
    chart = svg.Chart(page, 44, 66, 340, 210, x=(12, 80), y=(3.1, 3.4))
    tried = range(16, 81, 16)
    chart.axes(tried, [3.1, 3.2, 3.3, 3.4], "runs of 200 updates")
    page.text(chart.left - 28, chart.top - 14, "bits per character")
    for row, name in (("all parts", "today's parts"), ("all parts, that rate", "today's parts, rate 8e-3")):
        (found,) = numbers(rows("evolve", search=row), "trained again")
        page.line([chart.at(12, found), chart.at(80, found)], svg.GREY, 1.5)
        page.text(chart.left + chart.width + 10, chart.at(0, found)[1] + 4, name)
    for (search, name), colour in zip(
        {"random": "random search", "evolution": "evolution"}.items(), svg.COLOURS, strict=False
    ):
        (row,) = rows("evolve", search=search)
        found = [float(row[f"best of {n}"]) for n in tried]
        dots(chart, tried, found, colour)
        page.text(chart.left + chart.width + 10, chart.at(0, found[-1])[1] + 4, name)
    return page


def machine() -> svg.Page:
    """How attention turns towards the solution of a support vector machine."""
    page = svg.Page(560, 320, "How far W points away from the support vector machine")
    chart = svg.Chart(page, 44, 66, 480, 200, x=(0, 3), y=(0, 90))
    found = rows("svm")
    steps = numbers(found, "steps")
    logarithmic(chart, steps, [0, 30, 60, 90], "steps", "angle in degrees")
    for column, colour in zip(("mean angle", "largest angle"), svg.COLOURS, strict=False):
        dots(chart, [math.log10(n) for n in steps], numbers(found, column), colour)
    page.legend(370, 84, ("mean of eight layers", "the largest"))
    return page


def copied() -> svg.Page:
    """What a GPT copies from its training text at each temperature, and what Goethe repeats."""
    page = svg.Page(600, 310, "What also stands in the training text")
    page.legend(390, 20, ["the GPT, by temperature"])
    (goethe,), written = rows("copied", text="Goethe"), rows("copied")[1:]
    temperatures = numbers(written, "text")
    for place, (column, name, marks) in enumerate(
        (
            ("percent of four words", "% of all runs of four words", [0, 0.5, 1, 1.5, 2]),
            ("longest copy", "longest piece, in characters", [0, 10, 20, 30, 40, 50]),
        )
    ):
        chart = svg.Chart(page, 44 + 290 * place, 82, 240, 170, x=(0.2, 1.3), y=(0, marks[-1]))
        chart.axes(temperatures, marks, "temperature")
        page.text(chart.left + chart.width / 2, 68, name, "middle", more='font-weight="bold"')
        own = float(goethe[column])
        page.line([chart.at(0.2, own), chart.at(1.3, own)], svg.COLOURS[1], 1.5)
        page.text(chart.left + chart.width, chart.at(0, own)[1] - 6, "Goethe, held out", "end")
        dots(chart, temperatures, numbers(written, column), svg.COLOURS[0])
    return page


DRAWINGS = {
    "counting.svg": counting,
    "evolution.svg": evolution,
    "extra/shuffled.svg": shuffled,
    "extra/transfer.svg": transfer,
    "course/06-attention/svm.svg": machine,
    "course/10-writing/copied.svg": copied,
}


def main(argv: list[str]) -> int:
    """Write all drawings."""
    for name, draw in DRAWINGS.items():
        draw().write(str(DOCS / name))
        print(f"wrote {DOCS / name}")
    return 0


if __name__ == "__main__":
    run_command("claims", main, __doc__)
