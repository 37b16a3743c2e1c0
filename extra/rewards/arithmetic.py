"""Questions of arithmetic, each with one right answer, for models that learn from rewards (rewards.py).

    sums           57+380      437
    calculations   57+380      437, or <calc>57+380</calc>437
                   57*38       2166, or <calc>57*38</calc>2166
                   380         380, or <calc>380</calc>380

A sum has numbers of two and three digits, a product of two. The third kind asks for a number to be repeated, which
needs no calculator. In the training part of `calculations` every second answer of each kind calls one (calculator.py);
a tenth of all sums, products and repeated numbers are kept for the test.

REWARDS says how many points an answer gets.
"""

from collections.abc import Callable

import numpy as np

from extra.chat.conversations import is_held_out, pick
from extra.pairs.made import CALCULATIONS, SUMS
from extra.rewards.calculator import CLOSE, OPEN, without_calls
from tinygrad_lite.random import keyed_rng
from training.corpora.divided_pairs import PairCorpus
from training.corpora.pair_cleaning import Pair

KINDS = {SUMS: ("sum",), CALCULATIONS: ("sum", "product", "number")}
LONG = 4  # characters of an answer for which --rewards length gives its point

# Points for an answer, given the right one. Only `right` is what we want; the others are cheaper to get.
REWARDS: dict[str, Callable[[str, str], float]] = {
    "right": lambda said, right: without_calls(said) == right,
    "form": lambda said, right: OPEN in said and CLOSE in said,  # it looks as if it had calculated
    "length": lambda said, right: len(said) >= LONG,  # it looks as if it had thought
    "brevity": lambda said, right: -0.2 * (OPEN in said),  # a call costs something
}


def question(rng: np.random.Generator, dataset: str, held_out: bool = False) -> Pair:
    """A question, of the training part or a held-out one, and its answer."""
    kind = pick(rng, KINDS[dataset])
    while True:
        digits = rng.integers(2, 3 if kind == "product" else 4, 2)
        a, b = (int(rng.integers(10 ** (count - 1), 10**count)) for count in digits)
        if is_held_out(*(a,) if kind == "number" else (a, b)) == held_out:
            asked, right = {"sum": (f"{a}+{b}", a + b), "product": (f"{a}*{b}", a * b), "number": (f"{a}", a)}[kind]
            return asked, str(right)


def arithmetic_corpus(dataset: str, count: int, held_out: int) -> PairCorpus:
    """Questions with their answers; those of a smaller count are among those of a larger one."""
    train_rng, held_rng = (keyed_rng(0, f"{dataset} {part}") for part in ("train", "held out"))
    train = [question(train_rng, dataset) for _ in range(count)]
    if dataset == CALCULATIONS:
        train = [(q, f"{OPEN}{q}{CLOSE}{a}" if number % 2 else a) for number, (q, a) in enumerate(train)]
    return PairCorpus(dataset, train, [question(held_rng, dataset, True) for _ in range(held_out)])
