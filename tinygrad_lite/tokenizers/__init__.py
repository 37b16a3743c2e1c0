"""From text to token ids and back: characters, bytes, words and their parts; and the table of all kinds."""

import reprlib

from tinygrad_lite.errors import TokenizerError
from tinygrad_lite.tokenizers.base import Tokenizer
from tinygrad_lite.tokenizers.bpe import BPETokenizer
from tinygrad_lite.tokenizers.byte import ByteTokenizer
from tinygrad_lite.tokenizers.char import CharTokenizer
from tinygrad_lite.tokenizers.end_of_word import EndOfWordTokenizer
from tinygrad_lite.tokenizers.huggingface import HFTokenizer
from tinygrad_lite.tokenizers.labels import LabelTokenizer
from tinygrad_lite.tokenizers.pixels import PixelTokenizer
from tinygrad_lite.tokenizers.word import WordTokenizer
from tinygrad_lite.tokenizers.wordpiece import WordPieceTokenizer

KINDS: dict[str, type[Tokenizer]] = {
    kind.kind: kind
    for kind in (
        *(CharTokenizer, ByteTokenizer, WordTokenizer, BPETokenizer),
        *(EndOfWordTokenizer, WordPieceTokenizer, HFTokenizer),
        *(LabelTokenizer, PixelTokenizer),
    )
}


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
