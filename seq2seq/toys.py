"""Translation tasks that need no corpus and take seconds to learn: for first experiments, and for the tests.

Each task is unlimited: pair i of a task is always the same, drawn with the key (seed, task, i).

    reverse       "dbca"                     ->  "acbd"
    reverse-long  the same with 5 to 40 letters
    sort          "dbca"                     ->  "abcd"
    numbers       "siebenhundertzwölf"       ->  "seven hundred twelve"

Reversal shows attention in its simplest form: output t attends to input n - t. Sorting needs the whole input for every
output token. Numbers are the smallest example of real translation: German says "zweiundvierzig", two-and-forty.
"""

import numpy as np

from tinygrad_lite.errors import counted
from tinygrad_lite.random import keyed_rng

LETTERS = "abcdefghijklmnopqrstuvwxyz"
GERMAN = "null ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf".split()
GERMAN += "dreizehn vierzehn fünfzehn sechzehn siebzehn achtzehn neunzehn".split()
ENGLISH = "zero one two three four five six seven eight nine ten eleven twelve".split()
ENGLISH += "thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split()
GERMAN_TENS = "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split()
ENGLISH_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()


def german_number(n: int) -> str:
    """A number from 0 to 999,999 in German words.

    >>> [german_number(n) for n in (1, 21, 101, 316, 42_712)]
    ['eins', 'einundzwanzig', 'einhunderteins', 'dreihundertsechzehn', 'zweiundvierzigtausendsiebenhundertzwölf']
    """
    return _german(n) + ("s" if n % 100 == 1 else "")  # "ein" before another word, "eins" at the end


def _german(n: int) -> str:
    if n < 20:
        return GERMAN[n]
    if n < 100:
        unit = GERMAN[n % 10] + "und" if n % 10 else ""
        return unit + GERMAN_TENS[n // 10 - 2]
    size, name = (100, "hundert") if n < 1000 else (1000, "tausend")
    rest = _german(n % size) if n % size else ""
    return _german(n // size) + name + rest


def english_number(n: int) -> str:
    """A number from 0 to 999,999 in English words.

    >>> [english_number(n) for n in (1, 21, 316, 42_712)]
    ['one', 'twenty-one', 'three hundred sixteen', 'forty-two thousand seven hundred twelve']
    """
    if n < 20:
        return ENGLISH[n]
    if n < 100:
        return ENGLISH_TENS[n // 10 - 2] + (f"-{ENGLISH[n % 10]}" if n % 10 else "")
    size, name = (100, "hundred") if n < 1000 else (1000, "thousand")
    rest = f" {english_number(n % size)}" if n % size else ""
    return f"{english_number(n // size)} {name}{rest}"


def reversal(rng: np.random.Generator, length: int = 10) -> tuple[str, str]:
    """Ten letters, or as many as asked for, and the same reversed."""
    letters = "".join(rng.choice(list(LETTERS), length))
    return letters, letters[::-1]


def long_reversal(rng: np.random.Generator) -> tuple[str, str]:
    """Five to forty letters, and the same reversed."""
    return reversal(rng, rng.integers(5, 41))


def sorting(rng: np.random.Generator) -> tuple[str, str]:
    """Ten letters, and the same sorted."""
    letters = rng.choice(list(LETTERS), 10)
    return "".join(letters), "".join(sorted(letters))


def numbers(rng: np.random.Generator) -> tuple[str, str]:
    """A number below a million in German and in English; small ones are as frequent as large ones."""
    n = int(10 ** rng.uniform(0, 6))
    return german_number(n), english_number(n)


TOYS = {"reverse": reversal, "reverse-long": long_reversal, "sort": sorting, "numbers": numbers}


def toy_pairs(name: str, count: int, seed: int = 0) -> list[tuple[str, str]]:
    """The first pairs of a task, all different.

    Raises: ValueError if the task has fewer.
    """
    pairs: dict[tuple[str, str], None] = {}
    for i in range(20 * count):
        pairs[TOYS[name](keyed_rng(seed, name, i))] = None
        if len(pairs) == count:
            return list(pairs)
    raise ValueError(f"the task {name} has fewer than {counted(count, 'different pair')}")
