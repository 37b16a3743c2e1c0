"""Goethe's works: six books of prose and 23 plays to learn from and to predict, split by whole works.

The files are in two public collections, at addresses that each name one commit, and the SHA-256 of every file is in
works.toml: what is used is what was intended, whoever delivers it. `pinned_file` takes a file from the cache's folder
`sources`, where it can also be put by hand, and downloads it only if it is missing.

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

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

from extra.corpora.tei import play_text
from training.cli.console import say
from training.corpora import fetch
from training.corpora.cleaning import normalise, spread, word_runs

RUN = 8  # words in a row that do not recur by chance


GITHUB = "https://raw.githubusercontent.com/"
PROSE_FOLDER = GITHUB + "computationalstylistics/68_german_novels/4cc71e1d44647244b3df29474180a8a5e4fe8290/corpus/"
PLAYS_FOLDER = GITHUB + "dracor-org/gerdracor/1a985284303b4338acb7a6deb51d4c81cc621d2e/tei/"
FILES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
PROSE, PLAYS = FILES["prose"], FILES["plays"]
HELD_OUT_FILES = ("wahlverwandtschaften", "iphigenie-auf-tauris")  # these come last
WERTHER_AND_FAUST = ("werther", "faust-eine-tragoedie")

# Signs that the prose files write differently; and French and Italian letters, which appear in one of them as Czech
# ones.
SIGNS = str.maketrans({"–": "--", **dict.fromkeys("»«", '"'), **dict.fromkeys("›‹‘’", "'")})
MISREAD = str.maketrans("ŕčęňůűČ", "àèêòùûÈ")
# A page's heading in the middle of a sentence; and paragraphs by the editors: names of files, headings, captions.
PAGE_BREAK = re.compile(r"\n\nZur Farbenlehre\s*\n\n(?=[a-zäöü])")
EDITORS = re.compile(
    r"(Johann Wolfgang von Goethe|Hamburger Ausgabe, .*|Wilhelm Meisters .*--Buch .*|[IVX]+\. Buch, .*"
    r"|Die Leiden des jungen Werther von .*|Italienische Reise .*|Italienische Reise-Teil .*|Zur Farbenlehre|<#.*|"
    r".{,60}(Zeichnung|zeichnung|Gemälde|gemäldes) von \w+|.*Hrsg\.\).*)"
)


# ------------------------------------------------------------------------------------------------ the files


def pinned_file(folder: str, name: str, sha256: str) -> bytes:
    """A file of known SHA-256: from the cache's folder `sources`, or else downloaded and put there.

    Raises: CorpusError if it cannot be fetched, or if a different file is delivered.
    """
    return fetch.pinned_files({name: sha256}, folder + name, lambda: {name: fetch.https_bytes(folder + name)})[name]


def work(name: str) -> str:
    """One work, fetched and cleaned: its title and its paragraphs, separated by blank lines."""
    if name in PLAYS:
        text = play_text(pinned_file(PLAYS_FOLDER, f"goethe-{name}.xml", PLAYS[name]))
    else:
        book = PROSE[name]
        file = pinned_file(PROSE_FOLDER, f"goethe_{name}.txt", book["sha256"])
        text = prose_text(file.decode("utf-8"), book["title"], book["begins"])
    return normalise(text).translate(SIGNS)


def prose_text(text: str, title: str, begins: str) -> str:
    """The work in a file of prose, without its editors' additions before and within it."""
    _, begins, rest = normalise(text).partition(begins)
    text = PAGE_BREAK.sub(" ", begins + rest).translate(MISREAD)
    paragraphs = (" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
    return "\n\n".join([title, *(words for words in paragraphs if words and not EDITORS.fullmatch(words))])


# ----------------------------------------------------------------------------------------------- the corpora


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
        paragraphs, own = [], set()
        for paragraph in text.split("\n\n"):
            found = runs(paragraph)
            if found & forbidden:
                leaking += 1
            elif found & earlier:
                repeated += 1
            else:
                paragraphs.append(paragraph)
                own |= found
        earlier |= own
        kept.append("\n\n".join(paragraphs))
    return kept, (leaking, repeated)


def runs(text: str) -> set[int]:
    """All runs of eight words in a row, as hashes: six million characters have a million of them."""
    return {hash(run) for run in word_runs(text, RUN) if len(run) == RUN}


def werther_and_faust() -> str:
    """*Werther* and *Faust I* in alternating passages, so that the last tenth, which is held out, has both."""
    return "\n\n".join(spread(*(passages(work(name)) for name in WERTHER_AND_FAUST))) + "\n"


def passages(text: str, length: int = 3000) -> list[str]:
    """A text cut at blank lines into passages of about this many characters.

    >>> passages("Eins\\n\\nZwei\\n\\nDrei", 6)
    ['Eins\\n\\nZwei', 'Drei']
    """
    found = [""]
    for paragraph in text.split("\n\n"):
        if len(found[-1]) >= length:
            found.append("")
        found[-1] += "\n\n" + paragraph if found[-1] else paragraph
    return found
