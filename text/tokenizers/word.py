"""One token per word: the obvious idea, and why language models abandoned it.

A text is cut into words, which are runs of letters, and other single characters: spaces, commas, digits, newlines. The
V most frequent of these pieces are the vocabulary, and all others become <unk>. Sequences are short, and every token
means something. But there are three drawbacks:

- However large V is, the next text brings words that are not in it: names, compounds, misspellings. They are lost,
  in prompts as well as in the training text, and the model can write <unk> but none of them.
- More than half of the different words of a text occur in it only once: 59 % of those in a million characters of
  German plays, 62 % in the corpus goethe. That is too rare to learn what they mean.
- gehe, gehst and geht are three tokens, and the model must learn that they have anything in common.

Byte-pair encoding (`bpe.py`) is the answer to all three: it keeps frequent words whole and takes rare ones apart.

    >>> tokenizer = WordTokenizer.train("Da steh ich nun, ich armer Tor!", vocab_size=8)
    >>> [tokenizer.render(token) for token in range(tokenizer.vocab_size)]
    [' ', 'ich', 'Da', 'steh', 'nun', ',', 'armer', '<unk>']
    >>> tokenizer.encode("ich, Faust")
    [1, 5, 0, 7]
    >>> tokenizer.unknown("ich, Faust")
    {'Faust': 1}
"""

import re
import reprlib
from collections import Counter
from collections.abc import Iterable, Sequence

from text.tokenizers.base import UNKNOWN, Tokenizer, checked_specials, to_utf8
from tinygrad_lite.errors import TokenizerError, counted

PIECE_PATTERN = re.compile(r"[^\W\d_]+|.", re.DOTALL)  # letters, or else any one character


def split_pieces(text: str) -> list[str]:
    r"""Cut text into words and other single characters; joined together they are the text again.

    >>> split_pieces("Es irrt der Mensch,\n(V. 317)")
    ['Es', ' ', 'irrt', ' ', 'der', ' ', 'Mensch', ',', '\n', '(', 'V', '.', ' ', '3', '1', '7', ')']
    """
    return PIECE_PATTERN.findall(text)


class WordTokenizer(Tokenizer):
    """One token per word, space or other character: ids 0 .. n-1 by descending frequency, then the specials.

    Lossless where nothing is unknown: then decode(encode(text)) == text, white space included. Every other piece
    becomes <unk>, which therefore must be among the specials.

    Args:
        words: the words and single characters of the vocabulary, in the order of their ids.
        specials: names of the special tokens, <unk> among them.
    Raises: TokenizerError if there are no words, if one is not such a piece or is given twice, or if <unk> is missing.
    """

    kind = "word"
    parts, needed = {"words": list, "specials": list}, (UNKNOWN,)

    def __init__(self, words: Sequence[str], specials: Iterable[str] = (UNKNOWN,)):
        self._ids: dict[str, int] = {}
        for i, word in enumerate(words):
            if not isinstance(word, str) or not PIECE_PATTERN.fullmatch(word):
                wrong = reprlib.repr(word)
                raise TokenizerError(f"a word vocabulary holds words of letters and single characters, not {wrong}")
            if word in self._ids:
                raise TokenizerError(f"a word vocabulary names each word once, but {reprlib.repr(word)} is given twice")
            self._ids[word] = i
        if not self._ids:
            raise TokenizerError("a word vocabulary needs at least one word: is the text empty?")
        super().__init__([to_utf8(word) for word in words], specials)
        self._unknown_id = self._require_unknown()
        self.words = list(words)

    @classmethod
    def train(cls, text: str, vocab_size: int, specials: Iterable[str] = (UNKNOWN,)) -> "WordTokenizer":
        """Make a vocabulary of vocab_size tokens (specials included): the most frequent pieces of the text.

        Of equally frequent pieces, the one that comes first in the text is taken first. A text with fewer different
        pieces results in a smaller vocabulary.

        Raises: TokenizerError if the text is empty or vocab_size leaves no room for a word besides the specials.
        """
        names = checked_specials(specials)
        n_words = vocab_size - len(names)
        if n_words < 1:
            raise TokenizerError(
                f"vocab_size is {vocab_size}, but {counted(len(names), 'special token')} and one word need "
                f"{len(names) + 1}: use at least that"
            )
        return cls([word for word, _ in Counter(split_pieces(text)).most_common(n_words)], names)

    def encode_text(self, text: str) -> list[int]:
        """Turn text into token ids, ignoring the names of specials."""
        return [self._ids.get(piece, self._unknown_id) for piece in split_pieces(text)]

    def unknown(self, text: str) -> dict[str, int]:
        """The words and single characters of a text that become <unk>, each with its number of occurrences."""
        return {piece: n for piece, n in Counter(split_pieces(text)).items() if piece not in self._ids}
