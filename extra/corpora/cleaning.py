"""Cleaning of texts to adapt a model to: quotations of another author, and the prose of manual pages."""

import hashlib
import re
from collections.abc import Iterable

from tinygrad_lite.errors import CorpusError
from training.corpora.cleaning import GERMAN, GOETHE, normalise, quotations, without_overlaps

JEAN_PAUL = re.compile(r"Jean Paul\b")


def jean_paul_text(fortunes: str) -> str:
    """The quotations of Jean Paul, from the same file; without those that quote Goethe's, or repeat one another."""
    of_goethe = "\n".join(quotations(fortunes, GOETHE, known=""))
    return "\n\n".join(quotations(fortunes, JEAN_PAUL, known=of_goethe)) + "\n"


# What roff, the language of manual pages, writes instead of plain characters: fonts, zero-width spaces, hyphens.
ROFF = ((r"\\f(\w|\(\w\w|\[\w*\])", ""), (r"\\[&/,:%|]", ""), (r"\\\(aq", "'"), (r"\\-", "-"))
# A line that begins with a dot or an apostrophe is a macro; those that print their words begin with these letters.
PRINTING_MACRO = re.compile(r"^\.[BIR].*", re.MULTILINE)
BETWEEN_PARAGRAPHS = re.compile(r"^(?:[.'].*|[^\S\n]*)$", re.MULTILINE)
PRINTED = str.maketrans(dict.fromkeys("„“”»«", '"') | dict.fromkeys("‚‘’", "'") | {"…": "...", "–": "-", "\xa0": " "})
SENTENCE = 80  # characters: anything shorter is mostly a title or the name of an option


def manual_text(pages: Iterable[str]) -> str:
    """The paragraphs of manual pages in roff, each one line, in the order of their hashes, without repetitions."""
    paragraphs = without_overlaps({text for page in pages for text in prose_of(page)}, known="")
    if not paragraphs:
        raise CorpusError("the package manpages-de no longer holds German pages where it used to")
    return "\n\n".join(sorted(paragraphs, key=lambda text: hashlib.sha256(text.encode("utf-8")).digest())) + "\n"


def prose_of(page: str) -> list[str]:
    """The clean paragraphs of a manual page: whole sentences, without macros, fonts and other authors' characters.

    A macro ends a paragraph; one that prints its words leaves a gap in it, so the paragraph is not clean.
    """
    texts = []
    for text in BETWEEN_PARAGRAPHS.split(PRINTING_MACRO.sub(r"\\", normalise(page))):
        for pattern, plain in ROFF:
            text = re.sub(pattern, plain, text)
        text = " ".join(text.translate(PRINTED).split())
        if len(text) >= SENTENCE and text[-1] in ".:!?" and set(text) <= GERMAN:
            texts.append(text)
    return texts
