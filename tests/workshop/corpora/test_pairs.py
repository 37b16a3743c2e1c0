"""Finding a parallel corpus by name: the cache before the source, what is said, and what happens when one fails."""

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinygrad_lite.errors import CorpusError
from workshop.corpora import fetch, pairs
from workshop.corpora.cleaning import one_line
from workshop.corpora.names import PARALLEL_CORPORA
from workshop.corpora.pair_sources import RECIPES, Found
from workshop.corpora.pairs import RULES, from_table, load_parallel, make_corpus, to_table

FOUND = Found(
    [("Hallo!", "Hi!"), ("Grün.", "Green."), ("Hallo!", "Hi!"), ("", "Nothing."), ("Hallo!", "Hello!")],
    words=[("ja", "yes"), ("nein", ""), ("ja", "yes")],
    validation=[("Tag.", "Day."), ("Tag.", "")],
)
TABLE = "pairs\tHallo!\tHi!\npairs\tGrün.\tGreen.\npairs\tHallo!\tHello!\nwords\tja\tyes\nvalidation\tTag.\tDay.\n"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache, and no source but those that a test makes."""
    monkeypatch.setenv("TINYGRAD_LITE_CACHE", str(tmp_path / "cache"))

    def unreachable():
        raise CorpusError("there is no network here")

    for name in RECIPES:
        change_recipe(monkeypatch, name, make=unreachable)
    return tmp_path / "cache"


def change_recipe(monkeypatch, name, **changes):
    monkeypatch.setitem(RECIPES, name, dataclasses.replace(RECIPES[name], **changes))


def serve(monkeypatch, name="tatoeba", found=FOUND, expected=None):
    """Let the source of a corpus give these pairs; returns a list with one entry for each time it was asked."""
    asked = []

    def make():
        asked.append(name)
        return found

    change_recipe(monkeypatch, name, make=make, expected=expected)
    return asked


def fail_if_fetched(monkeypatch, name="tatoeba"):
    def make():
        raise AssertionError("the cache has it")

    change_recipe(monkeypatch, name, make=make)


def silent(line):
    """Takes what is said where a test does not look at it."""


def test_a_corpus_is_fetched_said_and_kept(monkeypatch, cache):
    serve(monkeypatch)
    said = []
    corpus = load_parallel("tatoeba", said.append)
    assert corpus.name == "tatoeba"
    assert corpus.pairs == [("Hallo!", "Hi!"), ("Grün.", "Green."), ("Hallo!", "Hello!")]  # no two alike, none empty
    assert corpus.words == [("ja", "yes")]
    assert corpus.validation == [("Tag.", "Day.")]
    assert corpus.sha256 == fetch.sha256(TABLE)
    source, licence = RECIPES["tatoeba"].source, RECIPES["tatoeba"].licence
    assert said == [
        f"fetching the parallel corpus tatoeba: {source}",
        f"sha256 {corpus.sha256}: stored in the cache, because there is no known one to compare it with",
        f"parallel corpus tatoeba: 3 pairs, 1 dictionary entries, 1 pairs for validation, from {source}",
        f"licence: {licence}",
    ]
    assert (cache / "pairs-tatoeba.txt").read_bytes().decode("utf-8") == TABLE

    fail_if_fetched(monkeypatch)
    again = []
    assert load_parallel("tatoeba", again.append) == corpus
    assert again == said[2:]


def test_words_and_validation_are_said_only_where_there_are_some(monkeypatch):
    serve(monkeypatch, "auf-deutsch", Found([("Ja.", "Yes.")] * 3))
    said = []
    load_parallel("auf-deutsch", said.append)
    assert said[-2] == f"parallel corpus auf-deutsch: 1 pairs, from {RECIPES['auf-deutsch'].source}"


def test_each_corpus_has_a_place_of_its_own_in_the_cache(monkeypatch):
    serve(monkeypatch, "tatoeba", Found([("Ja.", "Yes.")]))
    serve(monkeypatch, "multi30k", Found([("Nein.", "No.")]))
    for name in ("tatoeba", "multi30k"):
        load_parallel(name, silent)
        fail_if_fetched(monkeypatch, name)
    assert load_parallel("tatoeba", silent).pairs == [("Ja.", "Yes.")]
    assert load_parallel("multi30k", silent).pairs == [("Nein.", "No.")]


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(
        CorpusError, match=r"'tatoebe' \(did you mean 'tatoeba'\?\): there are everyday,.*`--pairs FILE`"
    ):
        load_parallel("tatoebe")
    with pytest.raises(CorpusError, match=r"^no parallel corpus is called 'xyz': there are everyday, auf-deutsch, "):
        load_parallel("xyz")


def test_a_source_that_fails_explains_itself_in_one_sentence(cache):
    with pytest.raises(
        CorpusError,
        match=r"^the parallel corpus tatoeba is unavailable \(there is no network here\); `--pairs FILE` trains on",
    ):
        load_parallel("tatoeba", silent)
    assert not cache.exists()


@pytest.mark.parametrize("found", [Found([]), Found([("", "Yes."), ("Ja.", "")], words=[("ja", "yes")])])
def test_an_empty_source_is_refused_and_not_kept(monkeypatch, cache, found):
    serve(monkeypatch, found=found)
    with pytest.raises(CorpusError, match=r"Tatoeba, .* has no pairs of sentences in it\)"):
        load_parallel("tatoeba", silent)
    assert not cache.exists()


# ------------------------------------------------------------------------------------------------- the cache


@pytest.fixture
def kept(monkeypatch, cache):
    """A cache with the corpus in it; gives its two files, and the list of how often the source is asked from now on."""
    serve(monkeypatch)
    load_parallel("tatoeba", silent)
    return cache / "pairs-tatoeba.txt", cache / "pairs-tatoeba.json", serve(monkeypatch)


def fetched_again_once(kept):
    """Load twice, and see that the first time mends the cache; returns what the first time says."""
    said = []
    first, asked = load_parallel("tatoeba", said.append), len(kept[2])
    assert asked == 1
    assert load_parallel("tatoeba", silent) == first == make_corpus("tatoeba", FOUND, first.source, first.licence)
    assert len(kept[2]) == 1
    return said


@pytest.mark.parametrize("damage", ["cut", "changed", "not UTF-8", "gone", "a folder"])
def test_a_damaged_text_is_fetched_again_with_a_note(kept, damage, cache):
    text = kept[0]
    content = text.read_bytes()
    text.unlink()
    if damage == "a folder":
        text.mkdir()
        (text / "full").touch()
        said = []
        assert load_parallel("tatoeba", said.append).words == [("ja", "yes")]  # which cannot be kept over a folder
        assert sum("cannot be cached" in line for line in said) == 1
    else:
        if damage != "gone":
            new = {"cut": content[:-7], "changed": content.replace(b"Day", b"Boy"), "not UTF-8": b"\xff" + content}
            text.write_bytes(new[damage])
        said = fetched_again_once(kept)
    assert said[0] == f"the parallel corpus tatoeba is fetched again, because {text} is damaged or cannot be read"


@pytest.mark.parametrize("table", ["pairs\tHallo!\n", "pairs\ta\tb\tc\n", "other\ta\tb\n", "pairs\ta\tb\n\n", "\n"])
def test_a_cache_that_is_no_table_is_fetched_again_with_a_note(kept, table):
    facts = {"source": "x", "licence": "y", "rules": RULES}
    fetch.store("pairs-tatoeba", table, facts)  # intact, with the right hash, but written by something else
    said = fetched_again_once(kept)
    assert said[0].startswith("the parallel corpus tatoeba is fetched again, because line ")


def test_an_empty_table_in_the_cache_is_fetched_again(kept):
    fetch.store("pairs-tatoeba", "words\tja\tyes\n", {"source": "x", "licence": "y", "rules": RULES})
    said = fetched_again_once(kept)
    assert said[0] == "the parallel corpus tatoeba is fetched again, because x has no pairs of sentences in it"


def test_what_other_rules_made_is_made_anew(kept, monkeypatch):
    monkeypatch.setattr(pairs, "RULES", RULES + "1")
    said = fetched_again_once(kept)
    assert said[0].startswith("fetching the parallel corpus tatoeba: ")
    assert json.loads(kept[1].read_text(encoding="utf-8"))["rules"] == RULES + "1"


def test_a_cache_without_a_note_of_its_rules_is_made_anew(kept):
    fetch.store("pairs-tatoeba", TABLE, {"source": "x", "licence": "y"})
    fetched_again_once(kept)


def test_a_file_where_the_cache_should_be_is_a_note(monkeypatch, cache):
    asked = serve(monkeypatch)
    cache.write_text("a file where the folder should be", encoding="utf-8")
    for times in (1, 2):
        said = []
        assert len(load_parallel("tatoeba", said.append).pairs) == 3
        assert len(asked) == times
        assert sum("cannot be cached" in line for line in said) == 1


def test_without_a_place_for_the_cache_the_source_is_used(monkeypatch):
    serve(monkeypatch)

    def no_place():
        raise CorpusError("there is no home folder for the cache")

    monkeypatch.setattr(fetch, "cache_folder", no_place)
    said = []
    assert len(load_parallel("tatoeba", said.append).pairs) == 3
    assert sum("cannot be cached: there is no home folder" in line for line in said) == 1


def test_another_hash_than_the_known_one_is_a_warning_each_time(monkeypatch):
    serve(monkeypatch, expected="ab" * 32)
    for _ in range(2):  # from the source, then from the cache
        said = []
        corpus = load_parallel("tatoeba", said.append)
        assert [line for line in said if "warning" in line] == [
            "warning: the parallel corpus tatoeba has changed since numbers were measured on it: "
            f"its sha256 is {corpus.sha256}, not {'ab' * 32}"
        ]
        assert not any("no known one" in line for line in said)
        fail_if_fetched(monkeypatch)
    change_recipe(monkeypatch, "tatoeba", expected=corpus.sha256)
    load_parallel("tatoeba", said.append)
    assert sum("warning" in line for line in said) == 1


def test_what_is_said_goes_to_stderr(monkeypatch, capsys):
    serve(monkeypatch)
    load_parallel("tatoeba")
    out, err = capsys.readouterr()
    assert out == ""
    assert "parallel corpus tatoeba: 3 pairs" in err


def test_every_corpus_has_a_name_and_a_description():
    assert list(PARALLEL_CORPORA) == list(RECIPES)
    assert all(recipe.description for recipe in RECIPES.values())


# ------------------------------------------------------------------------------------------------- the table

sides = st.text(st.characters(codec="utf-8")).map(one_line)
parts = st.lists(st.tuples(sides, sides))


@given(parts, parts, parts)
def test_a_table_gives_back_what_was_written(sentences, words, validation):
    found = Found(sentences, words, validation)
    assert from_table(to_table(found)) == found


@given(parts, parts, parts)
def test_a_corpus_keeps_its_hash_through_the_cache(sentences, words, validation):
    corpus = make_corpus("x", Found([("Ja.", "Yes."), *sentences], words, validation), "y", "z")
    assert make_corpus("x", from_table(to_table(corpus)), "y", "z") == corpus
    assert len(set(corpus.pairs)) == len(corpus.pairs)
    assert all(german and english for german, english in corpus.pairs + corpus.words + corpus.validation)


def test_the_hash_depends_on_order_and_part():
    one, other = ("Ja.", "Yes."), ("Nein.", "No.")
    founds = [Found([one, other]), Found([other, one]), Found([one], [other]), Found([one], validation=[other])]
    assert len({make_corpus("x", found, "y", "z").sha256 for found in founds}) == 4


@pytest.mark.parametrize("line", ["", "pairs", "pairs\tHallo!", "pairs\ta\tb\tc", "names\ta\tb", "Pairs\ta\tb"])
def test_the_error_names_a_line_that_is_not_a_pair(line):
    with pytest.raises(CorpusError, match=r"^line 2 of the cache is not a pair: "):
        from_table(f"pairs\tJa.\tYes.\n{line}\n")
