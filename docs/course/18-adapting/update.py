"""What training changed: the singular values of the update of each matrix, and what the largest ones achieve.

    python docs/course/18-adapting/update.py out/goethe out/jean-paul           the second was trained from the first
    python docs/course/18-adapting/update.py out/goethe out/jean-paul --ranks 1,2,4,8 --text my.txt

LoRA (tinygrad_lite/adapt.py) assumes that a change to a trained matrix needs only a low rank. If all weights were free
to change, this can be checked. The update of a matrix is a sum of products of two vectors,

    W' - W = sum_i s_i u_i v_i^T        s_1 >= s_2 >= ... >= 0: its singular values; u_i, v_i: unit vectors

and no matrix of rank r is closer to it than the sum of the first r. They hold the share (s_1^2 + ... + s_r^2) / sum s^2
of its squared numbers. A random matrix of the same shape shows how large that share would be by chance. The last column
says what this part of the update achieves: the base, its matrices changed only by rank r, predicting the held-out text.
Everything else, such as the embedding, is as it was after training.

References: Eckart and Young 1936, on the closest matrix of rank r; Aghajanyan et al. 2020 (arXiv:2012.13255) and Hu et
al. 2021 (arXiv:2106.09685), section 7.3, on the rank of updates.
"""

import statistics
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from extra.families import GPT as FAMILY
from extra.studies.program import program
from gpt.model import GPT
from gpt.score import score
from tinygrad_lite.config import option
from tinygrad_lite.errors import CheckpointError
from tinygrad_lite.nn import Linear, Parameter
from training.cli.console import run_command, say, show

sys.path.insert(0, str(Path(__file__).parents[1]))
from held_out import HeldOutOptions, text_to_predict, whole_numbers

MODELS = "two: the model before the training, and after it"


@dataclass
class UpdateOptions(HeldOutOptions):
    """The options of `python docs/course/18-adapting/update.py`."""

    ranks: str = option("1,4,16,64", "ranks to which the update is cut")
    seed: int = option(1, "for the random matrices", low=0)


@dataclass(frozen=True)
class Update:
    """The change of a matrix, as singular values s (k,) and vectors u (m, k), v (k, n)."""

    u: np.ndarray
    s: np.ndarray
    v: np.ndarray

    @classmethod
    def of(cls, change: np.ndarray) -> Self:
        """The singular value decomposition of a matrix (m, n)."""
        return cls(*np.linalg.svd(change.astype(np.float64), full_matrices=False))

    def cut(self, rank: int | None) -> np.ndarray:
        """The closest matrix of this rank; None: of any, the matrix itself."""
        return (self.u[:, :rank] * self.s[:rank]) @ self.v[:rank]

    def share(self, rank: int | None) -> float:
        """The share of its squared numbers that the first singular values hold."""
        return float((self.s[:rank] ** 2).sum() / (self.s**2).sum())


@program(
    "docs/course/18-adapting/update.py",
    UpdateOptions,
    "BASE_MODEL TUNED_MODEL",
    "smollm2 out/tuned",
    about_positional=MODELS,
)
def main(options: UpdateOptions, *names: str) -> None:
    """The singular values of what training changed."""
    ranks = whole_numbers(options.ranks, "--ranks", "1,4,16")
    base, tuned = (FAMILY.read(Path(name)) for name in names)
    if base.tokenizer.to_json() != tuned.tokenizer.to_json():
        raise CheckpointError(f"{tuned.path} was not trained from {base.path}: they have different tokenizers")
    say(f"{base.about}\n{tuned.about}")
    corpus = text_to_predict(options, tuned)
    model = tuned.make_model()
    found = updates(model, base.weights)
    rng = np.random.default_rng(options.seed)
    by_chance = [Update.of(rng.standard_normal((update.u.shape[0], update.v.shape[1]))) for update in found.values()]
    show(f"{'rank':>6} {'share of the update':>21} {'of a random matrix':>20} {'bits per character':>20}")
    for rank in (0, *ranks, None):
        for name, parameter in matrices(model).items():
            parameter.data[...] = base.weights[name] + found[name].cut(rank)
            parameter.mark_written()
        bits = score(model, tuned.tokenizer, corpus).bits_per_character
        shares = [statistics.mean(update.share(rank) for update in each) for each in (found.values(), by_chance)]
        show(f"{'all' if rank is None else rank:>6} {shares[0]:>21.1%} {shares[1]:>20.1%} {bits:>20.4f}")


def matrices(model: GPT) -> dict[str, Parameter]:
    """The matrices of the linear maps in a model's blocks, by name."""
    modules = model.named_modules()
    maps = [(name, part) for name, part in modules if isinstance(part, Linear) and name.startswith("blocks.")]
    return {f"{name}.weight": linear.weight for name, linear in maps}


def updates(model: GPT, before: Mapping[str, np.ndarray]) -> dict[str, Update]:
    """How the matrices of a model's blocks differ from those in `before`.

    Raises: CheckpointError if one is missing there, has another shape, or is the same.
    """
    found = {}
    for name, parameter in matrices(model).items():
        if name not in before or before[name].shape != parameter.shape:
            raise CheckpointError(f"the models differ in more than values: {name} is not the same matrix in both")
        change = parameter.numpy() - before[name]
        if not change.any():
            raise CheckpointError(f"{name} is the same in both models: was it frozen?")
        found[name] = Update.of(change)
    return found


if __name__ == "__main__":
    run_command("update", main)
