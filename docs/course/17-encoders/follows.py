"""Does a sentence follow another? Pairs of sentences for train.py, and four endings ranked by what has learned them.

    python docs/course/17-encoders/follows.py --write pairs.tsv
    python train.py classify --init_from minilm --table pairs.tsv --out_dir out/follows
    python docs/course/17-encoders/accuracy.py out/follows
    python docs/course/17-encoders/follows.py out/follows --pairs pairs.tsv

The first command writes neighbouring sentences of film reviews, and as many pairs of which the second sentence is from
another review: the question that BERT was also taught with (Devlin et al. 2018, section 3.1). The last one asks about
reviews that were held out, as the data set SWAG does (Zellers et al. 2018, arXiv:1808.05326): which of four sentences
follows? The three wrong ones are from other reviews. The answer is the ending with the largest logit of "next" less
that of "other". For comparison, two answers that nothing was trained for: the ending whose vector is most similar, and
the one that shares most words.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import extra.corpora.texts  # noqa: F401 (so that its texts are known)
from extra.encoders.bert import Bert
from extra.encoders.family import BERT
from extra.encoders.labels import sequence
from extra.encoders.reading import sentence_embeddings
from extra.encoders.words import PAD
from extra.studies.program import program, write_lines
from text.tokenizers.base import Tokenizer
from tinygrad_lite import Tensor, no_grad
from tinygrad_lite.config import option
from tinygrad_lite.errors import OptionError
from tinygrad_lite.generator import pad_rows
from tinygrad_lite.random import keyed_rng
from training.cli.console import run_command
from training.cli.files import lines_of, text_named
from training.corpora.texts import load_corpus

SHORTEST, LONGEST = 5, 25  # words of a sentence
LABELS, ENDINGS, SIZE = ("next", "other"), 4, 80


@dataclass
class FollowsOptions:
    """The options of the experiment."""

    write: str = option("", "write pairs to learn from to this file, and stop", is_path=True)
    pairs: str = option("", "the file that --write has written, for the regression; empty: without it", is_path=True)
    count: int = option(6000, "pairs to write", low=20)
    questions: int = option(300, "questions about held-out reviews", low=1)
    seed: int = option(1, "draws the sentences", low=0)


def couples(text: str, count: int, seed: int) -> Iterator[tuple[str, tuple[str, ...]]]:
    """A sentence, the next one, and sentences from other reviews; at most one from each review, at random."""
    reviews = [review.split("\n") for review in text.strip().split("\n\n")]
    rng = keyed_rng(seed, "sentences")
    fits = [[SHORTEST <= len(sentence.split()) <= LONGEST for sentence in review] for review in reviews]
    for number in rng.permutation(len(reviews)):
        places = [n for n in range(len(reviews[number]) - 1) if fits[number][n] and fits[number][n + 1]]
        if not places or not count:
            continue
        count -= 1
        place, others = int(rng.choice(places)), []
        while len(others) < ENDINGS - 1:
            other = int(rng.integers(len(reviews)))
            n = int(rng.integers(len(reviews[other])))
            if other != number and fits[other][n]:
                others.append(reviews[other][n])
        yield reviews[number][place], (reviews[number][place + 1], *others)


def table(text: str, count: int, seed: int) -> list[str]:
    """The lines of a table for `train.py --table`: every other pair is one of neighbours."""
    rows = [
        f"{first}\t{endings[n % 2]}\t{LABELS[n % 2]}" for n, (first, endings) in enumerate(couples(text, count, seed))
    ]
    return ["text1\ttext2\tlabel", *rows]


def by_head(model: Bert, tokenizer: Tokenizer, first: str, endings: Sequence[str]) -> np.ndarray:
    """The logit of "next" less that of "other", for each ending."""
    ids, segments = zip(*(sequence(tokenizer, [first, ending], SIZE) for ending in endings), strict=True)
    with no_grad():
        logits = model.label_logits(Tensor(pad_rows(ids, tokenizer.specials[PAD])), Tensor(pad_rows(segments, 0)))
    one, other = (model.config.label_names.index(label) for label in LABELS)
    return logits.numpy()[:, one] - logits.numpy()[:, other]


def regression(
    x: np.ndarray, y: np.ndarray, decay: float = 0.1, steps: int = 300
) -> Callable[[np.ndarray], np.ndarray]:
    """Logistic regression of y (0 or 1) on standardised columns of x (N, C), by gradient descent: it scores rows."""
    mean, deviation = x.mean(axis=0), x.std(axis=0) + 1e-9
    z, weight = (x - mean) / deviation, np.zeros(x.shape[1])
    for _ in range(steps):
        p = 1 / (1 + np.exp(-(z @ weight)))
        weight -= 0.1 * (z.T @ (p - y) / len(y) + decay * weight)
    return lambda rows: (rows - mean) / deviation @ weight


def products(model: Bert, tokenizer: Tokenizer, firsts: Sequence[str], seconds: Sequence[str]) -> np.ndarray:
    """The products of the numbers of two sentences' vectors, (N, C), whose sums are cosines; one first fits all."""
    return sentence_embeddings(model, tokenizer, firsts) * sentence_embeddings(model, tokenizer, seconds)


def by_words(first: str, endings: Sequence[str]) -> np.ndarray:
    """How many of the words of each ending are in the sentence, as a share."""
    known = {*first.lower().split()}
    return np.array([np.mean([word in known for word in ending.lower().split()]) for ending in endings])


@program("docs/course/17-encoders/follows.py", FollowsOptions, "CHECKPOINT")
def main(options: FollowsOptions, *names: str) -> None:
    """Which sentence follows? Write pairs, or rank endings."""
    learned, held_out = load_corpus("imdb").split()
    if options.write:
        write_lines(Path(options.write), table(learned, options.count, options.seed))
        return
    trained, minilm = (BERT.read(Path(name)) for name in (*(names or ["out/follows"]), "minilm"))
    if not {*LABELS} <= {*trained.config.label_names} or trained.config.block_size < SIZE:
        raise OptionError(f"{trained.path} has not learned {SIZE} tokens of pairs with the labels {', '.join(LABELS)}")
    model, untrained = trained.make_model(), minilm.make_model()
    ways = {"the head that learned pairs": lambda *texts: by_head(model, trained.tokenizer, *texts)}

    @functools.cache
    def multiplied(first: str, endings: tuple[str, ...]) -> np.ndarray:
        return products(untrained, minilm.tokenizer, [first], endings)

    if options.pairs:
        rows = [line.split("\t") for line in lines_of(text_named(options.pairs))[1:]]
        firsts, seconds, labels = zip(*rows, strict=True)
        x = products(untrained, minilm.tokenizer, firsts, seconds)
        found = regression(x, np.array([label == LABELS[0] for label in labels]))
        ways["regression on vectors"] = lambda *texts: found(multiplied(*texts))
    ways |= {"the most similar vector": lambda *texts: multiplied(*texts).sum(axis=1), "shared words": by_words}
    asked = list(couples(held_out, options.questions, options.seed))
    for name, scored in ways.items():
        right = [scored(first, endings).argmax() == 0 for first, endings in asked]
        error = 100 * (np.mean(right) * (1 - np.mean(right)) / len(right)) ** 0.5
        print(f"{name:30}{100 * np.mean(right):5.1f} ± {error:.1f} % of {len(right)}", flush=True)


if __name__ == "__main__":
    run_command("follows", main)
