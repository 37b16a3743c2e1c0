"""The further parallel corpora: packed files, LibreOffice's help, and the descriptions of Debian's packages."""

import dataclasses
import gzip
import hashlib
import subprocess
import zipfile
from contextlib import nullcontext
from pathlib import Path

import pytest

from extra.corpora import pairs
from extra.corpora.pairs import RECIPES, unzip
from seq2seq.corpus import TEST_FILES
from tests.reliability.mutations import traced
from tests.training.corpora.test_fetch import started_by
from tests.training.corpora.test_pairs import DING
from tests.training.corpora.test_wheel import zipped
from tinygrad_lite.errors import CorpusError
from training.corpora import fetch
from training.corpora import pairs as core
from training.corpora.divided_pairs import read_table, without_sentences_of
from training.corpora.pairs import Found, load_parallel

pytestmark = pytest.mark.usefixtures("offline")
WHERE = "https://example.org/packed"


def test_the_sentences_of_the_dictionary_are_taken(monkeypatch):
    monkeypatch.setattr(fetch, "debian_files", lambda wanted: {"trans-de-en": DING})
    dog, cat = ("Der Hund rennt weg.", "The dog runs away."), ("Eine Katze rennt nie.", "A cat never runs.")
    assert RECIPES["ding-sentences"].make() == Found([dog, cat])


# --------------------------------------------------------------------------------------------------------- zip


@pytest.mark.parametrize("pack", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_packed_text_is_read_as_it_was_up_to_a_bound_and_a_bomb_is_not_unpacked_whole(monkeypatch, pack):
    text, size = "\ufeffGrün\r\nGru\u0308n\u00a0\n", 8 * 2**20
    monkeypatch.setattr(pairs, "MAX_UNPACKED", 1000)
    for file in (text, "x" * 1000):
        assert unzip(zipped({"_about.txt": "?", "deu.txt": file.encode("utf-8")}, pack), "deu.txt", WHERE) == file
    bomb = zipped({"deu.txt": "x" * size}, pack)
    with traced() as most:
        with pytest.raises(CorpusError, match=rf"^{WHERE} unpacks to more than 1,000 bytes"):
            unzip(bomb, "deu.txt", WHERE)
        assert most() < size / 8


WHOLE = zipped({"deu.txt": "Hund"})
NO_BLOCK = WHOLE[:37] + b"\xff" + WHOLE[38:]  # the first byte after the header: there is no such kind of block
CHANGED = zipped({"deu.txt": "Hund"}, zipfile.ZIP_STORED).replace(b"Hund", b"Bund")


METHODS = (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)  # which would be unpacked without a bound
NO_ARCHIVES = [
    *((data, "cannot be unpacked: ") for data in (b"plain text", WHOLE[:-1], NO_BLOCK)),
    (CHANGED, "cannot be unpacked: Bad CRC-32"),
    *((zipped({"deu.txt": "Hund"}, pack), r"cannot be unpacked: deu\.txt has an unusual") for pack in METHODS),
    (zipped({"deu.txt": "Grün".encode("latin-1")}), r"is not UTF-8 \(byte 0xfc at byte offset 2\)$"),
    (zipped({"../deu.txt": "evil"}), r"does not contain the file deu\.txt$"),
]


@pytest.mark.parametrize(("data", "reason"), NO_ARCHIVES)
def test_what_is_no_zip_archive_with_the_file_is_refused(data, reason):
    with pytest.raises(CorpusError, match=rf"^{WHERE} {reason}"):
        unzip(data, "deu.txt", WHERE)


# ------------------------------------------------------------------------------------- LibreOffice's help, Debian

PARAGRAPHS = [  # attributes, and the German and the English paragraph with this id
    ('class="heading"', '\n<a name="align"></a>Objekte  hier ausrichten', "Aligning Objects here"),
    (
        'class="paragraph" dir="auto"',
        'Wählen Sie <span class="menuitem">Form – Anordnen</span>. Klicken Sie auf\n<b>OK</b>.',
        'Choose <span class="menuitem">Shape - Arrange</span>. Click <b>OK</b> now.',
    ),
    ('class="listitem"', "Der »Wert« ist 5 &amp; ungerade.", "The value is 5 &amp; odd."),
    ('class="code"', "Dim Zahl As Integer", "Dim Number As Integer"),
    ('class="paragraph"', 'Drücken Sie <span hidden="true">Befehl</span>.', 'Press <span hidden="true">Ctrl</span>.'),
    ('class="tablecontent"', "eine Zelle<br/>noch eine", "a cell<br/>another"),
    ('class="paragraph"', "Hilfe", "Help"),
]


def test_the_help_is_paired_by_package_page_and_id(monkeypatch, capsys):
    """Without markup, code, and what depends on the operating system; sentence by sentence."""

    def debian_folders(wanted):
        folders = {"de": "usr/share/libreoffice/help/de/", "en-US": "usr/share/libreoffice/help/en-US/"}
        assert wanted == {f"libreoffice-help-{code.lower()}": f"{path}*.html" for code, path in folders.items()}
        pages = dict.fromkeys(folders, "<p>Hilfe zu jeder Seite</p>\n")  # without an id
        for number, (attributes, *words) in enumerate(PARAGRAPHS):
            for code, text in zip(pages, words, strict=True):
                pages[code] += f'<p id="par_{number}" {attributes}>{text}</p>\n'
                pages[code] += f'<p id="only_{code}">Nur in einer Sprache.</p>'
        files = {code: {f"{folders[code]}text/a.html": page.encode()} for code, page in pages.items()}
        files["de"][folders["de"] + "b.html"] = files["de"][folders["de"] + "text/a.html"]  # a page that English lacks
        return {f"libreoffice-help-{code.lower()}": found for code, found in files.items()}

    monkeypatch.setattr(fetch, "debian_folders", debian_folders)
    assert RECIPES["libreoffice-help"].make().pairs == [
        ("Objekte hier ausrichten", "Aligning Objects here"),
        ("Wählen Sie Form – Anordnen.", "Choose Shape - Arrange."),
        ("Klicken Sie auf OK.", "Click OK now."),
        ('Der "Wert" ist 5 & ungerade.', "The value is 5 & odd."),
        ("eine Zelle noch eine", "a cell another"),
    ]
    assert capsys.readouterr().err == "libreoffice-help: 5 pairs; left out: 1 too short or too long\n"


def listed(language, **descriptions):
    """A list of apt with these descriptions, by the MD5 of the original."""
    entry = "Package: x\nDescription-md5: {}\nDescription-{}: {}\n\n"
    return "".join(entry.format(number, language, text) for number, text in descriptions.items())


def test_descriptions_are_paired_by_the_hash_of_the_original():
    """Of a description whose paragraphs do not correspond, the first is used; lists are not."""
    small = "kleiner Editor\n Er ist klein.\n Er ist frei.\n .\n Er kann »vieles«:\n  * suchen\n  * oder\n und mehr."
    german = listed("de", a1=small, b2="großer Editor\n Er ist groß.", c3="veraltet")
    small = "small editor\n It is small. It is free.\n .\n It can do a lot:\n  * search\n and more."
    english = listed("en", b2="large editor\n It is large.\n .\n It is new.", a1=small)
    assert list(pairs.description_pairs(german, english)) == [
        ("kleiner Editor", "small editor"),
        ("Er ist klein.", "It is small."),
        ("Er ist frei.", "It is free."),
        ('Er kann "vieles":', "It can do a lot:"),
        ("und mehr.", "and more."),
        ("großer Editor", "large editor"),
    ]


GOOD = ("Öffnet eine neue Datei.", "Opens a new file.")
CODE = [("Die Option --neu hilft.", "The option --new helps."), ("Setzt x_y auf null.", "Sets it to zero.")]
LEFT_OUT = [
    *[(GOOD, "repeated"), (("1 + 2", "1 + 2"), "hardly translated")],
    *((pair, "too short or too long") for pair in (("Datei öffnen", "Open a file"), ("Wort " * 31, "word " * 30))),
    *((pair, "code") for pair in (*CODE, ("Siehe http://example.org dazu.", "See the page."))),
    (("Das ist alles, was es dazu zu sagen gibt.", "That is all."), "of unequal lengths"),
]


@pytest.mark.parametrize(("pair", "reason"), LEFT_OUT)
def test_a_pair_from_which_little_can_be_learned_is_left_out_and_counted(pair, reason):
    kept, left_out = pairs.useful_pairs([GOOD, pair])
    assert (kept, left_out) == ([GOOD], {reason: 1})


DESCRIPTIONS = [
    ({"main_i18n_Translation-fr": listed("fr", a1="un petit éditeur")}, b"", ""),
    ({}, b"W: Failed to fetch x  no route\nW: ignored\n", "Failed to fetch x  no route"),
]


@pytest.mark.parametrize(("french", "stderr", "reason"), DESCRIPTIONS)
def test_the_descriptions_are_read_from_all_lists_of_apt(monkeypatch, french, stderr, reason):
    def run(command, **options):
        assert command[-1] == "update"
        folder = Path(options["cwd"])
        assert '"fr";\nAcquire::Languages:: "en";' in (folder / "apt.conf").read_text(encoding="utf-8")
        english = {"main_i18n_Translation-en": "", "more_i18n_Translation-en": listed("en", a1="a small text editor")}
        for name, text in (french | english | {"main_binary-amd64_Packages": ""}).items():
            (folder / "lists" / f"example.org_{name}").write_text(text, encoding="utf-8")
        return subprocess.CompletedProcess(command, 0, b"", stderr)

    monkeypatch.setattr(fetch.shutil, "which", lambda name: f"/usr/bin/{name}")
    make = RECIPES["debian-descriptions-fr"].make
    refused = pytest.raises(CorpusError, match=f"no package descriptions in language 'fr': {reason}$")
    with started_by(run), refused if reason else nullcontext():
        assert make().pairs == [("un petit éditeur", "a small text editor")]


@pytest.mark.network
def test_the_real_pairs_have_none_of_the_sentences_that_the_documentation_scores():
    corpus = load_parallel("libreoffice-help")
    assert len(corpus.pairs) > 20_000
    test_sentences = [pair for path in TEST_FILES for pair in read_table(path)]
    assert len(set(test_sentences)) == 120
    assert without_sentences_of(test_sentences, corpus.pairs) == (corpus.pairs, 0)


# -------------------------------------------------------------------------------------- packed files over https


USUAL = {"train.de.gz": "Ein Hund.\r\nGru\u0308n.\n", "train.en.gz": "A dog.\nGreen.\n"}
USUAL |= {"val.de.gz": "Eine Katze.\n", "val.en.gz": "A cat.\n"}


@pytest.fixture
def multi30k(web, monkeypatch):
    """Four packed files on the server, and their hashes where the real ones are."""
    for name, text in USUAL.items():
        data = gzip.compress(text.encode("utf-8"))
        web.files[pairs.MULTI30K + name] = data
        monkeypatch.setitem(pairs.MULTI30K_SHA256, name, hashlib.sha256(data).hexdigest())
    monkeypatch.setitem(core.RECIPES, "multi30k", dataclasses.replace(RECIPES["multi30k"], expected=None))


def test_multi30k_has_a_validation_part_of_its_own(web, multi30k):
    corpus = load_parallel("multi30k", print)
    assert corpus == Found([("Ein Hund.", "A dog."), ("Grün.", "Green.")], validation=[("Eine Katze.", "A cat.")])
    assert load_parallel("multi30k", print) == corpus
    assert [url.rsplit("/", 1)[1] for url in web.asked] == [*USUAL]  # the second time it is in the cache


def test_another_file_than_the_known_one_is_refused_before_it_is_unpacked(web, multi30k, monkeypatch, cache):
    url = f"{pairs.MULTI30K}train.de.gz"
    good, other = web.files[url], gzip.compress(b"Ein anderer Hund.\n")
    decompress, unpacked = gzip.decompress, []
    monkeypatch.setattr(pairs.gzip, "decompress", lambda data: unpacked.append(data) or decompress(data))
    web.files[url] = other
    found, known = (hashlib.sha256(each).hexdigest() for each in (other, good))
    with pytest.raises(CorpusError, match=f"{url} is not the expected file: its sha256 is {found}, not {known}"):
        load_parallel("multi30k", print)
    assert other not in unpacked
    assert not cache.exists()


def test_tatoeba_is_turned_to_german_and_english_or_refused(web):
    text = "\ufeffGo.\tGeh.\tCC-BY 2.0 #1\nHi.\tGru\u0308ß\u00a0Gott!\tCC-BY 2.0 #2\r\n"
    web.files[pairs.TATOEBA] = zipped({"_about.txt": "about", "deu.txt": text})
    assert RECIPES["tatoeba"].make() == Found([("Geh.", "Go."), ("Grüß Gott!", "Hi.")])
    assert web.asked == [pairs.TATOEBA]
    web.files[pairs.TATOEBA] = zipped({"deu.txt": "Go.\tGeh.\nHi. Hallo.\n"})
    with pytest.raises(CorpusError, match=r"^https://.*deu-eng\.zip, line 2: expected source TAB target"):
        RECIPES["tatoeba"].make()
