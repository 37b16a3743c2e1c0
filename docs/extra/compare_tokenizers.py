"""What does each tokenizer cost, and what does it gain? All of them side by side, on one text.

    python docs/extra/compare_tokenizers.py my.txt                      any UTF-8 text
    python docs/extra/compare_tokenizers.py goethe --vocab_size 4096    a corpus by name
    python docs/extra/compare_tokenizers.py my.txt --sample 0           only the table

Each tokenizer learns from the first nine tenths of the text, with the same --vocab_size if the size can be chosen, and
is measured on the last tenth, which it has not seen:

- characters per token: a model's time per character, and how much text fits into its context, depend on it;
- unknown: the share of the characters that become <unk> (with a word, all of its characters are lost);
- to restore: what the tokens leave out, in bits per character of the text, in a simple code (`bits_to_restore`);
- seconds to learn the vocabulary, and megabytes (10^6 bytes of UTF-8) per second to turn text into tokens.

For `bpe-w` and `wordpiece`, which do not keep white space, the characters of the original text are counted.
(`wordpiece` is the tokenizer of encoders, here with capitals and accents.)
The table is followed by a passage of the held-out text, cut into tokens by each: on a terminal in two alternating
colours, otherwise (or if the environment variable NO_COLOR is set) with | between the tokens. Newlines are shown as
\\n,
and other characters that cannot be printed, or parts of characters, as \\x and their code.

This table alone does not show which is best: fewer tokens mean fewer steps, but each step is a choice among more
tokens. A model's loss in bits per character (`gpt/data.py`) does, since it is comparable across tokenizers, once the
bits to restore the text are added: predicting <unk> is easy, and says nothing about the word.
"""

import math
import re
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from tokens import COMPARED, first_words, read_corpus, split

from extra.studies.program import program
from extra.tokenizers.end_of_word import EndOfWordTokenizer
from extra.tokenizers.wordpiece import WordPieceTokenizer
from text.tokenizers import learn
from text.tokenizers.base import Tokenizer, WordwiseTokenizer, to_utf8
from tinygrad_lite.config import option
from tinygrad_lite.errors import counted
from training.cli.console import RESET, run_command, show, wants_colour, write
from training.corpora.texts import RECIPES

ABOUT_FILE = "FILE is a text in UTF-8, or a corpus by name: " + ", ".join(RECIPES)
CODE_POINT = 21  # bits that name any character of Unicode

# Black on light blue and on light brown: setting both colours keeps the text readable whatever the terminal's own
# colours are.
COLOURS = ("\x1b[38;5;16;48;5;110m", "\x1b[38;5;16;48;5;180m")


@dataclass
class CompareOptions:
    """The options of the comparison."""

    vocab_size: int = option(2048, "where it can be chosen; less if the text is short", unit="tokens", low=257)
    sample: int = option(200, "length of the passage to show as tokens; 0: none", unit="characters", low=0)


def measure(kind: str, text: str, held_out: str, vocab_size: int) -> Tokenizer:
    """Learn a tokenizer of this kind from one text, measure it on another, and print its row of the table.

    Raises: TokenizerError if the vocabulary is too small for this kind.
    """
    began = time.perf_counter()
    tokenizer = learn(kind, text, vocab_size)
    learned = time.perf_counter()
    ids = tokenizer.encode(held_out)
    encoding = max(time.perf_counter() - learned, 1e-9)  # the clock may be too coarse to measure it
    unknown = sum(n * len(what) for what, n in tokenizer.unknown(held_out).items()) / len(held_out)
    bits, speed = bits_to_restore(tokenizer, text, held_out), len(to_utf8(held_out)) / 1e6 / encoding
    row = f"{kind:<9} {tokenizer.vocab_size:>11,} {len(held_out) / len(ids):>21.2f} {unknown:>8.2%}"
    show(f"{row} {bits:>6.2f} bits {learned - began:>9.2f} s {speed:>7.1f} MB/s")
    return tokenizer


def bits_to_restore(tokenizer: Tokenizer, text: str, held_out: str) -> float:
    """The bits per character that would restore a text from its tokens, if these do not determine it.

    An unknown piece is spelled: its letters and a mark for its end, each in -log2 of its share among those of the
    unknown pieces in the text from which the tokenizer learned. With `bpe-w`, the white space after each word takes
    -log2 of its share there; with `wordpiece`, so does the white space between two words, or its absence. What does not
    occur there takes a place among them that is kept free, and 21 bits for each character. A better code, such as a
    model of letters, would need fewer bits.
    """
    bits = cost(*(letters(tokenizer.unknown(part)) for part in (text, held_out)))
    if tokenizer.kind in (EndOfWordTokenizer.kind, WordPieceTokenizer.kind):
        bits += cost(*(spaces(tokenizer, part) for part in (text, held_out)))
    return bits / len(held_out)


def spaces(tokenizer: WordwiseTokenizer, text: str) -> Counter[str]:
    """How often each white space occurs in a text; an empty one is a border between two words without any."""
    counts = Counter(re.findall(r"\s+", text))
    borders = len(tokenizer.split(text)) - 1 - counts.total()
    return counts + Counter({"": borders})  # + drops counts that are not positive


def letters(pieces: Mapping[str, int]) -> Counter[str]:
    """The letters of pieces that occur N times each, with an empty string for the end of each."""
    return Counter(letter for piece, count in pieces.items() for letter in [*piece, ""] * count)


def cost(learned: Counter[str], symbols: Counter[str]) -> float:
    """The bits of symbols in a code by the learned frequencies, with one place kept for anything not among them."""
    bits, total = 0.0, learned.total() + 1
    for symbol, count in symbols.items():
        new = 0 if learned[symbol] else CODE_POINT * len(symbol)
        bits += count * (math.log2(total / (learned[symbol] or 1)) + new)
    return bits


def show_tokens(tokenizer: Tokenizer, text: str, colour: bool) -> str:
    """A text as its tokens, in two alternating colours, or with a mark between them."""
    shown = []
    for i, token in enumerate(tokenizer.encode(text)):
        # The end of a line is shown as an escape, and then printed as well.
        end = "\n" if b"\n" in tokenizer.token_bytes(token) else ""
        before, after = (COLOURS[i % 2], RESET) if colour else ("", "|")
        shown.append(before + tokenizer.render(token) + after + end)
    return "".join(shown) if colour else "".join(shown).removesuffix("|")


# --- the command ----------------------------------------------------------------------------------------------


@program("docs/extra/compare_tokenizers.py", CompareOptions, "FILE", "goethe", epilog=ABOUT_FILE)
def main(options: CompareOptions, name: str) -> None:
    """Learn every kind of tokenizer from a text, and compare them on its last tenth."""
    text, held_out = split(read_corpus(name))

    show("tokenizer  vocabulary  characters per token  unknown  to restore  learned in      encodes")
    tokenizers = [measure(kind, text, held_out, options.vocab_size) for kind in COMPARED]
    if options.sample:
        passage = first_words(held_out, options.sample)
        for tokenizer in tokenizers:
            tokens = counted(len(tokenizer.encode(passage)), "token")
            show(f"\n{tokenizer.kind}: {counted(len(passage), 'character')}, {tokens}")
            write(show_tokens(tokenizer, passage, wants_colour()) + "\n", paint=str)


if __name__ == "__main__":
    run_command("compare_tokenizers", main)
