"""Finding a parallel corpus by name: the cache before the source, what is said, and what happens when one fails."""

import dataclasses
import hashlib
import json
import re
from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.training.corpora.test_wheel import zipped
from tinygrad_lite.errors import CorpusError
from training.corpora import fetch, pairs, wheel
from training.corpora.cleaning import one_line
from training.corpora.pairs import RECIPES, RULES, Found, auf_deutsch, from_table, load_parallel, make_corpus, to_table
from training.corpora.wheel import Wheel

pytestmark = pytest.mark.usefixtures("offline")
FOUND = Found(
    [("Hallo!", "Hi!"), ("Grün.", "Green."), ("Hallo!", "Hi!"), ("", "Nothing."), ("Hallo!", "Hello!")],
    words=[("ja", "yes"), ("nein", ""), ("ja", "yes")],
    validation=[("Tag.", "Day."), ("Tag.", "")],
)
TABLE = "pairs\tHallo!\tHi!\npairs\tGrün.\tGreen.\npairs\tHallo!\tHello!\nwords\tja\tyes\nvalidation\tTag.\tDay.\n"


NO_PAIRS = f"{RECIPES['everyday'].source} has no pairs of sentences in it"


def serve(monkeypatch, found=FOUND, expected=None):
    """Let the source of everyday give these pairs; returns a list with one entry for each time it was asked."""
    asked = []
    recipe = dataclasses.replace(RECIPES["everyday"], make=lambda: asked.append(found) or found, expected=expected)
    monkeypatch.setitem(RECIPES, "everyday", recipe)
    return asked


def loaded(name="everyday"):
    """The corpus, and what is said."""
    said = []
    return load_parallel(name, said.append), said


def test_a_corpus_is_fetched_said_and_kept(monkeypatch, cache):
    asked = serve(monkeypatch)
    corpus, said = loaded()
    assert corpus.pairs == [("Hallo!", "Hi!"), ("Grün.", "Green."), ("Hallo!", "Hello!")]  # no two alike, none empty
    assert (corpus.words, corpus.validation) == ([("ja", "yes")], [("Tag.", "Day.")])
    source, licence = RECIPES["everyday"].source, RECIPES["everyday"].licence
    assert said == [
        f"fetching the parallel corpus everyday: {source}",
        f"sha256 {fetch.sha256(TABLE)}: stored in the cache, because there is no known one to compare it with",
        f"parallel corpus everyday: 3 pairs, 1 dictionary entry, 1 pair for validation, from {source}",
        f"licence: {licence}",
    ]
    assert (cache / "pairs-everyday.txt").read_bytes().decode("utf-8") == TABLE
    assert loaded() == (corpus, said[2:])
    assert len(asked) == 1


UNAVAILABLE = [  # the name, what its source gives, and why it is refused
    ("everydya", FOUND, r"is called 'everydya' \(did you mean 'everyday'\?\): there are everyday,.*`--pairs FILE`"),
    ("everyday", None, r"unavailable .there is no network here.; .*: --dataset auf-deutsch .*, --pairs FILE; w"),
    ("everyday", Found([]), re.escape(NO_PAIRS)),
    ("everyday", Found([("", "Yes."), ("Ja.", "")], words=[("ja", "yes")]), re.escape(NO_PAIRS)),
]


@pytest.mark.parametrize(("name", "found", "reason"), UNAVAILABLE)
def test_what_cannot_be_had_is_one_sentence_and_not_kept(monkeypatch, cache, name, found, reason):
    if found:
        serve(monkeypatch, found)
    with pytest.raises(CorpusError, match=reason):
        loaded(name)
    assert not cache.exists()


# ------------------------------------------------------------------------------------------------- the cache


INTACT = {"source": "x", "licence": "y", "rules": RULES}  # and the right hash, but written by something else
AGAIN = "the parallel corpus everyday is fetched again, because "
OTHER_CACHES = [
    *((table, INTACT, f"{AGAIN}line ") for table in ("pairs\tHallo!\n", "pairs\ta\tb\n\n")),
    ("words\tja\tyes\n", INTACT, AGAIN + re.escape(NO_PAIRS)),
    (TABLE, INTACT | {"rules": RULES + "1"}, "fetching the parallel corpus everyday: "),
    (TABLE, {"source": "x", "licence": "y"}, "fetching the parallel corpus everyday: "),
    (TABLE[:-7], None, f"{AGAIN}.*pairs-everyday.txt is damaged or cannot be read$"),
]


@pytest.mark.parametrize(("table", "facts", "note"), OTHER_CACHES)
def test_a_cache_that_is_damaged_or_of_others_or_of_other_rules_is_made_again(monkeypatch, cache, table, facts, note):
    serve(monkeypatch)
    loaded()
    if facts:
        fetch.store("pairs-everyday", table, facts)
    else:
        (cache / "pairs-everyday.txt").write_text(table, encoding="utf-8")
    asked = serve(monkeypatch)
    first, said = loaded()
    assert re.match(note, said[0])
    assert loaded()[0] == first == make_corpus("everyday", FOUND)
    assert (len(asked), fetch.recall("pairs-everyday")[1]["rules"]) == (1, RULES)


def test_without_a_place_for_the_cache_the_source_is_used(monkeypatch, cache):
    serve(monkeypatch)
    cache.parent.write_text("a file where the folder should be", encoding="utf-8")
    corpus, said = loaded()
    assert (len(corpus.pairs), sum("cannot be cached: " in line for line in said)) == (3, 1)


def test_another_hash_than_the_known_one_is_a_warning_each_time(monkeypatch):
    asked = serve(monkeypatch, expected="ab" * 32)
    changed = "warning: the parallel corpus everyday has changed since numbers were measured on it: its sha256 is "
    for number in (1, 0):  # from the source, then from the cache
        _, said = loaded()
        assert said[number] == f"{changed}{fetch.sha256(TABLE)}, not {'ab' * 32}"
        assert (len(said), len(asked)) == (3 + number, 1)
    serve(monkeypatch, expected=fetch.sha256(TABLE))
    assert not any("warning" in line for line in loaded()[1])


# ------------------------------------------------------------------------------------------------- the table

sides = st.text(st.characters(codec="utf-8")).map(one_line)
parts = st.lists(st.tuples(sides, sides))


@given(parts, parts, parts)
def test_a_corpus_stays_the_same_through_the_cache(sentences, words, validation):
    corpus = make_corpus("x", Found([("Ja.", "Yes."), *sentences], words, validation))
    assert make_corpus("x", from_table(to_table(corpus))) == corpus
    assert len(set(corpus.pairs)) == len(corpus.pairs)
    assert all(german and english for german, english in corpus.pairs + corpus.words + corpus.validation)


@pytest.mark.parametrize("line", ["", "pairs", "pairs\tHallo!", "pairs\ta\tb\tc", "names\ta\tb", "Pairs\ta\tb"])
def test_the_error_names_a_line_that_is_not_a_pair(line):
    with pytest.raises(CorpusError, match=r"^line 2 of the cache is not a pair: "):
        from_table(f"pairs\tJa.\tYes.\n{line}\n")


# ------------------------------------------------------------------------------------------ the language course


@pytest.fixture
def course(monkeypatch, write):
    """Put these files into the wheel of the course."""

    def fill(files):
        data = zipped({f"auf_deutsch/{name}": content.encode("utf-8") for name, content in files.items()})
        monkeypatch.setattr(pairs, "COURSE_WHEEL", Wheel("a==1", len(data), hashlib.sha256(data).hexdigest()))
        monkeypatch.setattr(wheel, "pip_download", lambda _, folder: Path(write(str(folder / "a.whl"), data)))

    return fill


def lesson(*pairs):
    return json.dumps([{"de": de, "en": en} for de, en in pairs], ensure_ascii=False)


def test_lessons_are_read_from_all_folders_in_the_order_of_their_names(course):
    lessons = {"b": [("Zwei.", "Two.")], "a-b/1": [("Nun.", "Now.")], "a/2": [("Gru\u0308n.", "Green.")]}
    lessons |= {"a/1": [("Eins. Ja.", "One. Yes."), ("nur", 7)], "B": []}
    files = {f"content/{name}.json": lesson(*pairs) for name, pairs in lessons.items()}
    course(files | {"content/notes.txt": "no lesson", "other/c.json": lesson(("Drei.", "Three."))})
    assert [pair[0] for pair in auf_deutsch()] == ["Eins.", "Ja.", "Grün.", "Nun.", "Zwei."]


# ------------------------------------------------------------------------------------------------ the dictionary

DING = """# a dictionary
Hund {m} | Der Hund rennt weg. :: dog | The dog runs away.
Katze {f}; Kater {m} | Eine Katze rennt nie. | Hunde und Katzen usw. :: cat | A cat never runs. | Cats and dogs etc.
Schraube {f} [techn.] :: screw
"""


def test_everyday_is_the_course_before_the_dictionary_and_common_words(monkeypatch, course):
    dictionary = Mock(return_value={"trans-de-en": DING})
    monkeypatch.setattr(fetch, "debian_files", dictionary)
    talk = ("Mein Hund heißt Kater.", "My dog is called Cat."), ("Na, Katze?", "Well, cat?")
    course({"content/a.json": lesson(*talk)})
    found = RECIPES["everyday"].make()
    dictionary.assert_called_once_with({"trans-de-en": "usr/share/trans/de-en"})
    german = ["Mein Hund heißt Kater.", "Na, Katze?", "Der Hund rennt weg.", "Eine Katze rennt nie."]
    assert [pair[0] for pair in found.pairs] == german
    assert found.words == [("Hund", "dog"), ("Katze", "cat")]  # "Kater" and "Schraube" are too rare
    assert RECIPES["auf-deutsch"].make().pairs == found.pairs[:2]
