"""One token per character: the simplest tokenizer, and the default for small models.

>>> tokenizer = CharTokenizer.train("Mit Worten läßt sich trefflich streiten,")
>>> tokenizer.encode("Worte")
[3, 11, 12, 14, 5]
>>> tokenizer.decode([3, 11, 12, 14, 5])
'Worte'
"""

import reprlib
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

from text.tokenizers.base import UNKNOWN, Tokenizer, to_utf8
from tinygrad_lite.errors import TokenizerError


class CharTokenizer(Tokenizer):
    """One token per character: ids 0 .. n-1 are the n characters by code point, then come the specials.

    The vocabulary is small (a hundred or so for German) and a sequence is as long as its text. A character
    that was not in the training text becomes <unk>, which therefore must be among the specials.

    Args:
        characters: single characters in ascending order of code point.
        specials: names of the special tokens, <unk> among them.
    Raises: TokenizerError if the characters are missing, not single or not ascending, or if <unk> is missing.
    """

    kind, takes_size = "char", False
    parts, needed = {"characters": list, "specials": list}, (UNKNOWN,)

    def __init__(self, characters: Sequence[str], specials: Iterable[str] = (UNKNOWN,)):
        check_characters(characters)
        super().__init__([to_utf8(character) for character in characters], specials)
        self._unknown_id = self._require_unknown()
        self._ids = {character: i for i, character in enumerate(characters)}
        # A list, because two surrogates side by side in one JSON string would be read back as one character.
        self.characters = list(characters)

    @classmethod
    def train(cls, text: str, specials: Iterable[str] = (UNKNOWN,), vocab_size: int = 0) -> "CharTokenizer":
        """Make the vocabulary from all characters that occur in the text, however many there are.

        Raises: TokenizerError if the text is empty.
        """
        return cls(sorted(set(text)), specials)

    def encode_text(self, text: str) -> list[int]:
        """Turn text into token ids, ignoring the names of specials."""
        return [self._ids.get(character, self._unknown_id) for character in text]

    def unknown(self, text: str) -> dict[str, int]:
        """The characters of a text that become <unk>, each with its number of occurrences."""
        return {character: n for character, n in Counter(text).items() if character not in self._ids}


def check_characters(characters: Sequence[str]) -> None:
    """Check that a vocabulary consists of single characters, at least one, in ascending order of code point.

    Raises: TokenizerError.
    """
    for previous, character in pairwise(["", *characters]):
        if not isinstance(character, str) or len(character) != 1:
            raise TokenizerError(f"a character vocabulary holds single characters, not {reprlib.repr(character)}")
        if character <= previous:
            raise TokenizerError(
                f"a character vocabulary is sorted by code point and names each character once, "
                f"but {character!r} follows {previous!r}"
            )
    if not characters:
        raise TokenizerError("a character vocabulary needs at least one character: is the text empty?")
