import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinygrad_lite.errors import TokenizerError
from workshop.tokenizers import tokenizer_from_json
from workshop.tokenizers.base import StreamDecoder
from workshop.tokenizers.bpe import BPETokenizer
from workshop.tokenizers.byte import ByteTokenizer

TEXT = st.text(st.characters() | st.characters(categories=["Cs"]))  # with unpaired surrogates


@given(TEXT)
def test_ids_are_bytes_and_any_text_survives_a_round_trip(text):
    tokenizer = ByteTokenizer(["<eos>"])
    ids = tokenizer.encode(text)
    assert bytes(ids) == text.encode("utf-8", "surrogatepass")
    assert tokenizer.decode(ids) == text
    assert tokenizer.unknown(text) == {}
    assert ids == BPETokenizer([]).encode(text)


def test_the_vocabulary_has_256_bytes_and_the_special_tokens():
    tokenizer = ByteTokenizer(["<pad>", "<eos>"])
    assert tokenizer.kind == "byte"
    assert tokenizer.vocab_size == 258
    assert tokenizer.specials == {"<pad>": 256, "<eos>": 257}
    assert ByteTokenizer().vocab_size == 256
    assert [tokenizer.render(i) for i in (65, 10, 195, 257)] == ["A", "\\n", "\\xc3", "<eos>"]


def test_a_stream_waits_for_whole_characters():
    stream = StreamDecoder(ByteTokenizer())
    assert [stream.push(token) for token in "ä€".encode()] == ["", "ä", "", "", "€"]


def test_a_tokenizer_survives_a_round_trip_through_json():
    data = {"kind": "byte", "specials": ["<eos>"]}
    tokenizer = tokenizer_from_json(json.loads(json.dumps(data)))
    assert type(tokenizer) is ByteTokenizer
    assert tokenizer.to_json() == data


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ({"kind": "byte"}, "fields kind, specials"),
        ({"kind": "byte", "specials": [], "merges": []}, "fields kind, specials"),
        ({"kind": "byte", "specials": "<eos>"}, "specials must be a list"),
        ({"kind": "byte", "specials": ["a", "a"]}, "'a' is given twice"),
        ({"kind": "byte", "specials": [7]}, "not 7"),
    ],
)
def test_broken_json_is_refused_with_the_reason(data, reason):
    with pytest.raises(TokenizerError, match=reason):
        tokenizer_from_json(data)
