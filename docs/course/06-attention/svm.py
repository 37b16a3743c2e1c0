"""Does a layer of attention become a support vector machine?

    python docs/course/06-attention/svm.py            eight layers, ten seconds

A layer with one query z per text looks at T tokens, the rows of X, and returns a number whose sign is the text's label,
y = 1 or -1:

    weights = softmax(X W z)        f = weights · X v        loss = log(1 + e^(-y f))

Only W learns. The vector v is fixed, so one token of each text has the largest y x · v, and serves the loss best. W
becomes longer and longer, and all weight goes to one token. Tarzanagh et al. 2023 (arXiv:2308.16898) show where W
points: towards the shortest W that prefers this token to all others by a margin of 1,

    minimise |W|²   such that   (x_chosen - x_t) W z >= 1   for all other tokens t of all texts

That is a support vector machine with hard margins: the solution is a weighted sum of those matrices (x_chosen - x_t) zᵀ
whose margin is exactly 1.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tinygrad_lite import Tensor
from training.cli.console import run_command

SEEDS, STEPS = range(8), (1, 3, 10, 30, 100, 300, 1000)
TEXTS, TOKENS, WIDTH = 6, 5, 10
LENGTH = 0.1  # of a step


class Problem(NamedTuple):
    """Texts x (N, T, C), queries z (N, C), the vector v (C,) and labels y (N,)."""

    x: np.ndarray
    z: np.ndarray
    v: np.ndarray
    y: np.ndarray


def problem(seed: int) -> Problem:
    """A random one."""
    rng = np.random.default_rng(seed)
    x, z = rng.standard_normal((TEXTS, TOKENS, WIDTH)), rng.standard_normal((TEXTS, WIDTH))
    return Problem(x, z, rng.standard_normal(WIDTH), rng.choice([-1.0, 1.0], TEXTS))


def constraints(x: np.ndarray, z: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """The matrices (x_chosen - x_t) zᵀ, as vectors: one for each token that is not chosen, (N (T - 1), C C)."""
    rows = []
    for text, query, token in zip(x, z, chosen, strict=True):
        rows += [np.outer(text[token] - text[t], query).ravel() for t in range(len(text)) if t != token]
    return np.array(rows)


def hard_margin(rows: np.ndarray, rounds: int = 20_000) -> np.ndarray:
    """The shortest w with rows · w >= 1, by coordinate ascent on the dual problem: w = Σ α_i row_i with α_i >= 0."""
    products, alpha = rows @ rows.T, np.zeros(len(rows))
    for _ in range(rounds):
        before = alpha.copy()
        for i, row in enumerate(products):
            alpha[i] = max(0.0, alpha[i] + (1 - row @ alpha) / row[i])
        if abs(alpha - before).max() < 1e-10:
            break
    return alpha @ rows


def angle(a: np.ndarray, b: np.ndarray) -> float:
    """In degrees."""
    return float(np.degrees(np.arccos(np.clip(a @ b / np.linalg.norm(a) / np.linalg.norm(b), -1, 1))))


def train(given: Problem, steps: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Gradient descent from W = 0: W (C, C) before each step and at the end, and its weights (N, T).

    All steps have the same length: the gradient vanishes as the weights become sure. Then f differs from the number of
    the chosen token by less than the last digit, so only the difference is computed.
    """
    texts, queries, signs = Tensor(given.x), Tensor(given.z[:, :, None]), Tensor(given.y)
    values, w = given.x @ given.v, np.zeros((given.x.shape[-1],) * 2)
    for _ in range(steps + 1):
        matrix = Tensor(w, requires_grad=True)
        weights = (texts @ (matrix @ queries)).squeeze(-1).softmax()
        yield w, weights.numpy()
        top = values[np.arange(len(values)), weights.numpy().argmax(axis=1)]
        f = Tensor(top) + (weights * Tensor(values - top[:, None])).sum(axis=1)
        (1 + (-signs * f).exp()).log().mean().backward()
        gradient = matrix.grad.numpy()
        w = w - LENGTH * gradient / np.linalg.norm(gradient)


def main(_: list[str]) -> int:
    """Print how the angle between W and the solution of the support vector machine falls."""
    angles, sure, first, best = [], [], [], 0
    for seed in SEEDS:
        given = problem(seed)
        path = list(train(given, max(STEPS)))
        chosen = path[-1][1].argmax(axis=1)
        best += bool((chosen == (given.y[:, None] * (given.x @ given.v)).argmax(axis=1)).all())
        rows = constraints(given.x, given.z, chosen)
        solution = hard_margin(rows)
        angles.append([angle(path[step][0].ravel(), solution) for step in STEPS])
        sure.append([path[step][1].max(axis=1).min() for step in STEPS])
        first.append(angle(rows.mean(axis=0), solution))
    print("steps   angle in degrees: mean, largest   least of the largest weights")
    for step, row, weights in zip(STEPS, np.transpose(angles), np.transpose(sure), strict=True):
        print(f"{step:5}{row.mean():28.1f}{row.max():9.1f}{weights.min():31.2f}")
    print(f"The mean of all constraints is {np.mean(first):.1f} degrees from the solution, {min(first):.1f} at least.")
    print(f"{best} of {len(SEEDS)} layers chose the best token of every text.")
    return 0


if __name__ == "__main__":
    run_command("svm", main, __doc__)
