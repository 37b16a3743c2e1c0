"""Longer texts than in training: the loss of GPTs in windows of a multiple of their block_size.

    python docs/course/14-today/longer.py out/rotary out/alibi out/none     bits per character at T, 2 T and 4 T
    python docs/course/14-today/longer.py out/rotary --plot longer.svg      also a plot of the loss at each position
    python docs/course/14-today/longer.py out/rotary --times 1,8            at T and 8 T

All predict the text that was held out when they were trained. In a longer window most tokens have more context, and a
model that can use it gets better. Many get worse instead: beyond T they meet positions, or distances, that no training
text had. Learned positions have no vectors there, and such models are left out.
"""

import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from extra.families import GPT as FAMILY
from extra.plots.figure import COLOURS, MARKERS, Picture, check_plot, plain_axes, write_each
from extra.studies.program import numbers, program
from gpt.data import bits_per_character, characters_each
from gpt.score import token_log_probs
from tinygrad_lite.config import option
from tinygrad_lite.errors import CorpusError
from training.cli.console import run_command, say, show
from training.corpora.texts import Corpus
from training.family import Trained

sys.path.insert(0, str(Path(__file__).parents[1]))
from held_out import MODELS, HeldOutOptions, text_to_predict

PARTS = 4  # of each block_size, in which the plot shows the mean loss


@dataclass
class LongerOptions(HeldOutOptions):
    """The options of `python docs/course/14-today/longer.py`."""

    times: str = option("1,2,4", "windows, as multiples of block_size")
    plot: str = option("", "plot the loss at each position of the longest windows into this file", is_path=True)


@program("docs/course/14-today/longer.py", LongerOptions, "CHECKPOINT ...", "out/goethe", about_positional=MODELS)
def main(options: LongerOptions, *names: str) -> None:
    """The loss of GPTs in windows that are longer than in their training."""
    what = "whole numbers from 1 on, such as 1,2,4"
    times = [*map(int, numbers(options.times, "--times", what, lambda n: n >= 1 and n.is_integer()))]
    if options.plot:
        check_plot(options.plot, "--plot")
    show(f"{'bits per character in windows of':<34}" + "".join(f"{n:>7} T" for n in times))
    curves = {}
    for name in names:
        trained = FAMILY.read(Path(name))
        if trained.config.positions == "learned":
            say(f"{name} has learned positions, and none beyond block_size: left out")
            continue
        corpus = text_to_predict(options, trained)
        found = [bits_by_position(trained, corpus, n) for n in times]
        curves[name] = found[-1]
        show(f"{name:<34}" + "".join(f"{bits.mean():>9.3f}" for bits in found))
    if options.plot and curves:
        write_each(picture(curves, times[-1]), options.plot)


def bits_by_position(trained: Trained, corpus: Corpus, times: int) -> np.ndarray:
    """The mean loss in bits per character, in each of the PARTS of each block_size of a longer window: (times PARTS,).

    Only whole windows count. Raises: CorpusError if the text has none.
    """
    size = trained.config.block_size * times
    model = replace(trained, config=replace(trained.config, block_size=size)).make_model()
    tokens = np.array(trained.tokenizer.encode_whole(corpus.text))
    windows = (len(tokens) - 1) // size
    if not windows:
        raise CorpusError(f"{corpus.name}: {len(tokens):,} tokens to predict, but a window of {times} T has {size:,}")
    nats = -token_log_probs(model, tokens[: windows * size + 1])
    by_part = [part.mean() for part in np.array_split(nats.reshape(windows, size).mean(0), times * PARTS)]
    return bits_per_character(np.array(by_part), characters_each(trained.tokenizer, corpus.text, tokens))


def picture(curves: dict[str, np.ndarray], times: int) -> Picture:
    """The loss of each model against the position in windows of `times` block sizes."""

    def draw(figure) -> None:
        axes = figure.add_subplot()
        for number, (name, bits) in enumerate(curves.items()):
            style = {"color": COLOURS[number % len(COLOURS)], "marker": MARKERS[number % len(MARKERS)]}
            axes.plot((np.arange(len(bits)) + 0.5) * times / len(bits), bits, label=name, markersize=3, **style)
        axes.axvline(1, color="#888888", linewidth=1)
        axes.set(xlabel="position, in multiples of block_size", ylabel="bits per character")
        axes.legend(frameon=False, fontsize=8)
        plain_axes(axes)

    caption = "Left of the grey line are the positions that training texts had. Each point is the mean of many windows."
    rows = [["model", *(f"part {n + 1}" for n in range(len(next(iter(curves.values())))))]]
    rows += [[name, *(f"{bit:.4f}" for bit in bits)] for name, bits in curves.items()]
    return Picture("Longer texts than in training", caption, (7.2, 3.6), draw, table=rows)


if __name__ == "__main__":
    run_command("longer", main)
