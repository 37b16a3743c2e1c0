"""Goethe's works: how a play becomes text, where a file comes from, and that nothing held out is learned."""

import hashlib
import re

import pytest

from extra.corpora import works
from extra.corpora.tei import play_text
from extra.corpora.works import PLAYS, PLAYS_FOLDER, PROSE, PROSE_FOLDER, goethe_works, runs
from tinygrad_lite.errors import CorpusError
from training.corpora import texts

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
TEXT = """TITLE. Ein Spiel

Erster Akt.

(Nacht.)

FAUST (unruhig am Pulte):
Habe nun, ach!
Philosophie –
(Er schlägt das Buch auf.)
Juristerei

WAGNER:
Verzeiht! (ab.) Ich hör »Euch«.

WORDS

Ende."""
TEN = "eins zwei drei vier fünf sechs sieben acht neun zehn"


def test_a_play_is_what_a_reader_knows():
    assert play_text(PLAY.encode("utf-8")) == TEXT


@pytest.fixture
def made_up(web, cache, monkeypatch):
    """Every work on a web server: 29 made-up files of the same form, with their hashes; gives their addresses."""
    addresses = {}
    for place, name in enumerate([*PROSE, *PLAYS]):
        words = f"Wort {name.replace('-', ' ')} " + " ".join("abcdefghij"[: place % 9 + 1])
        if name in PROSE:
            text = "\r\n\r\n".join(["Von Goethe", "Anfang", words, "Johann Wolfgang von Goethe", "Ende"])
            addresses[name] = f"{PROSE_FOLDER}goethe_{name}.txt"
        else:
            text = PLAY.replace("TITLE", name).replace("WORDS", words)
            addresses[name] = f"{PLAYS_FOLDER}goethe-{name}.xml"
        web.files[addresses[name]] = text.encode("utf-8")
        sha256 = hashlib.sha256(text.encode("utf-8")).hexdigest()
        if name in PROSE:
            monkeypatch.setitem(PROSE, name, PROSE[name] | {"begins": "Anfang", "sha256": sha256})
        else:
            monkeypatch.setitem(PLAYS, name, sha256)
    return addresses


def test_all_works_are_fetched_once_and_split(made_up, web, monkeypatch, cache, capsys):
    goethe = texts.Corpus("goethe", "." * 450 + "Nun: der Buergergeneral, a b c d e f g.", "", "", "")
    monkeypatch.setattr(texts, "find", lambda name: goethe)
    learned, held_out = texts.make_corpus("goethe-works", texts.make_goethe_works(), print).split()
    assert held_out.startswith("Die Wahlverwandtschaften\n\nAnfang\n\nWort wahlverwandtschaften a")
    assert "iphigenie-auf-tauris. Ein Spiel\n\nErster Akt." in held_out
    assert learned.startswith("Die Leiden des jungen Werther\n\nAnfang\n\nWort werther a\n\nEnde\n\n")
    assert "Goethe" not in learned
    assert "Wort der buergergeneral" not in learned  # as the other corpus holds it out
    assert "Wort der grosskophta a\n" in learned
    assert "Philosophie --" in held_out
    assert '"Euch"' in learned
    assert sorted(web.asked) == sorted(made_up.values())
    assert "27 works to learn from" in capsys.readouterr().err
    web.files.clear()  # the network is no longer needed
    assert goethe_works("") == learned + held_out
    (cache / "sources/goethe_lehr.txt").write_text("Wilhelm", encoding="utf-8")
    with pytest.raises(CorpusError, match=r"goethe_lehr\.txt answered 404"):
        goethe_works("")
    assert "goethe_lehr.txt, because" in capsys.readouterr().err


def test_a_cache_filled_by_hand_is_used_but_no_other_file_at_the_address(made_up, web, cache):
    good = web.files[made_up["werther"]]
    web.files[made_up["werther"]] += b" "
    with pytest.raises(CorpusError, match=r"goethe_werther.txt is not the expected file"):
        works.werther_and_faust()
    assert not cache.exists()
    folder = cache / "sources"
    folder.mkdir(parents=True)
    for address in made_up.values():
        (folder / address.rsplit("/", 1)[1]).write_bytes(web.files.pop(address))
    (folder / "goethe_werther.txt").write_bytes(good)
    assert works.werther_and_faust().startswith("Die Leiden des jungen Werther\n\nAnfang")
    assert web.asked == [made_up["werther"]]


def test_nothing_that_is_held_out_is_learned():
    held_out = [f"Davor {TEN}\n\nund Verse\nin vielen\nkurzen Zeilen,\nja wirklich"]
    learned = [
        f"Titel\n\nein anderer Satz\n\n{TEN.upper()}!\n\nund Verse in vielen kurzen Zeilen, ja weiter",
        "Titel\n\n(Und) Verse? In vielen; kurzen Zeilen ja wirklich.\n\nals wenn man sich hier einmal ganz neu erklärt",
        "Als wenn man sich hier einmal ganz neu\n\nals wenn man sich hier einmal ganz",
    ]
    kept, counts = works.without_repeats(learned, held_out)
    assert kept == [
        "Titel\n\nein anderer Satz\n\nund Verse in vielen kurzen Zeilen, ja weiter",  # seven words are no run
        "Titel\n\nals wenn man sich hier einmal ganz neu erklärt",
        "als wenn man sich hier einmal ganz",
    ]
    assert counts == (2, 1)
    forbidden = set().union(*map(runs, held_out))
    assert not any(runs(paragraph) & forbidden for text in kept for paragraph in text.split("\n\n"))


def test_prose_loses_what_its_editors_put_in():
    text = (
        " Zur Farbenlehre\r\n\r\nVorwort 5 \r\n\r\nVorwort\r\n\r\nOb  man\r\n\r\nZur Farbenlehre \r\n\r\nnicht,"
        "\r\n\r\nZur Farbenlehre\r\n\r\nWilhelm Meisters Lehrjahre--Buch 2\r\n\r\nII. Buch, 4. Kapitel--1\r\n\r\n"
        "Bei Terni. Zeichnung von Goethe\r\n\r\n<#ital132.htm table#>\r\n\r\nEin Čäsar, vŕ e č ů"
    )
    expected = "Zur Farbenlehre\n\nVorwort\n\nOb man nicht,\n\nEin Èäsar, và e è ù"
    assert works.prose_text(text, "Zur Farbenlehre", "Vorwort\n\nOb") == expected


def test_the_held_out_works_are_among_the_works():
    assert {*works.HELD_OUT_FILES} < {*PROSE, *PLAYS}
    assert {*works.WERTHER_AND_FAUST} < {*PROSE, *PLAYS}
    assert texts.RECIPES["goethe-works"].held_out == PROSE[works.HELD_OUT_FILES[0]]["title"]
    hashes = {*PLAYS.values(), *(book["sha256"] for book in PROSE.values())}
    assert len(hashes) == 29
    assert all(re.fullmatch("[0-9a-f]{64}", sha256) for sha256 in hashes)
