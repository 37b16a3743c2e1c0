import random
from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from text.tokenizers import base, bpe, tokenizer_from_json
from text.tokenizers.bpe import BPETokenizer, split_words

FEW_LETTERS = st.text("aabbä \n")  # many ties, repetitions and overlapping pairs


def some_german(n_words: int, seed: int = 0) -> str:
    """Text of about n_words words put together from German syllables, with punctuation and newlines."""
    rng = random.Random(seed)
    syllables = ["der", "die", "ich", "nicht", "Geist", "ge", "ver", "lich", "ung", "über", "Größe", "süß"]
    ends = [" ", " ", " ", " ", ", ", ".\n", "!\n\n", " – ", "  "]
    words = ("".join(rng.choices(syllables, k=rng.randint(1, 3))) + rng.choice(ends) for _ in range(n_words))
    return "".join(words)


GERMAN = some_german(400)
TOKENIZER = BPETokenizer.train(GERMAN, 358, ("<pad>", "<eos>"))


def by_definition(text: str, n_merges: int) -> list[tuple[int, int]]:
    words = Counter(split_words(text))
    return bpe.reference_merges(words, n_merges, lambda word: list(word.encode("utf-8", "surrogatepass")), [1] * 256)


def naive_encode(text: str, merges: list[tuple[int, int]]) -> list[int]:
    """The definition, on strings: every merge in all words from left to right, in the order they were learned in."""
    words = [word.encode("utf-8", "surrogatepass").decode("latin-1") for word in split_words(text)]
    for token, pair in enumerate(merges, start=256):
        words = [word.replace("".join(map(chr, pair)), chr(token)) for word in words]
    return [ord(character) for character in "".join(words)]


LEARNED = [
    # The example of the paper, without a mark for the end of a word; newlines keep the words apart.
    ("\n".join(["low"] * 5 + ["lower"] * 2 + ["newest"] * 6 + ["widest"] * 3), 6, "es est lo low ne new".split()),
    ("AACGCACTATATA", 2, ["TA", "AC"]),
    ("cd\nxab\ncd\nxab", 4, ["cd", "xa", "xab"]),  # of equally frequent pairs the shorter, then the earlier
    ("so so, so so, so so\n" * 20, 100, ["so", " so"]),  # never across words
    ("aabaa", 1000, ["aa"]),
    ("abab", 1000, ["ab"]),  # and then no pair occurs twice
    ("a", 1000, []),
]


@pytest.mark.parametrize(("text", "n_merges", "tokens"), LEARNED)
def test_the_most_frequent_pairs_become_tokens(text, n_merges, tokens):
    tokenizer = BPETokenizer.train(text, 256 + n_merges + 1, ["<eos>"])
    assert [tokenizer.render(token) for token in range(256, tokenizer.vocab_size)] == [*tokens, "<eos>"]
    assert tokenizer.n_merges == len(tokens)


@given(FEW_LETTERS, FEW_LETTERS)
@example(GERMAN, some_german(300, seed=1) + " Straßenbahn, 1832 😀")
def test_merges_equal_the_reference(text, other):
    expected = by_definition(text, 100)
    tokenizer = BPETokenizer.train(text or "x", 256 + 100)
    assert (tokenizer.merges, tokenizer.n_merges) == (expected, len(expected))
    for each in (text, other):
        assert tokenizer.encode(each) == naive_encode(each, expected)


def test_words_cover_every_character():
    text = "".join(map(chr, range(0x110000)))
    assert "".join(split_words(text)) == text


WORDS = [
    ("Größe süß, u\u0308ber", ["Größe", " süß", ",", " u\u0308ber"]),
    ("im Jahr 1832?! – Ja.", ["im", " Jahr", " 1832", "?!", " –", " Ja", "."]),
    ("a\n\nb \nc   d\t", ["a", "\n\n", "b", " \n", "c", "  ", " d", "\t"]),
    ("snake_case и λόγος", ["snake", "_", "case", " и", " λόγος"]),
]


@pytest.mark.parametrize(("text", "words"), WORDS)
def test_text_is_split_into_words(text, words):
    assert split_words(text) == words


def test_long_words_are_cut():
    words = split_words("x" * 129 + " kurz")
    assert [len(word) for word in words] == [64, 64, 1, 5]
    # Merges learned from one very long word can still be saved and loaded.
    tokenizer = BPETokenizer.train("ab😀" * 500, 600)
    assert tokenizer_from_json(tokenizer.to_json()).merges == tokenizer.merges


def test_a_full_cache_changes_nothing(monkeypatch):
    monkeypatch.setattr(base, "CACHED_WORDS", 3)
    small = tokenizer_from_json(TOKENIZER.to_json())
    assert small.encode(GERMAN) == TOKENIZER.encode(GERMAN)
    assert len(small._cache) <= 3
