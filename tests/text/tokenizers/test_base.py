import json
import os
import re
import subprocess
import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

import families  # noqa: F401 (with which the shelf's kinds enter the table, where that is)
from tests.text.tokenizers.test_bpe import some_german
from text.tokenizers import KINDS, LEARNED, learn, tokenizer_from_json
from text.tokenizers.base import StreamDecoder, Tokenizer
from text.tokenizers.bpe import BPETokenizer
from text.tokenizers.byte import ByteTokenizer
from text.tokenizers.char import CharTokenizer
from text.tokenizers.word import WordTokenizer, split_pieces
from tinygrad_lite.errors import TokenizerError

LINE = "Mit Worten läßt sich trefflich streiten,"
SPECIALS = ("<pad>", "<bos>", "<eos>", "<unk>")
TEXT = st.text(st.characters() | st.characters(categories=["Cs"]))  # with unpaired surrogates


KINDS_OF_TEXT = (*LEARNED, *{"bpe-w"} & KINDS.keys())


def all_kinds() -> list[Tokenizer]:
    text = LINE + " mit Worten ein System bereiten 😀"
    return [learn(kind, text, 300, SPECIALS) for kind in KINDS_OF_TEXT]


@pytest.mark.parametrize("tokenizer", all_kinds(), ids=lambda t: t.kind)
def test_allowed_specials_become_their_ids_and_are_not_shown(tokenizer):
    ids = tokenizer.encode("<bos>Mit<eos><eos>ist", allow_special=True)
    bos, eos = tokenizer.specials["<bos>"], tokenizer.specials["<eos>"]
    assert ids == [bos, *tokenizer.encode("Mit"), eos, eos, *tokenizer.encode("ist")]
    assert tokenizer.decode(ids) == tokenizer.decode(tokenizer.encode("Mit") + tokenizer.encode("ist"))
    assert tokenizer.decode([tokenizer.specials["<unk>"]]) == "\ufffd"
    assert tokenizer.encode("<bos>Mit<eos>", ["<eos>"]) == [*tokenizer.encode("<bos>Mit"), eos]
    with pytest.raises(TokenizerError, match=f"this {tokenizer.kind} tokenizer has no special token '<x>'"):
        tokenizer.encode("Mit", ["<eos>", "<x>"])


def test_the_longest_of_overlapping_special_names_is_used(monkeypatch):
    tokenizer = BPETokenizer([], ["<to", "<to-fr>", "a|b"])
    assert tokenizer.encode("<to-fr><toa|ba", allow_special=True) == [257, 256, 258, 97]
    monkeypatch.setattr(BPETokenizer, "encode_after", lambda self, text: [0])  # as in some pretrained models
    assert tokenizer.encode("a<tob", allow_special=True) == [97, 256, 0]


@pytest.mark.parametrize("tokenizer", all_kinds(), ids=lambda t: t.kind)
def test_every_id_decodes_and_renders_and_other_ids_are_refused(tokenizer):
    for token in range(tokenizer.vocab_size):
        assert tokenizer.decode([token]) == tokenizer.token_bytes(token).decode("utf-8", "replace")
        assert tokenizer.render(token).isprintable()
    for token in (-1, tokenizer.vocab_size, 10**9):
        for use in (tokenizer.token_bytes, tokenizer.render, lambda token: tokenizer.decode([0, token])):
            with pytest.raises(TokenizerError, match=f"token id {token} is not in"):
                use(token)


LETTERS = [chr(c) for c in range(0xD7F0, 0xD8F3)]
STREAMED = [CharTokenizer(LETTERS), WordTokenizer(LETTERS)]
STREAMED += [ByteTokenizer(SPECIALS), BPETokenizer([(0xED, 0xA0)], SPECIALS[:3])]
if "bpe-w" in KINDS:
    STREAMED.append(KINDS["bpe-w"](LETTERS[:-2], [(5, 6)]))


@given(st.lists(st.integers(0, 259)), st.sampled_from(STREAMED))
def test_streamed_pieces_join_to_the_decoded_text(ids, tokenizer):
    """Two streams at a time do not mix, and at the end each has held back nothing but part of a character."""
    # Bytes in any order are mostly broken UTF-8, and the 256 ids cover all of it.
    assert tokenizer.vocab_size == 260
    texts, streams, shown = (ids, ids[::-1]), [StreamDecoder(tokenizer), StreamDecoder(tokenizer)], ["", ""]
    for both in zip(*texts, strict=True):
        shown = [text + stream.push(token) for text, stream, token in zip(shown, streams, both, strict=True)]
    for text, stream, begun in zip(texts, streams, shown, strict=True):
        rest = stream.finish()
        assert (begun + rest, rest in ("", "\ufffd", "\ufffd\ufffd")) == (tokenizer.decode(text), True)


@given(TEXT)
def test_a_stream_never_outputs_part_of_a_character(text):
    tokenizer = BPETokenizer([])
    stream = StreamDecoder(tokenizer)
    pieces = [stream.push(token) for token in tokenizer.encode(text)]
    assert ("".join(pieces), [piece for piece in pieces if piece]) == (text, list(text))
    assert stream.finish() == ""


DIFFICULT = ["", "\0", "a\0b", "\r\n\r\n", "  zwei  Leerzeichen ", "\t\n „So“ – 1.000,50 €", "👩‍👩‍👧‍👦", "שלום"]
DIFFICULT += ["\ud83d\ude00", "\udcff", "u\u0308ber"]


@pytest.mark.parametrize("kind", KINDS_OF_TEXT)
@given(text=TEXT | st.sampled_from(DIFFICULT), other=TEXT | st.sampled_from(DIFFICULT))
def test_any_text_is_known_to_what_was_learned_from_it_also_after_a_round_trip_through_json(kind, text, other):
    tokenizer = learn(kind, f"x\n{text}\n{text}", 10_000, ["<pad>"])
    ids = tokenizer.encode(text)
    expected = "".join(word + " " for word in text.split()) if kind == "bpe-w" else text
    assert (tokenizer.decode(ids), tokenizer.encode(expected)) == (expected, ids)
    assert tokenizer.unknown(text) == {}
    same = tokenizer_from_json(json.loads(json.dumps(tokenizer.to_json())))
    assert type(same) is type(tokenizer)
    assert (same.encode(text), same.specials, same.vocab_size) == (ids, tokenizer.specials, tokenizer.vocab_size)
    assert same.encode(other) == tokenizer.encode(other)
    assert tokenizer.unknown(other) or tokenizer.decode(tokenizer.encode(other)) == other or kind == "bpe-w"
    assert same.to_json() == tokenizer.to_json()


def test_learning_does_not_depend_on_the_hash_seed():
    code = """if True:
        import json, sys
        from text.tokenizers import LEARNED, learn
        text = sys.stdin.buffer.read().decode()
        print(json.dumps([learn(kind, text, 300, ["<eos>", "<pad>"]).to_json() for kind in LEARNED]))
    """
    text = some_german(400)
    outputs = {json.dumps([learn(kind, text, 300, ["<eos>", "<pad>"]).to_json() for kind in LEARNED])}
    for seed in ("0", "1"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", code]
        run = subprocess.run(command, input=text.encode(), capture_output=True, env=environment, check=True)
        outputs.add(run.stdout.decode().strip())
    assert len(outputs) == 1


def test_the_smallest_vocabularies_are_learned():
    assert learn("word", "abc", 3, ["<pad>", "<unk>"]).vocab_size == 3
    assert learn("bpe", "abc", 258, ["<bos>", "<eos>"]).vocab_size == 258
    assert {"bpe", "word"} == {kind for kind in ("bpe", "byte", "char", "word") if LEARNED[kind].takes_size}


UNLEARNABLE = [
    *((kind, "", 300, ["<unk>"], "is the text empty") for kind in ("char", "word", "bpe-w")),
    *((kind, "a", 300, ["<pad>"], f"a {kind} tokenizer needs the special <unk>") for kind in ("char", "word", "bpe-w")),
    ("char", "abc", 9, "<unk>", "not one string"),
    ("word", "abc", 2, ["<pad>", "<unk>"], "vocab_size is 2, but 2 special tokens and one word need 3"),
    ("bpe", "", 300, [], "empty text"),
    ("bpe", "abc", 257, ["<bos>", "<eos>"], "vocab_size is 257, .* use at least 258"),
    ("bpe-w", "abc", 4, ["<unk>"], "vocab_size is 4, .* 3 different characters, .* </w> and 1 .* make 5"),
    ("wordpiece", "ab", 2, ["[UNK]"], "vocab_size is 2, but 1 special token and a character, .* need 3"),
]


@pytest.mark.parametrize(
    ("kind", "text", "vocab_size", "specials", "reason"), [row for row in UNLEARNABLE if row[0] in KINDS]
)
def test_learning_refuses_what_cannot_work(kind, text, vocab_size, specials, reason):
    with pytest.raises(TokenizerError, match=reason):
        KINDS[kind].train(text, vocab_size=vocab_size, specials=specials)


GOOD = {
    "char": {"characters": ["a", "b"], "specials": ["<unk>"]},
    "byte": {"specials": ["<eos>"]},
    "word": {"words": ["a", "b"], "specials": ["<unk>"]},
    "bpe": {"merges": [[97, 98]], "specials": []},
    "bpe-w": {"characters": ["a", "b"], "merges": [], "specials": ["<unk>"]},
    "wordpiece": {"pieces": ["[UNK]", "a"], "specials": ["[UNK]"], "lowercase": True},
    "labels": {"labels": ["cat"], "specials": []},
    "pixels": {"specials": ["<start>"], "shades": 3},
}


GOOD = {kind: data for kind, data in GOOD.items() if kind in KINDS}
PARTS = [(kind, name, value) for kind, data in GOOD.items() for name, value in data.items()]


@pytest.mark.parametrize(("kind", "name", "value"), PARTS)
def test_each_part_of_the_json_must_be_there_and_of_its_type(kind, name, value):
    data = {"kind": kind} | GOOD[kind]
    assert tokenizer_from_json(data).to_json() == data
    for wrong in ("ab", {"a": 0}, None, 1.5):
        with pytest.raises(TokenizerError, match=f"the tokenizer's {name} must be a|must be true"):
            tokenizer_from_json(data | {name: wrong})
    del data[name]
    for wrong in (data, data | {name: value, "extra": []}):
        with pytest.raises(TokenizerError, match=f"fields kind, {', '.join(GOOD[kind])}, not"):
            tokenizer_from_json(wrong)


NO_TOKENIZERS = [
    *((None, "JSON object, not as None"), ([], "JSON object"), ("char", "JSON object")),
    ({}, "unknown kind of tokenizer None: known are char, byte, .*bpe, word"),
    *(({"kind": "gpt2"}, "unknown kind of tokenizer 'gpt2'"), ({"kind": ["char"]}, "unknown kind")),
]


# By kind and part: values, each with the reason why it is refused.
BROKEN = {
    ("char", "characters"): [
        *((["a", wrong], re.escape(f"single characters, not {wrong!r}")) for wrong in ("bc", 98, ["b"])),
        (["b", "a"], "sorted by code point"),
    ],
    ("char", "specials"): [
        ([], "needs the special <unk>"),
        (["<unk>", "<unk>"], "'<unk>' is given twice"),
        *((["<unk>", name], "1 to 100 printable characters") for name in ("", "x" * 101, "\n")),
        (["<unk>", 3], "not 3"),
        (["<unk>"] * 10_001, "too many"),
    ],
    ("word", "words"): [
        *(([wrong], f"words of letters and single characters, not {wrong!r}") for wrong in ("a b", 1)),
        (["x" * 10**6 + "!"], "not 'xxx"),
        (["a", "b", "a"], "'a' is given twice"),
    ],
    ("bpe", "merges"): [
        *(([[97, *rest]], "list of two token ids") for rest in ([], [98, 99], [98.0], [[98] * 1000])),
        ([[97, 256]], r"merge 0 \(token 256\) joins 97 and 256, but only ids below 256 exist yet"),
        ([[-1, 97]], "only ids below 256"),
        ([[97, 98], [256, 99], [97, 98]], "as an earlier merge already does"),
        ([[97, 97], *([i, i] for i in range(256, 300))], "has 512 bytes"),
        ([[97, 98]] * 1_000_001, "too many"),
    ],
    ("bpe-w", "characters"): [
        (["b", "a"], "sorted by code point"),
        (["a", "\u2003"], "white space is where words are split"),
    ],
    ("bpe-w", "merges"): [
        ([[0, 3]], r"merge 0 \(token 3\) joins 0 and 3, but only ids below 3 exist yet"),
        ([[2, 0]], "merge 0 joins 2 and 0, but no word continues after </w>"),
        ([[0, 2], [3, 1]], "merge 1 joins 3 and 1, but no word"),
    ],
    ("wordpiece", "pieces"): [
        (["[UNK]", "a", "a"], "the piece 'a' of the vocabulary is given twice"),
        (["a b", "[UNK]"], "without white space, but number 0 is 'a b'"),
        (["a" * 103, "[UNK]"], "at most 100 characters"),
        (["a"], r"special token '\[UNK\]' is not in the vocabulary"),
    ],
    ("pixels", "shades"): [(1, "2 to 256 shades"), (257, "2 to 256 shades")],
    ("labels", "labels"): [(["cat", "cat"], "same name"), ([""], "1 to 1000 characters")],
}
ROWS = [(*part, *row) for part, rows in BROKEN.items() if part[0] in KINDS for row in rows]
REFUSED = [({"kind": kind} | GOOD[kind] | {name: value}, reason) for kind, name, value, reason in ROWS]


@pytest.mark.parametrize(("data", "reason"), [*NO_TOKENIZERS, *REFUSED])
def test_broken_json_is_refused_with_the_reason(data, reason):
    with pytest.raises(TokenizerError, match=reason) as caught:
        tokenizer_from_json(data)
    assert len(str(caught.value)) < 300


# --- characters -----------------------------------------------------------------------------------------------


def test_unseen_characters_become_unk():
    tokenizer = CharTokenizer.train("abc")
    assert (tokenizer.encode("axbx\ud800"), tokenizer.decode([0, 3, 1])) == ([0, 3, 1, 3, 3], "a\ufffdb")
    assert tokenizer.unknown("axbx\ud800") == {"x": 2, "\ud800": 1}


# --- bytes ----------------------------------------------------------------------------------------------------


@given(TEXT)
def test_ids_are_bytes_as_in_byte_pair_encoding_without_merges(text):
    ids = ByteTokenizer(["<eos>"]).encode(text)
    assert (bytes(ids), ids) == (text.encode("utf-8", "surrogatepass"), BPETokenizer([]).encode(text))


# --- words ----------------------------------------------------------------------------------------------------


@given(TEXT)
def test_pieces_cover_the_text(text):
    pieces = split_pieces(text)
    assert "".join(pieces) == text
    assert all(len(piece) == 1 or piece.isalnum() for piece in pieces)
    # Cut as far as possible: two pieces that are both letters are never side by side.
    assert not any(re.fullmatch(r"[^\W\d_]{2}", a[-1] + b[0]) for a, b in pairwise(pieces))


@given(st.text("aä ,\n1", min_size=1), st.text("aäb ,.\n1"))
def test_ids_are_unk_exactly_where_something_is_unknown(text, other):
    tokenizer = WordTokenizer.train(text, 4)
    unknown, ids = tokenizer.unknown(other), tokenizer.encode(other)
    assert ids.count(tokenizer.specials["<unk>"]) == sum(unknown.values())
    expected = "".join("\ufffd" if piece in unknown else piece for piece in split_pieces(other))
    assert tokenizer.decode(ids) == expected
