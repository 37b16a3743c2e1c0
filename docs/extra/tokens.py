"""One text cut into tokens, by every kind of tokenizer and by those of checkpoints.

    python docs/extra/tokens.py my.txt --text "Es irrt der Mensch"
    python docs/extra/tokens.py goethe out/goethe --out tokens.svg tokens.csv

Without --out the picture is tokens.svg; a file that ends with .csv has the numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from boxes import FILLS, MAX_TEXT, Line, picture

from extra.inside import pieces
from extra.plots.figure import DrawOptions, Picture
from extra.studies.draw import CHECKPOINT, Kind, draw, load
from extra.tokenizers.wordpiece import WordPieceTokenizer
from text.tokenizers import learn
from text.tokenizers.base import UNKNOWN
from tinygrad_lite.config import option
from tinygrad_lite.errors import CorpusError, OptionError, counted
from training.cli.console import run_command
from training.corpora.cleaning import normalise
from training.corpora.texts import RECIPES, Corpus, load_corpus

COMMAND = "python docs/extra/tokens.py"
EXAMPLE = 'goethe --text "Es irrt der Mensch"'
SOURCES = f"a text in UTF-8 or a corpus by name, from which every kind is learned, or {CHECKPOINT}"
COMPARED = ("char", "byte", "bpe", "bpe-w", "word", "wordpiece")  # in the order in which they are shown
LOST = "#c9c9c9"
UNKNOWN_NAMES = (UNKNOWN, WordPieceTokenizer.unknown_name)


@dataclass
class TokenOptions(DrawOptions):
    """The options of `python docs/extra/tokens.py`."""

    text: str = option("", "the text to cut; empty: the first words of the text's held-out tenth")
    vocab_size: int = option(2048, "of bpe, bpe-w and word; less if the text is short", unit="tokens", low=257)


def main(argv: Sequence[str]) -> int:
    """Draw the tokens of a text by what the command line names; returns the exit status."""
    return draw(Kind(draw_tokens, TokenOptions, EXAMPLE, "SOURCE ...", SOURCES), argv, COMMAND, "tokens")


def draw_tokens(names: Sequence[str], options: TokenOptions) -> Picture:
    """One text cut by the tokenizers of checkpoints, and by every kind of tokenizer learned from a text.

    Args:
        names: checkpoints, text files, or corpora by name.
    Raises: OptionError if there is no text to cut, or too much of it.
    """
    text, tokenizers = normalise(options.text), []
    for name in names:
        if name not in RECIPES and (not Path(name).is_file() or Path(name).suffix == ".safetensors"):
            tokenizers.append((name, load(name).tokenizer))
            continue
        learned, held_out = split(read_corpus(name))
        text = text or first_words(held_out, 80)
        tokenizers += [(f"{kind}, learned from {name}", learn(kind, learned, options.vocab_size)) for kind in COMPARED]
    if not text.strip():
        raise OptionError('give a text to cut: --text "Es irrt der Mensch"')
    if len(text) > MAX_TEXT:
        raise OptionError(f"--text has {len(text):,} characters: at most {MAX_TEXT} can be drawn")
    lines, rows = [], [("tokenizer", "number", "id", "token")]
    for name, tokenizer in tokenizers:
        ids = tokenizer.encode(text)
        shown = pieces(tokenizer, ids)
        rows += [(name, number, token, piece) for number, (token, piece) in enumerate(zip(ids, shown, strict=True))]
        count = f"{counted(len(ids), 'token')} of a vocabulary of {tokenizer.vocab_size:,}"
        heading = f"{name}: {count}; {len(text) / len(ids):.1f} characters each"
        fills = [LOST if piece in UNKNOWN_NAMES else FILLS[i % 2] for i, piece in enumerate(shown)]
        lines += [Line(heading), Line("", [*zip(shown, fills, strict=True)]), Line("")]
    caption = (
        "Each box is a token: what the model reads, and predicts, at once. · is a space, \\n a line break, \\x.. a "
        "byte that is only part of a character; grey: unknown to the vocabulary, so the model cannot tell what was "
        "there. Fewer tokens mean fewer steps, but each is a choice among more."
    )
    return picture(f"{counted(len(text), 'character')} as tokens", caption, lines, rows)


def read_corpus(name: str) -> Corpus:
    """The text of a file, or of a corpus by its name; its source is printed to stderr."""
    return load_corpus(name, files=[] if name in RECIPES else [name])


def split(corpus: Corpus) -> tuple[str, str]:
    """The text to learn from, and the held-out text.

    Raises: CorpusError if either has no word in it.
    """
    text, held_out = corpus.split()
    if not text.strip() or not held_out.strip():
        learned = counted(len(text), "character")
        parts = f"its first {learned} are for learning and its last {len(held_out):,} for measuring"
        raise CorpusError(f"the text is too short: {parts}, and both must contain a word; use a longer text")
    return text, held_out


def first_words(text: str, length: int) -> str:
    """At most `length` characters of a text, without half a word at either end if possible.

    They begin with the first complete line, since the held-out text may begin in the middle of a word.

    >>> first_words("rebt.\\n\\nWer immer strebend sich", 12)
    'Wer immer'
    """
    _, _, rest = text.partition("\n")
    rest = rest.strip("\n") or text
    end = min(length, len(rest))
    while 0 < end < len(rest) and rest[end - 1].isalnum() and rest[end].isalnum():
        end -= 1
    return rest[:end].rstrip() or rest[:length]


if __name__ == "__main__":
    run_command("tokens", main)
