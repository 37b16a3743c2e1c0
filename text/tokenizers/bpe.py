"""Byte-pair encoding learns a vocabulary between characters and words by merging what often occurs together.

Characters make long sequences, and whole words make a huge vocabulary that still lacks the next new word.
Byte-pair encoding (BPE) lies in between and is tuned by one number, the vocabulary size V:

1. Every text is a sequence of bytes in UTF-8, so begin with the 256 bytes as tokens 0 .. 255. Nothing can
   ever be unknown, be it an umlaut (two bytes) or an emoji (four).
2. Count all pairs of neighbouring tokens, and make the most frequent pair a new token, with the next free id.
3. Replace that pair by the new token everywhere, and go back to 2 until there are V tokens.

Frequent words end up as one token, rarer ones as a few parts, and a word never seen before as something like syllables.

A worked example: in `aaabdaaabac` the pair aa is the most frequent. Call it Z: the text is now ZabdZabac.
Then ab becomes Y, which gives ZYdZYac, and ZY becomes X: XdXac. Three merges have turned eleven bytes into five tokens.

    >>> tokenizer = BPETokenizer.train("aaabdaaabac", vocab_size=256 + 3)
    >>> tokenizer.merges  # a is byte 97, b is 98; Z is 256, Y is 257, X is 258
    [(97, 97), (97, 98), (256, 257)]
    >>> tokenizer.encode("aaabdaaabac")
    [258, 100, 258, 97, 99]
    >>> [tokenizer.render(token) for token in tokenizer.encode("aaabdaaabac")]
    ['aaab', 'd', 'aaab', 'a', 'c']

In ZabdZabac the pairs Za and ab both occur twice. Of equally frequent pairs we take the one that makes the shortest
token (in bytes), and of those the one that comes first in the text as merged so far. So the same text always results in
the same vocabulary.

Pairs are counted only inside words: a token such as "e d", across two words, would rarely be useful. That also
makes learning fast, since a word that occurs a thousand times is processed once.

Sources: Sennrich, Haddow, Birch 2016 (arXiv:1508.07909), algorithm 1; on bytes instead of characters, and
with the space before a word as part of it, as in GPT-2 (Radford et al. 2019, section 2.2). The tie-break is
our own, since the paper leaves it open, and so is the word pattern: it has no rules for English contractions
and keeps newlines together. The paper's own form, on characters, is in `end_of_word.py`.
"""

import heapq
import re
import reprlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, pairwise
from typing import ClassVar, NamedTuple

from text.tokenizers.base import WordwiseTokenizer, to_utf8
from tinygrad_lite.errors import TokenizerError, counted
from training.cli.console import watched

Pair = tuple[int, int]
Spell = Callable[[str], list[int]]  # from a word to its base tokens

# A character is a letter, a digit, an underscore, white space or something else. Each of the five is
# matched by one of the lines, so the matches together are the whole text.
WORD_PATTERN = re.compile(
    r"""
      [ ]?[^\W\d_]+(?:[\u0300-\u036f]+[^\W\d_]*)*+  # letters (äöüß too), and an ä made of a and combining ¨
    | [ ]?\d+                                       # a number
    | [ ]?[^\w\s]+                                  # punctuation and other signs
    | [ ]?_+
    | [^\S\r\n]*[\r\n]+                             # newlines, with the spaces before them
    | \s+(?!\S)                                     # more white space, all but the last before a word
    | \s+
    """,
    re.VERBOSE,
)
MAX_WORD = 64  # characters; longer words are cut, since the work on a word may grow with its length squared
MAX_TOKEN_BYTES = 4 * MAX_WORD  # no token is longer than a word, no character longer than four bytes
MAX_MERGES = 1_000_000


def split_words(text: str) -> list[str]:
    r"""Cut text into the words inside which merges happen; joined together they are the text again.

    >>> split_words("Es irrt der Mensch,\nsolang’ er strebt (317).")
    ['Es', ' irrt', ' der', ' Mensch', ',', '\n', 'solang', '’', ' er', ' strebt', ' (', '317', ').']
    """
    return cut_long(WORD_PATTERN.findall(text))


def cut_long(words: list[str]) -> list[str]:
    """The words; those of more than MAX_WORD characters are cut into several."""
    if any(len(word) > MAX_WORD for word in words):
        words = [word[i : i + MAX_WORD] for word in words for i in range(0, len(word), MAX_WORD)]
    return words


def merge_pair(ids: list[int], pair: Pair, token: int) -> list[int]:
    """Replace a pair of neighbouring ids by one token, from left to right.

    >>> merge_pair([97, 97, 97, 98], pair=(97, 97), token=256)
    [256, 97, 98]
    """
    left, right = pair
    merged = []
    i = 0
    while i < len(ids):
        is_pair = ids[i] == left and i + 1 < len(ids) and ids[i + 1] == right
        merged.append(token if is_pair else ids[i])
        i += 2 if is_pair else 1
    return merged


def occurs_twice(pair: Pair, count: int, words: Iterable[tuple[list[int], int]]) -> bool:
    """Whether a pair with this count can be replaced twice: in a single `aaa`, aa is counted twice, replaced once.

    >>> occurs_twice((97, 97), 2, [([97, 97, 97], 1)]), occurs_twice((97, 97), 2, [([97, 97], 2)])
    (False, True)
    """
    replaced = (weight * (len(ids) - len(merge_pair(ids, pair, -1))) for ids, weight in words)
    return count > 2 or (count == 2 and (pair[0] != pair[1] or sum(replaced) > 1))


class MergeStep(NamedTuple):
    """A step of byte-pair encoding: how often each pair occurs, the pair that is merged, and the words afterwards.

    A word is its list of ids, with the number of times that it occurs.
    """

    counts: Counter[Pair]
    pair: Pair
    words: list[tuple[list[int], int]]


def merge_steps(word_counts: dict[str, int], spell: Spell, lengths: Sequence[int]) -> Iterator[MergeStep]:
    """Byte-pair encoding as defined: count all pairs, merge the most frequent one everywhere, and repeat.

    It ends if no pair is left that occurs twice, in places that do not overlap.

    Args:
        word_counts: how often each word occurs, in the order of the text.
        spell: maps a word to its base tokens.
        lengths: length of each base token as it is written.
    """
    words, lengths = [(spell(word), count) for word, count in word_counts.items()], list(lengths)
    while True:
        counts: Counter[Pair] = Counter()
        for ids, count in words:
            for pair in pairwise(ids):
                counts[pair] += count
        repeated = [pair for pair, count in counts.items() if occurs_twice(pair, count, words)]
        if not repeated:
            break
        # A Counter lists the pairs in the order of the text, and min takes the first of equals.
        best = min(repeated, key=lambda pair: (-counts[pair], lengths[pair[0]] + lengths[pair[1]]))
        words = [(merge_pair(ids, best, len(lengths)), count) for ids, count in words]
        lengths.append(lengths[best[0]] + lengths[best[1]])
        yield MergeStep(counts, best, words)


def reference_merges(word_counts: dict[str, int], n_merges: int, spell: Spell, lengths: Sequence[int]) -> list[Pair]:
    """The pairs of the first n_merges `merge_steps`.

    The reference version of `learn_merges`, which finds the same merges without counting everything again.

    >>> reference_merges({"aaabdaaabac": 1}, 3, lambda word: list(word.encode()), lengths=[1] * 256)
    [(97, 97), (97, 98), (256, 257)]
    """
    return [step.pair for step in islice(merge_steps(word_counts, spell, lengths), n_merges)]


# --- the fast version -----------------------------------------------------------------------------------------


class PairTable:
    """How often each pair of neighbouring tokens occurs, kept up to date while pairs are merged.

    A merge changes only the words that contain its pair. So we keep for each pair the words it is in, and
    never have to count all words again.

    Its arguments are those of `merge_steps`.
    """

    def __init__(self, word_counts: dict[str, int], spell: Spell, lengths: Sequence[int]):
        self.words = [spell(word) for word in word_counts]
        self.weights = list(word_counts.values())
        self.lengths = list(lengths)  # every merge adds one
        self.counts: defaultdict[Pair, int] = defaultdict(int)
        # The words of a pair, by index: a dict without values, since it keeps the order and removes quickly.
        self.places: defaultdict[Pair, dict[int, None]] = defaultdict(dict)
        for index, ids in enumerate(self.words):
            for pair in pairwise(ids):
                self.counts[pair] += self.weights[index]
                self.places[pair][index] = None

    def rank(self, pair: Pair) -> tuple[int, int, int, int]:
        """The sort key of a pair, the next to merge first: most frequent, shortest, first in the text."""
        # Words are visited in the order of the text, so the first one noted is the first in the text.
        index = next(iter(self.places[pair]))
        ids = self.words[index]
        # As a length and not in tokens, because merging to the left does not change it.
        offset = sum(self.lengths[token] for token in ids[: [*pairwise(ids)].index(pair)])
        return -self.counts[pair], self.lengths[pair[0]] + self.lengths[pair[1]], index, offset

    def merge(self, pair: Pair) -> list[Pair]:
        """Replace the pair by a new token in all words that contain it, and return the new pairs."""
        token = len(self.lengths)
        self.lengths.append(self.lengths[pair[0]] + self.lengths[pair[1]])
        born: dict[Pair, None] = {}
        for index in list(self.places[pair]):
            before = self.words[index]
            after = self.words[index] = merge_pair(before, pair, token)
            for old in pairwise(before):
                self.counts[old] -= self.weights[index]
            for new in pairwise(after):
                self.counts[new] += self.weights[index]
                if token in new:
                    self.places[new][index] = born[new] = None
            for gone in set(pairwise(before)).difference(pairwise(after)):
                del self.places[gone][index]
        return list(born)


def learn_merges(word_counts: dict[str, int], spell: Spell, lengths: Sequence[int]) -> Iterator[Pair]:
    """The same pairs as those of `merge_steps`, found without counting all pairs again after each merge.

    The next pair is at the top of a heap, ordered by `PairTable.rank`. New pairs always contain the new
    token, and a pair of older tokens can only lose occurrences, which moves it back in the order. So an entry
    may stay while counts fall: when it reaches the top with an outdated count, it is pushed back with the current
    one.
    """
    table = PairTable(word_counts, spell, lengths)
    heap: list[tuple[tuple[int, ...], Pair]] = []
    candidates = [pair for pair, count in table.counts.items() if count > 1]
    while True:
        for pair in candidates:
            words = ((table.words[index], table.weights[index]) for index in table.places[pair])
            if occurs_twice(pair, table.counts[pair], words):
                heapq.heappush(heap, (table.rank(pair), pair))
        if not heap:
            return
        (minus_count, *_), pair = heapq.heappop(heap)
        is_current = minus_count == -table.counts[pair]
        if is_current:
            yield pair
        candidates = table.merge(pair) if is_current else [pair]


# --- the tokenizers -------------------------------------------------------------------------------------------


class MergeTokenizer(WordwiseTokenizer):
    """What the kinds of byte-pair encoding have in common: tokens made by merges, and how merges encode a word.

    Each kind defines how text is cut into words, `split(text)`, and what the base tokens of a word are, `spell(word)`.
    The ids of the base tokens come first, then those of the merges in order, then the specials.

    Args:
        base: the UTF-8 bytes of the base tokens.
        merges: pairs of ids; number i (from 0) makes token len(base) + i of two tokens with lower ids.
        specials: names of the special tokens.
    Raises: TokenizerError if a merge is not a pair of lower ids, is given twice, or is longer than any word.
    """

    def __init__(self, base: Sequence[bytes], merges: Sequence[Sequence[int]], specials: Iterable[str]):
        if len(merges) > MAX_MERGES:
            raise TokenizerError(f"{len(merges)} merges are too many: at most {MAX_MERGES}")
        pieces = list(base)
        self._first_merged = len(base)
        self._merged: dict[Pair, int] = {}
        for i, merge in enumerate(merges):
            token = len(pieces)
            where = f"merge {i} (token {token})"
            if not isinstance(merge, list | tuple) or [*map(type, merge)] != [int, int]:
                raise TokenizerError(f"{where} must be a list of two token ids, not {reprlib.repr(merge)}")
            left, right = merge
            if not (0 <= left < token and 0 <= right < token):
                raise TokenizerError(f"{where} joins {left} and {right}, but only ids below {token} exist yet")
            if (left, right) in self._merged:
                raise TokenizerError(f"{where} joins {left} and {right}, as an earlier merge already does")
            length = len(pieces[left]) + len(pieces[right])
            if length > MAX_TOKEN_BYTES:  # forty doublings would make a terabyte
                raise TokenizerError(f"{where} has {length} bytes, but no word has more than {MAX_TOKEN_BYTES}")
            pieces.append(pieces[left] + pieces[right])
            self._merged[left, right] = token
        super().__init__(pieces, specials)
        self.merges: list[Pair] = list(self._merged)
        self.n_merges: int = len(self.merges)

    def to_json(self) -> dict:
        """As for all kinds; the merges are lists, as in JSON."""
        return super().to_json() | {"merges": [list(pair) for pair in self.merges]}

    def learned_merges(self, text: str, count: int, lengths: Sequence[int]) -> list[Pair]:
        """The first merges of a text's words; fewer than `count` if no pair is left that occurs twice.

        Args:
            lengths: length of each base token as it is written.
        """
        merges = learn_merges(Counter(self.split(text)), self.spell, lengths)
        return [*watched(islice(merges, min(count, MAX_MERGES)), "learning merges", count)]

    def encode_word(self, word: str) -> list[int]:
        """Merge the pair that was learned first, wherever it is in the word, until no pair can be merged."""
        ids = self.spell(word)
        nothing = self.vocab_size
        while len(ids) > 1:
            # The pair that was learned first has the lowest id.
            token = min([self._merged.get(pair, nothing) for pair in pairwise(ids)])
            if token == nothing:
                break
            ids = merge_pair(ids, self.merges[token - self._first_merged], token)
        return ids


class BPETokenizer(MergeTokenizer):
    """Byte-level BPE: ids 0 .. 255 are bytes, 256 .. 255 + n_merges the merges in order, then the specials.

    Lossless: decode(encode(text)) == text for every Python string. Arguments and errors are those of
    `MergeTokenizer`, with the bytes as base tokens.
    """

    kind = "bpe"
    parts: ClassVar = {"merges": list, "specials": list}

    def __init__(self, merges: Sequence[Sequence[int]], specials: Iterable[str] = ()):
        super().__init__([bytes([byte]) for byte in range(256)], merges, specials)

    @classmethod
    def train(cls, text: str, vocab_size: int, specials: Iterable[str] = ()) -> "BPETokenizer":
        """Learn a vocabulary of vocab_size tokens (bytes, merges and specials together) from a text.

        Learning stops early when no pair occurs twice; then `n_merges` and `vocab_size` of the result are
        smaller.

        Raises: TokenizerError if the text is empty or vocab_size is below 256 + the number of specials.
        """
        untrained = cls([], specials)  # so that a bad name of a special is refused before the work, not after it
        n_merges = vocab_size - untrained.vocab_size
        if n_merges < 0:
            raise TokenizerError(
                f"vocab_size is {vocab_size}, but byte-level BPE begins with 256 bytes and "
                f"{counted(len(untrained.specials), 'special token')}: use at least {untrained.vocab_size}"
            )
        if not text:
            raise TokenizerError("byte-pair encoding cannot be learned from an empty text: use another one")
        return cls(untrained.learned_merges(text, n_merges, [1] * 256), list(untrained.specials))

    def split(self, text: str) -> list[str]:
        """Cut text into words with the space before them, numbers and other characters."""
        return split_words(text)

    def spell(self, word: str) -> list[int]:
        """The bytes of a word."""
        return list(to_utf8(word))
