"""WordPiece, the tokenizer of BERT: frequent words whole, others as a beginning and the pieces `##` that continue it.

Text is turned into tokens in three steps:

1. Clean: control characters are removed, any white space becomes a space, and each Chinese character stands alone.
   With `lowercase`, accents are removed too and capitals become lower case: Ägypten is agypten.
2. Cut into words at spaces. Each punctuation mark is its own word.
3. Cut each word into pieces of the vocabulary: the longest one that the word begins with, then the longest one with
   ## before it that the rest begins with, and so on. If there is none, the whole word is [UNK].

    >>> tokenizer = WordPieceTokenizer(["[UNK]", "der", "geist", "##er", "##reich", "."], ["[UNK]"], lowercase=True)
    >>> [tokenizer.render(token) for token in tokenizer.encode("Der geisterreich Geist, der.")]
    ['der', 'geist', '##er', '##reich', 'geist', '[UNK]', 'der', '.']
    >>> tokenizer.decode(tokenizer.encode("Der geisterreich\\nGeist."))
    'der geisterreich geist.'

What the tokens leave out: all white space: decoding writes one space before each word and none before marks such as a
comma; with `lowercase`, capitals and accents; and unknown words. So decode(encode(text)) is not the text.
`docs/extra/compare_tokenizers.py` counts what it would cost to restore it, which makes bits per character comparable
across tokenizers.

**How the vocabulary is learned.** The characters come first, alone and with ##, so that a word is unknown only if it
has a new or very rare one. Then pieces are merged as in byte-pair encoding: the most frequent pair of neighbours
becomes a piece (`bpe.py`). The first paper merged the pair ab that raises the likelihood of the text most, often
written as the highest count(ab) / (count(a) count(b)). We merge by count, like the package `tokenizers`, because that
quotient is highest for rare characters that never occur apart: of 600 pieces learned from 60,000 characters of Goethe,
merging by count gives 2.6 characters per token on held-out text, merging by the quotient 1.3.

Sources: Schuster, Nakajima 2012, "Japanese and Korean voice search" (ICASSP), section 3; Devlin et al. 2019
(arXiv:1810.04805), section 3. For a given vocabulary the tokens are those of Hugging Face's `tokenizers`, version 0.23,
except for some characters of rare scripts: its tables of accents and punctuation are from 2015, while ours, those of
the running Python, include what Unicode has added or moved since.
"""

import json
import reprlib
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Self

from text.tokenizers.base import WordwiseTokenizer, checked_specials, to_utf8
from text.tokenizers.bpe import Pair, learn_merges
from tinygrad_lite.errors import TokenizerError, counted
from training.cli.console import watched
from training.cli.files import MAX_SETTINGS, lines_of, text_of
from training.corpora.cleaning import normal_form

PAD, UNKNOWN, CLS, SEP, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
SPECIALS = (PAD, UNKNOWN, CLS, SEP, MASK)
CONTINUES = "##"
MAX_WORD = 100  # characters; a longer word is unknown
MAX_PIECES = 10_000_000
MAX_ALPHABET = 1000  # characters in a learned vocabulary: a text may have thousands that occur once
UNSPACED = set(".,;:!?)]}%…")  # the marks before which decoding writes no space

# The Chinese characters that stand alone, as in `tokenizers`.
CHINESE = [(0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2A6DF), (0x2A700, 0x2B81F)]
CHINESE += [(0x2B920, 0x2CEAF), (0x2F800, 0x2FA1F)]


# --- from text to words -------------------------------------------------------------------------------------------


class CharacterTable(dict):
    """A table for `str.translate`, filled as characters occur: code point -> the text that takes its place."""

    def __init__(self, change: Callable[[str], str]):
        self.change = change

    def __missing__(self, code: int) -> str:
        self[code] = changed = self.change(chr(code))
        return changed


def cleaned(character: str) -> str:
    """Nothing for a control character, a space for white space, spaces around a Chinese character."""
    if character in "\t\n\r":
        return " "
    # Control and format characters, private use, and halves of surrogate pairs; U+FFFD stands for broken text.
    if unicodedata.category(character) in ("Cc", "Cf", "Co", "Cs") or character == "\ufffd":
        return ""
    if any(first <= ord(character) <= last for first, last in CHINESE):
        return f" {character} "
    return " " if character.isspace() else character


def is_punctuation(character: str) -> bool:
    """Whether a character is punctuation; every ASCII symbol counts as such, $ and + included."""
    return character in string.punctuation or unicodedata.category(character).startswith("P")


CLEANED = CharacterTable(cleaned)
# Lower-case letters, without the accents that NFD, the canonical decomposition, has split from them. By character: a
# Greek Σ is σ at the end of a word, too.
WITHOUT_ACCENTS = CharacterTable(lambda letter: "" if unicodedata.category(letter) == "Mn" else letter.lower())
SPACED = CharacterTable(lambda character: f" {character} " if is_punctuation(character) else character)


def split_words(text: str, lowercase: bool) -> list[str]:
    """Clean a text and cut it into words and marks.

    >>> split_words("Wär' nicht das\\tAuge sonnenhaft,", lowercase=True)
    ['war', "'", 'nicht', 'das', 'auge', 'sonnenhaft', ',']
    """
    text = text.translate(CLEANED)
    if lowercase:
        text = normal_form(text, "NFD").translate(WITHOUT_ACCENTS)
    return text.translate(SPACED).split()


def spelled(word: str) -> list[str]:
    """The characters of a word as pieces.

    >>> spelled("tag")
    ['t', '##a', '##g']
    """
    return [word[0], *(CONTINUES + letter for letter in word[1:])]


# --- the tokenizer ------------------------------------------------------------------------------------------------


class WordPieceTokenizer(WordwiseTokenizer):
    """WordPiece: the ids are the places in the vocabulary, which has the specials where BERT has them.

    Not lossless: white space is not kept, nor capitals and accents with `lowercase` (see the file's docstring).

    Args:
        pieces: all tokens in the order of their ids: the specials, pieces that begin a word, and with ## before them
            those that continue one. An empty string is an id without a token, of a model with more rows than tokens.
        specials: names of the special tokens, all of them among the pieces, and [UNK] among them.
        lowercase: whether capitals become lower case and accents are removed.
    Raises: TokenizerError if a piece has white space or is given twice, or if a special is missing.
    """

    kind = "wordpiece"
    parts, needed = {"pieces": list, "specials": list, "lowercase": bool}, SPECIALS
    unknown_name = UNKNOWN

    def __init__(self, pieces: Sequence[str], specials: Iterable[str] = SPECIALS, lowercase: bool = False):
        self._ids = _checked_pieces(pieces)
        names = checked_specials(specials)
        if missing := [name for name in names if name not in self._ids]:
            raise TokenizerError(f"the special token {reprlib.repr(missing[0])} is not in the vocabulary")
        super().__init__([_written(piece) for piece in pieces], {name: self._ids.pop(name) for name in names})
        self.pieces, self.lowercase = list(pieces), lowercase
        self._unknown_id = self._require_unknown()
        self._longest = max(map(len, self._ids), default=0)  # characters, of which ## may be two

    @classmethod
    def train(cls, text: str, vocab_size: int, specials: Iterable[str] = SPECIALS, lowercase: bool = False) -> Self:
        """Learn a vocabulary of vocab_size tokens (specials, characters and merged pieces) from a text.

        The ids are in this order; of the characters, alone and with ##, the most frequent ones have at most half of the
        vocabulary, and not more than 1,000 are taken. Learning stops early when no pair occurs twice.

        Raises: TokenizerError if there is no word in the text, or if vocab_size leaves no room for one character.
        """
        names = checked_specials(specials)
        room = vocab_size - len(names)
        if room < 2:
            raise TokenizerError(
                f"vocab_size is {vocab_size}, but {counted(len(names), 'special token')} and a character, alone and "
                f"with {CONTINUES}, need {len(names) + 2}: use at least that"
            )
        words = [word for word in split_words(text, lowercase) if len(word) <= MAX_WORD]
        word_counts, letters = Counter(words), Counter("".join(words))
        if not letters:
            raise TokenizerError("WordPiece cannot be learned from a text without words: use another one")
        alphabet = [letter for letter, _ in letters.most_common(min(MAX_ALPHABET, room // 2))]
        inside = [letter for letter in alphabet if len(split_words(f"a{letter}", lowercase)) == 1]  # no marks
        base = [*alphabet, *(CONTINUES + letter for letter in inside)]
        ids = {piece: number for number, piece in enumerate(base)}
        known = {word: count for word, count in word_counts.items() if ids.keys() >= {*spelled(word)}}
        merges = learn_merges(known, lambda word: [ids[piece] for piece in spelled(word)], lengths=[1] * len(base))
        merged = _merged(base, watched(merges, "learning merges", room), room)
        return cls([*names, *merged], names, lowercase)

    def split(self, text: str) -> list[str]:
        """Clean a text and cut it into words and marks."""
        return split_words(text, self.lowercase)

    def encode_word(self, word: str) -> list[int]:
        """The longest piece that the word begins with, the longest that continues it, and so on; else [UNK]."""
        ids: list[int] = []
        start = 0
        while start < len(word) <= MAX_WORD:
            mark = CONTINUES if start else ""
            ends = range(min(len(word), start + self._longest), start, -1)
            end = next((end for end in ends if mark + word[start:end] in self._ids), None)
            if end is None:
                return [self._unknown_id]
            ids.append(self._ids[mark + word[start:end]])
            start = end
        return ids or [self._unknown_id]

    def decode(self, ids: Iterable[int]) -> str:
        """Turn token ids back into text: the pieces of a word together, a space between words.

        A `StreamDecoder` returns the same text after a space, because it may continue another.
        """
        return super().decode(ids).removeprefix(" ")

    def render(self, token: int) -> str:
        """One token in readable form, with ## if it continues a word."""
        shown = super().render(token)
        return CONTINUES + shown if self.pieces[token].startswith(CONTINUES) else shown.removeprefix(" ")

    def unknown(self, text: str) -> dict[str, int]:
        """The words of a text, as cleaned, that become [UNK], each with its number of occurrences."""
        counts = Counter(self.split(text))
        return {word: count for word, count in counts.items() if self.encode_word(word) == [self._unknown_id]}

    # ------------------------------------------------------------------------------ the files of a pretrained BERT

    @classmethod
    def from_folder(cls, folder: Path, vocab_size: int | None = None) -> Self | None:
        """The tokenizer of a folder in Hugging Face's layout: its `tokenizer.json`, or else its `vocab.txt`.

        Args:
            vocab_size: the number of ids; if None, that of the vocabulary. A model may have more rows than tokens.
        Returns: None if the folder has neither.
        Raises: TokenizerError if a file cannot be read, or if it is another kind of tokenizer.
        """
        names = ("tokenizer.json", "vocab.txt", "tokenizer_config.json")
        try:
            texts = {name: text_of(folder / name, MAX_SETTINGS) for name in names if (folder / name).is_file()}
            if not texts.keys() & {*names[:2]}:
                return None
            if "tokenizer.json" in texts:
                pieces, specials, lowercase = _read_definition(json.loads(texts["tokenizer.json"]))
            else:
                pieces = lines_of(texts["vocab.txt"])
                specials, lowercase = [name for name in SPECIALS if name in pieces], True
            about = json.loads(texts.get("tokenizer_config.json", "{}"))
            if "tokenizer.json" not in texts or about.get("tokenizer_class") != "PreTrainedTokenizerFast":
                lowercase = bool(about.get("do_lower_case", lowercase))  # that class uses only tokenizer.json
                if about.get("strip_accents") not in (None, lowercase) or not about.get("tokenize_chinese_chars", True):
                    settings = "strip_accents and tokenize_chinese_chars in tokenizer_config.json"
                    raise TokenizerError(f"{settings} are not supported")
        except (OSError, UnicodeDecodeError) as error:
            raise TokenizerError(f"the tokenizer in {folder} cannot be read ({error})") from None
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise TokenizerError(f"the tokenizer in {folder} is damaged ({type(error).__name__}: {error})") from None
        if vocab_size is not None:
            if len(pieces) > vocab_size:
                raise TokenizerError(f"the tokenizer has {len(pieces)} tokens, which do not fit into {vocab_size}")
            pieces += [""] * (vocab_size - len(pieces))
        found = cls(pieces, specials, lowercase)
        found.is_foreign = True
        return found

    def folder_files(self) -> dict[str, str]:
        """The files of Hugging Face's layout that make this tokenizer, by name; `from_folder` reads them."""
        ids = {piece: number for number, piece in enumerate(self.pieces) if piece}
        flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False) | {"special": True}
        added = [{"id": number, "content": name, **flags} for name, number in self.specials.items()]
        names = {"sep": SEP, "cls": CLS}
        around = {part: [name, self.specials[name]] for part, name in names.items() if name in self.specials}
        definition = {
            "version": "1.0",
            "added_tokens": added,
            "normalizer": {"type": "BertNormalizer", **EXPECTED["normalizer"], "lowercase": self.lowercase},
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "post_processor": {"type": "BertProcessing", **around} if around.keys() == names.keys() else None,
            "decoder": {"type": "WordPiece", "prefix": CONTINUES, "cleanup": True},
            "model": {"type": "WordPiece", "unk_token": UNKNOWN, **EXPECTED["model"], "vocab": ids},
        }
        config = {"tokenizer_class": "BertTokenizer", "do_lower_case": self.lowercase}
        lines = "".join(f"{piece}\n" for piece in self.pieces if piece)
        files = {"tokenizer.json": definition, "tokenizer_config.json": config}
        return {name: json.dumps(data, ensure_ascii=False) for name, data in files.items()} | {"vocab.txt": lines}


# The settings of a tokenizer.json that make the tokenizer described above; another value means another tokenizer.
EXPECTED = {
    "normalizer": {"clean_text": True, "handle_chinese_chars": True, "strip_accents": None},
    "model": {"continuing_subword_prefix": CONTINUES, "max_input_chars_per_word": MAX_WORD},
}


def _read_definition(given: dict) -> tuple[list[str], list[str], bool]:
    """The pieces, the specials, and `lowercase` of a `tokenizer.json`."""
    model, normalizer = given["model"], given["normalizer"] or {}
    kinds = (model.get("type"), normalizer.get("type"), (given["pre_tokenizer"] or {}).get("type"))
    if kinds != ("WordPiece", "BertNormalizer", "BertPreTokenizer"):
        raise TokenizerError(f"a BERT's tokenizer is WordPiece, BertNormalizer, BertPreTokenizer, but this is {kinds}")
    lowercase = normalizer["lowercase"]
    for part, settings in EXPECTED.items():
        for name, value in settings.items():
            found = given[part].get(name, value)
            if found != value and (name, found) != ("strip_accents", lowercase):
                raise TokenizerError(f"the {part}'s {name} is {reprlib.repr(found)}, but only {value} is supported")
    added = {token["content"]: token["id"] for token in given["added_tokens"]}
    if not all(token["special"] for token in given["added_tokens"]) or model["unk_token"] != UNKNOWN:
        raise TokenizerError(f"only special tokens may be added to a vocabulary, and {UNKNOWN} must be the unknown one")
    ids = model["vocab"] | added
    if not all(type(number) is int and 0 <= number < MAX_PIECES for number in ids.values()):
        raise ValueError(f"an id is not a number from 0 to {MAX_PIECES - 1}")
    if len(set(ids.values())) < len(ids):
        raise ValueError("an id occurs twice")
    pieces = [""] * (max(ids.values()) + 1)
    for piece, number in ids.items():
        pieces[number] = piece
    return pieces, list(added), bool(lowercase)


def _checked_pieces(pieces: Sequence[str]) -> dict[str, int]:
    """The ids of the pieces, each checked."""
    if len(pieces) > MAX_PIECES:
        raise TokenizerError(f"{len(pieces)} pieces are too many: at most {MAX_PIECES}")
    ids: dict[str, int] = {}
    for number, piece in enumerate(pieces):
        if not isinstance(piece, str) or len(piece) > MAX_WORD + len(CONTINUES) or piece.split() not in ([piece], []):
            raise TokenizerError(
                f"a piece of a vocabulary has at most {MAX_WORD} characters without white space, but number {number} "
                f"is {reprlib.repr(piece)}"
            )
        if piece in ids:
            raise TokenizerError(f"the piece {reprlib.repr(piece)} of the vocabulary is given twice")
        if piece:
            ids[piece] = number
    return ids


def _written(piece: str) -> bytes:
    """The bytes that decoding writes for a piece."""
    is_unspaced = not piece or piece in UNSPACED or piece.startswith(CONTINUES)
    return to_utf8(piece.removeprefix(CONTINUES) if is_unspaced else f" {piece}")


def _merged(base: Sequence[str], merges: Iterable[Pair], size: int) -> list[str]:
    """The base and the pieces that merges make from it, until there are `size` different ones.

    Two merges may make the same piece: ab with c, and a with bc.
    """
    pieces = list(base)
    found = dict.fromkeys(base)
    for left, right in merges:
        if len(found) >= size:
            break
        pieces.append(pieces[left] + pieces[right].removeprefix(CONTINUES))
        found[pieces[-1]] = None
    return list(found)
