"""Where attention looks: the weights of every layer and head, of one head, or of one token.

For every query token, each head of each layer has weights over the key tokens, which sum to 1. With the tokens along
the axes they make a chart: full squares, dark on a light page, show what a token (a row) attends to (the columns). In a
causal model a token cannot attend to later ones; these squares are blue.

References: Bahdanau, Cho, Bengio 2015 (arXiv:1409.0473), figure 3; Vaswani et al. 2017, section 3.2.3 and figures 3-5.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from extra.inside import Attention
from extra.inside.seq2seq import PARTS
from extra.plots.figure import DrawOptions, Picture, check_finite, write_each
from tinygrad_lite.config import option
from tinygrad_lite.errors import OptionError

WIDE, TALL = 10, 30  # inches, at most, of charts with names; a .png of this width has 1,600 pixels
CELL = 0.13, 0.17  # inches, of a square next to a name of 5.3 to 7 points
LARGE = 0.36  # inches, of a square of one large chart
WRITTEN = 0.2  # inches; a smaller square has no room for a number
NAME = 0.09  # inches; if a token has less, only some are named
LETTER = 0.078  # inches, the mean width of a letter of 10 points
THUMBNAIL = 1.0, 2.4  # inches, the smallest and the largest chart without room for squares of this size
MAX_TEXT = 300  # letters of a caption
HIDDEN = "#cfe0ee"  # what a causal model cannot see


@dataclass
class AttentionOptions(DrawOptions):
    """The options of `attention`."""

    text: str = option("", "the text that the model reads")
    layer: int = option(0, "this layer alone, counted from 1; 0: all", low=0)
    head: int = option(
        0, "this head alone, counted from 1; with --layer a large chart, with numbers if they fit; 0: all", low=0
    )
    of: str = option("", "what this token alone attends to, its last occurrence: a row for each head or layer")
    part: str | None = option(None, "of a translation model: which attention; none: cross", choices=tuple(PARTS))
    beam: int | None = option(None, "of a translation; 1: greedy; none: 5", unit="hypotheses", low=1, high=1000)


def draw_attention(found: Attention, what: str, options: AttentionOptions) -> Picture:
    """The picture that the options ask for.

    Args:
        what: names the attention in the title, such as "self-attention of out/goethe".
    Raises: OptionError if there is no such layer, head or token.
    """
    check_finite(found.weights, what)
    layers = chosen("layer", options.layer, found.weights.shape[0])
    heads = chosen("head", options.head, found.weights.shape[1])
    part = np.ix_(layers, heads)
    shown, arrays = found.visible()[part], {"weights": found.weights[part]}
    arrays |= {"queries": np.array(found.queries), "keys": np.array(found.keys)}
    title = f"{what[0].upper()}{what[1:]}"
    title += "".join(f", {name} {number}" for name in ("layer", "head") if (number := getattr(options, name)))
    if options.of:
        size, draw, more, caption = of_one_token(found, shown, layers, heads, options.of)
        return Picture(title + more, caption, size, draw, arrays=arrays)
    rows, columns = "token that attends", "token attended to"
    if not found.is_self:
        rows, columns = "token of the translation when it is chosen", "token of the sentence"
    blue = " Blue: later tokens, which a causal model cannot see." if found.is_causal else ""
    caption = f"Each row of a chart is a {rows}, each column a {columns}; a row sums to 1.{blue} Empty: weight 0; "
    make = one_chart if shown.shape[:2] == (1, 1) else all_charts
    size, draw, more = make(found, shown, layers, heads)
    return Picture(title, f"{caption}full: 1{more}", size, draw, arrays=arrays)


def plot_attention(found: Attention, what: str, file: Path) -> None:
    """Write the picture of every layer and head to a file; `what` as in `draw_attention`."""
    write_each(draw_attention(found, what, AttentionOptions()), file)


def chosen(name: str, number: int, count: int) -> list[int]:
    """The layers or heads to show, counted from 0.

    Raises: OptionError if there is none of this number.
    """
    if number > count:
        raise OptionError(f"--{name} {number}: the model has {count}, counted from 1")
    return [number - 1] if number else list(range(count))


# --- charts ---------------------------------------------------------------------------------------------------


def shade(axes, weights: np.ndarray, aspect: str = "equal", most: float = 1.0, cell: float = 0.0):
    """Weights (T, S) as squares, from the colour of the page to that of its text.

    Args:
        most: the weight of a full square.
        cell: inches, of a square; if there is room, it has its weight in percent, with a contrast of at least 3.6.
    """
    image = axes.imshow(weights, cmap="Greys", vmin=0, vmax=most, interpolation="nearest", aspect=aspect)
    axes.set_facecolor(HIDDEN)  # shows through where the weight is NaN
    axes.tick_params(length=0)
    for (row, column), weight in np.ndenumerate(weights) if cell >= WRITTEN else ():
        if weight >= 0.005:  # false for NaN
            colour = "white" if weight > 0.55 * most else "black"
            axes.text(column, row, f"{100 * weight:.0f}", ha="center", va="center", fontsize=7, color=colour)
    return image


def label(axes, rows: Sequence[str], columns: Sequence[str], size: float, every: int = 1) -> None:
    """Write tokens along both axes, or one in `every` of them along both."""
    axes.set_xticks(range(0, len(columns), every), columns[::every], rotation=90, fontsize=size)
    axes.set_yticks(range(0, len(rows), every), rows[::every], fontsize=size)


def room(tokens: Sequence[str], size: float) -> float:
    """Inches that the longest of the names takes in letters of this many points, up to 2."""
    return min(0.3 + max(map(len, tokens)) * LETTER * size / 10, 2.0)


def in_rows(heads: int, width: float) -> tuple[int, int]:
    """How many rows of equal length heads take if at most this many have room in a row, and how many are in each.

    >>> in_rows(12, 9), in_rows(9, 9), in_rows(4, 0)
    ((2, 6), (1, 9), (4, 1))
    """
    rows = -(-heads // max(1, int(width)))
    return rows, -(-heads // rows)


def all_charts(found: Attention, weights: np.ndarray, layers: Sequence[int], heads: Sequence[int]):
    """(size, draw, more caption): a chart for each layer and head, in rows; only some tokens if there is no room."""
    t, s = weights.shape[2:]
    left, below = room(found.queries, 7), room(found.keys, 7)
    cell = min(max(CELL[0], ((WIDE - left) / len(heads) - 0.4) / s), CELL[1])
    width, height = 0.4 + cell * s, 0.4 + cell * t
    rows, columns = in_rows(len(heads), (WIDE - left) / width)  # for each layer
    size = (left + columns * width, below + len(layers) * rows * height)
    every, points, note = 1, 41 * cell, "."
    small = size[0] > WIDE or size[1] > TALL
    if small:
        rows, columns = in_rows(len(heads), (WIDE - left) / THUMBNAIL[0])
        edge = min((WIDE - left) / columns, THUMBNAIL[1])
        height = edge * min(max(t / s, 0.3), 3)
        size = (left + columns * edge, below + len(layers) * rows * (0.2 + height))
        every, points, _ = in_squares(min((edge - 0.2) / s, height / t))
        text = "".join(found.keys).replace("·", " ")
        note = f". {'Every token' if every == 1 else f'One token in {every}'} is named, and one chart drawn large by "
        note += f"--layer and --head. The text{' begins' * (len(text) > MAX_TEXT)}: {text[:MAX_TEXT]}"

    def draw(figure) -> None:
        for row, head in np.ndindex(weights.shape[:2]):
            axes = figure.add_subplot(len(layers) * rows, columns, row * rows * columns + head + 1)
            shade(axes, weights[row, head], "auto" if small else "equal")
            axes.set_title(f"layer {layers[row] + 1}, head {heads[head] + 1}", fontsize=7 if small else 8)
            is_left, is_lowest = head % columns == 0, row + 1 == len(layers) and head + columns >= len(heads)
            label(axes, found.queries * is_left, found.keys * is_lowest, min(points, 7), every)

    return size, draw, note


def one_chart(found: Attention, weights: np.ndarray, *_: Sequence[int]):
    """(size, draw, more caption): one large chart, with the weights in percent in its squares if there is room."""
    weights = weights[0, 0]
    t, s = weights.shape
    left, below = 1.1 + room(found.queries, 9), 0.3 + room(found.keys, 9)
    cell = min(LARGE, (WIDE - left) / s, (TALL - below) / t)
    every, points, note = in_squares(cell)

    def draw(figure) -> None:
        axes = figure.add_subplot()
        image = shade(axes, weights, cell=cell)
        label(axes, found.queries, found.keys, points, every)
        axes.set_xlabel("token attended to" if found.is_self else "token of the sentence")
        axes.set_ylabel("token that attends" if found.is_self else "token of the translation")
        figure.colorbar(image, ax=axes, shrink=0.6, aspect=25, label="weight")

    return (left + cell * s, below + cell * t), draw, f"; {note}"


def in_squares(cell: float) -> tuple[int, float, str]:
    """For squares this many inches wide: one token in how many is named, in what point size, and a note on numbers."""
    every = math.ceil(NAME / cell)
    note = "the numbers are percent." if cell >= WRITTEN else "there are too many squares for numbers."
    named = f" One token in {every} is named." if every > 1 else ""
    return every, min(9.0, 60 * cell * every), note + named


def of_one_token(found: Attention, weights: np.ndarray, layers: Sequence[int], heads: Sequence[int], token: str):
    """(size, draw, more title, caption): what one token attends to, in each head or, as a mean, in each layer."""
    wanted = token.replace(" ", "·")
    places = [i for i, piece in enumerate(found.queries) if wanted in (piece, piece.strip("·"))]
    if not places:
        raise OptionError(f"--of {token}: the tokens are {' '.join(found.queries)}")
    place = places[-1]
    one_layer, keys = len(layers) == 1, found.keys[: place + 1] if found.is_causal else found.keys
    rows = weights[0, :, place] if one_layer else weights[:, :, place].mean(1)  # (H or L, S)
    rows = rows[:, : len(keys)]  # what it can see
    names = [f"head {h + 1}" for h in heads] if one_layer else [f"layer {layer + 1}" for layer in layers]
    # Heads that find nothing rest on the first token, whose large weights would make all others look empty.
    most = float(rows[:, 1 if found.is_causal and place else 0 :].max())
    cell = min(LARGE, (WIDE - 1.8) / len(keys))
    every, points, note = in_squares(cell)
    size = (1.8 + cell * len(keys), 0.3 + room(keys, points) + 0.24 * len(names))

    def draw(figure) -> None:
        axes = figure.add_subplot()
        image = shade(axes, rows, "auto", most, cell)
        axes.set_xticks(range(0, len(keys), every), keys[::every], rotation=90, fontsize=points)
        axes.set_yticks(range(len(names)), names, fontsize=9)
        if found.is_self and place % every == 0:
            axes.get_xticklabels()[place // every].set_fontweight("bold")
        more = "max" if rows.max() > most else "neither"
        figure.colorbar(image, ax=axes, shrink=0.8, aspect=25, label="weight", extend=more)

    averaged = "" if one_layer or len(heads) == 1 else ", the mean over its heads"
    caption = (
        f"Each row is one {'head' if one_layer else 'layer'}{averaged}: how much of the attention of token "
        f"{place + 1}, {found.queries[place]!r}, goes to each token that it sees; a row sums to 100 %; {note} A head "
        "that finds nothing often rests on the first token."
    )
    return size, draw, f": what {found.queries[place].strip('·')!r} attends to", caption
