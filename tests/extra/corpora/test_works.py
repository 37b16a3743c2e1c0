"""Werther and Faust: how a play and a novel become text, and where a file comes from."""

import hashlib

import pytest

from extra.corpora import works
from extra.corpora.tei import play_text
from tinygrad_lite.errors import CorpusError

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


def test_a_cache_filled_by_hand_is_used_but_no_other_file_at_the_address(web, cache, monkeypatch):
    name, folder = works.FAUST[0], cache / "sources"
    files = {"goethe_werther.txt": b"Von Goethe\r\n\r\nErstes Buch\r\n\r\nWort", f"goethe-{name}.xml": PLAY.encode()}
    book, faust = (hashlib.sha256(data).hexdigest() for data in files.values())
    monkeypatch.setitem(works.WERTHER, "sha256", book)
    monkeypatch.setattr(works, "FAUST", (name, faust))
    address = f"{works.PROSE_FOLDER}goethe_werther.txt"
    web.files[address] = files["goethe_werther.txt"] + b" "
    with pytest.raises(CorpusError, match=r"goethe_werther.txt is not the expected file"):
        works.werther_and_faust()
    assert not cache.exists()
    folder.mkdir(parents=True)
    for file, data in files.items():
        (folder / file).write_bytes(data)
    text = works.werther_and_faust()
    assert text.startswith("Die Leiden des jungen Werther\n\nErstes Buch\n\nWort\n\nTITLE. Ein Spiel\n\nErster Akt.")
    assert text.endswith('Ich hör "Euch".\n\nWORDS\n\nEnde.\n')
    assert web.asked == [address]


def test_prose_loses_what_its_editors_put_in():
    text = (
        " Zur Farbenlehre\r\n\r\nVorwort 5 \r\n\r\nVorwort\r\n\r\nOb  man\r\n\r\nZur Farbenlehre \r\n\r\nnicht,"
        "\r\n\r\nZur Farbenlehre\r\n\r\nWilhelm Meisters Lehrjahre--Buch 2\r\n\r\nII. Buch, 4. Kapitel--1\r\n\r\n"
        "Bei Terni. Zeichnung von Goethe\r\n\r\n<#ital132.htm table#>\r\n\r\nEin Čäsar, vŕ e č ů"
    )
    expected = "Zur Farbenlehre\n\nVorwort\n\nOb man nicht,\n\nEin Èäsar, và e è ù"
    assert works.prose_text(text, "Zur Farbenlehre", "Vorwort\n\nOb") == expected
