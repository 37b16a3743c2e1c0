import re
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from workshop.tokenizers.word import WordTokenizer, split_pieces

TEXT = st.text(st.characters() | st.characters(categories=["Cs"]))  # with unpaired surrogates
VERSE = "Ein Schwan, ein See;\n  ein Kahn im Schilf – ein Schwan, der schläft.\n\nEin See? 12 Seen!"


@given(TEXT)
def test_pieces_cover_the_text(text):
    pieces = split_pieces(text)
    assert "".join(pieces) == text
    assert all(len(piece) == 1 or piece.isalnum() for piece in pieces)
    # Cut as far as possible: two pieces that are both letters are never side by side.
    assert not any(re.fullmatch(r"[^\W\d_]{2}", a[-1] + b[0]) for a, b in pairwise(pieces))


def test_the_most_frequent_pieces_come_first_and_ties_in_the_order_of_the_text():
    tokenizer = WordTokenizer.train("b a c a b d", 5, ["<unk>"])
    assert tokenizer.to_json() == {"kind": "word", "words": [" ", "b", "a", "c"], "specials": ["<unk>"]}
    assert WordTokenizer.train(VERSE, 6).to_json()["words"] == [" ", "ein", "\n", "Ein", "Schwan"]


def test_vocab_size_includes_special_tokens_and_is_at_most_the_words_there_are():
    assert WordTokenizer.train(VERSE, 10, ["<pad>", "<unk>"]).vocab_size == 10
    different = len(set(split_pieces(VERSE)))
    assert WordTokenizer.train(VERSE, 10_000, ["<pad>", "<unk>"]).vocab_size == different + 2
    assert WordTokenizer.train(VERSE, different + 1).vocab_size == different + 1


@given(st.text("aä ,\n1", min_size=1), st.text("aäb ,.\n1"))
def test_ids_are_unk_exactly_where_something_is_unknown(text, other):
    tokenizer = WordTokenizer.train(text, 4)
    unknown = tokenizer.unknown(other)
    ids = tokenizer.encode(other)
    assert ids.count(tokenizer.specials["<unk>"]) == sum(unknown.values())
    expected = "".join("\ufffd" if piece in unknown else piece for piece in split_pieces(other))
    assert tokenizer.decode(ids) == expected
