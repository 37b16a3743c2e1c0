import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinygrad_lite.errors import TokenizerError
from workshop.tokenizers import LEARNED, learn, tokenizer_from_json
from workshop.tokenizers.base import StreamDecoder, Tokenizer
from workshop.tokenizers.bpe import BPETokenizer
from workshop.tokenizers.byte import ByteTokenizer
from workshop.tokenizers.char import CharTokenizer
from workshop.tokenizers.end_of_word import EndOfWordTokenizer
from workshop.tokenizers.word import WordTokenizer

LINE = "Mit Worten läßt sich trefflich streiten,"
SPECIALS = ("<pad>", "<bos>", "<eos>", "<unk>")
TEXT = st.text(st.characters() | st.characters(categories=["Cs"]))  # with unpaired surrogates


def all_kinds() -> list[Tokenizer]:
    text = LINE + " mit Worten ein System bereiten 😀"
    return [learn(kind, text, 300, SPECIALS) for kind in LEARNED]


@pytest.mark.parametrize("tokenizer", all_kinds(), ids=lambda t: t.kind)
def test_the_name_of_a_special_in_user_text_stays_text(tokenizer):
    text = "".join(SPECIALS)
    ids = tokenizer.encode(text)
    unk = tokenizer.specials["<unk>"]
    assert all(i == unk or i < min(tokenizer.specials.values()) for i in ids)
    if tokenizer.kind in ("bpe", "byte"):
        assert unk not in ids
        assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("tokenizer", all_kinds(), ids=lambda t: t.kind)
def test_allowed_specials_become_their_ids_and_are_not_shown(tokenizer):
    ids = tokenizer.encode("<bos>Mit<eos><eos>ist", allow_special=True)
    bos, eos = tokenizer.specials["<bos>"], tokenizer.specials["<eos>"]
    assert ids == [bos, *tokenizer.encode("Mit"), eos, eos, *tokenizer.encode("ist")]
    assert tokenizer.decode(ids) == tokenizer.decode(tokenizer.encode("Mit") + tokenizer.encode("ist"))
    assert tokenizer.decode([tokenizer.specials["<unk>"]]) == "\ufffd"


def test_the_longest_of_overlapping_special_names_is_used():
    tokenizer = BPETokenizer([], ["<to", "<to-fr>", "a|b"])
    assert tokenizer.encode("<to-fr><toa|ba", allow_special=True) == [257, 256, 258, 97]


def test_without_specials_allowing_them_changes_nothing():
    assert BPETokenizer([]).encode("a<eos>", allow_special=True) == list(b"a<eos>")


@pytest.mark.parametrize("tokenizer", all_kinds(), ids=lambda t: t.kind)
def test_every_id_decodes_and_renders_and_other_ids_are_refused(tokenizer):
    for token in range(tokenizer.vocab_size):
        assert tokenizer.decode([token]) == tokenizer.token_bytes(token).decode("utf-8", "replace")
        assert tokenizer.render(token).isprintable()
    for token in (-1, tokenizer.vocab_size, 10**9):
        for use in (tokenizer.token_bytes, tokenizer.render, lambda token: tokenizer.decode([0, token])):
            with pytest.raises(TokenizerError, match=f"token id {token} is not in"):
                use(token)


@pytest.mark.parametrize("tokenizer", all_kinds(), ids=lambda t: t.kind)
def test_ids_may_be_an_array(tokenizer):
    ids = tokenizer.encode(LINE)
    assert all(type(token) is int for token in ids)
    shown = LINE + " " if tokenizer.kind == "bpe-w" else LINE  # the last word ends with a blank too
    assert tokenizer.decode(np.array(ids, dtype=np.uint16)) == shown
    assert tokenizer.decode(iter(ids)) == shown


def test_render_escapes_what_cannot_be_printed():
    tokenizer = BPETokenizer([(195, 164), (13, 10), (240, 159)], ["<eos>"])
    shown = [tokenizer.render(token) for token in (97, 0, 195, 256, 257, 258, 259)]
    assert shown == ["a", "\\x00", "\\xc3", "ä", "\\r\\n", "\\xf0\\x9f", "<eos>"]


@given(st.lists(st.integers(0, 259)), st.integers(0, 4))
def test_streamed_pieces_join_to_the_decoded_text(ids, kind):
    # Bytes in any order are mostly broken UTF-8, and the 256 ids cover all of it.
    tokenizer = [
        CharTokenizer([chr(c) for c in range(0xD7F0, 0xD8F3)]),
        ByteTokenizer(SPECIALS),
        WordTokenizer([chr(c) for c in range(0xD7F0, 0xD8F3)]),
        BPETokenizer([(0xED, 0xA0)], SPECIALS[:3]),
        EndOfWordTokenizer([chr(c) for c in range(0xD7F0, 0xD8F1)], [(5, 6)]),
    ][kind]
    assert tokenizer.vocab_size == 260
    stream = StreamDecoder(tokenizer)
    pieces = [stream.push(token) for token in ids]
    assert "".join(pieces) + stream.finish() == tokenizer.decode(ids)


@given(TEXT)
def test_a_stream_never_outputs_part_of_a_character(text):
    tokenizer = BPETokenizer([])
    stream = StreamDecoder(tokenizer)
    pieces = [stream.push(token) for token in tokenizer.encode(text)]
    assert "".join(pieces) == text
    assert [piece for piece in pieces if piece] == list(text)
    assert stream.finish() == ""


def test_a_finished_stream_can_be_used_again():
    stream = StreamDecoder(BPETokenizer([]))
    assert [stream.push(0xF0), stream.push(0x9F), stream.finish()] == ["", "", "\ufffd"]
    assert [stream.push(0x61), stream.finish()] == ["a", ""]


@pytest.mark.parametrize("tokenizer", all_kinds(), ids=lambda t: t.kind)
def test_a_tokenizer_survives_a_round_trip_through_json(tokenizer):
    same = tokenizer_from_json(json.loads(json.dumps(tokenizer.to_json())))
    assert type(same) is type(tokenizer)
    assert same.specials == tokenizer.specials
    assert same.vocab_size == tokenizer.vocab_size
    assert same.encode(LINE + "\n😀é") == tokenizer.encode(LINE + "\n😀é")
    assert same.to_json() == tokenizer.to_json()


def char_json(**changes) -> dict:
    return {"kind": "char", "characters": ["a", "b"], "specials": ["<unk>"]} | changes


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (None, "JSON object, not as None"),
        ([], "JSON object"),
        ("char", "JSON object"),
        ({}, "unknown kind of tokenizer None: known are char, byte, bpe, bpe-w, word"),
        ({"kind": "gpt2"}, "unknown kind of tokenizer 'gpt2'"),
        ({"kind": ["char"]}, "unknown kind"),
        ({"kind": "char"}, "fields kind, characters, specials"),
        (char_json(extra=1), "fields kind, characters, specials"),
        (char_json(characters="ab"), "characters must be a list"),
        (char_json(characters={"a": 0}), "characters must be a list"),
        (char_json(characters=[]), "at least one character"),
        (char_json(characters=["a", "bc"]), "single characters, not 'bc'"),
        (char_json(characters=["", "a"]), "single characters, not ''"),
        (char_json(characters=["a", 98]), "single characters, not 98"),
        (char_json(characters=["a", ["b"]]), "single characters"),
        (char_json(characters=["a", "a"]), "'a' follows 'a'"),
        (char_json(characters=["b", "a"]), "sorted by code point"),
        (char_json(specials="<unk>"), "specials must be a list"),
        (char_json(specials=[]), "needs the special <unk>"),
        (char_json(specials=["<unk>", "<unk>"]), "'<unk>' is given twice"),
        (char_json(specials=["<unk>", ""]), "1 to 100 printable characters"),
        (char_json(specials=["<unk>", 3]), "not 3"),
        (char_json(specials=["<unk>", None]), "not None"),
        (char_json(specials=["<unk>", "x" * 101]), "1 to 100 printable characters"),
        (char_json(specials=["<unk>", "\ud800"]), "1 to 100 printable characters"),
        (char_json(specials=["<unk>"] * 10_001), "too many"),
    ],
)
def test_broken_json_is_refused_with_the_reason(data, reason):
    with pytest.raises(TokenizerError, match=reason) as caught:
        tokenizer_from_json(data)
    assert len(str(caught.value)) < 300


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-1, 300)
    | st.floats(allow_nan=False)
    | st.sampled_from(["a", "b", "<unk>", ""]),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=8,
)


@given(
    st.dictionaries(st.sampled_from(["characters", "words", "merges", "pieces", "lowercase", "specials"]), JSON),
    st.sampled_from(["char", "byte", "word", "bpe", "bpe-w", "wordpiece"]),
)
def test_any_json_gives_a_working_tokenizer_or_a_tokenizer_error(fields, kind):
    data = {"kind": kind} | fields
    try:
        tokenizer = tokenizer_from_json(data)
    except TokenizerError:
        return
    assert tokenizer.to_json() == data
    assert isinstance(tokenizer.decode(tokenizer.encode("a<unk>")), str)
