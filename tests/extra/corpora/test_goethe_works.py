"""Goethe's works: all are fetched once, and nothing held out is learned."""

import hashlib
import re

import pytest

from extra.corpora import goethe_works, texts
from extra.corpora.goethe_works import HELD_OUT_FILES, PLAYS, PROSE, runs
from extra.corpora.works import PLAYS_FOLDER, PROSE_FOLDER
from tests.extra.corpora.test_works import PLAY
from tinygrad_lite.errors import CorpusError
from training.corpora.texts import Corpus, make_corpus

TEN = "eins zwei drei vier fünf sechs sieben acht neun zehn"


@pytest.fixture
def made_up(web, cache, monkeypatch):
    """Every work on a web server: 29 made-up files of the same form, with their hashes; gives their addresses."""
    for place, name in enumerate([*PROSE, *PLAYS]):
        words = f"Wort {name.replace('-', ' ')} " + " ".join("abcdefghij"[: place % 9 + 1])
        if name in PROSE:
            text = "\r\n\r\n".join(["Von Goethe", "Anfang", words, "Johann Wolfgang von Goethe", "Ende"])
        else:
            text = PLAY.replace("TITLE", name).replace("WORDS", words)
        sha256 = hashlib.sha256(text.encode("utf-8")).hexdigest()
        if name in PROSE:
            monkeypatch.setitem(PROSE, name, PROSE[name] | {"begins": "Anfang", "sha256": sha256})
        else:
            monkeypatch.setitem(PLAYS, name, sha256)
        address = f"{PROSE_FOLDER}goethe_{name}.txt" if name in PROSE else f"{PLAYS_FOLDER}goethe-{name}.xml"
        web.files[address] = text.encode("utf-8")
    return [*web.files]


def test_all_works_are_fetched_once_and_split(made_up, web, monkeypatch, cache, capsys):
    goethe = Corpus("goethe", "." * 450 + "Nun: der Buergergeneral, a b c d e f g.", "", "", "")
    monkeypatch.setattr(texts, "find", lambda name: goethe)
    learned, held_out = make_corpus("goethe-works", texts.make_goethe_works(), print).split()
    assert held_out.startswith("Die Wahlverwandtschaften\n\nAnfang\n\nWort wahlverwandtschaften a")
    assert "iphigenie-auf-tauris. Ein Spiel\n\nErster Akt." in held_out
    assert learned.startswith("Die Leiden des jungen Werther\n\nAnfang\n\nWort werther a\n\nEnde\n\n")
    assert "Wort der grosskophta a\n" in learned
    assert not re.search("Goethe|Wort der buergergeneral", learned)  # the latter as the other corpus holds it out
    assert ("Philosophie --" in held_out, '"Euch"' in learned) == (True, True)
    assert sorted(web.asked) == sorted(made_up)
    assert "27 works to learn from" in capsys.readouterr().err
    web.files.clear()  # the network is no longer needed
    assert goethe_works.goethe_works("") == learned + held_out
    (cache / "sources/goethe_lehr.txt").write_text("Wilhelm", encoding="utf-8")
    with pytest.raises(CorpusError, match=r"goethe_lehr\.txt answered 404"):
        goethe_works.goethe_works("")
    assert "goethe_lehr.txt, because" in capsys.readouterr().err


def test_nothing_that_is_held_out_is_learned():
    held_out = [f"Davor {TEN}\n\nund Verse\nin vielen\nkurzen Zeilen,\nja wirklich"]
    learned = [
        f"Titel\n\nein anderer Satz\n\n{TEN.upper()}!\n\nund Verse in vielen kurzen Zeilen, ja weiter",
        "Titel\n\n(Und) Verse? In vielen; kurzen Zeilen ja wirklich.\n\nals wenn man sich hier einmal ganz neu erklärt",
        "Als wenn man sich hier einmal ganz neu\n\nals wenn man sich hier einmal ganz",
    ]
    kept, counts = goethe_works.without_repeats(learned, held_out)
    assert kept == [
        "Titel\n\nein anderer Satz\n\nund Verse in vielen kurzen Zeilen, ja weiter",  # seven words are no run
        "Titel\n\nals wenn man sich hier einmal ganz neu erklärt",
        "als wenn man sich hier einmal ganz",
    ]
    assert counts == (2, 1)
    forbidden = set().union(*map(runs, held_out))
    assert not any(runs(paragraph) & forbidden for text in kept for paragraph in text.split("\n\n"))


def test_the_held_out_works_are_among_the_29_works():
    assert {*HELD_OUT_FILES} < {*PROSE, *PLAYS}
    assert texts.RECIPES["goethe-works"].held_out == PROSE[HELD_OUT_FILES[0]]["title"]
    hashes = {*PLAYS.values(), *(book["sha256"] for book in PROSE.values())}
    assert len(hashes) == 29
    assert all(re.fullmatch("[0-9a-f]{64}", sha256) for sha256 in hashes)
