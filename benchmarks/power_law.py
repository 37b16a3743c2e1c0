"""Fit a power law to the losses of GPTs of several sizes: how much better is a larger model?

    python -m benchmarks.experiments scale                                       train the sizes
    python -m benchmarks.power_law docs/experiments/scale.csv                    the fitted laws, as Markdown
    python -m benchmarks.power_law docs/experiments/scale.csv --plot scale.svg   also a plot

Two laws for the loss L against N, the number of parameters outside the embeddings:

    L = a N^-b         a straight line in logarithms: ln L = ln a - b ln N (Kaplan et al. 2020, eq. 1.1)
    L = E + a N^-b     the same above a floor E >= 0, which no size falls below (Hoffmann et al. 2022, eq. 2, whose
                       term in the number of tokens D is a constant here, since D is the same for all sizes: so E
                       contains the cost of few tokens, besides what nobody can predict)

N excludes token embeddings, position embeddings and the output matrix: a table of V rows is looked up, and its size
says more about the tokenizer than about the model (Kaplan et al., section 2.1).

The fit. Errors are taken to be relative, and equal for all sizes. The first law is the regression line of ln L on
ln N. The second minimises the sum of (law / L - 1)^2: for a given b it is linear in E and a, so that minimum has a
closed form, and b is found on a grid that narrows. A size with several seeds counts once, with its mean loss.

The uncertainty. With n sizes and p fitted numbers the scatter about the law is s^2 = sum of squares / (n - p). It
contains the luck of the seeds as well as how far the truth is from the law. But s itself is uncertain with so few
points, so each draw of a parametric bootstrap (Efron, Tibshirani 1993, section 6.5) first draws it,

    s*^2 = s^2 (n - p) / chi2(n - p),    L* = law(N) exp(s* z),  z normal,    and fits L* again.

For a straight line this gives Student's t interval. An interval holds the middle 95 % of all draws. It says what a
repetition with other luck would yield if the law holds; it does not say that it does. The check for that is a
prediction: the law is fitted to all sizes except the largest, and must predict that one.

References: Kaplan et al. 2020 (arXiv:2001.08361); Hoffmann et al. 2022 (arXiv:2203.15556).
"""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.results import Row, read_rows
from extra.plots.figure import COLOURS, Picture, check_plot, plain_axes, write, write_out
from families import FAMILIES
from gpt.model import GPT
from tinygrad_lite.config import option
from tinygrad_lite.errors import UserError
from tinygrad_lite.nn import Embedding, shapes_only
from tinygrad_lite.random import keyed_rng
from training.cli.command_line import read_command
from training.cli.console import run_command, say
from training.start import read_setup

DRAWS = 1000  # of the bootstrap
EXPONENTS = (0.005, 5.0)  # the range in which b is searched
BEYOND = 4  # the plot continues the laws to this many times the largest size
AT_LEAST = 5  # sizes: without the largest, one more than the numbers in a law with E


@dataclass
class PowerLawOptions:
    """The options of `python -m benchmarks.power_law`."""

    plot: str = option("", "plot to write: .svg, .png or .pdf", is_path=True)


@dataclass(frozen=True)
class Law:
    """L = floor + factor (N / unit)^-exponent; `unit` keeps the numbers near 1."""

    floor: float
    factor: float
    exponent: float
    unit: float

    def __call__(self, n: np.ndarray) -> np.ndarray:
        return self.floor + self.factor * (np.asarray(n, float) / self.unit) ** -self.exponent


@dataclass(frozen=True)
class Fit:
    """A law, the scatter s about it, and the same for each draw of the bootstrap."""

    law: Law
    scatter: float
    draws: tuple[tuple[Law, float], ...]

    def exponents(self) -> np.ndarray:
        """b of each draw."""
        return np.array([law.exponent for law, _ in self.draws])

    def floors(self) -> np.ndarray:
        """E of each draw."""
        return np.array([law.floor for law, _ in self.draws])

    def curves(self, n: np.ndarray) -> np.ndarray:
        """The loss at sizes (n,) by the law of each draw: (draws, n)."""
        return np.array([law(n) for law, _ in self.draws])

    def predictions(self, n: int) -> np.ndarray:
        """What a run of another size would yield: the law of each draw, and the scatter about it."""
        z = keyed_rng(0, "prediction").standard_normal(len(self.draws))
        return np.array([law(n) * np.exp(s * one) for (law, s), one in zip(self.draws, z, strict=True)])


def main(argv: list[str]) -> int:
    """Run the command line and return the exit status."""
    options, [name] = read_command(
        PowerLawOptions,
        argv,
        "python -m benchmarks.power_law",
        __doc__.split("\n")[0],
        "FILE",
        "docs/experiments/scale.csv",
        about_positional="a file of benchmarks.experiments, such as docs/experiments/scale.csv",
    )
    if options.plot:
        check_plot(options.plot, "--plot")
    sizes, tokens = sizes_of(read_rows(Path(name)), name)
    n, losses = np.array(list(sizes)), np.array([statistics.mean(found) for found in sizes.values()])
    fits = {title: (fit(n, losses, floor), fit(n[:-1], losses[:-1], floor)) for title, floor in LAWS.items()}
    print(report(sizes, tokens, fits), end="")
    if options.plot:
        picture = picture_of(sizes, tokens, {title: whole for title, (whole, _) in fits.items()})
        write(picture, Path(options.plot))
        say(f"wrote {options.plot}")
    return 0


# --- the runs ---------------------------------------------------------------------------------------------------


def sizes_of(rows: Sequence[Row], file: str) -> tuple[dict[int, list[float]], int]:
    """The losses of each size in bits per character, from the smallest to the largest; and the tokens of each run.

    Raises: UserError if there are too few sizes, runs of other models, or runs that read unequal numbers of tokens.
    """
    sizes: dict[int, list[float]] = {}
    seen = set()
    for row in rows:
        if not row["bits_per_char"]:
            raise UserError(f"{file}: {row['name']} has no bits per character; sizes of GPTs on a text are compared")
        parameters, tokens_per_step = size_of(row)
        sizes.setdefault(parameters, []).append(float(row["bits_per_char"]))
        seen.add(int(row["steps"]) * tokens_per_step)
    if len(sizes) < AT_LEAST:
        raise UserError(f"{file} has {len(sizes)} sizes, but a law is fitted to at least {AT_LEAST}: train more")
    if len(seen) > 1:
        counts = ", ".join(f"{tokens:,}" for tokens in sorted(seen))
        raise UserError(f"{file}: its runs read {counts} tokens, but sizes are compared at equal numbers of tokens")
    return dict(sorted(sizes.items())), seen.pop()


def size_of(row: Row) -> tuple[int, int]:
    """The non-embedding parameters of a row's model, and the tokens of a step.

    Raises: UserError if it is not a GPT.
    """
    setup = read_setup([*shlex.split(row["options"]), "--overwrite"], FAMILIES)
    if setup.family.name != "gpt":
        raise UserError(f"{row['name']} is not a GPT: {row['options']}")
    config = setup.options.model_config(2)  # whatever the vocabulary, its embeddings do not count
    with shapes_only():
        return non_embedding(GPT(config)), setup.options.sizes(config)[1]


def non_embedding(model: GPT) -> int:
    """N, the parameters of a GPT without embeddings and output matrix."""
    tables = [part.weight for _, part in model.named_modules() if isinstance(part, Embedding)]
    left_out = {id(weight) for weight in (*tables, model.lm_head.weight)}
    return sum(parameter.numel() for parameter in model.parameters() if id(parameter) not in left_out)


# --- fitting ----------------------------------------------------------------------------------------------------

LAWS = {"L = a N^-b": False, "L = E + a N^-b": True}  # whether there is a floor


def fit(n: np.ndarray, losses: np.ndarray, with_floor: bool, draws: int = 0) -> Fit:
    """The law of losses (n,) at sizes (n,), and how uncertain it is."""
    law, free = best_law(n, losses, with_floor), len(n) - (3 if with_floor else 2)
    expected = law(n)
    scatter = float(np.sqrt(((losses / expected - 1) ** 2).sum() / free))
    rng, found = keyed_rng(0, "bootstrap"), []
    for _ in range(draws or DRAWS):
        s = scatter * float(np.sqrt(free / rng.chisquare(free)))
        noisy = expected * np.exp(s * rng.standard_normal(len(n)))
        found.append((best_law(n, noisy, with_floor), s))
    return Fit(law, scatter, tuple(found))


def best_law(n: np.ndarray, losses: np.ndarray, with_floor: bool) -> Law:
    """The law that fits best: in logarithms without a floor, by the sum of (law / L - 1)^2 with one."""
    unit = float(np.exp(np.log(n).mean()))
    if not with_floor:
        slope, constant = np.polyfit(np.log(n / unit), np.log(losses), 1)
        return Law(0.0, float(np.exp(constant)), float(-slope), unit)
    low, high = np.log(EXPONENTS)
    for _ in range(4):  # each round narrows the grid to the neighbours of the best exponent
        exponents = np.exp(np.linspace(low, high, 33))
        floors, factors, squares = for_exponents(n / unit, losses, exponents)
        best = int(squares.argmin())
        low, high = np.log(exponents[[max(best - 1, 0), min(best + 1, len(exponents) - 1)]])
    return Law(float(floors[best]), float(factors[best]), float(exponents[best]), unit)


def for_exponents(
    n: np.ndarray, losses: np.ndarray, exponents: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The best E >= 0 and a >= 0 for each exponent b, and the remaining sum of squares: (B,) each.

    With x = N^-b and weights w = 1 / L^2, E + a x is the weighted regression line of L on x: its slope is the weighted
    covariance divided by the weighted variance. Where it would begin below 0, the line through 0 is the best.
    """
    x, w = n ** -exponents[:, None], 1 / losses**2  # (B, n), (n,)
    x_mean, l_mean = (x * w).sum(1) / w.sum(), (losses * w).sum() / w.sum()
    away = x - x_mean[:, None]
    factors = np.maximum((w * away * (losses - l_mean)).sum(1) / (w * away**2).sum(1), 0)
    floors = l_mean - factors * x_mean
    factors = np.where(floors < 0, (w * x * losses).sum(1) / (w * x**2).sum(1), factors)
    floors = np.maximum(floors, 0)
    squares = (w * (floors[:, None] + factors[:, None] * x - losses) ** 2).sum(1)
    return floors, factors, squares


# --- results ----------------------------------------------------------------------------------------------------


def interval(values: np.ndarray, digits: int) -> str:
    """The middle 95 % of values, as text."""
    low, high = np.quantile(values, (0.025, 0.975))
    return f"{low:.{digits}f} to {high:.{digits}f}"


def report(sizes: dict[int, list[float]], tokens: int, fits: dict[str, tuple[Fit, Fit]]) -> str:
    """Two tables in Markdown: the sizes with what each law says about them, and the laws."""
    lines = [["N", "runs", "bits per character", *fits], ["---"] * (3 + len(fits))]
    for n, losses in sizes.items():
        fitted = [f"{float(whole.law(n)):.3f}" for whole, _ in fits.values()]
        lines.append([f"{n:,}", str(len(losses)), f"{statistics.mean(losses):.3f}", *fitted])
    largest = max(sizes)
    laws = [["law", "b", "E", "scatter", f"predicted for {largest:,}", "measured"], ["---"] * 6]
    for title, (whole, without) in fits.items():
        laws.append(
            [
                title,
                f"{whole.law.exponent:.3f} ({interval(whole.exponents(), 3)})",
                f"{whole.law.floor:.2f} ({interval(whole.floors(), 2)})" if LAWS[title] else "",
                f"{whole.scatter:.2%}",
                f"{float(without.law(largest)):.3f} ({interval(without.predictions(largest), 3)})",
                f"{statistics.mean(sizes[largest]):.3f}",
            ]
        )
    first, second = ("".join(f"| {' | '.join(cells)} |\n" for cells in part) for part in (lines, laws))
    return (
        f"{first}\nN: parameters without embeddings; {tokens:,} tokens each.\n\n{second}\n"
        "In brackets: 95 % of the draws. The prediction is that of the law fitted to all smaller sizes.\n"
    )


def picture_of(sizes: dict[int, list[float]], tokens: int, fits: dict[str, Fit]) -> Picture:
    """Runs as points, the laws as lines with their intervals, on logarithmic axes; and the runs as a table."""
    n = np.geomspace(min(sizes), BEYOND * max(sizes), 60)

    def draw(figure) -> None:
        axes = figure.add_subplot()
        for colour, (title, found) in zip(COLOURS, fits.items(), strict=False):
            low, high = np.quantile(found.curves(n), (0.025, 0.975), axis=0)
            axes.fill_between(n, low, high, color=colour, alpha=0.15, linewidth=0)
            axes.plot(n, found.law(n), color=colour, label=f"{title}, b = {found.law.exponent:.3f}")
        runs = [(size, loss) for size, losses in sizes.items() for loss in losses]
        axes.plot(*zip(*runs, strict=True), "o", color="black", markersize=4, label="runs")
        axes.set_xscale("log")
        axes.set_yscale("log")
        write_out(axes.xaxis, (1,))
        write_out(axes.yaxis, np.arange(10, 100, 2) / 10)
        axes.set_xlabel("N, parameters without embeddings")
        axes.set_ylabel("bits per character")
        axes.legend(frameon=False)
        plain_axes(axes)

    caption = (
        f"Each point is a run with {tokens:,} tokens. The laws are fitted to all sizes and continued to {BEYOND} times "
        "the largest; the bands hold 95 % of the draws."
    )
    rows = [(size, loss) for size, losses in sizes.items() for loss in losses]
    return Picture("Loss against size", caption, (6.4, 4), draw, table=[("parameters", "bits_per_char"), *rows])


if __name__ == "__main__":
    run_command("benchmarks", main)
