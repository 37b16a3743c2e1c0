"""Two of Goethe's works, *Werther* and *Faust I*, for those who cannot fetch the packages of the default text.

The files are in two public collections, at addresses that each name one commit, and the SHA-256 of every file is
written here: what is used is what was intended, whoever delivers it. `pinned_file` takes a file from the cache's folder
`sources`, where it can also be put by hand, and downloads it only if it is missing.
"""

import re

from extra.corpora.packages import pinned_files
from extra.corpora.tei import play_text
from training.corpora import fetch
from training.corpora.cleaning import normalise, spread
from training.corpora.fetch import GITHUB

PROSE_FOLDER = GITHUB + "computationalstylistics/68_german_novels/4cc71e1d44647244b3df29474180a8a5e4fe8290/corpus/"
PLAYS_FOLDER = GITHUB + "dracor-org/gerdracor/1a985284303b4338acb7a6deb51d4c81cc621d2e/tei/"
WERTHER = {
    "title": "Die Leiden des jungen Werther",
    "begins": "Erstes Buch",
    "sha256": "9fbd011f18c6ac16edd24394ec7bc31994cc05ce6d3b00e666153bc7fa470aa3",
}
FAUST = ("faust-eine-tragoedie", "0ed7b258f4a4494c06f629be4d75595e1642f9ebf52a387e75b074313bf37f73")

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


def pinned_file(folder: str, name: str, sha256: str) -> bytes:
    """A file of known SHA-256: from the cache's folder `sources`, or else downloaded and put there.

    Raises: CorpusError if it cannot be fetched, or if a different file is delivered.
    """
    return pinned_files({name: sha256}, folder + name, lambda: {name: fetch.https_bytes(folder + name)})[name]


def play(name: str, sha256: str) -> str:
    """A play, fetched and cleaned: its title and its paragraphs, separated by blank lines."""
    return normalise(play_text(pinned_file(PLAYS_FOLDER, f"goethe-{name}.xml", sha256))).translate(SIGNS)


def prose(name: str, title: str, begins: str, sha256: str) -> str:
    """A work of prose, likewise.

    Args:
        begins: the words with which the work itself begins.
    """
    file = pinned_file(PROSE_FOLDER, f"goethe_{name}.txt", sha256)
    return normalise(prose_text(file.decode("utf-8"), title, begins)).translate(SIGNS)


def prose_text(text: str, title: str, begins: str) -> str:
    """The work in a file of prose, without its editors' additions before and within it."""
    _, begins, rest = normalise(text).partition(begins)
    text = PAGE_BREAK.sub(" ", begins + rest).translate(MISREAD)
    paragraphs = (" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
    return "\n\n".join([title, *(words for words in paragraphs if words and not EDITORS.fullmatch(words))])


def werther_and_faust() -> str:
    """*Werther* and *Faust I* in alternating passages, so that the last tenth, which is held out, has both."""
    return "\n\n".join(spread(passages(prose("werther", **WERTHER)), passages(play(*FAUST)))) + "\n"


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
