"""Cleaning of parallel corpora: pure functions from texts to pairs (German, English), or (text, summary).

`ding_pairs` reads a dictionary, `dialogue_pairs` the lessons of a language course, `help_pairs` the pages of
LibreOffice's help, `description_pairs` and `summary_pairs` the descriptions of Debian's packages, `tabbed_pairs` a
table of two columns, `aligned_pairs` two files with line i of one translated by line i of the other. Every side of
every pair is one line in Unicode's form NFC, without spaces at its ends (`one_line`).
"""

import html
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import zip_longest

from tinygrad_lite.errors import CorpusError, counted
from training.cli.files import lines_of
from training.corpora.cleaning import one_line

Pair = tuple[str, str]

QUOTES = str.maketrans({"’": "'", "‘": "'", "„": '"', "“": '"', "”": '"'})


def words(text: str) -> list[str]:
    """The words of a text, in lower case; an apostrophe or hyphen inside belongs to the word.

    >>> words("Don't you? E-Mail!")
    ["don't", 'you', 'e-mail']
    """
    return re.findall(r"[^\W_]+(?:['-][^\W_]+)*", text.casefold())


# ------------------------------------------------------------------------------------ files with aligned lines


def aligned_pairs(german: str, english: str, german_name: str, english_name: str) -> list[Pair]:
    """Pair line i of one text with line i of the other; CorpusError, with both counts, if one has more lines."""
    sides = lines_of(german), lines_of(english)
    if len(sides[0]) != len(sides[1]):
        found = f"{german_name} has {counted(len(sides[0]), 'line')} and {english_name} has {len(sides[1]):,}"
        raise CorpusError(f"{found}: line i of one must be the translation of line i of the other")
    return [(one_line(de), one_line(en)) for de, en in zip(*sides, strict=True)]


def tabbed_pairs(text: str, where: str) -> list[Pair]:
    """Read lines "first TAB second"; anything after a second tab is ignored, and so are blank lines.

    Raises: CorpusError, naming `where` and the number of the line, for any other line without a tab.

        >>> tabbed_pairs("Hallo!\\tHi!\\tseen somewhere\\n", "greetings")
        [('Hallo!', 'Hi!')]
    """
    pairs = []
    for number, line in enumerate(lines_of(text), start=1):
        if not line.strip():
            continue
        first, tab, rest = line.partition("\t")
        if not tab:
            raise CorpusError(f"{where}, line {number}: expected source TAB target, but it has no tab: {line[:60]!r}")
        pairs.append((one_line(first), one_line(rest.partition("\t")[0])))
    return pairs


# -------------------------------------------------------------------------------------------- the dictionary

# {grammar}, [field or register], <see also>, (remark or optional words) and, between slashes, /ABBREVIATION/.
ANNOTATION = re.compile(r"\{[^{}]*\}|\[[^][]*\]|<[^<>]*>|\([^()]*\)|(?<!\S)/[^/;\s][^/;]*/(?![^\s;,])")
SOMEBODY_OR_SOMETHING = re.compile(r"\b(jd[mns]?\.|sb\.) ?/ ?(?:etw\.|sth\.)")
# A slash separates alternatives without showing where they begin and end; dots stand for omitted words.
UNCLEAR = re.compile(r"[][(){}<>/|…+=~*]|\.\.")
PLACEHOLDER = re.compile(r"\b(jd[mns]?|etw|sb|sth|sb's|usw|etc|bzw|smb)\.", re.IGNORECASE)
SENTENCE = re.compile(r"[\"']?[A-ZÄÖÜ].*[.!?][\"']?")


def ding_pairs(text: str) -> list[Pair]:
    """All translations in the dictionary Ding, in its order.

    A line is "German :: English". Both sides have the same number of entries, separated by " | ": the first is
    the headword, the others its forms, idioms and examples, and entry i translates entry i. Alternatives
    within an entry are separated by ";". They are synonyms, so any two may be paired: alternative i is paired with
    alternative i, and if one side has more, the rest with the first of the other side, which is the most common.

        >>> ding_pairs("Boot {n}; Kahn {m} | Das Boot sinkt. [naut.] :: boat (small ship) | The boat is sinking.")
        [('Boot', 'boat'), ('Kahn', 'boat'), ('Das Boot sinkt.', 'The boat is sinking.')]

    Raises: CorpusError if a line does not have as many entries on one side as on the other.
    """
    pairs = []
    for number, line in enumerate(lines_of(text), start=1):
        if not line or line.startswith("#"):
            continue
        german, _, english = line.partition(" :: ")
        entries = german.split(" | "), english.split(" | ")
        if len(entries[0]) != len(entries[1]):
            raise CorpusError(f"line {number} of the dictionary has sides of different lengths: its format has changed")
        for entry in zip(*entries, strict=True):
            germans, englishes = map(alternatives, entry)
            if germans and englishes:
                pairs += [(de or germans[0], en or englishes[0]) for de, en in zip_longest(germans, englishes)]
    return pairs


def alternatives(entry: str) -> list[str]:
    """The wordings in an entry of the dictionary, without annotations; unclear ones are excluded.

    >>> alternatives("to hide <> sb./sth. {hid; hidden}; to be out of / off sight; (I) copy that. [coll.]")
    ['to hide sb.', 'copy that.']
    """
    before = None
    while before != entry:  # repeated for nested annotations
        before, entry = entry, ANNOTATION.sub("", entry)
    found = []
    for wording in entry.split(";"):
        wording = SOMEBODY_OR_SOMETHING.sub(r"\1", tidy(wording))
        if wording and not UNCLEAR.search(wording):
            found.append(wording)
    return found


def tidy(text: str) -> str:
    """One line with plain quotation marks and apostrophes, without the spaces that annotations leave before a stop.

    >>> tidy("„Gehen“  ist’s .")
    '"Gehen" ist\\'s.'
    """
    return re.sub(r" +(?=[.,!?])", "", one_line(text.translate(QUOTES)))


def whole_sentences(pairs: Iterable[Pair]) -> list[Pair]:
    """The pairs of two sentences: from a capital to a full stop, ! or ?, each with at least three words.

    Headwords can look like sentences, since German nouns are capitalised and "etc." ends in a stop. So pairs with one
    of the dictionary's placeholders (jdn., etw., sb., sth.) or such an abbreviation are excluded.
    """
    return [
        pair
        for pair in pairs
        if all(SENTENCE.fullmatch(side) and len(side.split()) >= 3 and not PLACEHOLDER.search(side) for side in pair)
    ]


def common_entries(pairs: Iterable[Pair], sentences: list[Pair]) -> list[Pair]:
    """Short entries whose words are all common, that is, occur in several of the sentences.

    A dictionary has more names of fish and screws than a small model can learn. Each word of an entry, of three at
    most, must occur twice on its side of the sentences (the "to" of an English verb always does). Entries that are
    sentences are excluded.
    """
    counts = [Counter(word for pair in sentences for word in words(pair[side])) for side in (0, 1)]

    def common(side: str, count: Counter) -> bool:
        found = words(side)
        return 0 < len(found) <= 3 and all(count[word] >= 2 for word in found)

    return [
        pair
        for pair in pairs
        if not any(SENTENCE.fullmatch(side) or PLACEHOLDER.search(side) for side in pair)
        and all(common(side, count) for side, count in zip(pair, counts, strict=True))
    ]


UNIMPORTANT = {*"sich der die das zu to the a an of be".split()}


def translations_of_words(pairs: Iterable[Pair]) -> dict[str, set[str]]:
    """For each German word that has an entry of its own, the words of all its translations.

    >>> found = translations_of_words([("Hund", "dog"), ("der Hund", "hound"), ("sich irren", "to be wrong")])
    >>> sorted(found["hund"]), found["irren"]
    (['dog', 'hound'], {'wrong'})
    """
    found: dict[str, set[str]] = {}
    for german, english in pairs:
        if len(one := [word for word in words(german) if word not in UNIMPORTANT]) == 1:
            found.setdefault(one[0], set()).update(set(words(english)) - UNIMPORTANT)
    return found


def is_literal(german: str, english: str, lexicon: dict[str, set[str]]) -> bool:
    """Whether at least a third of the German words that the lexicon knows have one of their translations there.

    A dictionary's examples are often idioms, which teach nothing but themselves.

    >>> lexicon = {"hund": {"dog"}, "schläft": {"sleeps"}, "frosch": {"frog"}, "hals": {"throat", "neck"}}
    >>> is_literal("Der Hund schläft.", "The dog's asleep.", lexicon)
    True
    >>> is_literal("Ich habe einen Frosch im Hals.", "I am hoarse.", lexicon)
    False
    """
    there = {part for word in words(english) for part in (word, *word.split("'"))}
    known = [lexicon[word] for word in words(german) if word in lexicon and word not in UNIMPORTANT]
    return 3 * sum(bool(each & there) for each in known) >= len(known)


def first_of_each(pairs: Iterable[Pair]) -> list[Pair]:
    """The first pair of each German wording: the dictionary begins with the most common translation."""
    first: dict[str, Pair] = {}
    for german, english in pairs:
        first.setdefault(german, (german, english))
    return list(first.values())


# ------------------------------------------------------------------------------------------ the language course

SENTENCE_END = re.compile(r"(?<=[.!?]) (?=[A-ZÄÖÜ])")
QUOTED = re.compile(r"[\"—]|(?<!\w)'|'(?!\w)")
REMARK = re.compile(r"\([^()]*\)")


def dialogue_pairs(lesson: object) -> Iterator[Pair]:
    """All pairs in a lesson, at any depth: JSON objects with texts under "de" and "en".

    Keys may have a prefix, such as "question_de" and "question_en". Remarks in parentheses are removed, and of several
    wordings, "Yes! / Sure!", only the first is kept. Several sentences become several pairs.

        >>> list(dialogue_pairs({"lines": [{"de": "Ja! Sehr gern.", "en": "Yes! With pleasure. (polite)"}]}))
        [('Ja!', 'Yes!'), ('Sehr gern.', 'With pleasure.')]
    """
    if isinstance(lesson, list):
        for part in lesson:
            yield from dialogue_pairs(part)
    elif isinstance(lesson, dict):
        for key, value in lesson.items():
            other = lesson.get(key[:-2] + "en")
            if not isinstance(value, str):
                yield from dialogue_pairs(value)
            elif (key == "de" or key.endswith("_de")) and isinstance(other, str):
                yield from sentence_by_sentence(first_wording(value), first_wording(other))


def first_wording(text: str) -> str:
    """The text without remarks and alternative wordings; empty if it is unclear where those begin and end."""
    text = tidy(REMARK.sub("", text))
    first = text.split(" / ")[0]
    # "I take it / them." does not separate whole wordings: the first must end like the text.
    whole = first[-1:] in ".!?" or text[-1:] not in ".!?"
    return first if whole and not UNCLEAR.search(first) else ""


def sentence_by_sentence(german: str, english: str) -> list[Pair]:
    """The pair, or one pair for each sentence if both sides have the same number and contain no direct speech."""
    if not german or not english:
        return []
    sides = SENTENCE_END.split(german), SENTENCE_END.split(english)
    if len(sides[0]) != len(sides[1]) or QUOTED.search(german) or QUOTED.search(english):
        return [(german, english)]
    return list(zip(*sides, strict=True))


# ------------------------------------------------------------------------------------- LibreOffice's help, Debian

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
