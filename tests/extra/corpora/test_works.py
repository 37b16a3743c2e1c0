"""Werther and Faust: how a play and a novel become text, and where a file comes from."""

import hashlib
import re

import pytest

from extra.corpora import goethe_works, texts, works
from extra.corpora.goethe_works import PLAYS, PROSE, runs
from extra.corpora.tei import play_text
from extra.corpora.works import PLAYS_FOLDER, PROSE_FOLDER
from tinygrad_lite.errors import CorpusError
from training.corpora.texts import Corpus, make_corpus

PLAY = """<?xml version="1.0" encoding="utf-8"?>
<?xml-stylesheet type="text/css" href="../css/tei.css"?>
<TEI xmlns="http://www.tei-c.org/ns/1.0" xml:id="ger1"><teiHeader><fileDesc><titleStmt>
  <title>TITLE</title><title type="sub">Ein Spiel</title><author>Johann Wolfgang Goethe</author></titleStmt>
  <sourceDesc><bibl><title>Werke</title></bibl></sourceDesc></fileDesc></teiHeader>
<text><pb n="1"/><front><castList><castItem>Faust</castItem></castList></front>
<body><div type="act"><head>Erster <pb n="2"/> Akt.</head><stage>(Nacht.)</stage><pb n="3"/>
  <div type="scene">
    <sp who="#f"><speaker>Faust.</speaker><stage>unruhig
        am Pulte.</stage>
      <lg><l>Habe <emph>nun</emph>, ach!</l><pb n="4"/><l>Philosophie –</l></lg><stage>Er schlägt
        das Buch auf.</stage><lg><l>Juristerei</l></lg></sp>
    <sp who="#w"><speaker>Wagner</speaker><p>Verzeiht! <stage>ab.</stage> Ich hör
        »Euch«.</p></sp>
    <sp><p>WORDS</p></sp>
  </div><trailer>Ende.</trailer></div></body></text></TEI>"""
SPEECHES = [
    *("TITLE. Ein Spiel", "Erster Akt.", "(Nacht.)"),
    "FAUST (unruhig am Pulte):\nHabe nun, ach!\nPhilosophie –\n(Er schlägt das Buch auf.)\nJuristerei",
    *("WAGNER:\nVerzeiht! (ab.) Ich hör »Euch«.", "WORDS", "Ende."),
]


def test_a_play_is_what_a_reader_knows():
    assert play_text(PLAY.encode("utf-8")).split("\n\n") == SPEECHES


def test_werther_and_faust_are_fetched_but_no_other_file_at_the_address(web, cache, monkeypatch):
    name, novel = works.FAUST[0], b"Von Goethe\r\n\r\nErstes Buch\r\n\r\nWort"
    monkeypatch.setitem(works.WERTHER, "sha256", hashlib.sha256(novel).hexdigest())
    monkeypatch.setattr(works, "FAUST", (name, hashlib.sha256(PLAY.encode()).hexdigest()))
    web.files[f"{PLAYS_FOLDER}goethe-{name}.xml"] = PLAY.encode()
    web.files[f"{PROSE_FOLDER}goethe_werther.txt"] = novel
    text = works.werther_and_faust()
    assert text.startswith("Die Leiden des jungen Werther\n\nErstes Buch\n\nWort\n\nTITLE. Ein Spiel\n\nErster Akt.")
    assert text.endswith('Ich hör "Euch".\n\nWORDS\n\nEnde.\n')
    monkeypatch.setitem(works.WERTHER, "sha256", "0" * 64)
    with pytest.raises(CorpusError, match=r"goethe_werther.txt is not the expected file"):
        works.werther_and_faust()


def test_prose_loses_what_its_editors_put_in():
    text = (
        " Zur Farbenlehre\r\n\r\nVorwort 5 \r\n\r\nVorwort\r\n\r\nOb  man\r\n\r\nZur Farbenlehre \r\n\r\nnicht,"
        "\r\n\r\nZur Farbenlehre\r\n\r\nWilhelm Meisters Lehrjahre--Buch 2\r\n\r\nII. Buch, 4. Kapitel--1\r\n\r\n"
        "Bei Terni. Zeichnung von Goethe\r\n\r\n<#ital132.htm table#>\r\n\r\nEin Čäsar, vŕ e č ů"
    )
    expected = "Zur Farbenlehre\n\nVorwort\n\nOb man nicht,\n\nEin Èäsar, và e è ù"
    assert works.prose_text(text, "Zur Farbenlehre", "Vorwort\n\nOb") == expected


# --- all of Goethe's works --------------------------------------------------------------------------------------------


TEN = "eins zwei drei vier fünf sechs sieben acht neun zehn"


@pytest.fixture
def made_up(web, cache, monkeypatch):
    """Every work on a web server: 29 made-up files of the same form, with their hashes; gives their addresses."""
    for place, name in enumerate([*PROSE, *PLAYS]):
        words = f"Wort {name.replace('-', ' ')} " + " ".join("abcdefghij"[: place % 9 + 1])
        prose = "\r\n\r\n".join(["Von Goethe", "Anfang", words, "Johann Wolfgang von Goethe", "Ende"])
        text = (prose if name in PROSE else PLAY.replace("TITLE", name).replace("WORDS", words)).encode("utf-8")
        sha256 = hashlib.sha256(text).hexdigest()
        if name in PROSE:
            monkeypatch.setitem(PROSE, name, PROSE[name] | {"begins": "Anfang", "sha256": sha256})
        else:
            monkeypatch.setitem(PLAYS, name, sha256)
        web.files[f"{PROSE_FOLDER}goethe_{name}.txt" if name in PROSE else f"{PLAYS_FOLDER}goethe-{name}.xml"] = text
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
