import json
import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinygrad_lite.errors import TokenizerError
from workshop.tokenizers import tokenizer_from_json
from workshop.tokenizers.base import StreamDecoder
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


@given(TEXT.filter(bool))
def test_known_text_survives_a_round_trip_with_its_white_space(text):
    tokenizer = WordTokenizer.train(text, 10_000)
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert len(ids) == len(split_pieces(text))
    assert tokenizer.unknown(text) == {}
    same = tokenizer_from_json(json.loads(json.dumps(tokenizer.to_json())))
    assert same.encode(text) == ids


def test_the_most_frequent_pieces_come_first_and_ties_in_the_order_of_the_text():
    tokenizer = WordTokenizer.train("b a c a b d", 5, ["<unk>"])
    assert tokenizer.to_json() == {"kind": "word", "words": [" ", "b", "a", "c"], "specials": ["<unk>"]}
    assert WordTokenizer.train(VERSE, 6).to_json()["words"] == [" ", "ein", "\n", "Ein", "Schwan"]


def test_vocab_size_includes_special_tokens_and_is_at_most_the_words_there_are():
    assert WordTokenizer.train(VERSE, 10, ["<pad>", "<unk>"]).vocab_size == 10
    different = len(set(split_pieces(VERSE)))
    assert WordTokenizer.train(VERSE, 10_000, ["<pad>", "<unk>"]).vocab_size == different + 2
    assert WordTokenizer.train(VERSE, different + 1).vocab_size == different + 1


def test_unseen_words_become_unk():
    tokenizer = WordTokenizer.train(VERSE, 10_000)
    text = "Ein Kahn, ein Kähnchen,\nein Kähnchen: _"
    unk = tokenizer.specials["<unk>"]
    assert tokenizer.encode(text).count(unk) == 4
    assert tokenizer.unknown(text) == {"Kähnchen": 2, ":": 1, "_": 1}
    assert tokenizer.decode(tokenizer.encode(text)) == "Ein Kahn, ein \ufffd,\nein \ufffd\ufffd \ufffd"
    assert tokenizer.encode("<unk>", allow_special=True) == [unk]
    assert unk not in tokenizer.encode("Schwan")


@given(st.text("aä ,\n1", min_size=1), st.text("aäb ,.\n1"))
def test_ids_are_unk_exactly_where_something_is_unknown(text, other):
    tokenizer = WordTokenizer.train(text, 4)
    unknown = tokenizer.unknown(other)
    ids = tokenizer.encode(other)
    assert ids.count(tokenizer.specials["<unk>"]) == sum(unknown.values())
    expected = "".join("\ufffd" if piece in unknown else piece for piece in split_pieces(other))
    assert tokenizer.decode(ids) == expected


def test_a_token_is_a_whole_word_in_a_stream_too():
    tokenizer = WordTokenizer.train(VERSE, 10_000)
    stream = StreamDecoder(tokenizer)
    assert [stream.push(token) for token in tokenizer.encode("im See – x")] == [
        "im",
        " ",
        "See",
        " ",
        "–",
        " ",
        "\ufffd",
    ]
    assert tokenizer.token_bytes(tokenizer.encode("schläft")[0]) == "schläft".encode()
    assert stream.finish() == ""


def test_render_escapes_what_cannot_be_printed():
    tokenizer = WordTokenizer(["Ä", "\n", "\ud800", " "])
    assert [tokenizer.render(token) for token in range(5)] == ["Ä", "\\n", "\\xed\\xa0\\x80", " ", "<unk>"]


def test_training_refuses_what_cannot_work():
    with pytest.raises(TokenizerError, match="is the text empty"):
        WordTokenizer.train("", 100)
    with pytest.raises(TokenizerError, match="vocab_size is 2, but 2 special tokens and one word need 3"):
        WordTokenizer.train("abc", 2, ["<pad>", "<unk>"])
    with pytest.raises(TokenizerError, match="a word tokenizer needs the special <unk>"):
        WordTokenizer.train("abc", 9, ["<pad>"])
    with pytest.raises(TokenizerError, match="not one string"):
        WordTokenizer.train("abc", 9, "<unk>")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"words": "ab"}, "words must be a list"),
        ({"words": {"a": 0}}, "words must be a list"),
        ({"words": []}, "at least one word"),
        ({"words": ["a", ""]}, "single characters, not ''"),
        ({"words": ["a b"]}, "single characters, not 'a b'"),
        ({"words": ["a1"]}, "single characters, not 'a1'"),
        ({"words": [" " * 2]}, "words of letters and single characters"),
        ({"words": ["x" * 10**6 + "!"]}, "not 'xxx"),
        ({"words": ["a", 1]}, "not 1"),
        ({"words": [["a"]]}, "not \\['a'\\]"),
        ({"words": ["a", "b", "a"]}, "'a' is given twice"),
        ({"specials": []}, "needs the special <unk>"),
        ({"specials": ["<unk>", "<unk>"]}, "given twice"),
        ({"characters": []}, "fields kind, words, specials"),
    ],
)
def test_broken_json_is_refused_with_the_reason(changes, reason):
    with pytest.raises(TokenizerError, match=reason) as caught:
        tokenizer_from_json({"kind": "word", "words": ["a", "b"], "specials": ["<unk>"]} | changes)
    assert len(str(caught.value)) < 300
