"""Five features in two dimensions: which ones a model keeps, by how rarely they occur.

    python docs/course/15-inside/superposition.py                              a table, and superposition.svg
    python docs/course/15-inside/superposition.py --densities 1,0.03 --features 7

Each number x_i of the input is a feature: with the probability `density` it is drawn from 0 to 1, otherwise it is 0.
Two numbers must hold them all, and from these two they are read again:

    h = W x,    x' = ReLU(W^T h + b),    loss = mean of 0.9^i (x_i - x'_i)^2

W is 2 x n. Its column i, a point in the plane, is the direction that stands for feature i. The weights 0.9^i make the
first features a little more important, which settles which ones are given up.

Reference: Elhage et al. 2022 (arXiv:2209.10652), section 2.
"""

from dataclasses import dataclass

import numpy as np
from svg import COLOURS, GREY, Chart, Page, check_plot
from threadpoolctl import threadpool_limits

from extra.studies.program import numbers
from tinygrad_lite import Tensor, no_grad
from tinygrad_lite.config import option
from tinygrad_lite.optim import Adam
from training.cli.command_line import read_command
from training.cli.console import run_command

IMPORTANCE, SHORT = 0.9, 0.5  # a column shorter than SHORT stands for no feature


@dataclass
class SuperpositionOptions:
    """The options of the experiment."""

    features: int = option(5, "features", low=2, high=20)
    densities: str = option("1,0.5,0.1,0.03", "how often a feature is not 0, above 0 to 1")
    starts: int = option(16, "random beginnings for each, of which the best is shown", low=1, high=50)
    max_iters: int = option(1000, "updates", low=1)
    batch_size: int = option(512, "inputs per update", low=1)
    seed: int = option(1337, "random seed", low=0)
    plot: str = option("superposition.svg", "plot to write: .svg", is_path=True)


class Models:
    """Models of n features side by side, `starts` for each density; K are all of them.

    Attributes:
        weight: W, (K, 2, n).
        bias: b, (K, 1, n).
    """

    def __init__(self, densities: list[float], starts: int, features: int, rng: np.random.Generator) -> None:
        self.densities = np.repeat(densities, starts)[:, None, None]
        self.rng, self.importance = rng, Tensor(IMPORTANCE ** np.arange(features), dtype=np.float32)
        self.weight = Tensor(
            rng.normal(0, 0.5, (len(self.densities), 2, features)), dtype=np.float32, requires_grad=True
        )
        self.bias = Tensor(np.zeros((len(self.densities), 1, features)), dtype=np.float32, requires_grad=True)

    def inputs(self, count: int) -> np.ndarray:
        """Random inputs, the same for all models except for the density: (K, B, n)."""
        values, chances = self.rng.random((2, count, self.weight.shape[-1]))
        return (values * (chances < self.densities)).astype(np.float32)

    def losses(self, x: np.ndarray) -> Tensor:
        """The loss of each model: (K, B, n) -> (K,)."""
        x = Tensor(x)
        hidden = x @ self.weight.transpose(1, 2)  # (K, B, 2)
        answer = (hidden @ self.weight + self.bias).relu()
        return ((x - answer) ** 2 * self.importance).mean((1, 2))

    def train(self, max_iters: int, batch_size: int) -> np.ndarray:
        """Learn. Returns: what share of the inputs' variance each model fails to explain, (K,)."""
        optimizer = Adam([self.weight, self.bias], lr=0.01)
        for _ in range(max_iters):
            optimizer.zero_grad()
            self.losses(self.inputs(batch_size)).sum().backward()  # no model depends on another
            optimizer.step()
        x = self.inputs(10_000)
        with no_grad():
            left = self.losses(x).numpy()
        return left / (x.var(axis=1) * self.importance.numpy()).mean(-1)


def gaps(weight: np.ndarray) -> np.ndarray:
    """The angles in degrees between neighbours among the long columns of W (2, n), in ascending order."""
    long = weight[:, np.linalg.norm(weight, axis=0) > SHORT]
    angles = np.sort(np.degrees(np.arctan2(long[1], long[0])))
    return np.sort(np.diff(angles, append=angles[:1] + 360))


def draw(found: list[tuple[float, np.ndarray]], file: str) -> None:
    """The columns of W for each density, as lines from the origin, with a circle of radius 1."""
    page = Page(30 + 170 * len(found), 230, f"The columns of W: {found[0][1].shape[1]} features in two dimensions")
    for number, (density, weight) in enumerate(found):
        chart = Chart(page, 20 + 170 * number, 66, 150, 150, (-1.4, 1.4), (-1.4, 1.4))
        page.text(chart.left + 75, 54, f"density {density:g}", "middle")
        page.circle(*chart.at(0, 0), chart.at(1, 0)[0] - chart.at(0, 0)[0], "none", GREY)  # length 1
        for i, column in enumerate(weight.T):
            page.line([chart.at(0, 0), chart.at(*column)], COLOURS[i % len(COLOURS)], 2)
            if (length := np.linalg.norm(column)) > SHORT:
                x, y = chart.at(*(column * (1 + 0.2 / length)))  # beyond its end
                page.text(x, y + 4, f"{i + 1}", "middle", COLOURS[i % len(COLOURS)])
    page.write(file)


def main(argv: list[str]) -> int:
    """Train models for each density, and show the columns of W of the best."""
    about = "Train models that keep many features in two dimensions."
    options, _ = read_command(SuperpositionOptions, argv, "python docs/course/15-inside/superposition.py", about)
    check_plot(options.plot)
    what = "numbers above 0 and at most 1, such as 1,0.5,0.1"
    densities = numbers(options.densities, "--densities", what, lambda density: 0 < density <= 1)[::-1]
    models = Models(densities, options.starts, options.features, np.random.default_rng(options.seed))
    with threadpool_limits(1):  # the products are too small for more threads
        left = models.train(options.max_iters, options.batch_size).reshape(len(densities), options.starts)
    weights = models.weight.numpy().reshape(len(densities), options.starts, 2, options.features)
    found = []
    print(
        f"density   not explained   {'lengths of the columns':<{6 * options.features + 2}}angles between the long ones"
    )
    for density, shares, candidates in zip(densities, left, weights, strict=True):
        best = candidates[shares.argmin()]
        lengths = "".join(f"{length:<6.2f}" for length in np.linalg.norm(best, axis=0))
        print(f"{density:<10g}{shares.min():<16.0%}{lengths}  {' '.join(f'{gap:.0f}' for gap in gaps(best))}")
        found.append((density, best))
    draw(found, options.plot)
    return 0


if __name__ == "__main__":
    run_command("superposition", main)
