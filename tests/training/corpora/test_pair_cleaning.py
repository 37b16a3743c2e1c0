"""From a dictionary, lessons and lists of sentences to clean pairs, on entries made up here."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinygrad_lite.errors import CorpusError
from training.corpora import pair_cleaning as cleaning
from training.corpora.cleaning import one_line

# ------------------------------------------------------------------------------------------- lines and Unicode


LINES = [
    ("\ufeffHallo", "Hallo"),
    ("\u00a0ein\u00a0\u202ftag\u2003", "ein tag"),
    ("eins\r\nzwei\tdrei\u2028vier\x0bfünf\x85", "eins zwei drei vier fünf"),
]


@pytest.mark.parametrize(("text", "line"), LINES)
def test_one_line_is_composed_and_has_single_spaces(text, line):
    assert one_line(text) == line


@given(st.text())
def test_one_line_never_has_an_end_of_line_or_a_tab(text):
    line = one_line(text)
    assert len(line.splitlines()) <= 1
    assert "\t" not in line
    assert line == " ".join(line.split()) == unicodedata.normalize("NFC", line)


def test_lines_end_with_either_end_of_line():
    assert cleaning.lines_of("eins\r\n\nzwei") == ["eins", "", "zwei"]
    assert cleaning.lines_of("eins\n") == cleaning.lines_of("eins") == ["eins"]
    assert (cleaning.lines_of(""), cleaning.lines_of("\n")) == ([], [""])
    assert cleaning.lines_of("a\u2028b\x0cc\n") == ["a\u2028b\x0cc"]  # what other tools may not count as ends of lines


def test_words_are_lower_case_without_punctuation():
    assert cleaning.words("Straße, E-Mail: 3 Äpfel - 'n Stück!") == ["strasse", "e-mail", "3", "äpfel", "n", "stück"]
    assert (cleaning.words("ein_mehr, 'gut'"), cleaning.words("... -- '")) == (["ein", "mehr", "gut"], [])


# ------------------------------------------------------------------------------------ files with aligned lines


def test_aligned_lines_are_paired_in_order_or_their_unequal_numbers_named():
    pairs = cleaning.aligned_pairs("\ufeffEin Hund.\r\nGru\u0308n.\r\n\r\n", "A dog.\n Green. \n\n", "a.de", "a.en")
    assert pairs == [("Ein Hund.", "A dog."), ("Grün.", "Green."), ("", "")]
    for german, counts in (("Hund\n" * 1200, "1,200 lines and a.en has 1: line i of one must be"), ("", "0 lines and")):
        with pytest.raises(CorpusError, match=f"^a.de has {counts}"):
            cleaning.aligned_pairs(german, "dog", "a.de", "a.en")


def test_tabbed_lines_lose_their_attribution_and_a_line_without_a_tab_is_named_and_not_shown_whole():
    text = "\ufeffGo.\tGeh.\tCC-BY 2.0 (France) #1 (somebody)\tmore\r\n\n \nI\u00a0am.\t Ich  bin. \r\n"
    assert cleaning.tabbed_pairs(text, "the list") == [("Go.", "Geh."), ("I am.", "Ich bin.")]
    assert cleaning.tabbed_pairs("", "the list") == []
    for text, shown in (("Go.\tGeh.\nGo Geh\nHi.\tHallo.\n", "2: .*: 'Go Geh'"), ("x" * 5000, "1: .*: 'x{60}'")):
        with pytest.raises(
            CorpusError, match=f"line {shown.replace('.*', 'expected source TAB target, but it has no tab')}$"
        ):
            cleaning.tabbed_pairs(text, "the list")


# -------------------------------------------------------------------------------------------- the dictionary


ENTRIES = [
    ("Boot {n} [naut.] <Kahn> (klein)", ["Boot"]),
    ("ein (sehr (ganz (wirklich))) alter Hund", ["ein alter Hund"]),
    ("Hund [zool. {m} <Tier (groß)>]", ["Hund"]),
    ("laufen {lief; gelaufen}; rennen (schnell; weit)", ["laufen", "rennen"]),  # no ";" of an annotation splits
    ("(nur so); Hund", ["Hund"]),
    ("Bundesamt /BA/; Amt", ["Bundesamt", "Amt"]),
    ("Bundesamt /BA/, kleines", ["Bundesamt, kleines"]),
    ("/BA/", []),
    ("Hund m}; Hund ); Hund {m; Hund [zool; Hund <; Katze", ["Katze"]),
    ("er/sie geht; er geht nach rechts / links; km/h; alle gehen", ["alle gehen"]),
    ("jdm. / etw. helfen; jdn./etw. sehen", ["jdm. helfen", "jdn. sehen"]),
    ("to help sb./sth.; to see sb. / sth.", ["to help sb.", "to see sb."]),
    ("Ich ... dich; Ich … dich; Ich .. dich; ich mag dich", ["ich mag dich"]),
    ("a + b; a = b; ~ b; a * b; a | b; c", ["c"]),
    ("‘er’ ist’s , ja (so) ?", ["'er' ist's, ja?"]),
    ("Gru\u0308n\u00a0 ;\ufeffBlau", ["Grün", "Blau"]),
    (" ; ;", []),
]


@pytest.mark.parametrize(("entry", "expected"), ENTRIES)
def test_the_wordings_of_an_entry(entry, expected):
    assert cleaning.alternatives(entry) == expected


PAIRED = [
    ("Hund {m} :: dog", [("Hund", "dog")]),
    # The rest of the longer side goes with the other's first.
    ("a; b; c :: x; y", [("a", "x"), ("b", "y"), ("c", "x")]),
    ("a; b :: x; y; z", [("a", "x"), ("b", "y"), ("a", "z")]),
    # Entry i translates entry i, and one that is unclear leaves the others alone.
    ("a | b/c | d :: x | y | z", [("a", "x"), ("d", "z")]),
    ("a | (nur so) | d :: x | y | z", [("a", "x"), ("d", "z")]),
    ("a :: b :: c", [("a", "b :: c")]),
    (
        "\ufeffBoot :: boat\r\n# a :: b | c\r\n\r\nÄpfel {pl} | A\u0308pfel essen :: apples | to eat apples",
        [("Boot", "boat"), ("Äpfel", "apples"), ("Äpfel essen", "to eat apples")],
    ),
]


@pytest.mark.parametrize(("text", "pairs"), PAIRED)
def test_the_pairs_of_lines(text, pairs):
    assert cleaning.ding_pairs(text) == pairs


@pytest.mark.parametrize("line", ["a | b :: x", "a :: x | y", "a | b", "a | b | c :: x | y"])
def test_sides_with_other_numbers_of_entries_are_refused(line):
    with pytest.raises(CorpusError, match=r"^line 3 of the dictionary has sides of different lengths"):
        cleaning.ding_pairs(f"# comment\nHund :: dog\n{line}\nKatze :: cat\n")


KEPT = [
    "Das Boot sinkt.",
    "Sinkt das Boot?",
    "Sieh das Boot!",
    '"Das Boot sinkt."',
    "'Das Boot sinkt!'",
    "Über uns regnet's.",
]
NO_SENTENCES = [
    *("das Boot sinkt.", "Das Boot sinkt", "Es sinkt.", "Das Boot sinkt. [naut.]", "Ich mag jdn. sehr.", ""),
    *("Ich habe etw. gesehen.", "Hunde, Katzen usw.", "Look at sb. again.", "Give me sth. nice!", "Cats, dogs, ETC."),
]


@pytest.mark.parametrize(
    ("text", "kept"), [*((text, True) for text in KEPT), *((text, False) for text in NO_SENTENCES)]
)
def test_what_is_a_sentence_on_either_side(text, kept):
    pairs = [(text, "The boat is sinking."), ("The boat is sinking.", text)]
    assert cleaning.whole_sentences(pairs) == pairs * kept


SENTENCES = [
    *("das Boot sinkt.", "Das Boot sinkt", "Es sinkt.", "Das Boot sinkt. [naut.]", "Ich mag jdn. sehr.", ""),
    *("Ich habe etw. gesehen.", "Hunde, Katzen usw.", "Look at sb. again.", "Give me sth. nice!", "Cats, dogs, ETC."),
]


@pytest.mark.parametrize("text", NO_SENTENCES)
def test_what_is_no_sentence_is_left_out_on_either_side(text):
    sentence = "The boat is sinking."
    assert cleaning.whole_sentences([(text, sentence), (sentence, text)]) == []


SENTENCES = [
    ("Der Hund rennt weg.", "The dog runs away."),
    ("Ein Hund rennt nie.", "A dog runs, never to stop."),
    *[("Der mag etw. davon.", "He likes sb. here.")] * 2,
]


SHORT_ENTRIES = [
    (("Hund", "dog"), True),
    (("Katze", "dog"), False),  # unknown in German
    (("Hund", "cat"), False),  # unknown in English
    (("weg", "dog"), False),  # in one sentence only
    (("Hund Hund Hund", "dog"), True),
    (("Hund Hund Hund Hund", "dog"), False),  # more than three words
    (("Der Hund.", "dog"), False),  # looks like a sentence
    (("Hund", "sb. dog"), False),
    (("Hund etw.", "dog"), False),  # though all its words are common
    (("...", "dog"), False),
]


@pytest.mark.parametrize(("pair", "kept"), SHORT_ENTRIES)
def test_a_short_entry_needs_words_of_several_sentences(pair, kept):
    assert cleaning.common_entries([pair], SENTENCES) == [pair] * kept


# ------------------------------------------------------------------------------------------ the language course


def test_pairs_are_found_anywhere_in_a_lesson():
    lesson = {"title": "Im Café", "title_de": "Guten Tag", "title_en": "Good day", "number": 3, "free": None}
    lesson |= {
        "parts": [
            {"de": "Kaffee?", "en": "Coffee?", "note": "short"},
            [{"question_de": "Wo ist er?", "question_en": "Where is he?", "answers": [{"de": "Da.", "en": "There."}]}],
            "a text alone",
        ],
        "deeper": {"still": {"de": "Gru\u0308n\u00a0ist\r\nschön.", "en": "Green is nice."}},
    }
    assert list(cleaning.dialogue_pairs(lesson)) == [
        ("Guten Tag", "Good day"),
        ("Kaffee?", "Coffee?"),
        ("Wo ist er?", "Where is he?"),
        ("Da.", "There."),
        ("Grün ist schön.", "Green is nice."),
    ]


NO_PAIRS = [
    *({"de": "Ja."}, {"en": "Yes."}, [], "Ja.", None, 7),
    *({"de": "Ja.", "question_en": "Yes."}, {"question_de": "Ja.", "en": "Yes."}),
    {"made": "Ja.", "maen": "Yes."},  # ends in "de", but is no "_de"
    *({"de": "Ja.", "en": 3}, {"de": 3, "en": "Yes."}, {"de": ["Ja."], "en": ["Yes."]}),
    *({"de": de, "en": "Yes."} for de in ("", "(leise)", "Ja/nein.", "Ja (ganz (sehr) leise).", "Ich heiße ...")),
    {"de": "Ja.", "en": "I take it / them."},
]


@pytest.mark.parametrize("lesson", NO_PAIRS)
def test_what_is_no_pair_in_a_lesson(lesson):
    assert list(cleaning.dialogue_pairs(lesson)) == []


TEXTS = [
    ("Ja. Ärgerlich.", "Yes. Annoying.", [("Ja.", "Yes."), ("Ärgerlich.", "Annoying.")]),
    ("Ja, und. Gut.", "Yes and good.", [("Ja, und. Gut.", "Yes and good.")]),
    # A capital after the stop begins a sentence; a small letter does not.
    ("Am 3. mai. Gut.", "On May 3. Good.", [("Am 3. mai.", "On May 3."), ("Gut.", "Good.")]),
    # Direct speech is not cut, whichever quotation marks it has; an apostrophe is none.
    ("Er: „Ja. Gut.“", "He: “Yes. Good.”", [('Er: "Ja. Gut."', 'He: "Yes. Good."')]),
    ("'Ja. Gut.'", "'Yes. Good.'", [("'Ja. Gut.'", "'Yes. Good.'")]),
    ("Ja. — Gut. Nein.", "Yes. Good. No.", [("Ja. — Gut. Nein.", "Yes. Good. No.")]),
    ("Ist’s? Ja.", "Isn't it? Yes.", [("Ist's?", "Isn't it?"), ("Ja.", "Yes.")]),
    # Remarks, and all wordings but the first, are left out.
    ("Ja (leise)! Gut (so).", "Yes! Good. (polite)", [("Ja!", "Yes!"), ("Gut.", "Good.")]),
    ("Ja! / Klar! / Sicher!", "Yes. / Sure.", [("Ja!", "Yes.")]),
    ("Ja / Klar", "Yes / Sure", [("Ja", "Yes")]),
    ("\ufeffJa (a) (b) .", "Yes! / Sure", [("Ja.", "Yes!")]),
]


@pytest.mark.parametrize(("german", "english", "pairs"), TEXTS)
def test_a_text_becomes_one_pair_or_one_for_each_sentence(german, english, pairs):
    assert list(cleaning.dialogue_pairs({"de": german, "en": english})) == pairs
