"""Cleaning of parallel corpora: pure functions from texts to pairs (German, English).

`ding_pairs` reads a dictionary, `dialogue_pairs` the lessons of a language course, `tabbed_pairs` a table of two
columns, `aligned_pairs` two files with line i of one translated by line i of the other. Every side of every pair is one
line in Unicode's form NFC, without spaces at its ends (`one_line`).
"""

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
    wordings = (SOMEBODY_OR_SOMETHING.sub(r"\1", tidy(wording)) for wording in entry.split(";"))
    return [wording for wording in wordings if wording and not UNCLEAR.search(wording)]


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
