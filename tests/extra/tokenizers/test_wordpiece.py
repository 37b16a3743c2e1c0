"""WordPiece: by hand, by a plain definition, and exactly as the package `tokenizers` for a given vocabulary."""

import json
import string
import unicodedata
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extra.tokenizers import wordpiece
from extra.tokenizers.wordpiece import MASK, MAX_WORD, SPECIALS, WordPieceTokenizer, split_words
from text.tokenizers.base import StreamDecoder
from text.tokenizers.bpe import reference_merges
from tinygrad_lite.errors import TokenizerError

TEXT = "Wär' nicht das Auge sonnenhaft, die Sonne könnt' es nie erblicken; sonnenhafte Augen, Sonnen.\n" * 2
SMALL = WordPieceTokenizer([*SPECIALS, "un", "##aff", "##able", "aff", "##a", "a", "café", "中", "!", "ß", "Σ", "σ"])
# Letters, accents alone and in letters, marks, symbols, every kind of white space and control, Chinese, Korean, emoji.
HARD = "abAB ßẞäÄéÉİıΣςσ#[]UNKMASK,.!?'’-_$+^`~¿„“… \t\n\r\x00\x07\x0b\x0c\x1c\x1f\x85\xa0\xad\u0301\u0308\u200b\u200d"
HARD += "\u2003\u2028\u3000\ufeff\ufffd\ue000中国\u3400\uf900\U0002f800\U0002b820\U0002b920한ｱア、。"
HARD += "👍🏽👩\U000e0041ǅﬁ²½"


def texts(characters: str = HARD) -> st.SearchStrategy[str]:
    return st.text(st.sampled_from(characters) | st.characters(max_codepoint=0x4FF, exclude_categories=["Cn"]))


def test_the_longest_piece_is_taken_and_a_word_without_one_is_unknown():
    """The example of Google's own test: unaffable is un ##aff ##able."""
    shown = [SMALL.render(token) for token in SMALL.encode("unaffable affa unaffx a!a" + " " + "a" * (MAX_WORD + 1))]
    assert shown == ["un", "##aff", "##able", "aff", "##a", "[UNK]", "a", "!", "a", "[UNK]"]
    assert SMALL.encode("a" * MAX_WORD) == [SMALL.pieces.index("a")] + [SMALL.pieces.index("##a")] * (MAX_WORD - 1)
    assert SMALL.unknown("unaffx a unaffx x") == {"unaffx": 2, "x": 1}
    assert SMALL.encode("") == SMALL.encode(" \x07\u200b") == []


CUT = [
    ("Ägypten, ÉTÉ", True, ["agypten", ",", "ete"]),
    ("a\u0308 ΟΔΟΣ İ ẞ", True, ["a", "οδοσ", "i", "ß"]),
    ("a\x00b\u200bc\ufffdd\x85e\u2028f\x0bg", False, ["abcde", "fg"]),
    ("ab中国c", False, ["ab", "中", "国", "c"]),
    ("$5+x_y ¿no? „so“", False, ["$", "5", "+", "x", "_", "y", "¿", "no", "?", "„", "so", "“"]),
]


@pytest.mark.parametrize(("text", "lowercase", "words"), CUT)
def test_text_is_cleaned_and_cut_as_in_bert(text, lowercase, words):
    assert split_words(text, lowercase) == words


def test_a_hundred_thousand_accents_are_removed_at_once():
    """Sorting all of them, as Unicode's form NFD wants it, would take a minute."""
    assert split_words("a" + "\u0301\u0316" * 50_000 + "b", lowercase=True) == ["ab"]


def test_decoding_joins_pieces_and_leaves_out_specials():
    ids = SMALL.encode("unaffable,\n a !")
    assert SMALL.decode(ids) == "unaffable\ufffd a!"
    assert SMALL.decode([SMALL.specials["[CLS]"], *ids[:3], SMALL.specials["[PAD]"]]) == "unaffable"
    stream = StreamDecoder(SMALL)
    assert "".join([*map(stream.push, ids), stream.finish()]) == " " + SMALL.decode(ids)
    assert SMALL.textless == (0, 1, 2, 3, 4)


def test_a_special_is_text_unless_it_is_asked_for():
    assert not {*SMALL.specials.values()} - {1} & {*SMALL.encode("a [MASK] [CLS] a[SEP]")}
    a, cls = SMALL.pieces.index("a"), SMALL.encode("[CLS]")
    assert SMALL.encode("a [MASK]a [CLS]", allow_special=[MASK]) == [a, 4, a, *cls]
    assert SMALL.encode("[CLS]a[MASK]", allow_special=True) == [2, a, 4]
    with pytest.raises(TokenizerError, match=r"this wordpiece tokenizer has no special token '<mask>'"):
        SMALL.encode("a", allow_special=["<mask>"])


def reference(text: str, size: int, lowercase: bool) -> list[str]:
    """The vocabulary by the definition: all merges by counting again, in the order in which they bring new pieces."""
    counts = Counter(split_words(text, lowercase))
    letters = Counter("".join(word for word, n in counts.items() for _ in range(n)))
    alphabet = [letter for letter, _ in letters.most_common()]
    pieces = alphabet + ["##" + letter for letter in alphabet if letter.isalnum()]
    ids = {piece: i for i, piece in enumerate(pieces)}
    merges = reference_merges(counts, 200, lambda word: [ids[p] for p in wordpiece.spelled(word)], [1] * len(pieces))
    for left, right in merges:
        pieces.append(pieces[left] + pieces[right].removeprefix("##"))
    return [*SPECIALS, *dict.fromkeys(pieces)][:size]


@pytest.mark.parametrize("lowercase", [False, True])
def test_the_vocabulary_learned_is_that_of_the_definition(lowercase):
    trained = WordPieceTokenizer.train(TEXT, 75, lowercase=lowercase)
    assert (trained.pieces, trained.vocab_size) == (reference(TEXT, 75, lowercase), 75)
    assert trained.unknown(TEXT) == {}
    assert trained.unknown(TEXT[::-1]) == {}  # no word is unknown whose letters occur, wherever they do
    assert len(WordPieceTokenizer.train(TEXT, 5000).pieces) < 200  # ends when no pair occurs twice


def test_rare_characters_beyond_the_alphabet_are_unknown(monkeypatch):
    monkeypatch.setattr(wordpiece, "MAX_ALPHABET", 3)
    text = "aa ab ab aabc abq zab"
    assert WordPieceTokenizer.train(text, 5 + 3).pieces[5:] == ["a", "##a"]  # no merge: a pair with b is unknown
    trained = WordPieceTokenizer.train(text, 14)
    assert (trained.unknown("ab abc zab q"), trained.pieces[5:8]) == ({"zab": 1, "q": 1}, ["a", "b", "c"])


# --- folders of a pretrained BERT -----------------------------------------------------------------------------------


def write(folder, files):
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        content = content if isinstance(content, str) else json.dumps(content)
        (folder / name).write_text(content, encoding="utf-8", newline="\n")
    return folder


def test_the_files_of_a_folder_are_read_back(tmp_path):
    trained = WordPieceTokenizer.train(TEXT, 75, lowercase=True)
    files = trained.folder_files()
    assert WordPieceTokenizer.from_folder(write(tmp_path / "all", files)).to_json() == trained.to_json()
    del files["tokenizer.json"]
    assert WordPieceTokenizer.from_folder(write(tmp_path / "old", files)).to_json() == trained.to_json()
    wide = WordPieceTokenizer.from_folder(tmp_path / "all", 128)
    assert (wide.vocab_size, wide.textless) == (128, (0, 1, 2, 3, 4, *range(trained.vocab_size, 128)))
    with pytest.raises(TokenizerError, match="has 75 tokens, which do not fit into 74"):
        WordPieceTokenizer.from_folder(tmp_path / "all", 74)
    assert WordPieceTokenizer.from_folder(tmp_path) is None
    bare = write(tmp_path / "bare", {"vocab.txt": "[UNK]\r\na\r\n##b\r\n"})
    assert WordPieceTokenizer.from_folder(bare).encode("AB") == [1, 2]  # uncased, if nothing says otherwise


REFUSED = [
    ({"model": {"type": "BPE"}}, "is WordPiece, BertNormalizer, BertPreTokenizer, but this is"),
    ({"normalizer": {"strip_accents": False}}, "strip_accents is False, but only None is supported"),
    ({"model": {"unk_token": "x"}}, r"and \[UNK\] must be the unknown one"),
    ({"model": {"vocab": {"a": 7, "b": 7}}}, "an id occurs twice"),
    ({"added_tokens": [{"content": "x", "id": 6, "special": False}]}, "only special tokens may be added"),
    ("{", "is damaged .JSONDecodeError"),
]


@pytest.mark.parametrize(("change", "reason"), REFUSED)
def test_another_tokenizer_or_a_damaged_one_is_refused(tmp_path, change, reason):
    files = WordPieceTokenizer.train(TEXT, 75, lowercase=True).folder_files()
    if isinstance(change, dict):
        definition = json.loads(files["tokenizer.json"])
        for part, new in change.items():
            definition[part] = definition[part] | new if isinstance(new, dict) else new
        change = definition
    with pytest.raises(TokenizerError, match=reason):
        WordPieceTokenizer.from_folder(write(tmp_path, {"tokenizer.json": change}))


# --- the package ----------------------------------------------------------------------------------------------------


def package(ours: WordPieceTokenizer):
    """The package's own tokenizer with the same vocabulary; it does not take names of specials in a text for them."""
    tokenizers = pytest.importorskip("tokenizers")
    vocabulary = {piece: number for number, piece in enumerate(ours.pieces) if piece}
    theirs = tokenizers.BertWordPieceTokenizer(vocabulary, lowercase=ours.lowercase)
    theirs._tokenizer.encode_special_tokens = True
    return theirs


VOCABULARIES = [WordPieceTokenizer.train(HARD * 2, 400, lowercase=lowercase) for lowercase in (False, True)]
PIECES = [*SPECIALS, *string.ascii_lowercase, *(f"##{c}" for c in "aeiouxyz"), "##"]
VOCABULARIES += [SMALL, WordPieceTokenizer(PIECES, lowercase=True)]


@pytest.mark.parametrize("ours", VOCABULARIES, ids=range(len(VOCABULARIES)))
def test_tokens_equal_those_of_the_package(ours):
    theirs = package(ours)

    @given(text=texts() | texts("abinnensoAuge ,'") | st.lists(st.sampled_from(ours.pieces)).map("".join))
    def same(text):
        assert ours.encode(text) == theirs.encode(text, add_special_tokens=False).ids

    same()
    long = "a" * (MAX_WORD - 1)
    for text in (long, long + "a", long + "aa", "ä" * MAX_WORD, f"{long}\u0301a", *SPECIALS, TEXT):
        assert ours.encode(text) == theirs.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("lowercase", [False, True])
def test_every_older_character_is_treated_as_in_the_package(lowercase, tokenizers):
    """Of Unicode 3.2, except four that moved to another category since; the package's tables are of 2015."""
    normalizer = tokenizers.normalizers.BertNormalizer(lowercase=lowercase)
    cutter = tokenizers.pre_tokenizers.BertPreTokenizer()
    moved = {"\u166d", "\u1734", "\u1885", "\u1886"}
    category = unicodedata.ucd_3_2_0.category
    known = [c for c in map(chr, range(0x110000)) if category(c) not in ("Cn", "Cs", "Co") and c not in moved]
    assert len(known) > 95_000
    for first in range(0, len(known), 500):
        text = "|".join(f"a{character}b" for character in known[first : first + 500])
        expected = [word for word, _ in cutter.pre_tokenize_str(normalizer.normalize_str(text))]
        assert split_words(text, lowercase) == expected


def test_transformers_reads_what_is_written(tmp_path, tokenizers):
    """The whole definition, read by the package: the same ids, with [CLS] and [SEP] around them."""
    ours = WordPieceTokenizer.train(TEXT, 120, lowercase=True)
    theirs = tokenizers.Tokenizer.from_str(ours.folder_files()["tokenizer.json"])
    assert theirs.encode(TEXT).ids == [2, *ours.encode(TEXT), 3]
    assert theirs.encode("das [MASK].").ids[1:-1] == ours.encode("das [MASK].", allow_special=[MASK])


BESIDE = [{"do_lower_case": True}, {"do_lower_case": False}, {"do_lower_case": True, "strip_accents": True}]


@pytest.mark.torch
@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("about", BESIDE)
@pytest.mark.parametrize("kind", ["BertTokenizer", "PreTrainedTokenizerFast"])
def test_settings_beside_the_tokenizer_have_the_effect_that_they_have_in_transformers(lowercase, about, kind, tmp_path):
    transformers = pytest.importorskip("transformers")
    pieces = [*SPECIALS, "der", "Der", "über", "uber", "Über", "x", "##y"]
    files = WordPieceTokenizer(pieces, SPECIALS, lowercase).folder_files()
    files |= {"tokenizer_config.json": about | {"tokenizer_class": kind}, "config.json": {"model_type": "bert"}}
    write(tmp_path, files)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    text = "Der Über über xy"
    assert WordPieceTokenizer.from_folder(tmp_path).encode(text) == theirs(text, add_special_tokens=False).input_ids


@pytest.mark.parametrize("about", [{"strip_accents": False}, {"tokenize_chinese_chars": False}])
def test_other_settings_beside_the_tokenizer_are_refused_by_name(about, tmp_path):
    files = WordPieceTokenizer([*SPECIALS, "a"], SPECIALS, True).folder_files()
    folder = write(tmp_path, {"vocab.txt": files["vocab.txt"], "tokenizer_config.json": about})
    with pytest.raises(TokenizerError, match=r"strip_accents and tokenize_chinese_chars .* are not supported"):
        WordPieceTokenizer.from_folder(folder)
