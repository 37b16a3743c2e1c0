"""From a dictionary, lessons and lists of sentences to clean pairs, on entries made up here."""

import pytest

from tinygrad_lite.errors import CorpusError
from training.corpora import pair_cleaning as cleaning
from training.corpora.cleaning import one_line

# ----------------------------------------------------------------------------------------------- from a text alone

OF_ONE_LINE = [
    *(("\ufeffHallo", "Hallo"), ("\u00a0ein\u00a0\u202ftag\u2003", "ein tag")),
    ("eins\r\nzwei\tdrei\u2028vier\x0bfünf\x85", "eins zwei drei vier fünf"),
]
OF_LINES = [
    *(("eins\n", ["eins"]), ("eins", ["eins"]), ("eins\r\n\nzwei", ["eins", "", "zwei"]), ("", []), ("\n", [""])),
    ("a\u2028b\x0cc\n", ["a\u2028b\x0cc"]),  # what other tools may count as ends of lines
]
WORDINGS = [  # the entry of a dictionary, and the wordings in it
    ("Boot {n} [naut.] <Kahn> (klein)", ["Boot"]),
    ("laufen {lief; gelaufen}; rennen (schnell; weit)", ["laufen", "rennen"]),  # no ";" of an annotation splits
    ("(nur so); Hund; Bundesamt /BA/; Amt /BA/, kleines", ["Hund", "Bundesamt", "Amt, kleines"]),
    *((unclear, []) for unclear in ("/BA/", " ; ;")),
    ("Hund m}; Hund ); Hund {m; Hund [zool; Hund <; Katze", ["Katze"]),
    ("er/sie geht; er geht nach rechts / links; km/h; alle gehen", ["alle gehen"]),
    ("jdm. / etw. helfen; jdn./etw. sehen", ["jdm. helfen", "jdn. sehen"]),
    ("Ich ... dich; Ich … dich; Ich .. dich; ich mag dich", ["ich mag dich"]),
    ("‘er’ ist’s , ja (so) ?; Gru\u0308n\u00a0 ;\ufeffBlau", ["'er' ist's, ja?", "Grün", "Blau"]),
]
PAIRED = [
    ("Hund {m} :: dog", [("Hund", "dog")]),
    # The rest of the longer side goes with the other's first.
    ("a; b; c :: x; y", [("a", "x"), ("b", "y"), ("c", "x")]),
    ("a; b :: x; y; z", [("a", "x"), ("b", "y"), ("a", "z")]),
    # Entry i translates entry i, and one that is unclear leaves the others alone.
    *((f"a | {unclear} | d :: x | y | z", [("a", "x"), ("d", "z")]) for unclear in ("b/c", "(nur so)")),
    ("\ufeffBoot :: boat\r\n# a :: b | c\r\n\r\n", [("Boot", "boat")]),
]
CASES = {one_line: OF_ONE_LINE, cleaning.lines_of: OF_LINES, cleaning.alternatives: WORDINGS}
CASES |= {cleaning.ding_pairs: PAIRED}
CASES |= {cleaning.words: [("Straße, E-Mail: 3 Äpfel - 'n Stück!", ["strasse", "e-mail", "3", "äpfel", "n", "stück"])]}


@pytest.mark.parametrize(("clean", "case"), [(clean, case) for clean, cases in CASES.items() for case in cases])
def test_a_text_becomes_lines_words_wordings_or_pairs(clean, case):
    text, expected = case
    assert clean(text) == expected


LINES = "\ufeffGo.\tGeh.\tCC-BY 2.0 (France) #1 (somebody)\tmore\r\n\n \nI\u00a0am.\t Ich  bin. \r\n"


def test_tabbed_lines_lose_their_attribution_and_aligned_lines_are_paired_in_order():
    assert cleaning.tabbed_pairs(LINES, "the list") == [("Go.", "Geh."), ("I am.", "Ich bin.")]
    assert cleaning.tabbed_pairs("", "the list") == []
    pairs = cleaning.aligned_pairs("\ufeffEin Hund.\r\nGru\u0308n.\r\n\r\n", "A dog.\n Green. \n\n", *FILES)
    assert pairs == [("Ein Hund.", "A dog."), ("Grün.", "Green."), ("", "")]


NO_TAB, LENGTHS = "expected source TAB target, but it has no tab", "of the dictionary has sides of different lengths"
FILES, UNEQUAL = ("a.de", "a.en"), ("a | b :: x", "a :: x | y", "a | b", "a | b | c :: x | y")
REFUSED = [  # each names the line, or the numbers of lines, and never shows a line whole
    (cleaning.tabbed_pairs, ("Go.\tGeh.\nGo Geh\nHi.\tHallo.\n", "the list"), f"the list, line 2: {NO_TAB}: 'Go Geh'$"),
    (cleaning.aligned_pairs, ("Hund\n" * 1200, "dog", *FILES), "^a.de has 1,200 lines and a.en has 1: line i of one"),
    *((cleaning.ding_pairs, [f"# comment\nHund :: dog\n{line}\nKatze"], f"^line 3 {LENGTHS}") for line in UNEQUAL),
]


@pytest.mark.parametrize(("read", "texts", "reason"), REFUSED)
def test_lines_without_a_counterpart_are_refused(read, texts, reason):
    with pytest.raises(CorpusError, match=reason):
        read(*texts)


# ------------------------------------------------------------------------------------- what is kept of the dictionary


SENTENCES = ["Das Boot sinkt.", "Sinkt das Boot?", '"Das Boot sinkt."', "Über uns regnet's."]
NO_SENTENCES = ["das Boot sinkt.", "Das Boot sinkt", "Es sinkt.", "Das Boot sinkt. [naut.]", "Ich mag jdn. sehr.", ""]
NO_SENTENCES += ["Hunde, Katzen usw.", "Cats, dogs, ETC."]


@pytest.mark.parametrize("text", SENTENCES + NO_SENTENCES)
def test_only_sentences_are_kept_on_either_side(text):
    pairs = [(text, "The boat is sinking."), ("The boat is sinking.", text)]
    assert cleaning.whole_sentences(pairs) == pairs * (text in SENTENCES)


KNOWN = [
    ("Der Hund rennt weg.", "The dog runs away."),
    ("Ein Hund rennt nie.", "A dog runs, never to stop."),
    *[("Der mag etw. davon.", "He likes sb. here.")] * 2,
]
COMMON = [("Hund", "dog"), ("Hund Hund Hund", "dog")]


UNCOMMON = [
    *(("Katze", "dog"), ("Hund", "cat"), ("weg", "dog")),  # unknown in German, in English; in one sentence only
    *(("Hund Hund Hund Hund", "dog"), ("Der Hund.", "dog")),  # more than three words; looks like a sentence
    ("Hund", "sb. dog"),  # a placeholder, though all words are common
]


@pytest.mark.parametrize("pair", COMMON + UNCOMMON)
def test_a_short_entry_needs_words_of_several_sentences(pair):
    assert cleaning.common_entries([pair], KNOWN) == [pair] * (pair in COMMON)


# ------------------------------------------------------------------------------------------ the language course


def test_pairs_are_found_anywhere_in_a_lesson():
    lesson = {"title": "Im Café", "title_de": "Guten Tag", "title_en": "Good day", "number": 3, "free": None}
    question = {"question_de": "Wo ist er?", "question_en": "Where is he?", "answers": [{"de": "Da.", "en": "There."}]}
    lesson["parts"] = [{"de": "Kaffee?", "en": "Coffee?", "note": "short"}, [question], "a text alone"]
    lesson["deeper"] = {"still": {"de": "Gru\u0308n\u00a0ist\r\nschön.", "en": "Green is nice."}}
    talk = [("Guten Tag", "Good day"), ("Kaffee?", "Coffee?"), ("Wo ist er?", "Where is he?"), ("Da.", "There.")]
    assert list(cleaning.dialogue_pairs(lesson)) == [*talk, ("Grün ist schön.", "Green is nice.")]


NO_PAIRS = [
    *({"de": "Ja."}, [], "Ja.", None),
    *({"de": "Ja.", "question_en": "Yes."}, {"made": "Ja.", "maen": "Yes."}),  # "made" ends in "de", but is no "_de"
    {"de": "Ja.", "en": 3},
    *({"de": de, "en": "Yes."} for de in ("", "(leise)", "Ja/nein.", "Ich heiße ...")),
]
TEXTS = [
    ("Ja. Ärgerlich.", "Yes. Annoying.", [("Ja.", "Yes."), ("Ärgerlich.", "Annoying.")]),
    ("Ja, und. Gut.", "Yes and good.", [("Ja, und. Gut.", "Yes and good.")]),
    # A capital after the stop begins a sentence; a small letter does not.
    ("Am 3. mai. Gut.", "On May 3. Good.", [("Am 3. mai.", "On May 3."), ("Gut.", "Good.")]),
    # Direct speech is not cut, whichever quotation marks it has; an apostrophe is none.
    ("Er: „Ja. Gut.“", "He: “Yes. Good.”", [('Er: "Ja. Gut."', 'He: "Yes. Good."')]),
    ("Ist’s? Ja.", "Isn't it? Yes.", [("Ist's?", "Isn't it?"), ("Ja.", "Yes.")]),
    # Remarks, and all wordings but the first, are left out.
    ("Ja (leise)! Gut (so).", "Yes! Good. (polite)", [("Ja!", "Yes!"), ("Gut.", "Good.")]),
    ("Ja! / Klar! / Sicher!", "Yes. / Sure.", [("Ja!", "Yes.")]),
]
LESSONS = [*((lesson, []) for lesson in NO_PAIRS), *(({"de": de, "en": en}, pairs) for de, en, pairs in TEXTS)]


@pytest.mark.parametrize(("lesson", "pairs"), LESSONS)
def test_a_text_in_a_lesson_becomes_no_pair_or_one_or_one_for_each_sentence(lesson, pairs):
    assert list(cleaning.dialogue_pairs(lesson)) == pairs
