"""Corpora: the texts that a model learns from, by name or from your own files.

None of them is part of this repository. `load_corpus` looks a name up in this order and says what it found:

1. a local file: NAME itself or NAME.txt, if there is one where the program was started (so that your own edition can
   replace a named corpus), or any path;
2. the cache, one folder per user (`fetch.cache_folder`);
3. its source: signed Debian packages for `goethe`; a file on GitHub that is known by its SHA-256 for `shakespeare`;
   Python's own documentation for `python-docs`.

The table `RECIPES` is open: another recipe in it is another corpus.

No source can be reached from everywhere: only Debian and its derivatives have apt-get, for example. A command that
names no text takes the first of `UNNAMED_TEXTS` that is available, the last of which always is; a text that is named is
never replaced. `--text FILE` takes any text in UTF-8, read by `load_files`. A file of Project Gutenberg is recognised,
and only the book in it is used (`gutenberg.py`).

Every text is normalised before anything else sees it (`cleaning.normalise`), and the SHA-256 of the normalised text
says which text a number was measured on.
"""

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tinygrad_lite.errors import CorpusError, counted
from training.cli import console
from training.cli.files import text_named
from training.cli.options import not_among
from training.corpora import fetch
from training.corpora.cleaning import goethe_text, normalise
from training.corpora.gutenberg import gutenberg_books

HELD_OUT = 0.1  # share of the characters at the end of a text, unless its recipe says where the held-out works begin
RULES = "4"  # stored in the cache; change it with the rules of cleaning, and books are fetched again


@dataclass(frozen=True)
class Corpus:
    """A text and its source.

    Attributes:
        sha256: the hash of the normalised text in UTF-8.
        held_out_from: the character with which the held-out part begins; none: the last tenth is held out.
        prompt: a beginning that suits it; empty: any.
    """

    name: str
    text: str
    source: str
    licence: str
    sha256: str
    held_out_from: int | None = None
    prompt: str = ""

    def split(self) -> tuple[str, str]:
        """The part to learn from, and the part that is held out."""
        cut = round(len(self.text) * (1 - HELD_OUT)) if self.held_out_from is None else self.held_out_from
        return self.text[:cut], self.text[cut:]


@dataclass(frozen=True, kw_only=True)
class Recipe(fetch.Recipe):
    """How to make a named corpus: its source, and the function that fetches and cleans it.

    signed: whether a text other than the expected one is only a warning: the packages' signatures were checked, and
        packages change from version to version. Otherwise it is an error.
    held_out: the line, after a blank one, with which the held-out works begin; none: the last tenth is held out.
    prompt: a beginning that suits the text.
    how: how it comes to where others do not; empty: it may not.
    """

    signed: bool = False
    held_out: str | None = None
    prompt: str = ""
    how: str = ""


# ------------------------------------------------------------------------------------------ finding a text


def load_corpus(name: str, say: Callable[[str], None] = console.say, files: Sequence[str] = ()) -> Corpus:
    """Find a corpus by name, or fetch it, and print its size in characters, its source and its licence.

    Args:
        name: one of `RECIPES`, or the path of a text file.
        say: takes each line meant for the user.
        files: the user's own, which are taken instead.
    Raises: CorpusError for an unknown name, or if neither the cache nor the network has the text.
    """
    local = local_file(name)
    if files or local or Path(name).name != name:  # a name with a folder in it can only be a path
        corpus = load_files([*files] or [local or name])
    elif name not in RECIPES:
        raise CorpusError(f"no corpus is called {not_among(name, RECIPES)}, and `--text FILE` takes any UTF-8 text")
    else:
        hows = {other: RECIPES[other].how for other in UNNAMED_TEXTS if other != name}
        others = [f"python train.py {other} ({how})" for other, how in hows.items() if how]
        with fetch.advising(f"the corpus {name}", *others, "--text FILE"):
            corpus = find(name, say)
    say(f"corpus {corpus.name}: {counted(len(corpus.text), 'character')} from {corpus.source}")
    say(f"licence: {corpus.licence}")
    return corpus


def local_file(name: str) -> str | None:
    """The file in the current folder that replaces a named corpus, if there is one."""
    return next((path for path in (name, f"{name}.txt") if Path(path).is_file()), None)


def find(name: str, say: Callable[[str], None] = console.say) -> Corpus:
    """A named corpus, from its places in order, and then cached; CorpusError with the reason if it is unavailable."""
    if local := local_file(name):
        return load_files([local])
    if corpus := from_cache(name, say):
        return corpus
    corpus = make_corpus(name, RECIPES[name].make(), say)
    if name != PYTHON_DOCS:  # always at hand, and of another Python it would be another text
        fetch.keep(name, f"corpus {name}", corpus.text, RECIPES[name], RULES, say)
    return corpus


def from_cache(name: str, say: Callable[[str], None]) -> Corpus | None:
    """The cached corpus, or None if there is none or it can no longer be trusted."""
    rules = RULES if RECIPES[name].expected is None else None
    return fetch.from_cache(name, f"corpus {name}", rules, lambda text: make_corpus(name, text, say), say)


def make_corpus(name: str, text: str, say: Callable[[str], None]) -> Corpus:
    """A named corpus with its hash and its split; says so if a signed text has changed.

    Raises: CorpusError if the held-out works are not in it once, or if a text that nobody signed has changed.
    """
    recipe = RECIPES[name]
    border = f"\n\n{recipe.held_out}\n"
    if recipe.held_out and text.count(border) != 1:
        line = repr(recipe.held_out)
        raise CorpusError(f"{recipe.source} does not contain one line {line}, with which the held-out works begin")
    held_out_from = text.index(border) + 2 if recipe.held_out else None
    corpus = Corpus(name, text, recipe.source, recipe.licence, fetch.sha256(text), held_out_from, recipe.prompt)
    if recipe.expected not in (None, corpus.sha256):
        difference = f"its sha256 is {corpus.sha256} and not {recipe.expected}"
        if not recipe.signed:
            raise CorpusError(f"{recipe.source} delivers a different text from the one known here: {difference}")
        say(f"warning: the corpus {name} has changed since numbers were measured on it: {difference}")
    return corpus


def load_files(paths: list[str], as_is: bool = False) -> Corpus:
    """Read your own text: one or more UTF-8 files, normalised, in the given order.

    One file is used unchanged; several are joined by blank lines. A file with the text of an earlier one, ignoring case
    and white space, is left out: what is held out of one would be learned from the other. From a file of Project
    Gutenberg only the book is used, and the file may be in an older encoding. The corpus says so in its `source`.

    Args:
        as_is: do not normalise a text that is not such a book.
    Raises: CorpusError, naming the file, if it is missing, a folder, not UTF-8 (with the byte offset) or empty.
    """
    if not paths:
        raise CorpusError("no file is given: `--text FILE` takes one or more")
    texts, sources, seen = [], [], {}
    for path in paths:
        if os.path.isdir(path):
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
        key = " ".join(text.casefold().split()) if len(paths) > 1 else path
        if key in seen:
            source += f" (left out: the text of {seen[key]} again)"
        else:
            texts.append(text)
        seen.setdefault(key, Path(path).name)
        sources.append(source)
    text = texts[0] if len(texts) == 1 else "\n\n".join(text.strip("\n") for text in texts) + "\n"
    names = ", ".join(Path(path).name for path in paths)
    licence = "not known here, since it is your own file"
    return Corpus(names, text, f"local file {', '.join(sources)}", licence, fetch.sha256(text))


# --------------------------------------------------------------------------------- from packages of Debian

WERTHER_PHP = "usr/share/php/Faker/Provider/de_DE/Text.php"
QUOTATIONS = "usr/share/games/fortunes/de/zitate"


def make_goethe() -> str:
    """Fetch the two packages and make one text from them."""
    files = fetch.debian_files({"php-faker": WERTHER_PHP, "fortunes-de": QUOTATIONS})
    return goethe_text(files["php-faker"], files["fortunes-de"])


# ------------------------------------------------------------------------------------------- from Python itself


def python_docs() -> str:
    """The language reference that `help()` shows, without the paragraphs that occur in it before.

    Raises: CorpusError if this Python came without it.
    """
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise CorpusError("this Python has no module pydoc_data") from None
    paragraphs = "\n\n".join(topics[name] for name in sorted(topics)).split("\n\n")
    return normalise("\n\n".join(dict.fromkeys(text.strip("\n") for text in paragraphs if text.strip())) + "\n")


SHAKESPEARE = fetch.GITHUB + "karpathy/char-rnn/6f9487a6fe5b420b7ca9afb0d7c078e37c1d1b4e/data/tinyshakespeare/input.txt"

PYTHON_DOCS, FAUST = "python-docs", "Habe nun, ach!"
UNNAMED_TEXTS = ["goethe", PYTHON_DOCS]  # the first of them that is available

# By name. Without `expected` the first download is trusted, its hash printed, and the copy in the cache checked against
# that. (None here means that each version of Python has its own text.)
RECIPES = {
    "goethe": Recipe(
        source="the Debian packages php-faker and fortunes-de",
        licence="Goethe's words are in the public domain (he died in 1832); Werther comes under the Project "
        "Gutenberg License, the collection of quotations under GPL-2+, copyright Andreas Tille",
        make=make_goethe,
        expected="72a3cfa7bf170baaf4ab833fdd968d89cbedee840af5e1e0cc12a4573d9a4ab8",
        signed=True,
        prompt=FAUST,
    ),
    PYTHON_DOCS: Recipe(
        source=f"Python {sys.version.split()[0]}, module pydoc_data.topics",
        licence="the Python Software Foundation License",
        make=python_docs,
        prompt="The statement",
        how="a text that Python brings",
    ),
    "shakespeare": Recipe(
        source="the repository karpathy/char-rnn on GitHub",
        licence="Shakespeare's words are in the public domain; the repository comes under the MIT licence",
        make=lambda: normalise(fetch.https_text(SHAKESPEARE)),
        expected="86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
        prompt="ROMEO:",
    ),
}
