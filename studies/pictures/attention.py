"""Where attention looks: the weights of every layer and head, of one head, or of one token.

For every query token, each head of each layer has weights over the key tokens, which sum to 1. With the tokens along
the axes they make a chart: dark squares show what a token (a row) attends to (the columns). In a causal model a token
cannot attend to later ones; these squares are blue.

References: Bahdanau, Cho, Bengio 2015 (arXiv:1409.0473), figure 3; Vaswani et al. 2017, section 3.2.3 and figures 3-5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from studies.pictures.command import DrawOptions
from tinygrad_lite.errors import OptionError
from workshop.cli.console import say
from workshop.cli.options import option
from workshop.figure import MAX_INCHES, Picture, check_finite, write
from workshop.inside import Attention

CELL = 0.17  # inches; room for a label of 7 points
THUMBNAILS = 12  # inches for all in a row, each of which has between 1.1 and 2.5
LABELLED = 40  # inches; larger pictures show thumbnails instead
HIDDEN = "#cfe0ee"  # what a causal model cannot see
WRITTEN = 24  # tokens; a larger chart has no numbers in its squares


@dataclass
class AttentionOptions(DrawOptions):
    """The options of `attention`."""

    text: str = option("", "the text that the model reads")
    layer: int = option(0, "this layer alone, counted from 1; 0: all", low=0)
    head: int = option(0, "this head alone, counted from 1; with --layer a large chart with numbers; 0: all", low=0)
    of: str = option("", "what this token alone attends to, its last occurrence: a row for each head or layer")


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
    caption = f"Each row of a chart is a {rows}, each column a {columns}; a row sums to 1.{blue} White: weight 0; "
    make = one_chart if shown.shape[:2] == (1, 1) else all_charts
    size, draw, more = make(found, shown, layers, heads)
    return Picture(title, f"{caption}black: 1{more}", size, draw, arrays=arrays)


def plot_attention(found: Attention, what: str, file: Path) -> None:
    """Write the picture of every layer and head to a file; `what` as in `draw_attention`."""
    write(draw_attention(found, what, AttentionOptions()), file)
    say(f"wrote {file}")


def chosen(name: str, number: int, count: int) -> list[int]:
    """The layers or heads to show, counted from 0.

    Raises: OptionError if there is none of this number.
    """
    if number > count:
        raise OptionError(f"--{name} {number}: the model has {count}, counted from 1")
    return [number - 1] if number else list(range(count))


# --- charts ---------------------------------------------------------------------------------------------------


def shade(axes, weights: np.ndarray, **more):
    """Weights (T, S) as squares, from white to black."""
    image = axes.imshow(weights, cmap="Greys", vmin=0, vmax=1, interpolation="nearest", **more)
    axes.set_facecolor(HIDDEN)  # shows through where the weight is NaN
    axes.tick_params(length=0)
    return image


def write_percent(axes, weights: np.ndarray, most: float) -> None:
    """The weights (T, S) as numbers in their squares, of which those above half of `most` are dark; none for 0."""
    for (row, column), weight in np.ndenumerate(weights):
        if weight >= 0.005:  # which NaN is not
            colour = "white" if weight > most / 2 else "black"
            axes.text(column, row, f"{100 * weight:.0f}", ha="center", va="center", fontsize=7, color=colour)


def label(axes, rows: Sequence[str], columns: Sequence[str], size: float) -> None:
    """Write tokens along both axes."""
    axes.set_xticks(range(len(columns)), columns, rotation=90, fontsize=size)
    axes.set_yticks(range(len(rows)), rows, fontsize=size)


def all_charts(found: Attention, weights: np.ndarray, layers: Sequence[int], heads: Sequence[int]):
    """(size, draw, more caption): a chart for each layer (rows) and head (columns); no tokens if too many."""
    t, s = weights.shape[2:]
    size = (1.0 + len(heads) * (0.4 + CELL * s), 0.6 + len(layers) * (0.4 + CELL * t))
    small = max(size) > LABELLED
    if small:
        edge = min(max(THUMBNAILS / len(heads), 1.1), 2.5)
        size = (0.8 + edge * len(heads), 0.4 + edge * len(layers) * min(max(t / s, 0.3), 3))

    def draw(figure) -> None:
        charts = figure.subplots(len(layers), len(heads), squeeze=False, sharex=True, sharey=True)
        for (row, column), axes in np.ndenumerate(charts):
            shade(axes, weights[row, column], aspect="auto" if small else "equal")
            names = f"layer {layers[row] + 1}", f"head {heads[column] + 1}"
            if not small:
                axes.set_title(", ".join(names), fontsize=8)
                continue
            axes.set(xticks=[], yticks=[])
            if row == 0:
                axes.set_title(names[1], fontsize=8)
            if column == 0:
                axes.set_ylabel(names[0], fontsize=8)
        if not small:  # all charts share the axes; labels are shown at the outer edges only
            label(charts[0, 0], found.queries, found.keys, 7)
            for axes in charts.flat:
                axes.tick_params(axis="x", labelrotation=90, labelsize=7)
                axes.tick_params(axis="y", labelsize=7)

    note = f". {t} tokens by {s}: draw one chart with --layer and --head to see their names." if small else ". "
    return size, draw, note


def one_chart(found: Attention, weights: np.ndarray, *_: Sequence[int]):
    """(size, draw, more caption): one large chart, with the weights in percent in its squares if they are few."""
    weights = weights[0, 0]
    t, s = weights.shape
    written = max(t, s) <= WRITTEN
    cell = 0.36 if written else 0.22 if max(t, s) * 0.22 < MAX_INCHES / 2 else CELL
    size = (1.9 + cell * s, 0.9 + cell * t)

    def draw(figure) -> None:
        axes = figure.add_subplot()
        image = shade(axes, weights)
        label(axes, found.queries, found.keys, 9)
        axes.set_xlabel("token attended to" if found.is_self else "token of the sentence")
        axes.set_ylabel("token that attends" if found.is_self else "token of the translation")
        if written:
            write_percent(axes, weights, 1.0)
        figure.colorbar(image, ax=axes, shrink=0.6, aspect=25, label="weight")

    return size, draw, "; the numbers are percent."


def of_one_token(found: Attention, weights: np.ndarray, layers: Sequence[int], heads: Sequence[int], token: str):
    """(size, draw, more title, caption): what one token attends to, in each head or, as a mean, in each layer."""
    wanted = token.replace(" ", "·")
    places = [i for i, piece in enumerate(found.queries) if wanted in (piece, piece.strip("·"))]
    if not places:
        raise OptionError(f"--of {token}: the tokens are {' '.join(found.queries)}")
    place = places[-1]
    one_layer = len(layers) == 1
    rows = weights[0, :, place] if one_layer else weights[:, :, place].mean(1)  # (H or L, S)
    names = [f"head {h + 1}" for h in heads] if one_layer else [f"layer {layer + 1}" for layer in layers]
    # Heads that find nothing rest on the first token, whose large weights would leave all others white.
    most = float(np.nanmax(rows[:, 1 if found.is_causal and place else 0 :]))
    size = (1.8 + 0.36 * rows.shape[1], 1.1 + 0.24 * len(names))

    def draw(figure) -> None:
        axes = figure.add_subplot()
        image = shade(axes, rows, aspect="auto")
        image.set_clim(0, most)
        write_percent(axes, rows, most)
        label(axes, names, found.keys, 9)
        if found.is_self:
            axes.get_xticklabels()[place].set_fontweight("bold")
        more = "max" if np.nanmax(rows) > most else "neither"
        figure.colorbar(image, ax=axes, shrink=0.8, aspect=25, label="weight", extend=more)

    averaged = "" if one_layer or len(heads) == 1 else ", the mean over its heads"
    blue = " Blue: later tokens, which it cannot see." if found.is_causal else ""
    caption = (
        f"Each row is one {'head' if one_layer else 'layer'}{averaged}: how much of the attention of token "
        f"{place + 1}, {found.queries[place]!r}, goes to each token, in percent; a row sums to "
        f"100.{blue} A head that finds nothing often rests on the first token."
    )
    return size, draw, f": what {found.queries[place].strip('·')!r} attends to", caption
