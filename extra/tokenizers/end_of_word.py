"""Byte-pair encoding in its original form: on characters instead of bytes, with a mark `</w>` at each word's end.

The trainer is that of `bpe.py`; three things around it differ.

1. The base tokens are the characters of the training text. Others become <unk>, as with one token per character.
2. Text is split at white space, and every word gets the mark `</w>` as its last base token. Where bpe.py makes the
   space the beginning of a word, this form marks the end of a word: `est</w>` is an ending, and `est` is not.
3. The white space itself is not kept. Decoding writes one space for each `</w>`, so

       decode(encode(text)) == "".join(word + " " for word in text.split())

   which means that white space is NOT preserved: newlines are lost, and with them all verse. The byte-level tokenizer
   of bpe.py is lossless. In translation, where this form comes from, every sentence is on its own line and nothing is
   lost. A prompt always ends with a whole word, since its last word is marked too.

The worked example of the paper: low 5 times, lower twice, newest 6 times and widest 3 times, ten merges.

    >>> text = " ".join(["low"] * 5 + ["lower"] * 2 + ["newest"] * 6 + ["widest"] * 3)
    >>> tokenizer = EndOfWordTokenizer.train(text, vocab_size=10 + 1 + 10 + 1)  # characters, </w>, merges, <unk>
    >>> [tokenizer.render(token) for token in range(11, 21)]
    ['es', 'est', 'est</w>', 'lo', 'low', 'ne', 'new', 'newest</w>', 'low</w>', 'wi']
    >>> [tokenizer.render(token) for token in tokenizer.encode("lowest")]  # never seen, and no <unk>
    ['low', 'est</w>']

Source: Sennrich, Haddow, Birch 2016, "Neural machine translation of rare words with subword units"
(arXiv:1508.07909), section 3.2 and algorithm 1. Of equally frequent pairs, which the paper leaves open, the
shortest in characters is merged first, where `</w>` counts as four.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from text.tokenizers.base import UNKNOWN, to_utf8
from text.tokenizers.bpe import MergeTokenizer, cut_long
from text.tokenizers.char import check_characters
from tinygrad_lite.errors import TokenizerError, counted

END_OF_WORD = "</w>"


class EndOfWordTokenizer(MergeTokenizer):
    """BPE with `</w>`: ids 0 .. n-1 are characters, n is `</w>`, then the merges in order, then the specials.

    White space is not preserved: only one space after each word remains (see the file's docstring).

    Internally, and in `token_bytes`, the mark is a space: words contain none, and the mark decodes to one. In user
    input, `</w>` is four characters like any other four.

    Args:
        characters: single characters in ascending order of code point, no white space among them.
        merges: pairs of ids; number i (from 0) makes token n + 1 + i of two tokens with lower ids.
        specials: names of the special tokens, <unk> among them.
    Raises: TokenizerError if the characters or merges are not of this form, or if <unk> is missing.
    """

    kind = "bpe-w"
    parts, needed = {"characters": list, "merges": list, "specials": list}, (UNKNOWN,)

    def __init__(self, characters: list[str], merges: Sequence[Sequence[int]], specials: Iterable[str] = (UNKNOWN,)):
        check_characters(characters)
        if space := [character for character in characters if character.isspace()]:
            raise TokenizerError(f"white space is where words are split, so {space[0]!r} cannot be in one")
        super().__init__([*map(to_utf8, characters), b" "], merges, specials)
        self._unknown_id = self._require_unknown()
        self.characters, self._ids = list(characters), {c: i for i, c in enumerate([*characters, " "])}
        for i, (left, right) in enumerate(self.merges):
            if self._closes(left):
                raise TokenizerError(f"merge {i} joins {left} and {right}, but no word continues after {END_OF_WORD}")

    @classmethod
    def train(cls, text: str, vocab_size: int, specials: Iterable[str] = (UNKNOWN,)) -> "EndOfWordTokenizer":
        """Learn a vocabulary of vocab_size tokens (characters, `</w>`, merges, specials) from a text.

        Learning stops early when no pair occurs twice.

        Raises: TokenizerError if there is no word in the text, or if vocab_size is below the number of characters,
            `</w>` and specials.
        """
        characters = sorted(character for character in set(text) if not character.isspace())
        untrained = cls(characters, [], specials)
        n_merges = vocab_size - untrained.vocab_size
        if n_merges < 0:
            raise TokenizerError(
                f"vocab_size is {vocab_size}, but this text has {len(characters)} different characters, which with "
                f"{END_OF_WORD} and {counted(len(untrained.specials), 'special token')} make {untrained.vocab_size}: "
                "use at least that"
            )
        lengths = [1] * len(characters) + [len(END_OF_WORD)]
        return cls(characters, untrained.learned_merges(text, n_merges, lengths), list(untrained.specials))

    def split(self, text: str) -> list[str]:
        """Cut text at white space, with one space after each word as its mark.

        >>> EndOfWordTokenizer(["a"], []).split("Habe nun,\\tach!")
        ['Habe ', 'nun, ', 'ach! ']
        """
        return cut_long([word + " " for word in text.split()])

    def spell(self, word: str) -> list[int]:
        """The characters of a word; the space at its end is `</w>`."""
        return [self._ids.get(character, self._unknown_id) for character in word]

    def render(self, token: int) -> str:
        """One token in readable form, with the mark as `</w>`."""
        shown = super().render(token)
        return shown.removesuffix(" ") + END_OF_WORD if self._closes(token) else shown

    def _closes(self, token: int) -> bool:
        """Whether a token ends with the mark."""
        return self.token_bytes(token).endswith(b" ")

    def unknown(self, text: str) -> dict[str, int]:
        """The characters of a text, except white space, that become <unk>, each with its number of occurrences."""
        counts = Counter("".join(text.split()))
        return {character: n for character, n in counts.items() if character not in self._ids}
