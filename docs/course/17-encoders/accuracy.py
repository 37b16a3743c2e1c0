"""How good are classifiers of texts or pictures on the test part of their data, which none of them has seen?

    python docs/course/17-encoders/accuracy.py out/vit-fashion             accuracy, with its 95 % interval
    python docs/course/17-encoders/accuracy.py out/a1,out/a2 --against out/b1,out/b2

The second command compares runs in pairs, such as with equal seeds. Several runs are summarised by their mean and
standard deviation, and pairs by their mean gain and its standard error.
"""

import math
import statistics
from dataclasses import dataclass
from pathlib import Path

from extra.encoders.family import BERT, CNN, VIT
from extra.studies.program import options_of_run, program
from tinygrad_lite.autograd import no_grad
from tinygrad_lite.config import option
from tinygrad_lite.errors import OptionError
from training.cli.console import run_command, show
from training.family import family_of_weights
from training.folder import find_checkpoint

RUNS = "checkpoints or folders of runs, separated by commas"


@dataclass
class EvaluateOptions:
    """The options of the evaluation."""

    against: str = option("", "runs to compare with, equally many: out/b1,out/b2", is_path=True)


@program("docs/course/17-encoders/accuracy.py", EvaluateOptions, "RUN", "out/classify", about_positional=RUNS)
def main(options: EvaluateOptions, runs: str) -> None:
    """Accuracy of classifiers on the test part of their data."""
    names = runs.split(",")
    ours = accuracies(names)
    if options.against:
        others = options.against.split(",")
        if len(others) != len(names):
            raise OptionError(f"--against names {len(others)} runs, but there are {len(names)} to compare with them")
        gains = [one - other for one, other in zip(ours, accuracies(others), strict=True)]
        error = statistics.stdev(gains) / math.sqrt(len(gains)) if len(gains) > 1 else math.nan
        show(f"gain, in pairs: {statistics.mean(gains):+.1%} with a standard error of {error:.1%}")


def accuracies(names: list[str]) -> list[float]:
    """The accuracies of runs, whose mean and standard deviation are printed if there are several."""
    found = [accuracy(Path(name)) for name in names]
    if len(found) > 1:
        show(f"mean of {len(found)}: {statistics.mean(found):.1%} ± {statistics.stdev(found):.1%}")
    return found


def accuracy(path: Path) -> float:
    """The share of the test part that a model gets right, which is also printed."""
    path = find_checkpoint(path)
    family = family_of_weights(path, (BERT, VIT, CNN))
    if family is None:
        raise OptionError(f"{path} is not a classifier of texts or pictures")
    trained = family.read(path)
    if family is BERT and trained.config.objective != "labels":
        raise OptionError(f"{path} predicts {trained.config.objective}, not labels")
    task = family.make_task(options_of_run(family, path), trained.tokenizer)
    task.hold_out_test()
    with no_grad():
        report = task.report(trained.make_model(), math.nan)
    show(f"{report.words}: {path}")
    return report.measures["accuracy"]


if __name__ == "__main__":
    run_command("accuracy", main)
