"""Sentence pairs from files: reading, errors, and a split whose held-out sentences are never trained on."""

import pytest

from seq2seq.corpus import TEST_FILES, load_pairs
from tests.gpt.configs import Seq2SeqOptions
from tinygrad_lite.errors import CorpusError, OptionError
from training.corpora.divided_pairs import key_of, read_table, split
from training.corpora.pairs import Found


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def numbered(count: int) -> list[tuple[str, str]]:
    """Pairs with the numbers of words."""
    return [(f"Wort {i}", f"word {i}") for i in range(count)]


def test_no_held_out_sentence_is_trained_on_in_either_language():
    """A sentence with several translations, and these with several sources: all stay together."""
    pairs = [(f"Satz {i // 2}", f"sentence {(i + 1) // 3}") for i in range(0, 300, 7)]
    pairs += [("Ja.", "Yes."), ("ja", "Yeah."), ("Jawohl!", "yes!"), *numbered(200)]
    learned, held_out = split(pairs, 40)
    assert sorted(learned + held_out) == sorted(pairs)
    assert 40 <= len(held_out) <= 44
    for side in (0, 1):
        assert not {key_of(pair[side]) for pair in learned} & {key_of(pair[side]) for pair in held_out}
    assert len([pair for pair in learned if pair[0].lower().startswith("ja")]) in (0, 3)


def test_one_large_group_does_not_dominate_the_held_out_pairs():
    pairs = [("Hallo", f"hello {i}") for i in range(300)] + numbered(300)
    _, held_out = split(pairs, 30)
    assert len(held_out) == 30
    assert all(source.startswith("Wort") for source, _ in held_out)


def of_table(folder, pairs, **options):
    """What is loaded of a table with these pairs."""
    table = write(folder / "p.tsv", "".join(f"{source}\t{target}\n" for source, target in pairs))
    return load_pairs(Seq2SeqOptions.of(pairs=str(table), **options))


def test_options_choose_how_many_pairs_and_the_direction(tmp_path):
    """Fewer pairs to learn from are a part of more, and the same are held out. No checkpoint holds a path."""
    assert {"pairs", "src", "tgt", "val_src", "val_tgt"} <= {*Seq2SeqOptions.paths()}
    corpus, many, few = (of_table(tmp_path, numbered(50), train_pairs=n) for n in (0, 20, 5))
    assert (len(corpus.train), len(corpus.held_out), corpus.name) == (45, 5, "p.tsv")
    assert (len(many.train), len(few.train)) == (20, 5)
    assert set(few.train) < set(many.train) < set(corpus.train)
    assert few.held_out == many.held_out == corpus.held_out
    with pytest.raises(OptionError, match=r"--train_pairs 46: .* has only 45 to learn from"):
        of_table(tmp_path, numbered(50), train_pairs=46)
    swapped = of_table(tmp_path, numbered(50), swap=True)
    assert swapped.held_out == [(target, source) for source, target in corpus.held_out]
    assert swapped.sha256 != corpus.sha256
    with pytest.raises(CorpusError, match="has too few pairs: 1 to learn from and 0 held out"):
        of_table(tmp_path, [("a", "b")])


def test_pairs_that_are_not_used_are_counted(tmp_path):
    """Pairs without a side, and pairs that share a sentence with held-out ones named by the user."""
    de, en = write(tmp_path / "val.de", "wort 3!\nneu\n\n"), write(tmp_path / "val.en", "third word\nWord 4.\nx\n")
    pairs = [*numbered(20), ("", "empty"), ("leer", "")]
    corpus = of_table(tmp_path, pairs, val_src=str(de), val_tgt=str(en))
    assert (corpus.held_out, len(corpus.train)) == ([("wort 3!", "third word"), ("neu", "Word 4.")], 18)
    assert not {"Wort 3", "Wort 4"} & {source for source, _ in corpus.train}
    assert corpus.left_out == ["3 with an empty side", "2 that share a sentence with a held-out pair"]


def test_words_of_a_dictionary_are_trained_on_and_never_held_out(monkeypatch):
    """... unless they are a held-out sentence too."""
    sentences = [(f"Das ist Satz {i}.", f"That is sentence {i}.") for i in range(100)]
    words = [(f"Satz {i}", f"sentence {i}") for i in range(30)] + [(f"das ist satz {i}", "x") for i in range(100)]
    found = Found(sentences, words)
    monkeypatch.setattr("seq2seq.corpus.load_parallel", lambda name: found)
    corpus = load_pairs(Seq2SeqOptions.of(dataset="everyday", held_out=10))
    assert len(corpus.held_out) == 10
    assert set(corpus.held_out) <= set(sentences)
    assert len(corpus.train) == 90 + 30 + 90
    own = Found(sentences, [], [("eigen", "own")])
    monkeypatch.setattr("seq2seq.corpus.load_parallel", lambda name: own)
    assert load_pairs(Seq2SeqOptions.of(dataset="multi30k")).held_out == [("eigen", "own")]


def test_the_sentences_that_test_translations_are_in_no_part_of_a_named_corpus(monkeypatch):
    """A hundred and twenty pairs, in any spelling, on either side, among the sentences or the words."""
    asked = [pair for path in TEST_FILES for pair in read_table(path)]
    assert len(set(asked)) == 120
    others = [(f"Das ist Satz {i}.", f"That is sentence {i}.") for i in range(100)]
    words = [("anders", english.upper()) for _, english in asked]
    found = Found([*asked, *others], words)
    monkeypatch.setattr("seq2seq.corpus.load_parallel", lambda name: found)
    corpus = load_pairs(Seq2SeqOptions.of(dataset="everyday", held_out=10))
    assert sorted(corpus.train + corpus.held_out) == sorted(others)
    assert corpus.left_out == ["240 that share a sentence with those that test translations"]
