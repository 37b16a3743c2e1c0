"""Finding a corpus by name: the order of places, what is said, and what happens when a place fails."""

import dataclasses
import os
import re
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from tests.training.corpora.test_gutenberg import put_into_page
from tinygrad_lite.errors import CorpusError
from training.cli.prompt import read_prompt
from training.corpora import fetch
from training.corpora.texts import RECIPES, Corpus, load_corpus, load_files

FAUST = "Habe nun, ach! gelesen\nund mehr gelesen.\n"
BOOK, BLUE = "Grün, ach!\n\nSo schön.", "Blau, ach!\n\nSo schön."
GUTENBERG, OTHER = (put_into_page(book, "ISO-8859-1") for book in (BOOK, BLUE))


@pytest.fixture(autouse=True)
def in_an_empty_folder(offline, tmp_path, monkeypatch):
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


def change_recipe(monkeypatch, name, **changes):
    monkeypatch.setitem(RECIPES, name, dataclasses.replace(RECIPES[name], **changes))


def serve(monkeypatch, text=FAUST, expected=None):
    """Let the source of shakespeare give this text; returns a list with one entry for each time it was asked."""
    asked = []
    change_recipe(monkeypatch, "shakespeare", make=lambda: asked.append(text) or text, expected=expected)
    return asked


def loaded(name="shakespeare"):
    """The corpus, and what is said."""
    said = []
    return load_corpus(name, said.append), said


def test_a_corpus_is_fetched_said_and_kept(monkeypatch, capsys):
    asked = serve(monkeypatch)
    corpus, said = loaded()
    assert (corpus.name, corpus.text, corpus.sha256) == ("shakespeare", FAUST, fetch.sha256(FAUST))
    assert said == [
        f"sha256 {corpus.sha256}: stored in the cache, because there is no known one to compare it with",
        f"corpus shakespeare: {len(FAUST)} characters from the repository karpathy/char-rnn on GitHub",
        f"licence: {RECIPES['shakespeare'].licence}",
    ]
    assert loaded() == (corpus, said[1:])
    assert len(asked) == 1
    load_corpus("shakespeare")
    out, err = capsys.readouterr()
    assert (out, "characters from the repository" in err) == ("", True)


def test_a_text_kept_by_other_rules_of_cleaning_is_fetched_again(monkeypatch):
    asked = serve(monkeypatch)
    fetch.store("shakespeare", "Produced by A Person\n", {"source": "a", "licence": "b"})
    assert loaded()[0].text == loaded()[0].text == FAUST
    assert len(asked) == 1
    change_recipe(monkeypatch, "goethe", expected=fetch.sha256("Ein Wort.\n"))  # which says itself that it is right
    fetch.store("goethe", "Ein Wort.\n", {"source": "a", "licence": "b"})
    assert load_corpus("goethe", print).text == "Ein Wort.\n"


def test_an_unsigned_text_with_another_hash_is_refused_and_not_kept(monkeypatch, cache):
    serve(monkeypatch, expected="ab" * 32)
    reason = r"a different text from the one known here: its sha256 is [0-9a-f]{64} and not abab"
    with pytest.raises(CorpusError, match=reason):
        loaded()
    assert not cache.exists()
    serve(monkeypatch, "Ein altes Buch.")
    loaded()
    asked = serve(monkeypatch, expected=fetch.sha256(FAUST))
    corpus, said = loaded()  # what is kept has another hash than the one that is known by now
    assert (corpus.text, len(asked)) == (FAUST, 1)
    assert "fetched again" in said[0]


def test_a_signed_text_with_another_hash_is_a_warning_each_time(monkeypatch):
    change_recipe(monkeypatch, "goethe", make=lambda: "Neue Fassung.\n")
    for _ in range(2):
        corpus, said = loaded("goethe")
        assert corpus.text == "Neue Fassung.\n"
        assert sum(line.startswith("warning: the corpus goethe has changed") for line in said) == 1
    change_recipe(monkeypatch, "goethe", expected=fetch.sha256("Neue Fassung.\n"))
    assert not any("warning" in line for line in loaded("goethe")[1])


def test_goethe_asks_for_its_two_packages(monkeypatch):
    php = "<<<'EOT'\nAm 4. Mai 1771\n\nEin Brief.\nEOT;\n"
    apt = Mock(return_value={"php-faker": php, "fortunes-de": "Ein Wort.\n\t\t-- Goethe\n"})
    monkeypatch.setattr(fetch, "debian_files", apt)
    assert sorted(load_corpus("goethe", print).text.split("\n\n")) == ["Am 4. Mai 1771", "Ein Brief.", "Ein Wort.\n"]
    assert {*apt.call_args.args[0]} == {"fortunes-de", "php-faker"}


def test_a_text_that_is_named_is_never_replaced():
    meanwhile = r"; what works meanwhile: python train\.py .*python-docs .*, --text FILE; without a text: "
    for name in {"goethe", "werther-faust", "plays", "shakespeare"} & RECIPES.keys():
        with pytest.raises(CorpusError, match=rf"the corpus {name} is unavailable .there is no network.*{meanwhile}"):
            load_corpus(name, print)


def test_pythons_own_documentation_is_always_there_and_never_kept(cache, monkeypatch):
    corpus, said = loaded("python-docs")
    paragraphs = corpus.text.rstrip("\n").split("\n\n")
    assert (len(corpus.text) > 300_000, "\n\n\n" in corpus.text) == (True, False)
    assert len(paragraphs) == len(set(paragraphs)) > 1500
    assert re.fullmatch(r"corpus python-docs: [\d,]+ characters from Python [\w.+]+, module pydoc_data.topics", said[0])
    assert not cache.exists()
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    with pytest.raises(CorpusError, match="this Python has no module pydoc_data"):
        load_corpus("python-docs", print)


def test_works_are_held_out_where_their_recipe_says(monkeypatch):
    text = "Eins\n\nZwei\n\nDas Letzte\n\nWort.\n"
    change_recipe(monkeypatch, "goethe", make=lambda: text, held_out="Das Letzte")
    for _ in range(2):  # fetched, then from the cache
        assert load_corpus("goethe", print).split() == ("Eins\n\nZwei\n\n", "Das Letzte\n\nWort.\n")
    assert Corpus("a", "0123456789" * 2, "", "", "").split() == ("012345678901234567", "89")
    change_recipe(monkeypatch, "goethe", make=lambda: text, held_out="Ein")
    with pytest.raises(CorpusError, match="does not contain one line 'Ein', with which the held-out works begin"):
        load_corpus("goethe", print)


@pytest.mark.parametrize("file", ["goethe.txt", os.path.join("folder", "poem.md")])
def test_a_local_file_of_that_name_comes_first_but_a_folder_is_no_text(monkeypatch, file):
    serve(monkeypatch)
    for folder in ("folder", "shakespeare"):
        os.mkdir(folder)
    Path(file).write_text("Mein eigener Faust.", encoding="utf-8")
    corpus, said = loaded(file.removesuffix(".txt"))
    assert corpus.text == "Mein eigener Faust."
    assert said[0] == f"corpus {os.path.basename(file)}: 19 characters from local file {os.path.basename(file)}"
    assert loaded()[0].text == FAUST


# ------------------------------------------------------------------------------------------------ files


CUT = f"({len(GUTENBERG) - 22} characters of Project Gutenberg's header and licence left out)"
AGAIN, REPEATED = "(left out: the text of a.txt again)", ("eins\n2\n", "EINS\r\n\r\n 2")
FILES = [  # the contents of files, the corpus, and what is said of them
    (["\ufeff\r\n  Sa\u0308tze\r\n\r\n\r\nEnde"], "\n  Sätze\n\n\nEnde", "a.txt"),
    (["zwei\n\n\n", "\ufeffeins", "\n  drei\n"], "zwei\n\neins\n\n  drei\n", "a.txt, b.txt, c.txt"),
    (["eins\n", GUTENBERG, OTHER], f"eins\n\n{BOOK}\n\n{BLUE}\n", f"a.txt, b.txt {CUT}, c.txt {CUT}"),
    *((["eins\n2\n", "drei", again], "eins\n2\n\ndrei\n", f"a.txt, b.txt, c.txt {AGAIN}") for again in REPEATED),
]


@pytest.mark.parametrize(("contents", "text", "source"), FILES)
def test_files_are_normalised_joined_by_a_blank_line_and_used_once(write, contents, text, source):
    """Of Project Gutenberg's files only the book is used."""
    corpus = load_files([write(f"{name}.txt", content) for name, content in zip("abc", contents, strict=False)])
    assert (corpus.text, corpus.sha256) == (text, fetch.sha256(text))
    assert corpus.name == ", ".join(f"{name}.txt" for name in "abc"[: len(contents)])
    assert corpus.source == f"local file {source}"


SEEMS = "is not UTF-8 but, it seems,"
UNREADABLE = [
    (b"\xef\xbb\xbf \r\n", "is empty"),
    ("schön".encode("latin-1"), r"is not UTF-8 \(byte 0xf6 at byte offset 3\): save it as UTF-8$"),
    (b"\xef\xbb\xbfab\xff", r"is not UTF-8 \(byte 0xff at byte offset 5\)"),
    *(
        ("Ein Text ohne BOM".encode(name), f"{SEEMS} {name}: .* iconv -f {name} -t UTF-8$")
        for name in ("UTF-16LE", "UTF-16BE", "UTF-32LE", "UTF-32BE")
    ),
    (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "cannot be read: it is a pointer of Git LFS"),
]


@pytest.mark.parametrize(("content", "reason"), UNREADABLE)
def test_a_file_that_is_empty_or_not_utf8_is_named(write, content, reason):
    good, bad = write("good.txt", b"gut"), write("bad.txt", content)
    with pytest.raises(CorpusError, match=rf"^{re.escape(bad)} {reason}"):
        load_files([good, bad])


def test_an_unknown_name_no_file_at_all_and_a_folder_are_errors():
    others = "there are goethe, .*shakespeare.*, and `--text FILE`"
    for read, named, reason in (
        (load_corpus, "goehte", rf"'goehte' \(did you mean 'goethe'\?\): {others}"),
        (load_corpus, os.path.join("no", "poem.md"), "there is no file "),
        (load_files, ["."], "is a folder, not a text file"),
        (load_files, [__file__, ""], "the name of a file is empty: write one"),
        (read_prompt, "FILE:", "the name of a file is empty: write one"),
    ):
        with pytest.raises(CorpusError, match=reason):
            read(named)
