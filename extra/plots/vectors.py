"""Vectors that a model has for tokens and for positions, and which of them are similar.

**Tokens.** The vector of a token is its row of the embedding, which is all that the model knows about it without its
context. Tokens that occur in the same contexts get similar vectors, so their cosine is large. A picture has the nearest
neighbours of some, and a map in two dimensions.

**Positions.** A model knows where a token is by a table of codes, fixed or learned, or by the rotation of rotary
positions.

References: Mikolov et al. 2013 (arXiv:1301.3781) on similar vectors; Vaswani et al. 2017, section 3.5, on positions; Su
et al. 2021 (arXiv:2104.09864), section 3.4.3, on what rotary positions do to the similarity of distant tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle, product

import numpy as np

from extra.inside import pieces
from extra.plots.figure import COLOURS, MARKERS, DrawOptions, Picture, check_finite, count_steps, plain_axes
from text.tokenizers.base import Tokenizer
from tinygrad_lite.config import option
from tinygrad_lite.errors import OptionError
from tinygrad_lite.transformer import sinusoidal_positions

DEFAULT_TOKENS = 6
MAX_SHOWN = 300  # tokens with names on the map
MAX_GREY = 2000  # others
WAYS = (1, 0), (0, 1), (0, -1), (-1, 0), (1, 1), (1, -1), (-1, 1), (-1, -1)  # from a point to its name
SIGNED = "PuOr_r"  # purple for negative, white for 0, orange for positive: distinct for any kind of colour vision


@dataclass
class NeighbourOptions(DrawOptions):
    """The options of `neighbours`."""

    tokens: list[str] = option([], f"tokens whose neighbours to show; none: {DEFAULT_TOKENS} of the vocabulary")
    top: int = option(8, "neighbours of each", unit="tokens", low=1, high=100)


@dataclass
class PositionOptions(DrawOptions):
    """The options of `positions`."""

    length: int = option(64, "positions to show", unit="tokens", low=2, high=4096)
    width: int = option(128, "C, of the sinusoidal codes that are drawn without a checkpoint", low=2, high=4096)
    part: str | None = option(None, "of a translation model; none: encoder", choices=("encoder", "decoder"))


# --- neighbours among tokens ----------------------------------------------------------------------------------


Neighbours = tuple[int, dict[int, float]]  # a token and those nearest to it, by id, with their cosines, largest first


def draw_neighbours(tokenizer: Tokenizer, vectors: np.ndarray, what: str, options: NeighbourOptions) -> Picture:
    """The neighbours of the tokens that the options name, as a list and as a map.

    Args:
        vectors: (V, C), the row of every token.
        what: names the model in the title.
    Raises: OptionError if a token is not in the vocabulary, or if there would be too many.
    """
    check_finite(vectors, what)
    vectors = vectors.astype(np.float64)
    names = pieces(tokenizer, range(len(vectors)))
    chosen = [find(name, names) for name in options.tokens] or typical(names)
    if len(chosen) * (options.top + 1) > MAX_SHOWN:
        raise OptionError(f"{len(chosen)} tokens with {options.top} neighbours each are too many: at most {MAX_SHOWN}")
    found = [(token, nearest(vectors, token, options.top, tokenizer.textless)) for token in chosen]
    shown = sorted({token for one, near in found for token in (one, *near)})
    places, share = principal_components(vectors, vectors[shown])
    caption = (
        "Left: the tokens whose vectors point in the most similar direction, with the cosine of the angle: 1 is the "
        "same direction, 0 a right angle; · is a space. Right: the same tokens on the two directions in which they "
        f"vary most; grey: the rest of the vocabulary. The map holds {share.sum():.0%} of their variance, so points "
        "that are close on it may be far apart; the list is what counts."
    )
    rows, lines = [("token", "rank", "neighbour", "cosine", "x", "y")], []
    for token, near in found:
        name = names[token]
        lines.append(f"{name:<14} " + "  ".join(f"{names[other]} {cosine:.2f}" for other, cosine in near.items()))
        ranked = enumerate([(token, 1.0), *near.items()])
        rows += [(name, rank, names[other], cosine, *places[other]) for rank, (other, cosine) in ranked]
    height = max(4.2, 0.2 * sum(len(near) + 1.6 for _, near in found[::2]) + 0.5)
    title = f"Nearest tokens by their embeddings: {what}"
    draw = partial(draw_list_and_map, names=names, found=found, places=places, share=share)
    return Picture(title, caption, (11, height), draw, table=rows, text="\n".join(lines))


def find(name: str, names: Sequence[str]) -> int:
    """The id of a token by its text: with the space that begins a word, if there is such a token, else without.

    Raises: OptionError if there is none.
    """
    wanted = name.replace(" ", "·")
    for spelled in (f"·{wanted}", wanted, f"{wanted}</w>"):
        if spelled in names:
            return names.index(spelled)
    longer = [piece.strip("·") for piece in names if wanted.strip("·").lower()[:3] in piece.lower()]
    hint = f"; similar ones are {', '.join(longer[:8])}" if longer else ""
    raise OptionError(f"--tokens {name}: this is not one token of the vocabulary{hint}")


def typical(names: Sequence[str]) -> list[int]:
    """The first words of the vocabulary: of byte-pair encoding the most frequent ones; else its first letters."""
    words = [i for i, name in enumerate(names) if name[0] == "·" and len(name) > 4 and name[1:].isalpha()]
    others = [i for i, name in enumerate(names) if len(name) > 3 and name.removesuffix("</w>").isalpha()]
    letters = [i for i, name in enumerate(names) if len(name) == 1 and name.isalpha() and name.islower()]
    enough = (kind for kind in (words, others, letters) if len(kind) >= DEFAULT_TOKENS)
    return [*next(enough, range(len(names)))][:DEFAULT_TOKENS]


def nearest(vectors: np.ndarray, token: int, top: int, without: Sequence[int] = ()) -> dict[int, float]:
    """The tokens with the largest cosines to one of them: (V, C) vectors.

    Args:
        without: tokens that are not neighbours, such as specials.

    >>> nearest(np.array([[1.0, 0.0], [0.0, 1.0], [3.0, 4.0]]), 0, top=1)
    {2: 0.6}
    """
    lengths = np.linalg.norm(vectors, axis=1)
    near = vectors @ vectors[token] / np.where(lengths > 0, lengths, 1) / (lengths[token] or 1)
    near[[token, *without]] = -np.inf
    order = np.argsort(-near, kind="stable")[: min(top, int(np.isfinite(near).sum()))]
    return dict(zip(order.tolist(), near[order].tolist(), strict=True))


def principal_components(vectors: np.ndarray, among: np.ndarray, count: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Vectors on the directions in which some of them vary most: (V, C), (N, C) -> (V, count), and shares of variance.

    The directions are the eigenvectors of the covariance matrix with the largest eigenvalues. The sign of each, which
    is arbitrary, is chosen so that its largest coordinate is positive.

    >>> vectors = np.array([[0.0, 1.0], [3.0, 1.0], [6.0, 1.0]])
    >>> places, share = principal_components(vectors, vectors)
    >>> places[:, 0].tolist(), share.tolist()
    ([-3.0, 0.0, 3.0], [1.0, 0.0])
    """
    centre = among.mean(0)
    values, directions = np.linalg.eigh((among - centre).T @ (among - centre))  # ascending
    values, directions = np.clip(values[::-1], 0, None), directions[:, ::-1][:, :count]
    missing = max(0, count - len(values))  # if the width is below `count`
    values, directions = np.pad(values, (0, missing)), np.pad(directions, ((0, 0), (0, missing)))
    directions = directions * np.sign(directions[np.abs(directions).argmax(0), np.arange(directions.shape[1])])
    return (vectors - centre) @ directions, values[:count] / (values.sum() or 1)


# --- their picture --------------------------------------------------------------------------------------------


def draw_list_and_map(figure, names, found: Sequence[Neighbours], places: np.ndarray, share: np.ndarray) -> None:
    """Fill the figure: the neighbours of each token as bars, and the map."""
    left, right = figure.subfigures(1, 2, width_ratios=(5, 6))
    for number, ((token, near), colour) in enumerate(zip(found, cycle(COLOURS), strict=False), start=1):
        axes = left.add_subplot((len(found) + 1) // 2, min(2, len(found)), number)
        axes.barh(range(len(near)), [*near.values()], color=colour, alpha=0.75)
        axes.set_yticks(range(len(near)), [names[other] for other in near], fontsize=7)
        axes.invert_yaxis()
        axes.set_xlim(min([0, *near.values()]), 1)
        axes.tick_params(axis="x", labelsize=7)
        axes.tick_params(axis="y", length=0)
        axes.set_title(names[token], fontsize=9, fontweight="bold", loc="left")
        axes.spines[["top", "right"]].set_visible(False)
    left.supxlabel("cosine", fontsize=8)

    axes, asked = right.subplots(), [token for token, _ in found]
    by_cosine = sorted((cosine, other, token) for token, near in found for other, cosine in near.items())
    owners = {other: owner for _, other, owner in by_cosine if other not in asked}  # of several, the most similar one
    for (token, near), colour, marker in zip(found, cycle(COLOURS), cycle(MARKERS), strict=False):
        own = [other for other in near if owners.get(other) == token]
        axes.plot(*places[own].T, marker, color=colour, markersize=4, alpha=0.8)
        axes.plot(*places[token], marker, color=colour, markersize=8, markeredgecolor="black")
    axes.margins(0.12)
    axes.set(xlim=axes.get_xlim(), ylim=axes.get_ylim())  # the others do not widen the map
    axes.plot(*places[:: -(-len(places) // MAX_GREY)].T, ".", color="#dddddd", markersize=3, zorder=1, rasterized=True)
    axes.set_xlabel(f"first principal component ({share[0]:.0%} of the variance shown)", fontsize=8)
    axes.set_ylabel(f"second ({share[1]:.0%})", fontsize=8)
    axes.tick_params(labelsize=7)
    axes.spines[["top", "right"]].set_visible(False)
    shown = [*dict.fromkeys(asked), *reversed(owners)]
    inches = right.bbox.size / right.dpi - (0.8, 1.2)  # of the map, roughly: less than it gets
    place_labels(axes, places[shown], [names[token] for token in shown], len(set(asked)), inches)


def place_labels(axes, places: np.ndarray, names: Sequence[str], asked: int, inches: np.ndarray) -> None:
    """Write names next to their points on the map, where no point and no other name is, or else not at all.

    Around each point eight places are tried. The first `asked` names are large, and cover points if they must.
    """
    low, high = np.array([axes.get_xlim(), axes.get_ylim()]).T
    centres = (places - low) / (high - low) * inches
    taken, points = [], [(centre, np.array([0.08, 0.08])) for centre in centres]
    for i, (centre, name) in enumerate(zip(centres, names, strict=True)):
        size = np.array([0.075 * len(name) + 0.04, 0.14]) * (1.25 if i < asked else 1)
        for others, way in product((taken + points, taken)[: 1 + (i < asked)], WAYS):
            middle = centre + np.array(way) * (size / 2 + 0.06)
            is_inside = (np.abs(middle - inches / 2) < (inches - size) / 2).all()
            if is_inside and all((np.abs(middle - other) > (size + extent) / 2).any() for other, extent in others):
                taken.append((middle, size))
                style = {"fontsize": 9, "fontweight": "bold"} if i < asked else {"fontsize": 7}
                shift = {"xytext": 72 * (middle - centre), "textcoords": "offset points"}
                axes.annotate(name, places[i], ha="center", va="center", **shift, **style)
                break


# --- positions ------------------------------------------------------------------------------------------------


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
        heat_map(left, codes, most, "codes", "column of the code (of C)", "position, tokens", "value")
        heat_map(right, similar, 1, "cosine similarity", "position, tokens", "position, tokens", "cosine", "equal")

    return Picture(title, caption, (10, 4.2), draw, arrays={"codes": codes, "cosines": similar})


def heat_map(
    axes, values: np.ndarray, most: float, title: str, columns: str, rows: str, colours: str, aspect: str = "auto"
) -> None:
    """Values from -most to most as a heat map, with its title, its axes, whose places are counted, and its colours."""
    shown = axes.imshow(values, cmap=SIGNED, vmin=-most, vmax=most, aspect=aspect, interpolation="nearest")
    axes.set_title(title, fontsize=9)
    axes.set(xlabel=columns, ylabel=rows)
    axes.figure.colorbar(shown, ax=axes, label=colours, shrink=0.8)
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
        title = "cosine of the angle between the turned pairs"
        heat_map(left, pairs, 1, title, "pair of columns of a head (of D/2)", "distance, tokens", "cosine")
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
