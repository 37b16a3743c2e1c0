"""How good are classifiers of texts or pictures on the test part of their data, which none of them has seen?

    python -m studies.accuracy out/vit-fashion                            accuracy, with its 95 % interval
    python -m studies.accuracy out/a1,out/a2 --against out/b1,out/b2      runs in pairs, such as with equal seeds
    python -m studies.accuracy out/classify --tfidf true                  compared with counts of words

**TF-IDF.** A text is a vector with a number for each word and each two neighbouring words: how often it occurs in the
text, times the logarithm of how rare it is in all. A linear classifier (logistic regression, by scikit-learn: pip
install -e ".[baseline]") learns a weight for each. It knows nothing about order beyond neighbours, and is hard to beat
when examples are few.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from pathlib import Path

from studies.program import program
from tinygrad_lite.errors import OptionError, UserError
from workshop.cli.console import run_command
from workshop.cli.options import option
from workshop.corpora.tables import LabelledTexts
from workshop.run.families import load_family
from workshop.run.family import family_of_weights
from workshop.run.origin import options_of_run
from workshop.run.run_folder import newest_checkpoint


@dataclass
class EvaluateOptions:
    """The options of the evaluation."""

    against: str = option("", "runs to compare with, equally many: out/b1,out/b2", is_path=True)
    tfidf: bool = option(False, "also count words, with a linear model")


@program(
    "studies.accuracy",
    EvaluateOptions,
    "RUN",
    "out/classify",
    about_positional="checkpoints or folders of runs, separated by commas",
)
def main(options: EvaluateOptions, names: str) -> None:
    """Accuracy of classifiers on the test part of their data."""
    names = names.split(",")
    ours, data = accuracies(names)
    if options.against:
        others = options.against.split(",")
        if len(others) != len(names):
            raise OptionError(f"--against names {len(others)} runs, but there are {len(names)} to compare with them")
        theirs, _ = accuracies(others)
        gains = [one - other for one, other in zip(ours, theirs, strict=True)]
        error = statistics.stdev(gains) / math.sqrt(len(gains)) if len(gains) > 1 else math.nan
        print(f"gain, in pairs: {statistics.mean(gains):+.1%} with a standard error of {error:.1%}")
    if options.tfidf:
        if not isinstance(data[0], LabelledTexts):
            raise OptionError("--tfidf counts words, but these are models of pictures")
        print(f"{tfidf(data[0]):.1%} by TF-IDF and a linear model")


def accuracies(names: list[str]) -> tuple[tuple[float, ...], tuple[object, ...]]:
    """The accuracies of runs, whose mean and standard deviation are printed if there are several; and their data."""
    found, data = zip(*(accuracy(Path(name)) for name in names), strict=True)
    if len(found) > 1:
        print(f"mean of {len(found)}: {statistics.mean(found):.1%} ± {statistics.stdev(found):.1%}")
    return found, data


def accuracy(path: Path) -> tuple[float, object]:
    """The share of the test part that a model gets right, which is also printed; and its data."""
    if path.is_dir():
        path = newest_checkpoint(path)
    name = family_of_weights(path, ("bert", "vit", "cnn"))
    if name is None:
        raise OptionError(f"{path} is not a classifier of texts or pictures")
    family = load_family(name)
    trained = family.read(path)
    if name == "bert" and trained.config.objective != "labels":
        raise OptionError(f"{path} predicts {trained.config.objective}, not labels")
    task = family.task(options_of_run(family, path), trained.tokenizer)
    task.hold_out_test()
    report = task.report(trained.make_model(), math.nan)
    print(f"{report.words}: {path}")
    return report.measures["accuracy"], task.data


def tfidf(data: LabelledTexts) -> float:
    """The accuracy of TF-IDF with a linear model; its strength of regularisation is chosen on the validation part.

    Raises: UserError if scikit-learn is not installed.
    """
    try:
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.linear_model import LogisticRegression
    except ImportError:
        raise UserError('TF-IDF needs scikit-learn, which is not installed: pip install -e ".[baseline]"') from None
    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
    (train, y), (validation, y_validation), (test, y_test) = (
        zip(*part, strict=True) for part in (data.train, data.validation, data.test)
    )
    x = words.fit_transform(train)
    models = [LogisticRegression(C=strength, max_iter=1000).fit(x, y) for strength in (1, 3, 10, 30, 100)]
    best = max(models, key=lambda model: model.score(words.transform(validation), y_validation))
    return float(best.score(words.transform(test), y_test))


if __name__ == "__main__":
    run_command("studies.accuracy", main)
