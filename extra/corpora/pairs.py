"""Further parallel corpora by name: sentences about software, captions, short sentences, and texts with summaries.

Where the hash of a packed file is not known, it is unpacked in memory up to a limit (`unzip`): names and sizes stated
in an archive are not trusted.
"""

import gzip
import html
import io
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator

from tinygrad_lite.errors import CorpusError, counted
from training.cli import console
from training.cli.files import decode_utf8
from training.corpora import fetch, pair_cleaning, pairs
from training.corpora.fetch import Recipe
from training.corpora.pair_cleaning import Pair, sentence_by_sentence, tidy, words
from training.corpora.pairs import DING_LICENCE, DING_SOURCE, Found, ding

MAX_UNPACKED = 128 * 2**20  # bytes of an unpacked file; the largest here, Tatoeba, has about 45 MB


# ------------------------------------------------------------------------------------- LibreOffice's help, Debian

PARAGRAPH = re.compile(r'<(p|h[1-6]) id="([^"]+)"([^>]*)>(.*?)</\1>', re.DOTALL)
TAG = re.compile(r"<[^>]*>")
GUILLEMETS = str.maketrans({"»": '"', "«": '"', "›": "'", "‹": "'"})
DESCRIPTION = re.compile(r"^Description-md5: (\w+)\nDescription-[\w-]+: (.*(?:\n .*)*)", re.MULTILINE)
# Parts of programs, addresses, tables: anything that is the same in every language.
CODE = re.compile(r"[][{}<>|=~*_\\@#^]|\.\.|::|//|\w\(|(?<!\S)--?\w")
MIN_WORDS, MAX_WORDS, MAX_RATIO = 3, 30, 1.8
MIN_TEXT, MAX_TEXT = 15, 150  # words of a text to summarise


def libreoffice_help() -> Found:
    """The sentences of LibreOffice's help, which has the same pages and ids in every language."""
    pages = fetch.debian_folders(
        {f"libreoffice-help-{code.lower()}": f"usr/share/libreoffice/help/{code}/*.html" for code in ("de", "en-US")}
    )
    german, english = (  # by path without the folder of the language
        {path.split("/", 5)[5]: decode_utf8(page, path) for path, page in files.items()} for files in pages.values()
    )
    return useful("libreoffice-help", help_pairs(german, english))


def help_pairs(german: dict[str, str], english: dict[str, str]) -> Iterator[Pair]:
    """The sentences of LibreOffice's help: the paragraphs with the same id in the same page of both languages.

    Args:
        german, english: name of the page -> HTML.
    """
    for name, page in german.items():
        paragraphs, translations = (help_paragraphs(text) for text in (page, english.get(name, "")))
        for number, paragraph in paragraphs.items():
            yield from sentence_by_sentence(paragraph, translations.get(number, ""))


def help_paragraphs(page: str) -> dict[str, str]:
    """The paragraphs and headings of a page of LibreOffice's help, by their ids, without markup.

    Left out are lines of code, and paragraphs with hidden parts: these have a wording for each operating system.

        >>> help_paragraphs('<p id="a" class="paragraph"><b>Größe</b> &amp; Form</p><p id="b" class="code">Dim x</p>')
        {'a': 'Größe & Form'}
    """
    return {
        number: tidy(html.unescape(TAG.sub("", content.replace("<br", " <br"))).translate(GUILLEMETS))
        for _, number, attributes, content in PARAGRAPH.findall(page)
        if "code" not in attributes and "hidden" not in content
    }


def package_descriptions(*languages: str) -> list[str]:
    """The descriptions of all packages in each language, as apt-get downloads them."""
    texts = []
    with fetch.apt_folder(languages=languages) as (folder, complaints):
        for language in languages:
            lists = sorted((folder / "lists").glob(f"*_i18n_Translation-{language}"))
            if not lists:
                why = fetch.telling_line(complaints) if complaints else "these sources have none"
                raise CorpusError(f"`apt-get update` brought no package descriptions in language {language!r}: {why}")
            texts.append("\n".join(decode_utf8(path.read_bytes(), path.name) for path in lists))
    return texts


def description_pairs(german: str, english: str) -> Iterator[Pair]:
    """The sentences in the descriptions of Debian's packages that have been translated.

    Args:
        german, english: apt's lists Translation-de and Translation-en. A translation names the MD5 of its original, so
            an outdated one matches none. The first paragraph, one line, says what the package is; if not all others
            have been translated, it alone is used.
    """
    originals = dict(DESCRIPTION.findall(english))
    for number, text in DESCRIPTION.findall(german):
        sides = description_paragraphs(text), description_paragraphs(originals.get(number, ""))
        count = len(sides[0]) if len(sides[0]) == len(sides[1]) else 1
        for paragraph, translation in list(zip(*sides, strict=False))[:count]:
            yield from sentence_by_sentence(paragraph, translation)


def summary_pairs(english: str) -> Iterator[Pair]:
    r"""Long and short descriptions of Debian's packages: a text, and the line that says what it is about.

    Left out are texts of fewer than MIN_TEXT or more than MAX_TEXT words. Packages of one source often share their
    first paragraph; of those that do, only the first is kept, so that nothing held out is a copy of what is learned.

    Args:
        english: apt's list Translation-en.

    >>> text = "\n " + "An editor for short texts. " * 3
    >>> found = "\n".join(
    ...     f"Description-md5: {number}\nDescription-en: {summary}{text}\n"
    ...     for number, summary in enumerate(["a small editor", "an editor", "its documentation and help"])
    ... )
    >>> [summary for _, summary in summary_pairs(found)]
    ['a small editor']
    """
    seen: set[str] = set()
    for _, text in DESCRIPTION.findall(english):
        summary, *paragraphs = description_paragraphs(text)
        if paragraphs and paragraphs[0] not in seen:
            seen.add(paragraphs[0])
            description = " ".join(paragraphs)
            if MIN_TEXT <= len(description.split()) <= MAX_TEXT and len(summary.split()) >= MIN_WORDS:
                yield description, summary


def description_paragraphs(text: str) -> list[str]:
    """The paragraphs of a description, without lines of further indentation, such as lists, which separate them too.

    Format: Debian Policy, section 5.6.13.

        >>> description_paragraphs("kleiner Editor\\n Er ist\\n klein.\\n .\\n Er kann:\\n  * viel\\n  * mehr\\n Ja.")
        ['kleiner Editor', 'Er ist klein.', 'Er kann:', 'Ja.']
    """
    first, _, rest = text.partition("\n")
    blocks = [first, *re.split(r"^ (?:\.| .*)$", rest, flags=re.MULTILINE)]
    return [tidy(block.translate(GUILLEMETS)) for block in blocks if block.strip()]


def useful(name: str, pairs: Iterable[Pair]) -> Found:
    """The pairs from which something can be learned; says how many are left out, and why."""
    kept, left_out = useful_pairs(pairs)
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(left_out.items()))
    console.say(f"{name}: {counted(len(kept), 'pair')}; left out: {reasons or 'none'}")
    return Found(kept)


def useful_pairs(pairs: Iterable[Pair]) -> tuple[list[Pair], Counter[str]]:
    """Each pair once, without those from which little can be learned; how many were left out, by reason.

    >>> useful_pairs([("Neue Datei anlegen", "Create a new file"), ("Datei", "File"), ("Rufe x() auf", "Now call x()")])
    ([('Neue Datei anlegen', 'Create a new file')], Counter({'too short or too long': 1, 'code': 1}))
    """
    kept: dict[Pair, None] = {}
    left_out: Counter[str] = Counter()
    for german, english in pairs:
        lengths, sizes = [len(side.split()) for side in (german, english)], sorted((len(german), len(english)))
        shared = set(words(german)) & set(words(english))
        if (german, english) in kept:
            left_out["repeated"] += 1
        elif min(lengths) < MIN_WORDS or max(lengths) > MAX_WORDS:
            left_out["too short or too long"] += 1
        elif CODE.search(german) or CODE.search(english):
            left_out["code"] += 1
        elif sizes[1] > MAX_RATIO * sizes[0]:
            left_out["of unequal lengths"] += 1
        elif 2 * len(shared) >= len(set(words(german))):
            left_out["hardly translated"] += 1
        else:
            kept[german, english] = None
    return list(kept), left_out


# -------------------------------------------------------------------------------------- compressed files over https


def unzip(data: bytes, member: str, where: str) -> str:
    """The UTF-8 text of one file in a zip archive; nothing is written to disk, so its names can do no harm.

    Raises: CorpusError, naming `where`, if the archive is damaged, or if the file is missing or too large.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            # Python decompresses the other methods, bzip2 and LZMA, without a limit.
            if archive.getinfo(member).compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise CorpusError(f"{where} cannot be unpacked: {member} has an unusual compression method")
            with archive.open(member) as file:
                text = file.read(MAX_UNPACKED + 1)
    except KeyError:
        raise CorpusError(f"{where} does not contain the file {member}") from None
    except (zipfile.BadZipFile, OSError, EOFError, ValueError, RuntimeError, zlib.error) as error:
        # RuntimeError: encrypted; its subclass NotImplementedError: a feature that Python does not support
        raise CorpusError(f"{where} cannot be unpacked: {error}") from None
    if len(text) > MAX_UNPACKED:
        raise CorpusError(f"{where} unpacks to more than {MAX_UNPACKED:,} bytes, too many for a corpus")
    return decode_utf8(text, where)


# The address names one commit, and the SHA-256 of each file is checked before it is unpacked.
MULTI30K = "https://raw.githubusercontent.com/multi30k/dataset/a3d2e0d26b56f3846f66a952536ffed4e401d05a/data/task1/raw/"
MULTI30K_SHA256 = {
    "train.de.gz": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
    "train.en.gz": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
    "val.de.gz": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
    "val.en.gz": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
}
TATOEBA = "https://www.manythings.org/anki/deu-eng.zip"


def multi30k(part: str) -> list[Pair]:
    """One part of Multi30k, "train" or "val"."""
    texts = {}  # by their addresses
    for name in (f"{part}.de.gz", f"{part}.en.gz"):
        data = fetch.https_bytes(MULTI30K + name)
        fetch.check_sha256(data, MULTI30K_SHA256[name], MULTI30K + name)
        texts[MULTI30K + name] = gzip.decompress(data).decode("utf-8")
    return pair_cleaning.aligned_pairs(*texts.values(), *texts)


def tatoeba() -> list[Pair]:
    """The sentences of Tatoeba that manythings.org selects, sorted from short to long English.

    A line of theirs is "English TAB German TAB attribution".
    """
    try:
        archive = fetch.https_bytes(TATOEBA)
    except CorpusError as error:
        advice = "if it refuses programs, save it with a browser, unpack it, and use --pairs deu.txt --swap"
        raise CorpusError(f"{error}; {advice}") from None
    table = pair_cleaning.tabbed_pairs(unzip(archive, "deu.txt", TATOEBA), TATOEBA)
    return [(german, english) for english, german in table]


# -------------------------------------------------------------------------------------------------- the corpora

DESCRIPTIONS = "the package descriptions of Debian"
DESCRIPTIONS_LICENCE = "none stated for the descriptions; their authors are those of the packages"

# The hash of the last one is None, because it grows every week.
RECIPES = {
    "ding-sentences": Recipe(
        source=DING_SOURCE,
        licence=DING_LICENCE,
        make=lambda: Found(pair_cleaning.whole_sentences(ding())),
        expected="5ae76ae7d51aab8e25764abd4b2bfee0e1ce93cbb2af73fc14ca1d9a1623f286",
    ),
    "libreoffice-help": Recipe(
        source="the Debian packages libreoffice-help-de and libreoffice-help-en-us",
        licence="MPL-2.0, copyright the LibreOffice contributors",
        make=libreoffice_help,
        expected="88991071f31ec157b48a89d125c5eaa94013dd2c73dcdcc7f6a0ac68e7058c03",
    ),
    "debian-descriptions-fr": Recipe(
        source=f"{DESCRIPTIONS}, translated by its volunteers (ddtp.debian.org)",
        licence=DESCRIPTIONS_LICENCE,
        make=lambda: useful("debian-descriptions-fr", description_pairs(*package_descriptions("fr", "en"))),
        expected="b0b9dc1b4120851bedd95d17f9b33b7438e70b4d99b8a51bd2772e730778b815",
    ),
    "debian-summaries": Recipe(
        source=DESCRIPTIONS,
        licence=DESCRIPTIONS_LICENCE,
        make=lambda: Found([*summary_pairs(*package_descriptions("en"))]),
        expected="fb99d1019fdc6b1c64efac5c8e22c4d3a32f6c7fbe89c5f0815394d439f2463d",
    ),
    "multi30k": Recipe(
        source="Multi30k, task 1 (Elliott et al. 2016, arXiv:1605.00459)",
        licence="see github.com/multi30k/dataset; the captions translate those of Flickr30k, made for research",
        make=lambda: Found(multi30k("train"), validation=multi30k("val")),
        expected="f5b9f701c871152c459b4f86bfb6ae465b46bbeae52c4ab7d1bf1b4edde5e9eb",
    ),
    "tatoeba": Recipe(
        source="Tatoeba, tatoeba.org, as selected by www.manythings.org/anki",
        licence="CC BY 2.0 FR, the contributors of tatoeba.org",
        make=lambda: Found(tatoeba()),
    ),
}
pairs.RECIPES |= RECIPES  # so that options and programs find them by name
