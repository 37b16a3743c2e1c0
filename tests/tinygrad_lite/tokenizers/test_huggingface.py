"""A tokenizer of the package `tokenizers` behind our interface, compared with the package itself."""

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinygrad_lite.cli.errors import TokenizerError
from tinygrad_lite.tokenizers import tokenizer_from_json
from tinygrad_lite.tokenizers.base import StreamDecoder
from tinygrad_lite.tokenizers.huggingface import PATTERNS, HFTokenizer, byte_characters, gpt2_definition

END = "<|endoftext|>"
MERGES = [("Ġ", "d"), ("Ġd", "e"), ("Ã", "¤"), ("e", "r"), ("Ġde", "r")]


def gpt2_files(specials=(END,)):
    """A vocabulary as GPT-2's: all bytes, then merges, then the special; and the lines of the merges."""
    tokens = [*byte_characters(), *("".join(pair) for pair in MERGES), *specials]
    lines = ["#version: 0.2", *(" ".join(pair) for pair in MERGES), ""]
    return json.dumps({token: number for number, token in enumerate(tokens)}), "\n".join(lines)


@pytest.fixture(scope="module")
def tokenizer():
    pytest.importorskip("tokenizers")
    return HFTokenizer(gpt2_definition(*gpt2_files()))


def test_every_byte_has_one_visible_character():
    table = byte_characters()
    assert sorted(table.values()) == list(range(256))
    assert all(character.isprintable() and not character.isspace() for character in table)
    assert (table["Ġ"], table["Ċ"], table["ä"]) == (0x20, 0x0A, 0xE4)  # as seen in GPT-2's own vocabulary


def test_tokens_follow_the_vocabulary(tokenizer):
    assert tokenizer.kind == "hf"
    assert tokenizer.vocab_size == 256 + len(MERGES) + 1
    ids = tokenizer.encode("ä der\n")
    assert ids == [258, 260, list(byte_characters()).index("Ċ")]
    assert [tokenizer.token_bytes(token) for token in ids] == ["ä".encode(), b" der", b"\n"]
    assert [tokenizer.render(token) for token in ids] == ["ä", " der", "\\n"]


@given(text=st.text())
def test_any_text_survives_a_round_trip_with_the_packages_ids(tokenizer, text):
    tokenizers = pytest.importorskip("tokenizers")
    package = tokenizers.Tokenizer.from_str(tokenizer.definition)
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    if END not in text:
        assert ids == package.encode(text).ids
    assert package.decode(ids, skip_special_tokens=True) == text
    assert tokenizer.unknown(text) == {}
    stream = StreamDecoder(tokenizer)
    assert "".join([*map(stream.push, ids), stream.finish()]) == text


def test_a_lone_surrogate_becomes_the_replacement_character(tokenizer):
    assert tokenizer.decode(tokenizer.encode("a\ud800b")) == "a\ufffdb"


def test_the_name_of_a_special_is_text_unless_allowed(tokenizer):
    special = tokenizer.specials[END]
    assert tokenizer.specials == {END: 261}
    text = f"der{END}"
    assert special not in tokenizer.encode(text)
    assert tokenizer.decode(tokenizer.encode(text)) == text
    allowed = tokenizer.encode(text, allow_special=True)
    assert allowed == [*tokenizer.encode("der"), special]
    assert tokenizer.decode(allowed) == "der"
    assert tokenizer.render(special) == END


def test_special_tokens_may_have_any_id_and_truncation_and_padding_are_off(tokenizer):
    definition = json.loads(tokenizer.definition)
    definition["added_tokens"] = [
        {"id": number, "content": content, "special": special, "single_word": False, "lstrip": False, "rstrip": False}
        | {"normalized": False}
        for number, content, special in [(0, "!", False), (5, "&", True), (300, "<ä>", False)]
    ]
    definition["truncation"] = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    definition["padding"] = {"strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": None}
    definition["padding"] |= {"pad_id": 0, "pad_type_id": 0, "pad_token": "!"}
    definition["model"]["vocab"].pop(END)
    other = HFTokenizer(json.dumps(definition))
    assert other.specials == {"&": 5}
    assert other.token_bytes(5) == b""
    added = next(iter(set(other.encode("a<ä>b")) - set(other.encode("ab"))))
    assert other.token_bytes(added) == "<ä>".encode()
    assert other.decode(other.encode("der der der<ä>")) == "der der der<ä>"


def test_a_vocabulary_without_all_bytes_has_unknown_characters():
    pytest.importorskip("tokenizers")
    small = HFTokenizer(gpt2_definition('{"a": 0, "b": 1}', ""))
    assert small.unknown("abäca") == {"ä": 1, "c": 1}


def test_a_tokenizer_survives_a_round_trip_through_json(tokenizer):
    data = json.loads(json.dumps(tokenizer.to_json()))
    again = tokenizer_from_json(data)
    assert again.to_json() == tokenizer.to_json()
    text = "Der Geist, der stets verneint! äöü"
    assert again.encode(text) == tokenizer.encode(text)
    assert again.specials == tokenizer.specials


def test_a_model_may_have_more_rows_than_tokens(tokenizer):
    wide = HFTokenizer(tokenizer.definition, 300)
    assert wide.vocab_size == 300
    assert wide.decode([299, 260]) == " der"
    assert tokenizer_from_json(wide.to_json()).vocab_size == 300
    with pytest.raises(TokenizerError, match="ids up to 261, which do not fit into 200 tokens"):
        HFTokenizer(tokenizer.definition, 200)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"definition": "{"}, "cannot be read by tokenizers"),
        ({"definition": 3}, "a text as definition"),
        ({"vocab_size": "300"}, "a number as vocab_size"),
        ({"vocab_size": True}, "a number as vocab_size"),
        ({"vocab_size": 10**12}, "do not fit into"),
        ({"more": 1}, "has the fields kind, definition, vocab_size, not"),
    ],
)
def test_invalid_json_is_refused(tokenizer, change, reason):
    with pytest.raises(TokenizerError, match=reason):
        tokenizer_from_json(tokenizer.to_json() | change)


CUTTING = {
    "smollm": [{"type": "Digits", "individual_digits": True}, {"type": "ByteLevel", "add_prefix_space": False}],
    "llama3": [
        {"type": "Split", "pattern": {"Regex": PATTERNS[0]}, "behavior": "Isolated", "invert": False},
        {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
    ],
}
CUTTING["qwen"] = [CUTTING["llama3"][0] | {"pattern": {"Regex": PATTERNS[1]}}, CUTTING["llama3"][1]]


@pytest.mark.parametrize("steps", CUTTING.values(), ids=CUTTING)
@pytest.mark.parametrize("normalizer", [None, {"type": "NFC"}])
def test_text_is_split_into_words_as_by_the_package(tokenizer, steps, normalizer):
    tokenizers = pytest.importorskip("tokenizers")
    definition = json.loads(tokenizer.definition)
    merges = [("1", "9"), ("19", "9"), ("'", "s"), ("Ġ", "Ġ"), ("Ċ", "Ċ"), ("Ġ", "("), *MERGES]
    vocab = definition["model"]["vocab"]
    vocab |= {"".join(pair): 300 + number for number, pair in enumerate(merges[:6])}
    definition["model"] |= {"vocab": vocab, "merges": merges}
    whole = [step | {"trim_offsets": True} if step["type"] == "ByteLevel" else step for step in steps]
    whole[-1] = {"use_regex": True} | whole[-1]
    definition |= {"normalizer": normalizer, "pre_tokenizer": {"type": "Sequence", "pretokenizers": whole}}
    ours = HFTokenizer(json.dumps(definition))
    package = tokenizers.Tokenizer.from_str(json.dumps(definition))
    text = "Der  Geist, der 1999\n\n\n 19 Mal's  (verneint) IT'S a\u0308r"
    assert ours.encode(text) == package.encode(text).ids
    assert tokenizer_from_json(ours.to_json()).encode(text) == ours.encode(text)
    digits = ours.encode("1999") == [ours.encode(digit)[0] for digit in "1999"]
    assert digits == (steps is not CUTTING["llama3"])


def test_other_kinds_of_tokenizers_are_refused(tokenizer):
    definition = json.loads(tokenizer.definition)
    own_pattern = CUTTING["qwen"][0] | {"pattern": {"Regex": "(a+)+$"}}
    for part in (
        {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [own_pattern, CUTTING["qwen"][1]]}},
        {"pre_tokenizer": {"type": "Sequence", "pretokenizers": CUTTING["qwen"][:1]}},
        {"normalizer": {"type": "Lowercase"}},
        {"decoder": None},
        {"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}},
    ):
        with pytest.raises(TokenizerError, match="not a byte-level BPE"):
            HFTokenizer(json.dumps(definition | part))


def test_a_folder_with_the_package_or_gpt2_files_is_read(tokenizer, tmp_path):
    assert HFTokenizer.from_folder(tmp_path) is None
    vocab, merges = gpt2_files()
    (tmp_path / "vocab.json").write_text(vocab, encoding="utf-8")
    assert HFTokenizer.from_folder(tmp_path) is None
    (tmp_path / "merges.txt").write_text(merges, encoding="utf-8", newline="\n")
    assert HFTokenizer.from_folder(tmp_path).to_json() == tokenizer.to_json()
    for damaged in ("Ġ\n", "Ġ nowhere\n"):
        (tmp_path / "merges.txt").write_text(damaged, encoding="utf-8", newline="\n")
        with pytest.raises(TokenizerError, match=r"vocab\.json and merges\.txt are no BPE"):
            HFTokenizer.from_folder(tmp_path)
    (tmp_path / "tokenizer.json").write_text(tokenizer.definition, encoding="utf-8")
    assert HFTokenizer.from_folder(tmp_path, 300).vocab_size == 300
    (tmp_path / "tokenizer.json").write_bytes(b"\xff")
    with pytest.raises(TokenizerError, match="cannot be read"):
        HFTokenizer.from_folder(tmp_path)


def test_without_the_package_an_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(TokenizerError, match=r'not installed: pip install -e "\.\[hf\]"'):
        tokenizer_from_json({"kind": "hf", "definition": "{}", "vocab_size": 3})


@pytest.mark.torch
def test_ids_equal_those_of_transformers(tokenizer, tmp_path):
    transformers = pytest.importorskip("transformers")
    (tmp_path / "tokenizer.json").write_text(tokenizer.definition, encoding="utf-8")
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    for text in ("Der Geist, der stets verneint!", "  zwei\n\nZeilen\t äöü 1808 🙂"):
        assert tokenizer.encode(text) == theirs.encode(text)
        assert tokenizer.decode(tokenizer.encode(text)) == text
