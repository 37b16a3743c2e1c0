"""Byte-pair encoding step by step, on a text of your own: how often each pair occurs, and which one is merged.

    python docs/extra/merges.py "Fischers Fritz fischt frische Fische"                       on the terminal
    python docs/extra/merges.py "low low lower newest widest" --kind bpe-w --out merges.svg  as a picture

The file that --out names decides its form: .svg, .png and .pdf are images, .csv has every pair of every step.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

from boxes import FILLS, MAX_TEXT, Line, picture

from extra.inside import pieces
from extra.plots.figure import DrawOptions, Picture
from extra.studies.draw import Kind, draw
from extra.tokenizers.end_of_word import END_OF_WORD, EndOfWordTokenizer
from text.tokenizers.base import Tokenizer
from text.tokenizers.bpe import BPETokenizer, MergeStep, merge_steps
from tinygrad_lite.config import option
from tinygrad_lite.errors import OptionError, counted
from training.cli.console import run_command
from training.corpora.cleaning import normalise

COMMAND = "python docs/extra/merges.py"
EXAMPLE = '"Fischers Fritz fischt frische Fische"'
CHOSEN = "#f7c59f"  # the winner, and the new token


@dataclass
class MergeOptions(DrawOptions):
    """The options of `python docs/extra/merges.py`."""

    steps: int = option(8, "merges to show", unit="merges", low=1, high=100)
    kind: str = option(
        BPETokenizer.kind,
        "bpe: on bytes, as in GPT-2; bpe-w: on characters with a mark at the end of a word, as in 2016",
        choices=(BPETokenizer.kind, EndOfWordTokenizer.kind),
    )


def main(argv: Sequence[str]) -> int:
    """Draw the merges of the text that the command line names; returns the exit status."""
    return draw(Kind(draw_merges, MergeOptions, EXAMPLE, "TEXT ...", "the text itself"), argv, COMMAND, "merges")


def draw_merges(names: Sequence[str], options: MergeOptions) -> Picture:
    """Byte-pair encoding step by step, with the number of each pair.

    Raises: OptionError if no pair occurs twice, or if the text is too long.
    """
    text = normalise(" ".join(names))
    if not text.strip():
        raise OptionError(f"the text is empty: {COMMAND} {EXAMPLE}")
    if len(text) > MAX_TEXT:
        raise OptionError(f"the text has {len(text):,} characters: at most {MAX_TEXT} can be drawn")
    make, lengths = BPETokenizer, [1] * 256
    if options.kind == EndOfWordTokenizer.kind:
        characters = sorted(character for character in set(text) if not character.isspace())
        make, lengths = partial(EndOfWordTokenizer, characters), [1] * len(characters) + [len(END_OF_WORD)]
    untrained = make([])
    words = Counter(untrained.split(text))
    steps = list(islice(merge_steps(words, untrained.spell, lengths), options.steps))
    if not steps:
        raise OptionError("no pair of neighbours occurs twice in this text, so there is nothing to merge")
    trained = make([step.pair for step in steps])

    start = [(untrained.spell(word), count) for word, count in words.items()]
    lines = [Line("the words of the text, and how often each occurs"), word_line(trained, start), Line("")]
    rows: list[tuple] = [("step", "left", "right", "count", "is_merged", "token")]
    for number, (new, step) in enumerate(enumerate(steps, start=len(lengths)), start=1):
        left, right, merged = pieces(trained, [*step.pair, new])
        heading = f"step {number}: {left} + {right} becomes {merged}, {counted(step.counts[step.pair], 'time')}"
        lines += [Line(heading), pair_line(trained, step), word_line(trained, step.words, mark=new), Line("")]
        for pair, count in step.counts.most_common():
            merged = (1, new) if pair == step.pair else (0, "")
            rows.append((number, *pieces(trained, pair), count, *merged))
    caption = (
        "Byte-pair encoding counts how often each two neighbours occur within words, here the most frequent pairs of "
        "each step (orange: the winner; of equals the shortest, then the first), and merges the winner everywhere into "
        "a new token. Pairs across two words do not count. · is a space, </w> the end of a word, × how often a word "
        "occurs."
    )
    return picture("Byte-pair encoding, merge by merge", caption, lines, rows, has_text=True)


def word_line(tokenizer: Tokenizer, words: Sequence[tuple[list[int], int]], mark: int | None = None) -> Line:
    """The words as tokens, each with how often it occurs; a new token in orange."""
    shown: list[tuple[str, str]] = []
    for ids, count in words:
        fills = [CHOSEN if token == mark else FILLS[i % 2] for i, token in enumerate(ids)]
        shown += [*zip(pieces(tokenizer, ids), fills, strict=True), (f"×{count} " if count > 1 else " ", "")]
    return Line("words", shown)


def pair_line(tokenizer: Tokenizer, step: MergeStep) -> Line:
    """The ten most frequent pairs of a step with their numbers, the winner first, in orange."""
    others = [pair for pair, _ in step.counts.most_common(10) if pair != step.pair]
    shown = [f"{'+'.join(pieces(tokenizer, pair))}: {step.counts[pair]}" for pair in (step.pair, *others[:9])]
    return Line("pairs", [(text, "#eeeeee" if i else CHOSEN) for i, text in enumerate(shown)])


if __name__ == "__main__":
    run_command("merges", main)
