"""Cleaning of the raw corpora: pure functions from strings to strings.

`normalise` is applied to every text; `goethe_text` makes a corpus from files of Debian packages. The files of Project
Gutenberg have their own module, `gutenberg.py`.
"""

import hashlib
import itertools
import re
import string
import textwrap
import unicodedata
from collections.abc import Iterable

from tinygrad_lite.errors import CorpusError

# Letters and similar characters, and up to 200 accents on the last of them: far more than any language needs.
LETTERS_AND_MARKS = re.compile(r"[\w\s\x00-\x7f]*[^\w\s\x00-\x7f]{0,200}")


def normalise(text: str) -> str:
    """One form for texts that look alike: no byte order mark, lines ended by "\\n" only, Unicode's form NFC.

    In NFC a letter with its accent is one character, so that ä has one entry in the vocabulary, not two.

        >>> normalise("\\ufeffSa\\u0308tze\\r\\nund Zeilen\\r")
        'Sätze\\nund Zeilen\\n'
    """
    return normal_form(text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n"))


def normal_form(text: str, form: str = "NFC") -> str:
    """The text in one of Unicode's forms.

    Sorting the accents of a letter takes time quadratic in their number, so at most 200 are sorted at once.
    """
    return "".join(unicodedata.normalize(form, part) for part in LETTERS_AND_MARKS.findall(text))


def one_line(text: str) -> str:
    """The text in form NFC, with every sequence of white space, including line ends and tabs, replaced by one space.

    >>> one_line(" ein\\tschöner \\u00a0 Tag\\n")
    'ein schöner Tag'
    """
    return " ".join(normal_form(text.removeprefix("\ufeff")).split())


# The characters of clean German text; text with others is foreign, corrupted or an editor's remark.
GERMAN = frozenset(string.ascii_letters + "ÄÖÜäöüß" + string.digits + " \n.,;:!?'\"()-")
ATTRIBUTION = re.compile(r"^[ \t]*--[ \t]*(?P<author>.*)", re.MULTILINE | re.DOTALL)
GOETHE = re.compile(r"(J\S* W\S* ((von|v\.) )?)?G(oe|ö)the\b")
NOWDOC = re.compile(r"<<<'(?P<mark>\w+)'\n(?P<text>.*?)\n(?P=mark);", re.DOTALL)
LETTER_START = re.compile(r"\n\n(?=(?:Am|Den) \d+\. \w+\n\n)")


def goethe_text(php: str, fortunes: str) -> str:
    """The letters of Werther (book 1) among 1,600 quotations, all separated by blank lines.

    The last tenth of a text is held out, so it must resemble the rest and share no sentence with it. The quotations are
    in the order of their hashes, which is effectively shuffled but the same everywhere. The letters stay in the order
    of the book, spread evenly among the quotations: about a quarter of every tenth is Werther, and the last one has the
    end of book 1. No letter or quotation is cut, and quotations that overlap others are removed first
    (`without_overlaps`).

    Args:
        php: the PHP file with Werther in a quoted block, <<<'EOT' ... EOT;
        fortunes: quotations of all authors, each except the last followed by a line "%".
    Raises: CorpusError if a file does not have the expected contents, for example after a change of its package.
    """
    nowdoc = NOWDOC.search(normalise(php))
    if nowdoc is None:
        raise CorpusError("the package php-faker no longer holds Werther where it used to")
    letters = LETTER_START.split(nowdoc["text"].strip("\n"))
    return "\n\n".join(spread(letters, quotations(fortunes, GOETHE, known="\n".join(letters)))) + "\n"


def quotations(fortunes: str, author: re.Pattern, known: str) -> list[str]:
    """An author's quotations in the order of their hashes, without those that overlap others or a known text.

    Raises: CorpusError if there are none.
    """
    entries = re.split(r"^%$", normalise(fortunes), flags=re.MULTILINE)
    found = without_overlaps(filter(None, (words_of(author, entry) for entry in entries)), known)
    if not found:
        raise CorpusError(f"the package fortunes-de no longer holds quotations of {author.pattern} where it used to")
    return sorted(found, key=lambda text: hashlib.sha256(text.encode("utf-8")).digest())


def words_of(author: re.Pattern, entry: str) -> str | None:
    """The words of one quotation, or None if it is not this author's or not clean.

    Attributions begin with "--" and may have several lines. Excluded are other authors, quotations marked as falsely
    attributed, an anecdote that names him in full, and text with characters outside `GERMAN`. Line breaks are kept,
    since verse cannot be told from prose reliably; an indented line keeps two spaces.

        >>> words_of(GOETHE, "Es irrt der Mensch,\\n\\tsolang er strebt.\\n\\t\\t-- J. W. v. Goethe (Faust I)\\n")
        'Es irrt der Mensch,\\n  solang er strebt.'
        >>> words_of(GOETHE, "Goethe, so dramatisch\\n\\t\\t-- Jean Paul\\n") is None
        True
    """
    attribution = ATTRIBUTION.search(entry)
    if attribution is None or not author.match(attribution["author"]):
        return None
    lines = textwrap.dedent(entry[: attribution.start()].expandtabs()).split("\n")
    words = "\n".join(("  " if line.startswith(" ") else "") + " ".join(line.split()) for line in lines).strip()
    misfiled = "falsch zugeordnet" in attribution["author"].casefold() or "Wolfgang von Goethe" in words
    return words if words and not misfiled and set(words) <= GERMAN else None


def without_overlaps(texts: Iterable[str], known: str) -> list[str]:
    """Remove texts that repeat others: a model trained on one copy would be tested on the other.

    Longest first, a text is dropped if at least a third of its three-word sequences (letters only, ß as ss) occur in
    `known` or in a text that was kept. That finds copies, parts and reworded versions, but also drops a few short texts
    that only share a phrase.

        >>> without_overlaps(["Irrend lernt man.", "Man lernt nie aus.", "Denn irrend lernt man!"], known="")
        ['Denn irrend lernt man!', 'Man lernt nie aus.']
    """
    seen = word_runs(known, 3)
    kept = []
    for text in sorted(texts, key=lambda text: (-len(text), text)):
        runs = word_runs(text, 3)
        if 3 * len(runs & seen) < len(runs):
            kept.append(text)
            seen |= runs
    return kept


def word_runs(text: str, length: int) -> set[tuple[str, ...]]:
    """All sequences of `length` consecutive words; a text of fewer words is a single sequence."""
    words = re.findall(r"[^\W\d_]+", text.casefold())
    return {tuple(words[i : i + length]) for i in range(max(1, len(words) - length + 1))}


def spread(*streams: list[str]) -> list[str]:
    """Merge lists of texts so that each list is spread evenly, by length, over the whole.

    A text is placed by the relative position of its middle within its own list, from 0 to 1.

        >>> spread(["AAAA", "BBBB"], ["a", "b", "c", "d"])
        ['a', 'AAAA', 'b', 'c', 'BBBB', 'd']
    """
    placed = []
    for stream in streams:
        ends = [*itertools.accumulate(map(len, stream))]
        placed += [((end - len(text) / 2) / ends[-1], text) for end, text in zip(ends, stream, strict=True)]
    return [text for _, text in sorted(placed, key=lambda pair: pair[0])]
