"""One token per byte: the tokenizer that needs no training and can encode every text.

In UTF-8 an ASCII letter is one byte, ä is two and an emoji four. So a sequence of bytes is a little longer than
one of characters, but 256 tokens are enough for every language, and nothing is ever unknown. The model must learn,
along with everything else, that the bytes 195 and 164 together are ä.

    >>> tokenizer = ByteTokenizer()
    >>> tokenizer.encode("spät")
    [115, 112, 195, 164, 116]

Source: Xue et al. 2022, "ByT5: Towards a token-free future with pre-trained byte-to-byte models" (arXiv:2105.13626).
There the ids of the specials come before those of the bytes; here they come after them, as everywhere in this project.
"""

from collections.abc import Iterable

from text.tokenizers.base import Tokenizer, to_utf8


class ByteTokenizer(Tokenizer):
    """One token per byte: ids 0 .. 255 are the bytes, then come the specials. It needs no training.

    Lossless: decode(encode(text)) == text for every Python string. The same as byte-pair encoding without merges.

    Args:
        specials: names of the special tokens.
    """

    kind, takes_size = "byte", False

    def __init__(self, specials: Iterable[str] = ()):
        super().__init__([bytes([byte]) for byte in range(256)], specials)

    @classmethod
    def train(cls, text: str, vocab_size: int, specials: Iterable[str] = ()) -> "ByteTokenizer":
        """There is nothing to learn."""
        return cls(specials)

    def encode_text(self, text: str) -> list[int]:
        """Turn text into token ids, ignoring the names of specials."""
        return list(to_utf8(text))
