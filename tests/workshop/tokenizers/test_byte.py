from hypothesis import given
from hypothesis import strategies as st

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
