"""Goethe's works: six books of prose and 23 plays to learn from and to predict, split by whole works.

The files are in the collections of extra/corpora/works.py, and the SHA-256 of every file is in goethe_works.toml.

**The split.** Pieces of one work in both parts would make prediction look easier than it is: names, phrases and plots
recur. So two whole works are held out, together about a tenth of all characters: a novel in prose, *Die
Wahlverwandtschaften*, and a play in verse, *Iphigenie auf Tauris*. They were chosen because they stand alone: of their
runs of eight words only four occur anywhere else here. They come last; the recipe in texts.py has the
line with which they begin.

**What is left out** of the part to learn from, paragraph by paragraph (`without_repeats`):

- those that share a run of eight words with the held-out works, or with the text that a second corpus holds out,
  `known`: a model of these works can then be measured on that corpus too, which contains passages of them;
- those that share such a run with an earlier work, so that nothing is learned twice: half of the *Urfaust* recurs in
  *Faust*, and *Proserpina* in *Der Triumph der Empfindsamkeit*. (Of *Faust*, only the plays in TEI are taken.)
"""

import tomllib
from collections.abc import Iterable
from pathlib import Path

from extra.corpora.works import FAUST, WERTHER, play, prose
from training.cli.console import say
from training.corpora.cleaning import word_runs

RUN = 8  # words in a row that do not recur by chance

FILES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
PROSE = {"werther": WERTHER, **FILES["prose"]}
PLAYS = dict(sorted([*FILES["plays"].items(), FAUST]))
HELD_OUT_FILES = ("wahlverwandtschaften", "iphigenie-auf-tauris")  # these come last


def work(name: str) -> str:
    """One work, fetched and cleaned: its title and its paragraphs, separated by blank lines."""
    return play(name, PLAYS[name]) if name in PLAYS else prose(name, **PROSE[name])


def goethe_works(known: str) -> str:
    """All works, the held-out ones last, and a report of what was left out.

    Args:
        known: the held-out text of another corpus, from which nothing may be learned here.
    """
    names = [name for name in (*PROSE, *PLAYS) if name not in HELD_OUT_FILES]
    held_out = [work(name) for name in HELD_OUT_FILES]
    learned, dropped = without_repeats([work(name) for name in names], [*held_out, known])
    sizes = [sum(map(len, part)) for part in (learned, held_out)]
    say(
        f"{len(learned)} works to learn from, {sizes[0]:,} characters; {len(held_out)} held out, {sizes[1]:,} "
        f"characters ({sizes[1] / sum(sizes):.1%}); left out: {dropped[0]:,} paragraphs that share {RUN} words in a "
        f"row with held-out text, {dropped[1]:,} that do so with an earlier work"
    )
    return "\n\n".join([*learned, *held_out]) + "\n"


def without_repeats(works: Iterable[str], held_out: Iterable[str]) -> tuple[list[str], tuple[int, int]]:
    """The works without the paragraphs that share a run of eight words with held-out texts or with an earlier work.

    Returns: the works, and how many paragraphs were left out for either reason.

    >>> without_repeats(["a b c d e f g h", "x a b c d e f g h!\\n\\nC\\n\\ns t u v w x y z"], ["s t u v w x y z"])
    (['a b c d e f g h', 'C'], (1, 1))
    """
    forbidden = set().union(*map(runs, held_out))
    earlier: set[int] = set()
    kept, leaking, repeated = [], 0, 0
    for text in works:
        every = [(paragraph, runs(paragraph)) for paragraph in text.split("\n\n")]
        others = [(paragraph, found) for paragraph, found in every if not found & forbidden]
        new = [(paragraph, found) for paragraph, found in others if not found & earlier]
        leaking += len(every) - len(others)
        repeated += len(others) - len(new)
        earlier.update(*(found for _, found in new))
        kept.append("\n\n".join(paragraph for paragraph, _ in new))
    return kept, (leaking, repeated)


def runs(text: str) -> set[int]:
    """All runs of eight words in a row, as hashes: six million characters have a million of them."""
    return {hash(run) for run in word_runs(text, RUN) if len(run) == RUN}
