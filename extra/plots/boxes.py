"""Text cut into tokens, as rows of boxes: one text cut by several tokenizers."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from extra.inside import pieces
from extra.plots.figure import DrawOptions, Picture
from extra.tokenizers.wordpiece import WordPieceTokenizer
from text.tokenizers import learn
from text.tokenizers.base import UNKNOWN, Tokenizer
from tinygrad_lite.config import option
from tinygrad_lite.errors import CorpusError, OptionError, counted
from training.corpora.cleaning import normalise
from training.corpora.texts import RECIPES, Corpus, load_corpus

COMPARED = ("char", "byte", "bpe", "bpe-w", "word", "wordpiece")  # in the order in which they are shown
TEXT_SIZE = 8  # points
LETTER = 0.64 * TEXT_SIZE / 72  # the width of a letter of the typewriter font, in inches
LINE = 0.24  # inches from one line of boxes to the next
WIDTH = 100  # letters
MAX_TEXT = 1000  # characters
FILLS = ("#d3e8f5", "#fdefc3")  # of neighbouring tokens, in turn
LOST = "#c9c9c9"
UNKNOWN_NAMES = (UNKNOWN, WordPieceTokenizer.unknown_name)


class Line(NamedTuple):
    """A line of the picture: words in front, and boxes, each a text and a colour; more lines if they do not fit.

    Words without boxes are a heading.
    """

    words: str
    boxes: Sequence[tuple[str, str]] = ()


@dataclass
class TokenOptions(DrawOptions):
    """The options of `tokens`."""

    text: str = option("", "the text to cut; empty: the first words of the text's held-out tenth")
    vocab_size: int = option(2048, "of bpe, bpe-w and word; less if the text is short", unit="tokens", low=257)


# --- one text, several tokenizers -----------------------------------------------------------------------------


def draw_tokens(names: Sequence[str], options: TokenOptions, load: Callable[[str], Tokenizer]) -> Picture:
    """One text cut by the tokenizers of checkpoints, and by every kind of tokenizer learned from a text.

    Args:
        names: checkpoints, text files, or corpora by name.
        load: reads the tokenizer of a checkpoint.
    Raises: OptionError if there is no text to cut, or too much of it.
    """
    text, tokenizers = normalise(options.text), []
    for name in names:
        if name not in RECIPES and (not Path(name).is_file() or Path(name).suffix == ".safetensors"):
            tokenizers.append((name, load(name)))
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


# --- drawing --------------------------------------------------------------------------------------------------


def picture(title: str, caption: str, lines: Sequence[Line], rows: Sequence, has_text: bool = False) -> Picture:
    """The picture of lines of boxes."""
    placed = list(lay_out(lines))
    height = max(row for row, *_ in placed) + 1.2
    widest = max([column + len(text) + 1 for _, column, text, _, _ in placed])

    def draw(figure) -> None:
        axes = figure.add_subplot()
        axes.set_axis_off()
        axes.set(xlim=(0, widest), ylim=(height, 0))
        for row, column, text, fill, is_heading in placed:
            if fill:
                axes.barh(row + 0.5, len(text) + 0.9, 0.8, column, color=fill, edgecolor="#888888", linewidth=0.4)
            style = {"fontweight": "bold", "family": "sans-serif"} if is_heading else {"family": "monospace"}
            place, side = (column + len(text) / 2 + 0.45, "center") if fill else (column, "left")
            axes.text(place, row + 0.52, text, ha=side, va="center", fontsize=TEXT_SIZE, **style)

    text = "\n".join(
        (f"{line.words}: " if line.boxes else line.words) + "|".join(text for text, _ in line.boxes) for line in lines
    )
    return Picture(title, caption, (widest * LETTER, height * LINE), draw, table=rows, text=text if has_text else "")


def lay_out(lines: Sequence[Line]) -> Iterator[tuple[float, float, str, str, bool]]:
    """Where everything goes: (row, column, text, colour of the box, whether it is a heading)."""
    row = 0.0
    for words, boxes in lines:
        if words:
            yield row, 0, words, "", not boxes
        indent = column = len(words) + 1 if words and boxes else 0
        for text, fill in boxes:
            if column + len(text) + 1 > WIDTH and column > indent:
                row, column = row + 1, indent
            yield row, column, text, fill, False
            column += len(text) + 1
        row += 1 if words or boxes else 0.5
