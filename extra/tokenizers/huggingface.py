"""The tokenizer that a pretrained model came with, run by the package `tokenizers` behind our interface.

It is a byte-level BPE like ours in `bpe.py`, as in GPT-2, SmolLM2, Llama 3 and Qwen3, but cuts text into words by
another pattern and numbers its bytes and merges in its own order; or one made by SentencePiece, as in Llama 2 and
Mistral: its merges join characters, and a byte is a token for characters that it lacks. Weights fit only the ids that
they were trained with, so the package does the work, and this file translates between its conventions and ours:

    ids      the package's own
    bytes    GPT-2 writes each of the 256 bytes as one visible character (`byte_characters`) so that a vocabulary can be
             kept in a text file; a token's text is turned back into bytes by the same table. SentencePiece writes
             ▁ for a space, which it also puts before the text, and <0x0A> for a byte.

The package is an extra (`pip install -e ".[hf]"`) and imported only where such a tokenizer is made.

Format: https://huggingface.co/docs/tokenizers; the table of bytes is that of GPT-2 (Radford et al. 2019, section 2.2).
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Self

from text.tokenizers.base import Tokenizer
from tinygrad_lite.errors import TokenizerError
from training.cli.files import MAX_SETTINGS, text_of

MAX_VOCAB = 10_000_000
GPT2_SPECIAL = "<|endoftext|>"
TURNS = ("<|im_start|>", "<|im_end|>")  # begin and end a turn in ChatML, which many models know
GENERIC = "PreTrainedTokenizerFast"  # the tokenizer_class that goes by tokenizer.json, not by tokenizer_config.json
# The patterns by which Llama 3 and Qwen cut text into words, in place of GPT-2's. No other pattern is given to the
# package, because there are patterns with which a short text takes forever. They differ in how many digits make a word.
CUT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}DIGITS| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
SPLITS = [
    {"type": "Split", "pattern": {"Regex": CUT.replace("DIGITS", digits)}, "behavior": "Isolated", "invert": False}
    for digits in ("{1,3}", "")
]
BLANK = "▁"  # stands for a space in SentencePiece's vocabularies
BYTES = {f"<0x{byte:02X}>": bytes([byte]) for byte in range(256)}
TO_BLANKS = {"type": "Replace", "pattern": {"String": " "}, "content": BLANK}
FROM_BLANKS = {"type": "Replace", "pattern": {"String": BLANK}, "content": " "}
# Spaces become ▁, with one more before the text: as written in older files, and in newer ones.
OLDER = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": BLANK}, TO_BLANKS]}
NEWER = {"type": "Metaspace", "replacement": BLANK, "split": False}
TO_SENTENCEPIECE = [(OLDER, {}), *(({}, NEWER | {"prepend_scheme": scheme}) for scheme in ("always", "first"))]
FIRST = '"prepend_scheme": "first"'  # as JSON writes it; a text cannot contain it, because its quotes are escaped
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
FROM_SENTENCEPIECE = {"type": "Sequence", "decoders": [FROM_BLANKS, {"type": "ByteFallback"}, {"type": "Fuse"}, STRIP]}
FROM_BYTES = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
UNSUPPORTED = (
    "the tokenizer is neither a byte-level BPE (model BPE, decoder ByteLevel, no normalizer but NFC, text cut into "
    "words as in GPT-2, SmolLM, Llama 3 or Qwen) nor one of SentencePiece as in Llama 2 or Mistral: use a model with "
    "such a tokenizer"
)


def byte_characters() -> dict[str, int]:
    """The visible character that stands for each byte in GPT-2's files: itself if it is printable, else one beyond 255.

    >>> table = byte_characters()
    >>> table["A"], table["Ġ"], len(table)
    (65, 32, 256)
    """
    visible = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(256 + number): byte for number, byte in enumerate(others)}


class HFTokenizer(Tokenizer):
    """A byte-level BPE of the package `tokenizers`, or a BPE made by SentencePiece.

    Args:
        definition: the contents of a `tokenizer.json`.
        vocab_size: the number of ids; if None, that of the definition. A model may have more rows than its
            tokenizer has tokens; those ids have no text.
    Raises: TokenizerError if the package is not installed, or if the definition is not such a BPE of at most
        that many tokens.
    """

    kind = "hf"
    parts: ClassVar = {"definition": str, "vocab_size": int}
    is_foreign = True

    def __init__(self, definition: str, vocab_size: int | None = None):
        try:
            from tokenizers import Tokenizer as Package
        except ImportError:
            raise TokenizerError(
                'this tokenizer needs the package tokenizers, which is not installed: pip install -e ".[hf]"'
            ) from None
        checked = checked_definition(definition)
        try:
            self._inner = self._after = Package.from_str(checked)
            if FIRST in checked:  # then only the first text gets a space
                self._after = Package.from_str(checked.replace(FIRST, FIRST.replace("first", "never")))
        except Exception as error:  # the package has no more specific class
            raise TokenizerError(f"the tokenizer's definition cannot be read by tokenizers ({error})") from None
        for inner in (self._inner, self._after):
            inner.encode_special_tokens = True  # as text: their names have a meaning with allow_special only

        ids = self._inner.get_vocab(with_added_tokens=True)
        size = max(ids.values(), default=-1) + 1
        vocab_size = size if vocab_size is None else vocab_size
        if not 1 <= size <= vocab_size <= MAX_VOCAB:
            raise TokenizerError(f"the tokenizer has ids up to {size - 1}, which do not fit into {vocab_size} tokens")
        self.added = added = self._inner.get_added_tokens_decoder()
        specials = {token.content: number for number, token in added.items() if token.special}
        table = {} if BYTES.keys() <= ids.keys() else byte_characters()
        super().__init__(_pieces(ids, table, {token.content for token in added.values()}, vocab_size), specials)
        self._missing = {byte for character, byte in table.items() if character not in ids}
        self.prefix = self._inner.encode("", add_special_tokens=True).ids  # by the post-processor

    @classmethod
    def from_folder(cls, folder: Path, vocab_size: int | None = None) -> Self | None:
        """The tokenizer in a folder's `tokenizer.json`.

        Returns: None if the folder has no such file.
        Raises: TokenizerError if a file cannot be read.
        """
        names = ["tokenizer.json", "tokenizer_config.json"]
        try:
            texts = {name: text_of(folder / name, MAX_SETTINGS) for name in names if (folder / name).is_file()}
            about = {} | json.loads(texts.pop("tokenizer_config.json", "{}"))
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise TokenizerError(f"the tokenizer in {folder} cannot be read ({error})") from None
        if "tokenizer.json" not in texts:
            return None
        found = cls(texts["tokenizer.json"], vocab_size)
        adds = found.decode(found.encode_text("a")) == " a"
        if about.get("add_prefix_space") == (not adds) and about.get("tokenizer_class") != GENERIC:
            asked = f"add_prefix_space is {not adds} in tokenizer_config.json"
            raise TokenizerError(f"{asked}, but {adds} in its tokenizer")
        return found

    def encode_text(self, text: str) -> list[int]:
        """Turn text into token ids, ignoring the names of specials."""
        return self._inner.encode(_valid(text), add_special_tokens=False).ids

    def encode_after(self, text: str) -> list[int]:
        """The ids of a text that follows a special token."""
        return self._after.encode(_valid(text), add_special_tokens=False).ids

    def unknown(self, text: str) -> dict[str, int]:
        """The characters with a byte that has no token; none with GPT-2's vocabulary, which has all 256 bytes."""
        counts = Counter(text) if self._missing else {}
        return {one: n for one, n in counts.items() if self._missing & {*one.encode("utf-8", "replace")}}

    def with_specials(self, names: Iterable[str]) -> Self:
        """The same tokens, of which the marks of turns get other names: their embeddings have learned what they mean.

        Raises: TokenizerError if there are no such marks.
        """
        definition = self.definition
        for mark, name in zip(TURNS, names, strict=True):
            if mark not in self.specials:
                raise TokenizerError(f"the tokenizer of these weights has no {mark}, which could be used as {name}")
            definition = definition.replace(json.dumps(mark), json.dumps(name))
        return type(self)(definition, self.vocab_size)

    @property
    def definition(self) -> str:
        """The contents of a `tokenizer.json` that makes this tokenizer."""
        return self._inner.to_str()

    def folder_files(self) -> dict[str, str]:
        """The definition as `tokenizer.json`."""
        return {"tokenizer.json": self.definition}


def checked_definition(definition: str) -> str:
    """The parts of a `tokenizer.json` that define a BPE of one of the two kinds, each checked.

    The package gets only these, because it trusts its input: a damaged file can crash the whole process, and some
    parts, such as a normalizer that replaces text again and again, can exhaust the memory. Truncation and padding are
    left out as well, because here a text is always encoded whole.

    Raises: TokenizerError if a field is wrong, or if it is another kind of tokenizer.
    """
    try:
        given = json.loads(definition)
        model, after = ({} | (given[name] or {}) for name in ("model", "decoder"))
        added = [{} | token for token in given.get("added_tokens") or ()]
        vocab = {} | model["vocab"]
        normalizer, cutting = given.get("normalizer") or {}, given.get("pre_tokenizer") or {}
        falls_back = model.get("byte_fallback") is True and vocab.keys() >= BYTES.keys()
        marks = any(model.get(name) for name in ("continuing_subword_prefix", "end_of_word_suffix"))
        of_bytes = after.get("type") == "ByteLevel" and normalizer.get("type") in (None, "NFC")
        is_known = (normalizer, cutting) in TO_SENTENCEPIECE if falls_back else of_bytes
        if model.get("type", "BPE") != "BPE" or marks or not is_known:
            raise TokenizerError(UNSUPPORTED)
        if not falls_back:
            normalizer, cutting = {"type": "NFC"} if normalizer else {}, _checked_cutting(cutting)
        merges = [merge.split(" ") if isinstance(merge, str) else list(merge) for merge in model["merges"]]
        if not all(len(merge) == 2 and vocab.keys() >= {*merge, "".join(merge)} for merge in merges):
            raise ValueError("a merge is not of two tokens that make a third")
        ids = [*vocab.values(), *(token["id"] for token in added)]
        prefix = _checked_prefix(given.get("post_processor") or {}, ids)
        if not all(type(number) is int and 0 <= number < MAX_VOCAB for number in ids):
            raise ValueError(f"an id is not a number from 0 to {MAX_VOCAB - 1}")
        if len(set(vocab.values())) < len(vocab):
            raise ValueError("an id occurs twice")
        if not all(isinstance(token["content"], str) and token["content"] for token in added):
            raise ValueError("an added token has no text")
        if model.get("unk_token") is not None and model["unk_token"] not in vocab:
            raise ValueError("unk_token is not a token")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise TokenizerError(f"the tokenizer's definition cannot be read by tokenizers ({reason})") from None
    flags = ("single_word", "lstrip", "rstrip", "normalized", "special")
    checked = {
        "version": "1.0",
        "added_tokens": [
            {"id": token["id"], "content": token["content"], **{flag: bool(token.get(flag)) for flag in flags}}
            for token in added
        ],
        "normalizer": normalizer or None,
        "pre_tokenizer": cutting or None,
        "post_processor": prefix,
        "decoder": FROM_SENTENCEPIECE if falls_back else FROM_BYTES,
        "model": {
            "type": "BPE",
            "unk_token": model.get("unk_token"),
            "byte_fallback": falls_back,
            **{flag: bool(model.get(flag)) for flag in ("fuse_unk", "ignore_merges")},
            "vocab": vocab,
            "merges": merges,
        },
    }
    return json.dumps(checked)


def _checked_cutting(given: Mapping) -> dict:
    """How text is cut into words: by GPT-2's pattern, or by one of SPLITS; before that, digits may be set apart."""
    given = {} | given
    steps = given["pretokenizers"] if given.get("type") == "Sequence" else [given]
    *first, last = ({} | step for step in steps)
    digits = [{"type": "Digits", "individual_digits": each} for each in (True, False)]
    if last.get("type") != "ByteLevel" or not all(step in SPLITS + digits for step in first):
        raise TokenizerError(UNSUPPORTED)
    spaced, by_pattern = bool(last.get("add_prefix_space")), bool(last.get("use_regex", True))
    last = {"type": "ByteLevel", "trim_offsets": True, "add_prefix_space": spaced, "use_regex": by_pattern}
    return {"type": "Sequence", "pretokenizers": [*first, last]} if first else last


def _checked_prefix(given: Mapping, ids: Sequence[int]) -> dict | None:
    """The post-processor: none, or a template of one text with special tokens before it."""
    steps = given["processors"] if given.get("type") == "Sequence" else [given]
    steps = [step for step in steps if step.get("type") not in (None, "ByteLevel")]  # which do not change ids
    if not steps:
        return None
    *first, last = steps[0].get("single") or [{}]
    is_template = len(steps) == 1 and steps[0]["type"] == "TemplateProcessing"
    if not (is_template and "Sequence" in last and all("SpecialToken" in part for part in first)):
        found = "the post_processor of tokenizer.json does more than put special tokens before a text"
        raise TokenizerError(f"{found}: that is unsupported")
    names = [str(part["SpecialToken"]["id"]) for part in first]
    found = [(name, list(steps[0]["special_tokens"][name]["ids"])) for name in names]
    if not {*ids}.issuperset(number for _, numbers in found for number in numbers):
        raise ValueError("the post_processor has an id without a token")
    return starting_with(found)


def starting_with(found: Sequence[tuple[str, list[int]]]) -> dict:
    """The post-processor that puts special tokens with these names and ids before a text."""
    a, b = ({"Sequence": {"id": name, "type_id": number}} for number, name in enumerate("AB"))
    single = [*({"SpecialToken": {"id": name, "type_id": 0}} for name, _ in found), a]
    tokens = {name: {"id": name, "ids": numbers, "tokens": [name] * len(numbers)} for name, numbers in found}
    return {"type": "TemplateProcessing", "single": single, "pair": [*single, b], "special_tokens": tokens}


def _pieces(ids: Mapping[str, int], table: Mapping[str, int], added: set[str], vocab_size: int) -> Sequence[bytes]:
    """The bytes of each token: by the table of GPT-2's characters or, if it is empty, as SentencePiece writes them.

    Tokens that were added to the vocabulary by hand are plain text, without the table.
    """
    pieces = [b""] * vocab_size
    for text, number in ids.items():
        if not table:
            pieces[number] = BYTES.get(text, text.replace(BLANK, " ").encode("utf-8"))
        elif text in added or not table.keys() >= set(text):
            pieces[number] = text.encode("utf-8")
        else:
            pieces[number] = bytes(table[character] for character in text)
    return pieces


def _valid(text: str) -> str:
    """A text as the package accepts it: in valid Unicode, so that half a surrogate pair becomes U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
