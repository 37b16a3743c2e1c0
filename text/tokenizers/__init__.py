"""From text to token ids and back: characters, bytes, words and their parts; and the table of all kinds."""

import reprlib
from collections.abc import Sequence

from text.tokenizers.base import Tokenizer
from text.tokenizers.bpe import BPETokenizer
from text.tokenizers.byte import ByteTokenizer
from text.tokenizers.char import CharTokenizer
from text.tokenizers.word import WordTokenizer
from tinygrad_lite.errors import TokenizerError

# The kinds that every model can learn from its text, each with its class. A kind named here is a choice of
# --tokenizer, is compared with the others, and can be read from a checkpoint.
LEARNED = {"char": CharTokenizer, "byte": ByteTokenizer, "bpe": BPETokenizer, "word": WordTokenizer}
KINDS: dict[str, type[Tokenizer]] = {**LEARNED}  # whoever has others enters them


def learn(kind: str, text: str, vocab_size: int, specials: Sequence[str] = ()) -> Tokenizer:
    """Learn a tokenizer of this kind from a text.

    Args:
        vocab_size: the number of tokens, specials included; without effect on characters and bytes.
        specials: names of special tokens. What the kind needs besides them, such as <unk>, is added.
    Raises: TokenizerError if vocab_size or the text is too small for this kind.

    >>> learn("word", "Da steh ich nun, ich armer Tor!", vocab_size=8, specials=["<pad>"]).vocab_size
    8
    """
    cls = KINDS[kind]
    return cls.train(text, vocab_size=vocab_size, specials=[*dict.fromkeys((*specials, *cls.needed))])


def tokenizer_from_json(data: dict) -> Tokenizer:
    """Build a tokenizer of any kind from the output of its `to_json`.

    The data may come from a file that someone else wrote, so nothing in it is trusted.

    Raises: TokenizerError with the reason if the data does not describe a tokenizer.
    """
    if not isinstance(data, dict):
        raise TokenizerError(f"a tokenizer is stored as a JSON object, not as {reprlib.repr(data)}")
    kind = data.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise TokenizerError(f"unknown kind of tokenizer {reprlib.repr(kind)}: known are {', '.join(KINDS)}")
    return KINDS[kind].from_json(data)
