"""A tokenizer of the package `tokenizers` behind our interface, compared with the package itself."""

import json
import sys
from contextlib import nullcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extra.tokenizers import huggingface
from extra.tokenizers.huggingface import BLANK, BYTES, FROM_SENTENCEPIECE, NEWER, OLDER, SPLITS, HFTokenizer
from text.tokenizers import tokenizer_from_json
from text.tokenizers.base import StreamDecoder
from tinygrad_lite.errors import TokenizerError

END = "<|endoftext|>"
MERGES = [("Ġ", "d"), ("Ġd", "e"), ("Ã", "¤"), ("e", "r"), ("Ġde", "r")]


def gpt2_definition(ids=None, merges=MERGES):
    """A tokenizer.json as GPT-2's; by default all bytes, then merges, then the special."""
    tokens = [*huggingface.byte_characters(), *("".join(pair) for pair in merges), END]
    ids = ids or {token: number for number, token in enumerate(tokens)}
    special = [{"id": ids[END], "content": END, "special": True}] if END in ids else []
    definition = {"added_tokens": special, "model": {"vocab": ids, "merges": merges}}
    return json.dumps(definition | {"pre_tokenizer": {"type": "ByteLevel"}, "decoder": {"type": "ByteLevel"}})


@pytest.fixture(scope="module")
def tokenizer(tokenizers):
    return HFTokenizer(gpt2_definition())


@given(text=st.text())
def test_any_text_survives_a_round_trip_with_the_packages_ids(tokenizer, text, tokenizers):
    package = tokenizers.Tokenizer.from_str(tokenizer.definition)
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    if END not in text:
        assert ids == package.encode(text).ids
    assert (package.decode(ids, skip_special_tokens=True), tokenizer.unknown(text)) == (text, {})
    stream = StreamDecoder(tokenizer)
    assert "".join([*map(stream.push, ids), stream.finish()]) == text


def test_special_tokens_may_have_any_id_and_truncation_and_padding_are_off(tokenizer):
    definition = json.loads(tokenizer.definition)
    added = [(0, "!", False), (5, "&", True), (300, "<ä>", False)]
    definition["added_tokens"] = [{"id": i, "content": content, "special": special} for i, content, special in added]
    definition["truncation"] = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    definition["padding"] = {"strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": None}
    definition["padding"] |= {"pad_id": 0, "pad_type_id": 0, "pad_token": "!"}
    definition["model"]["vocab"].pop(END)
    other = HFTokenizer(json.dumps(definition))
    assert (other.specials, other.token_bytes(5)) == ({"&": 5}, b"")
    added = next(iter(set(other.encode("a<ä>b")) - set(other.encode("ab"))))
    assert other.token_bytes(added) == "<ä>".encode()
    assert other.decode(other.encode("der der der<ä>")) == "der der der<ä>"


def test_a_model_may_have_more_rows_than_tokens(tokenizer):
    wide = HFTokenizer(tokenizer.definition, 300)
    assert (tokenizer.vocab_size, wide.vocab_size) == (256 + len(MERGES) + 1, 300)
    assert (wide.decode([299, 260]), tokenizer_from_json(wide.to_json()).vocab_size) == (" der", 300)
    with pytest.raises(TokenizerError, match="ids up to 261, which do not fit into 200 tokens"):
        HFTokenizer(tokenizer.definition, 200)


INVALID = [
    ({"definition": "{"}, "cannot be read by tokenizers"),
    ({"vocab_size": "300"}, "the tokenizer.s vocab_size must be a whole number"),
    ({"vocab_size": 10**12}, "do not fit into"),
]


@pytest.mark.parametrize(("change", "reason"), INVALID)
def test_invalid_json_is_refused(tokenizer, change, reason):
    with pytest.raises(TokenizerError, match=reason):
        tokenizer_from_json(tokenizer.to_json() | change)


CUTTING = {
    "smollm": [{"type": "Digits", "individual_digits": True}, {"type": "ByteLevel", "add_prefix_space": False}],
    "llama3": [SPLITS[0], {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}],
}
CUTTING["qwen"] = [SPLITS[1], CUTTING["llama3"][1]]


def template(*before, after=(), ids=(261,)):
    """The post-processor that puts special tokens before and after a text."""
    special = {"SpecialToken": {"id": END, "type_id": 0}}
    single = [*(special for _ in before), {"Sequence": {"id": "A", "type_id": 0}}, *(special for _ in after)]
    pair = [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}]
    specials = {END: {"id": END, "ids": list(ids), "tokens": [END] * len(ids)}}
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": specials}


BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
PROCESSORS = [(BYTE_LEVEL, 0), (template("a"), 1), (template("a", "b", ids=(261, 5)), 4)]
PROCESSORS += [({"type": "Sequence", "processors": [BYTE_LEVEL, template("a")]}, 1)]


@pytest.mark.parametrize(("processor", "count"), PROCESSORS)
def test_the_post_processor_begins_a_text_as_in_the_package(tokenizer, processor, count, tokenizers):
    definition = json.dumps(json.loads(tokenizer.definition) | {"post_processor": processor})
    package, ours = tokenizers.Tokenizer.from_str(definition), HFTokenizer(definition)
    assert len(ours.prefix) == count
    for text in ("", "der Geist", " x"):
        assert ours.encode_whole(text) == package.encode(text).ids
        assert ours.encode(text) == tokenizer.encode(text)  # a part of a text
    again = tokenizer_from_json(json.loads(json.dumps(ours.to_json())))
    assert (again.prefix, again.to_json()) == (ours.prefix, ours.to_json())


BESIDE = [
    ({"add_prefix_space": True}, "add_prefix_space is True in tokenizer_config.json, but False in its tokenizer"),
    ({"add_prefix_space": True, "tokenizer_class": "PreTrainedTokenizerFast"}, ""),
    ({"add_prefix_space": False, "add_bos_token": True}, ""),
]


@pytest.mark.parametrize(("about", "reason"), BESIDE)
def test_settings_beside_the_tokenizer_are_checked(tokenizer, about, reason, tmp_path):
    (tmp_path / "tokenizer.json").write_text(tokenizer.definition, encoding="utf-8")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(about), encoding="utf-8")
    with pytest.raises(TokenizerError, match=reason) if reason else nullcontext():
        assert HFTokenizer.from_folder(tmp_path).encode("der") == tokenizer.encode("der")


@pytest.mark.parametrize("steps", CUTTING.values(), ids=CUTTING)
def test_text_is_split_into_words_as_by_the_package(tokenizer, steps, tokenizers):
    definition = json.loads(tokenizer.definition)
    merges = [("1", "9"), ("19", "9"), ("'", "s"), ("Ġ", "Ġ"), ("Ċ", "Ċ"), ("Ġ", "("), *MERGES]
    vocab = definition["model"]["vocab"]
    vocab |= {"".join(pair): 300 + number for number, pair in enumerate(merges[:6])}
    definition["model"] |= {"vocab": vocab, "merges": merges}
    whole = [step | {"trim_offsets": True} if step["type"] == "ByteLevel" else step for step in steps]
    whole[-1] = {"use_regex": True} | whole[-1]
    definition |= {"normalizer": {"type": "NFC"}, "pre_tokenizer": {"type": "Sequence", "pretokenizers": whole}}
    ours = HFTokenizer(json.dumps(definition))
    package = tokenizers.Tokenizer.from_str(json.dumps(definition))
    text = "Der  Geist, der 1999\n\n\n 19 Mal's  (verneint) IT'S a\u0308r"
    assert ours.encode(text) == package.encode(text).ids


def sentencepiece(normalizer, cutting, scheme=None):
    """A definition as SentencePiece's are written, with the special <s>, which begins every text."""
    pieces = [*BYTES, BLANK, *"abdert", "de", f"{BLANK}de", f"{BLANK}der", "er", BLANK * 2]
    merges = [["d", "e"], [BLANK, "de"], [f"{BLANK}de", "r"], ["e", "r"], [BLANK, BLANK]]
    vocab = {"<unk>": 0, "<s>": 1} | {piece: number for number, piece in enumerate(pieces, start=2)}
    special = [{"id": vocab[name], "content": name, "special": True} for name in ("<unk>", "<s>")]
    model = {"type": "BPE", "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True}
    return {
        "added_tokens": special,
        "normalizer": normalizer,
        "pre_tokenizer": cutting and cutting | {"prepend_scheme": scheme},
        "post_processor": huggingface.starting_with([("<s>", [1])]),
        "decoder": FROM_SENTENCEPIECE,
        "model": model | {"vocab": vocab, "merges": merges},
    }


FLAGS = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}


@pytest.mark.parametrize("parts", [(OLDER, None), (None, NEWER, "first"), (None, NEWER, "always")])
def test_sentencepieces_tokens_are_those_of_the_package(parts, tokenizers):
    given = sentencepiece(*parts)
    ours = HFTokenizer(json.dumps(given))
    given["added_tokens"] = [token | FLAGS for token in given["added_tokens"]]
    package = tokenizers.Tokenizer.from_str(json.dumps(given))
    assert ours.prefix == [1]
    for text in ("der", "der  tätä", " a\nder", "🙂 <s>b", ""):
        package.encode_special_tokens = True
        assert ours.encode_whole(text) == package.encode(text).ids
        decoded = ours.decode(ours.encode(text))
        has_blank = text.startswith(" ") and parts[0] is None
        assert decoded == (f" {text}" if text and not has_blank else text)  # the first token's own blank
        stream = StreamDecoder(ours)
        assert "".join([*map(stream.push, ours.encode(text)), stream.finish()]) == decoded
        assert ours.unknown(text) == {}
    package.encode_special_tokens = False
    between = "der<s>de<s> t"
    assert ours.encode(between, allow_special=True) == package.encode(between, add_special_tokens=False).ids
    assert package.decode(ours.encode("der t")) == "der t"
    assert tokenizers.Tokenizer.from_str(ours.definition).decode(ours.encode("der t")) == "der t"


OWN_PATTERN = SPLITS[1] | {"pattern": {"Regex": "(a+)+$"}}
# Parts of a definition that are not taken. Some could exhaust the memory, or take forever.
OTHERS = [
    {"pre_tokenizer": OWN_PATTERN},
    {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [OWN_PATTERN, CUTTING["qwen"][1]]}},
    {"normalizer": {"type": "Lowercase"}},
    {"normalizer": {"type": "Prepend", "prepend": "x" * 1000}},
    {"decoder": {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}},
    {"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}},
    *(sentencepiece(*parts) for parts in ((OLDER, NEWER, "first"), (None, NEWER, "never"))),
]
REFUSED = [(parts, "neither a byte-level BPE") for parts in OTHERS]
REFUSED += [
    ({"post_processor": template(after=("a",))}, "does more than put special tokens before"),
    ({"post_processor": template("a", ids=(300,))}, "an id without a token"),
]


@pytest.mark.parametrize(("parts", "reason"), REFUSED)
def test_other_definitions_are_refused(tokenizer, parts, reason):
    with pytest.raises(TokenizerError, match=reason):
        HFTokenizer(json.dumps(json.loads(tokenizer.definition) | parts))


def test_a_folder_with_the_definition_is_read(tokenizer, tmp_path):
    assert HFTokenizer.from_folder(tmp_path) is None
    (tmp_path / "tokenizer.json").write_text(tokenizer.definition, encoding="utf-8")
    assert HFTokenizer.from_folder(tmp_path).to_json() == tokenizer.to_json()
    assert HFTokenizer.from_folder(tmp_path, 300).vocab_size == 300


def test_without_the_package_an_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(TokenizerError, match=r'not installed: pip install -e "\.\[hf\]"'):
        tokenizer_from_json({"kind": "hf", "definition": "{}", "vocab_size": 3})
