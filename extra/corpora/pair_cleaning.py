"""Cleaning of further parallel corpora: pure functions from texts to pairs (German, English), or (text, summary).

`help_pairs` reads the pages of LibreOffice's help, `description_pairs` and `summary_pairs` the descriptions of Debian's
packages. Every side of every pair is one line in Unicode's form NFC, without spaces at its ends (`one_line`).
"""

import html
import re
from collections import Counter
from collections.abc import Iterable, Iterator

from training.corpora.pair_cleaning import Pair, sentence_by_sentence, tidy, words

PARAGRAPH = re.compile(r'<(p|h[1-6]) id="([^"]+)"([^>]*)>(.*?)</\1>', re.DOTALL)
TAG = re.compile(r"<[^>]*>")
GUILLEMETS = str.maketrans({"»": '"', "«": '"', "›": "'", "‹": "'"})
DESCRIPTION = re.compile(r"^Description-md5: (\w+)\nDescription-[\w-]+: (.*(?:\n .*)*)", re.MULTILINE)
# Parts of programs, addresses, tables: anything that is the same in every language.
CODE = re.compile(r"[][{}<>|=~*_\\@#^]|\.\.|::|//|\w\(|(?<!\S)--?\w")
MIN_WORDS, MAX_WORDS, MAX_RATIO = 3, 30, 1.8
MIN_TEXT, MAX_TEXT = 15, 150  # words of a text to summarise


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
