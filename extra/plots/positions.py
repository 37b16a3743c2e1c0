"""How a model knows where a token is: a table of codes, fixed or learned, or the rotation of rotary positions.

References: Vaswani et al. 2017, section 3.5; Su et al. 2021 (arXiv:2104.09864), section 3.4.3, on what rotary positions
do to the similarity of distant tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from extra.plots.figure import COLOURS, DrawOptions, Picture, check_finite, count_steps, plain_axes
from tinygrad_lite.config import option
from tinygrad_lite.transformer import sinusoidal_positions

SIGNED = "PuOr_r"  # purple for negative, white for 0, orange for positive: distinct for any kind of colour vision


@dataclass
class PositionOptions(DrawOptions):
    """The options of `positions`."""

    length: int = option(64, "positions to show", unit="tokens", low=2, high=4096)
    width: int = option(128, "C, of the sinusoidal codes that are drawn without a checkpoint", low=2, high=4096)


def draw_sinusoidal(length: int, width: int) -> Picture:
    """The fixed codes of the 2017 paper, and how similar those of any two positions are."""
    caption = (
        "Left: each row is the code of a position, added to the embedding of the token there. Columns come in pairs, "
        "the sine and cosine of the position times a frequency, which falls from left to right: fast columns "
        "distinguish neighbours, slow ones tell the beginning from the end. Right: the cosine of the angle between two "
        "codes depends on their distance alone, so the stripes run parallel to the diagonal."
    )
    return draw_table(sinusoidal_positions(length, width), f"Sinusoidal position codes, width {width}", caption)


def draw_learned(codes: np.ndarray, what: str) -> Picture:
    """A learned table (T, C), and how similar any two of its rows are."""
    caption = (
        "Left: each row is the learned code of a position, added to the embedding of the token there. Right: the "
        "cosine of the angle between two codes. An orange band along the diagonal means that neighbouring positions "
        "have become similar, although nothing told the model that they are neighbours; without one, each "
        "position was learned by itself."
    )
    return draw_table(codes, f"Learned positions of {what}", caption)


def cosines(vectors: np.ndarray) -> np.ndarray:
    """The cosines of the angles between all rows: (N, C) -> (N, N); 0 for a row of zeros.

    >>> cosines(np.array([[1.0, 0.0], [0.0, 2.0], [-3.0, 0.0]]))
    array([[ 1.,  0., -1.],
           [ 0.,  1.,  0.],
           [-1.,  0.,  1.]])
    """
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = vectors / np.where(lengths > 0, lengths, 1)
    return unit @ unit.T


def draw_table(codes: np.ndarray, title: str, caption: str) -> Picture:
    """A table of codes (T, C) as a heat map, next to the cosines of its rows."""
    check_finite(codes, title)
    similar = cosines(codes)

    def draw(figure) -> None:
        left, right = figure.subplots(1, 2, width_ratios=(5, 4))
        most = float(np.abs(codes).max()) or 1.0
        shown = left.imshow(codes, cmap=SIGNED, vmin=-most, vmax=most, aspect="auto", interpolation="nearest")
        label(figure, left, shown, "codes", "column of the code (of C)", "position, tokens", "value")
        shown = right.imshow(similar, cmap=SIGNED, vmin=-1, vmax=1, interpolation="nearest")
        label(figure, right, shown, "cosine similarity", "position, tokens", "position, tokens", "cosine")

    return Picture(title, caption, (10, 4.2), draw, arrays={"codes": codes, "cosines": similar})


def label(figure, axes, shown, title: str, columns: str, rows: str, colours: str) -> None:
    """Say what a heat map shows: its title, its axes, whose places are counted, and its colours."""
    axes.set_title(title, fontsize=9)
    axes.set(xlabel=columns, ylabel=rows)
    figure.colorbar(shown, ax=axes, label=colours, shrink=0.8)
    for axis in (axes.xaxis, axes.yaxis):
        count_steps(axis)


def draw_rotary(frequencies: Sequence[float], length: int, what: str) -> Picture:
    """How similar a query and an equal key are, once both are rotated by their positions, over their distance.

    With a query and a key that are equal, and equally long in each of their D/2 pairs, their product after the rotation
    is the mean over the pairs of cos(f_i d): it depends only on the distance d, not on the two positions.

    Args:
        frequencies: f_i, D/2 angles per position.
        length: distances to show.
    """
    distance = np.arange(length)
    pairs = np.cos(np.outer(distance, frequencies))  # (distance, D/2)
    mean = pairs.mean(1)

    def draw(figure) -> None:
        left, right = figure.subplots(1, 2, width_ratios=(4, 5))
        shown = left.imshow(pairs, cmap=SIGNED, vmin=-1, vmax=1, aspect="auto", interpolation="nearest")
        title = "cosine of the angle between the turned pairs"
        label(figure, left, shown, title, "pair of columns of a head (of D/2)", "distance, tokens", "cosine")
        count_steps(right.xaxis)
        right.plot(distance, mean, color=COLOURS[0])
        right.set(xlabel="distance, tokens", ylabel="similarity (mean of the pairs)")
        right.set_title("a query and an equal key", fontsize=9)
        plain_axes(right)

    caption = (
        "A model with rotary positions has no table of them: attention turns every pair of numbers of a query and of a "
        "key by an angle, position times frequency. Left: the cosine of the angle that remains between two pairs at a "
        "distance; fast pairs at the left, slow ones at the right. Right: their mean, the similarity of a query with "
        "an equal key. On the whole it falls with the distance, so the same content counts for more nearby; what a "
        "trained head makes of that depends on its queries and keys."
    )
    arrays = {"distance": distance, "pairs": pairs, "mean": mean, "frequencies": np.array(frequencies)}
    return Picture(f"Rotary positions of {what}", caption, (10, 4.2), draw, arrays=arrays)
