import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinygrad_lite.errors import TokenizerError
from workshop.tokenizers import tokenizer_from_json
from workshop.tokenizers.char import CharTokenizer

LINE = "Mit Worten läßt sich trefflich streiten,"
TEXT = st.text(st.characters() | st.characters(categories=["Cs"]))  # with unpaired surrogates


def test_char_ids_are_sorted_by_code_point_and_specials_come_last():
    tokenizer = CharTokenizer.train("ßa Bä", ("<pad>", "<unk>"))
    assert tokenizer.encode(" Baßä") == [0, 1, 2, 3, 4]
    assert tokenizer.specials == {"<pad>": 5, "<unk>": 6}
    assert tokenizer.vocab_size == 7
    assert tokenizer.kind == "char"


def test_a_line_of_forty_characters_has_forty_ids():
    tokenizer = CharTokenizer.train(LINE)
    ids = tokenizer.encode(LINE)
    assert len(ids) == 40
    assert [ids[0], ids[3]] == [tokenizer.encode("M")[0], 0]  # the space is the lowest code point of the line
    assert tokenizer.decode(ids) == LINE
    assert tokenizer.vocab_size == len(set(LINE)) + 1


@given(TEXT.filter(bool))
def test_any_text_survives_a_round_trip(text):
    tokenizer = CharTokenizer.train(text)
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.unknown(text) == {}
    same = tokenizer_from_json(json.loads(json.dumps(tokenizer.to_json())))
    assert same.encode(text) == tokenizer.encode(text)


def test_unseen_characters_become_unk():
    tokenizer = CharTokenizer.train("abc")
    assert tokenizer.encode("axbx\ud800") == [0, 3, 1, 3, 3]
    assert tokenizer.decode([0, 3, 1]) == "a\ufffdb"
    assert tokenizer.unknown("axbx\ud800") == {"x": 2, "\ud800": 1}


def test_json_does_not_depend_on_the_order_of_the_text():
    assert CharTokenizer.train("abc").to_json() == CharTokenizer.train("cba").to_json()
    expected = {"kind": "char", "characters": ["a", "b"], "specials": ["<pad>", "<unk>"]}
    assert CharTokenizer.train("ba", ("<pad>", "<unk>")).to_json() == expected


def test_training_refuses_what_cannot_work():
    with pytest.raises(TokenizerError, match="is the text empty"):
        CharTokenizer.train("")
    with pytest.raises(TokenizerError, match="needs the special <unk>"):
        CharTokenizer.train("abc", ("<pad>",))
    with pytest.raises(TokenizerError, match="not one string"):
        CharTokenizer.train("abc", "<unk>")
