"""The tokenizer that a pretrained GPT-2 came with, run by the package `tokenizers` and seen through our interface.

It is a byte-level BPE as ours in `bpe.py`, but cuts text into words by another pattern and numbers its bytes and
merges in its own order. Weights fit only the ids that they were trained with, so we let the original do the work
and translate at the border:

    ids      the package's own
    bytes    GPT-2 writes each of the 256 bytes as one visible character (`byte_characters`) so that a vocabulary can be
             kept in a text file; a token's text is turned back into bytes by the same table

The package is an extra (`pip install -e ".[hf]"`) and imported only where such a tokenizer is made.

Format: https://huggingface.co/docs/tokenizers; the table of bytes is that of GPT-2 (Radford et al. 2019, section 2.2).
"""

from __future__ import annotations

import json
import reprlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

from tinygrad_lite.errors import TokenizerError
from tinygrad_lite.text.tokenizer import Tokenizer, checked_specials

MAX_VOCAB = 10_000_000
GPT2_SPECIAL = "<|endoftext|>"


def byte_characters() -> dict[str, int]:
    """The visible character that stands for each byte in GPT-2's files: itself, if it has a shape, or one beyond 255.

    >>> table = byte_characters()
    >>> table["A"], table["Ġ"], len(table)
    (65, 32, 256)
    """
    visible = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in visible]
    table = {chr(byte): byte for byte in visible}
    return table | {chr(256 + number): byte for number, byte in enumerate(others)}


class HFTokenizer(Tokenizer):
    """A byte-level BPE of the package `tokenizers`.

    Args:
        definition: the contents of a `tokenizer.json`.
        vocab_size: how many ids there are; None for as many as it names. A model may have more rows than its
            tokenizer has tokens; those ids have no text.
    Raises: TokenizerError if the package is not installed, or if the definition is not a byte-level BPE of at most
        so many tokens.
    """

    kind = "hf"

    def __init__(self, definition: str, vocab_size: int | None = None):
        package = _package()
        try:
            self._inner = package.Tokenizer.from_str(definition)
        except Exception as error:  # the package has no narrower class
            raise TokenizerError(f"the tokenizer's definition cannot be read by tokenizers ({error})") from None
        if not (
            isinstance(self._inner.model, package.models.BPE)
            and isinstance(self._inner.decoder, package.decoders.ByteLevel)
        ):
            raise TokenizerError(
                "the tokenizer is not a byte-level BPE (model BPE, decoder ByteLevel), the kind that GPT-2 has: "
                "take a model with such a one"
            )
        self._inner.no_truncation()  # a tokenizer.json may cut or pad what it encodes; here all of a text counts
        self._inner.no_padding()
        self._inner.encode_special_tokens = True  # as text: their names mean something in allow_special only

        ids = self._inner.get_vocab(with_added_tokens=True)
        size = max(ids.values(), default=-1) + 1
        if vocab_size is None:
            vocab_size = size
        if not 1 <= size <= vocab_size <= MAX_VOCAB:
            raise TokenizerError(f"the tokenizer has ids up to {size - 1}, which do not fit into {vocab_size} tokens")
        added = self._inner.get_added_tokens_decoder()
        specials = {token.content: number for number, token in added.items() if token.special}
        super().__init__(_pieces(ids, {token.content for token in added.values()}, vocab_size), ())
        self._name_specials(specials)
        self._missing = byte_characters().keys() - ids.keys()

    def _name_specials(self, specials: Mapping[str, int]) -> None:
        """Take over specials wherever their ids are; our own kinds have them last."""
        placed = Tokenizer([], checked_specials(specials))  # for the pattern of their names
        self.specials, self._special_pattern = dict(specials), placed._special_pattern
        for number, piece in zip(specials.values(), placed._pieces, strict=True):
            self._pieces[number] = piece

    @classmethod
    def from_folder(cls, folder: Path, vocab_size: int | None = None) -> HFTokenizer | None:
        """The tokenizer in a folder: `tokenizer.json`, or GPT-2's older pair `vocab.json` and `merges.txt`.

        Returns: None if the folder has neither.
        Raises: TokenizerError if a file cannot be read.
        """
        names = ["tokenizer.json", "vocab.json", "merges.txt"]
        try:
            texts = {name: (folder / name).read_text(encoding="utf-8") for name in names if (folder / name).is_file()}
        except (OSError, UnicodeDecodeError) as error:
            raise TokenizerError(f"the tokenizer in {folder} cannot be read ({error})") from None
        if "tokenizer.json" in texts:
            return cls(texts["tokenizer.json"], vocab_size)
        if len(texts) < 2:
            return None
        return cls(gpt2_definition(texts["vocab.json"], texts["merges.txt"]), vocab_size)

    def encode_text(self, text: str) -> list[int]:
        # The package knows Unicode only; half a surrogate pair is not in it and becomes U+FFFD.
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return self._inner.encode(text, add_special_tokens=False).ids

    def unknown(self, text: str) -> dict[str, int]:
        """The characters with a byte that has no token of its own; none for GPT-2's vocabulary, which has all 256."""
        missing = {byte for character, byte in byte_characters().items() if character in self._missing}
        if not missing:
            return {}
        counts = Counter(text)
        return {character: n for character, n in counts.items() if missing & {*character.encode("utf-8", "replace")}}

    @property
    def definition(self) -> str:
        """The contents of a `tokenizer.json` that makes this tokenizer."""
        return self._inner.to_str()

    def to_json(self) -> dict:
        return {"kind": self.kind, "definition": self.definition, "vocab_size": self.vocab_size}

    @staticmethod
    def from_json(data: dict) -> HFTokenizer:
        if set(data) != {"kind", "definition", "vocab_size"}:
            raise TokenizerError(f"an hf tokenizer has the fields kind, definition, vocab_size, not {sorted(data)}")
        definition, vocab_size = data["definition"], data["vocab_size"]
        if not isinstance(definition, str) or type(vocab_size) is not int:
            wrong = reprlib.repr((definition, vocab_size))
            raise TokenizerError(f"an hf tokenizer has a text as definition and a number as vocab_size, not {wrong}")
        return HFTokenizer(definition, vocab_size)


def gpt2_definition(vocab: str, merges: str) -> str:
    """The `tokenizer.json` of GPT-2's two files: a JSON object token -> id, and lines of two tokens to be joined.

    Raises: TokenizerError if they are something else.
    """
    package = _package()
    try:
        ids = json.loads(vocab)
        lines = merges.split("\n")
        if lines[0].startswith("#version"):
            lines = lines[1:]
        model = package.models.BPE(ids, [tuple(line.split()) for line in lines if line.strip()])
    except Exception as error:  # the package has no narrower class
        raise TokenizerError(f"vocab.json and merges.txt are no BPE that tokenizers can read ({error})") from None
    inner = package.Tokenizer(model)
    inner.pre_tokenizer = package.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = package.decoders.ByteLevel()
    if GPT2_SPECIAL in ids:
        inner.add_special_tokens([GPT2_SPECIAL])
    return inner.to_str()


def _pieces(ids: Mapping[str, int], added: set[str], vocab_size: int) -> Sequence[bytes]:
    """The bytes of each token. Those added to the vocabulary by hand are written as they are, without the table."""
    table = byte_characters()
    pieces = [b""] * vocab_size
    for text, number in ids.items():
        if text in added or not table.keys() >= set(text):
            pieces[number] = text.encode("utf-8")
        else:
            pieces[number] = bytes(table[character] for character in text)
    return pieces


def _package() -> ModuleType:
    """The package `tokenizers`.

    Raises: TokenizerError if it is not installed.
    """
    try:
        import tokenizers
    except ImportError:
        raise TokenizerError(
            'this tokenizer needs the package tokenizers, which is not installed: pip install -e ".[hf]"'
        ) from None
    return tokenizers
