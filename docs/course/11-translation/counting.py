"""Translate by counting: which words occur together in sentences and their translations? IBM's model 1.

    python docs/course/11-translation/counting.py
    python docs/course/11-translation/counting.py --dataset multi30k --train_pairs 1000
    python docs/course/11-translation/counting.py --pairs FILE.tsv --show 5

Every word of a translation comes from one word of its source, or from none, and nobody says from which. So each source
word gets an equal share of it at first. The shares, added up over all pairs, say how often a word is translated by
another; and these probabilities give better shares, round after round (expectation maximisation). A sentence is then
translated word by word, each by its most probable translation; a word never seen is copied.

Pairs and held-out pairs are those that `train.py` would have. Scores need sacrebleu: pip install -e ".[translate]"

Reference: Brown et al. 1993, "The Mathematics of Statistical Machine Translation", section 4.2.
"""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from families import FAMILIES  # where the shelf is, it brings further pairs
from seq2seq.corpus import load_pairs
from text.decoding.scores import scores
from tinygrad_lite.config import option
from tinygrad_lite.errors import counted
from training.cli.command_line import read_command
from training.cli.console import run_command

NOTHING = ""  # the word from which a word comes that no word of the source explains


@dataclass
class CountingOptions:
    """What to learn from, and how long."""

    dataset: str = option("everyday", "the pairs, as in train.py")
    pairs: str = option("", "file to use instead: source TAB target in each line", is_path=True)
    train_pairs: int = option(0, "learn from this many of the pairs; 0: all", low=0)
    seed: int = option(1, "draws them")
    rounds: int = option(5, "of counting", low=1)
    show: int = option(3, "translations to show", low=0)


def words(sentence: str) -> list[str]:
    """The words and punctuation marks of a sentence."""
    return re.findall(r"\w+|[^\w\s]", sentence)


def dictionary(pairs: Sequence[tuple[str, str]], rounds: int) -> dict[str, str]:
    """The most probable translation of each source word."""
    known: tuple[dict[str, int], dict[str, int]] = ({}, {})  # the words of both languages, numbered
    asks, answers, slots, slot = [], [], [], 0
    for source, target in pairs:
        fs = [known[0].setdefault(word, len(known[0])) for word in (NOTHING, *words(source))]
        es = [known[1].setdefault(word, len(known[1])) for word in words(target)]
        asks += fs * len(es)
        answers += np.repeat(es, len(fs)).tolist()
        slots += np.repeat(np.arange(slot, slot := slot + len(es)), len(fs)).tolist()
    # A link is a word of a target with a word of its source, and a slot is a place in a target: all its links compete.
    couples, link = np.unique(np.array(asks) * len(known[1]) + answers, return_inverse=True)
    f, e = np.divmod(couples, len(known[1]))
    probability = np.ones(len(couples))  # p(e | f) of each couple of words
    for _ in range(rounds):
        share = probability[link]
        share /= np.bincount(slots, share)[slots]
        count = np.bincount(link, share)
        probability = count / np.bincount(f, count)[f]
    order = np.argsort(probability, kind="stable")  # of each word's couples, the last is the most probable
    names = [list(language) for language in known]
    return {names[0][f[n]]: names[1][e[n]] for n in order}


def translate(sentence: str, best: dict[str, str]) -> str:
    """Word by word, in the order of the source."""
    return re.sub(r" (?=[.,;:!?)])", "", " ".join(best.get(word, word) for word in words(sentence)))


def main(argv: list[str]) -> int:
    """Count, translate the held-out sentences, and print the scores."""
    about = "Translate word by word, with a dictionary that is counted from pairs."
    options, _ = read_command(CountingOptions, argv, "python docs/course/11-translation/counting.py", about)
    named = {name: getattr(options, name) for name in ("dataset", "pairs", "train_pairs", "seed")}
    corpus = load_pairs(FAMILIES["seq2seq"].options.of(**named))
    began = time.perf_counter()
    best = dictionary(corpus.train, options.rounds)
    print(f"{counted(len(corpus.train), 'pair')}, {len(best):,} words, {time.perf_counter() - began:.1f} s", end=": ")
    sources, targets = zip(*corpus.held_out, strict=True)
    written = [translate(source, best) for source in sources]
    print(scores(written, targets)[1])
    for row in list(zip(sources, written, targets, strict=True))[: options.show]:
        print("", *row, sep="\n  ")
    return 0


if __name__ == "__main__":
    run_command("counting", main)
