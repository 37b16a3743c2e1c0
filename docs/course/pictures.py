"""Draw the diagrams of the course: SVG files in the folders of the chapters.

    python docs/course/pictures.py     writes all of them, always the same

The numbers are those of the chapters: `example` runs blocks of a chapter's page and returns the names that they define.
Coordinates are those of SVG, with y downwards, in a picture 760 wide. A `kind` is one or more classes of the style
sheet: a colour, or `small`, `bold`, `code` for text. Blue is computed from the data, green is learned, and orange has
to do with gradients.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import sys
from html import escape
from pathlib import Path
from typing import Any

COURSE = Path(__file__).resolve().parent
WIDTH = 760
# Each colour on light and on dark pages: the fill of a box, that of a marked box, and lines and text.
COLOURS = {
    "grey": (("#f6f8fa", "#d1d9e0", "#59636e"), ("#161b22", "#3d444d", "#9198a1")),
    "blue": (("#ddf4ff", "#a5d6ff", "#0550ae"), ("#0c2138", "#184c86", "#79c0ff")),
    "green": (("#dafbe1", "#aceebb", "#116329"), ("#0b2a17", "#1b5c2e", "#56d364")),
    "orange": (("#fff1e5", "#ffd8b5", "#953800"), ("#33200d", "#7a3d0c", "#f0a35e")),
}
INK = ("#1f2328", "#e6edf3")
SHAPES = (
    "text{font:15px system-ui,sans-serif}.small{font-size:13px}.bold{font-weight:600}"
    ".code{font-family:ui-monospace,monospace}path{stroke-width:1.8}.thick{stroke-width:3.5}"
)


def style() -> str:
    """The style sheet: the shapes, then the colours for light pages and for dark ones."""

    def colours(mode: int) -> str:
        rules = [f"text{{fill:{INK[mode]}}}"]
        for name, modes in COLOURS.items():
            fill, marked, line = modes[mode]
            rules.append(f".{name}{{fill:{fill};stroke:{line}}}.{name}.on{{fill:{marked}}}path.{name}{{fill:none}}")
            rules.append(f"text.{name}{{fill:{line};stroke:none}}path.{name}.head{{fill:{line}}}")
        return "".join(rules)

    return f"<style>{SHAPES}{colours(0)}\n@media (prefers-color-scheme:dark){{{colours(1)}}}</style>\n"


def picture(title: str, description: str, height: int, *parts: str) -> str:
    """The whole file."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        f'role="img" aria-labelledby="title about">\n<title id="title">{escape(title)}</title>\n'
        f'<desc id="about">{escape(description)}</desc>\n{style()}{"".join(parts)}</svg>\n'
    )


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "middle") -> str:
    """One line of text, whose middle is at the height y; x is its middle, start or end."""
    return f'<text x="{x:g}" y="{y + 5:g}" text-anchor="{anchor}" class="{kind}">{escape(words)}</text>\n'


def lines(x: float, y: float, *words: str, kind: str = "", anchor: str = "start", step: float = 21) -> str:
    """Lines of text below each other. One that begins with a kind and a bar, as in "orange|dy", has that kind, too."""
    parts = [line.rpartition("|") for line in words]
    return "".join(
        text(x, y + step * n, line, f"{kind} {own}".strip(), anchor) for n, (own, _, line) in enumerate(parts)
    )


def box(x: float, y: float, width: float, height: float, *words: str, kind: str = "grey", rx: float = 4) -> str:
    """A box with lines of text in its middle."""
    shape = f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{rx}" class="{kind}"/>\n'
    return shape + lines(x + width / 2, y + height / 2 - 10.5 * (len(words) - 1), *words, anchor="middle")


def line(*points: tuple[float, float], kind: str = "grey") -> str:
    """A line through points."""
    return f'<path d="M{"L".join(f"{x:g} {y:g}" for x, y in points)}" class="{kind}"/>\n'


def arrow(*points: tuple[float, float], kind: str = "grey") -> str:
    """A line through points, with a head at the last of them."""
    (x0, y0), (x1, y1) = points[-2:]
    length = ((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5
    ex, ey = (x1 - x0) / length, (y1 - y0) / length  # the last part's direction
    bx, by = x1 - 10 * ex, y1 - 10 * ey  # the middle of the head's base
    head = f"M{x1:g} {y1:g}L{bx - 5 * ey:g} {by + 5 * ex:g}L{bx + 5 * ey:g} {by - 5 * ex:g}Z"
    return line(*points[:-1], (bx, by), kind=kind) + f'<path d="{head}" class="{kind} head" stroke="none"/>\n'


def grid(x: float, y: float, width: float, height: float, words: list[list[str]], kinds: list[list[str]]) -> str:
    """A table of cells of one size, with the words and the kind of each."""
    return "".join(
        box(x + width * c, y + height * r, width, height, *[word] * bool(word), kind=kind, rx=0)
        for r, row in enumerate(zip(words, kinds, strict=True))
        for c, (word, kind) in enumerate(zip(*row, strict=True))
    )


def example(chapter: str, *marks: str) -> dict[str, Any]:
    """The names that examples of a chapter define: those blocks of its page in which these strings occur."""
    folder = COURSE / chapter
    blocks = re.findall(
        r"^```python\n(>>>.*?)^```", (folder / "README.md").read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    chosen = [block for block in blocks if any(mark in block for mark in marks)]
    names: dict[str, Any] = {}
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(
                "".join(step.source for block in chosen for step in doctest.DocTestParser().get_examples(block)), names
            )
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - before:  # another chapter may have a file of the same name
            if folder in Path(getattr(sys.modules[name], "__file__", None) or "/").parents:
                del sys.modules[name]
    return names


# --- pictures ----------------------------------------------------------------------------------------------------


def graph() -> str:
    """Chapter 1: y = x² · x, its values and its gradients."""
    y = example("01-derivatives", "y = x**2 * x")["y"]
    u, x = y.parents
    to_u, to_x = y.derivative(y.grad)  # what y passes on
    (through_u,) = u.derivative(u.grad)
    du, dx = y.derivative(1.0)  # the derivatives of the steps
    (step,) = u.derivative(1.0)

    def number(left: float, top: float, name: str, value: float, gradient: str) -> str:
        return box(left, top, 180, 84, f"bold|{name}", f"blue|value {value:g}", f"orange|gradient {gradient}")

    return picture(
        "The graph of y = x² · x",
        "Values flow forward from x to u = x² and to y = u · x. Gradients flow back along the same edges, each "
        "multiplied by the derivative of the step; at x, those of both paths are added.",
        284,
        arrow((8, 24), (58, 24), kind="blue") + text(70, 24, "forward: values", "blue", "start"),
        arrow((58, 50), (8, 50), kind="orange") + text(70, 50, "backward: gradients", "orange", "start"),
        number(10, 180, "x", x.value, f"{to_x:g} + {through_u:g} = {x.grad:g}"),
        number(290, 20, "u = x²", u.value, f"{u.grad:g}"),
        number(570, 180, "y = u · x", y.value, f"{y.grad:g}"),
        arrow((136, 179), (289, 88), kind="blue") + arrow((289, 70), (106, 179), kind="orange"),
        arrow((471, 88), (624, 179), kind="blue") + arrow((654, 179), (471, 70), kind="orange"),
        arrow((191, 214), (569, 214), kind="blue") + arrow((569, 230), (191, 230), kind="orange"),
        lines(8, 98, f"du/dx = 2x = {step:g}", f"passed on: {u.grad:g} · {step:g} = {through_u:g}", kind="orange"),
        lines(604, 98, f"dy/du = x = {du:g}", f"passed on: {y.grad:g} · {du:g} = {to_u:g}", kind="orange"),
        lines(
            380,
            249,
            f"dy/dx = u = {dx:g}",
            f"passed on: {y.grad:g} · {dx:g} = {to_x:g}",
            kind="orange",
            anchor="middle",
        ),
    )


def shapes() -> str:
    """Chapter 2: the shapes of Y = X Wᵀ and of its gradients."""
    names = example("02-tensors", "from tiny_tensor import", "dy = TinyTensor(")
    x, w = names["x"], names["w"]
    assert (x.grad.shape, w.grad.shape) == (x.value.shape, w.value.shape)
    N, C_in, C_out = ("N", len(x.value)), ("C_in", x.value.shape[1]), ("C_out", len(w.value))  # the axes

    def matrix(x: float, y: float, name: str, rows: tuple, columns: tuple, kind: str, marked: tuple) -> str:
        """A matrix with its name above and its shape below. Row and column are marked, or all where there is None."""
        height, width = 21 * rows[1], 21 * columns[1]
        cells = [
            [kind + " on" * (marked[0] in (None, r) and marked[1] in (None, c)) for c in range(columns[1])]
            for r in range(rows[1])
        ]
        sizes = f"{rows[0]} × {columns[0]}", f"{rows[1]} × {columns[1]}"
        below = lines(x, y + height / 2 + 15, *sizes, kind="small", anchor="middle", step=18)
        empty = [[""] * columns[1]] * rows[1]
        return (
            text(x, y - height / 2 - 13, name, "bold")
            + grid(x - width / 2, y - height / 2, 21, 21, empty, cells)
            + below
        )

    def product(y: float, result: tuple, left: tuple, right: tuple, *why: str) -> str:
        """Three matrices in a row, each with its name, axes and colour."""
        matrices = (
            matrix(375, y, *left, (1, None)) + matrix(535, y, *right, (None, 0)) + matrix(690, y, *result, (1, 0))
        )
        return (
            lines(10, y - 21, f"bold|{result[0]} = {left[0]} {right[0]}", *why)
            + matrices
            + text(455, y, "·", "bold")
            + text(614, y, "=")
        )

    return picture(
        "The shapes of Y = X Wᵀ and of its gradients",
        "Three products of matrices, drawn as tables of cells. In each, one row of the left matrix, one column of the "
        "right one and one cell of the result are marked. The gradients have the shapes of their values.",
        484,
        product(
            80,
            ("Y", N, C_out, "blue"),
            ("X", N, C_in, "blue"),
            ("Wᵀ", C_in, C_out, "green"),
            "A number of Y is the sum over",
            "all inputs of its row: C_in products.",
        ),
        product(
            230,
            ("dX", N, C_in, "orange"),
            ("dY", N, C_out, "orange"),
            ("W", C_out, C_in, "green"),
            "A number of X was used for all",
            "outputs of its row: C_out products.",
        ),
        product(
            376,
            ("dW", C_out, C_in, "orange"),
            ("dYᵀ", C_out, N, "orange"),
            ("X", N, C_in, "blue"),
            "A number of W was used",
            "in every row: N products.",
        ),
        text(
            10,
            466,
            "Marked: one number of each result, and the row and the column of which it is the product.",
            "small grey",
            "start",
        ),
    )


def look_up() -> str:
    """Chapter 6: one query, three keys, and the weighted mean of three values."""
    names = example("06-attention", "query = np.array(")
    query, keys, values, weights = (names[name] for name in ("query", "keys", "values", "weights"))
    scores = keys @ query
    cells = [[f"{number:g}" for number in row] for row in (query, *keys)]
    blue = [["blue"] * len(query)]
    parts = [
        text(10, 42, "er", "bold", "start"),
        grid(90, 28, 36, 28, cells[:1], blue),
        text(250, 42, "the query", "grey", "start"),
    ]
    for n, word in enumerate(("Mensch", "Stadt", "irrt")):
        y = 112 + 44 * n
        parts += [text(10, y, word, "bold", "start"), grid(90, y - 14, 36, 28, cells[n + 1 : n + 2], blue)]
        parts += [arrow((238, y), (262, y)), text(284, y, f"{scores[n]:g}"), arrow((304, y), (328, y))]
        parts += [
            text(354, y, f"{scores[n] / len(query) ** 0.5:g}"),
            arrow((380, y), (402, y)),
            arrow((482, y), (504, y)),
        ]
        parts += [text(528, y, f"{weights[n]:.2f}"), box(552, y - 9, 70 * weights[n], 18, kind="blue on", rx=0)]
        parts += [text(640, y, "·", "bold"), box(660, y - 14, 60, 28, f"{values[n]:g}", kind="blue", rx=0)]
    heads = ((162, "keys"), (284, "q · k"), (354, "/ √D"), (572, "weights"), (690, "values"))
    return picture(
        "One look-up of attention",
        "The query of the word er is multiplied with the keys of three words. The scores, divided by the square root "
        "of D, become weights by a softmax, and the result is the mean of the three values with these weights.",
        276,
        *parts,
        *(text(x, 82, words, "grey") for x, words in heads),
        box(404, 92, 76, 128, "softmax"),
        line((530, 232), (720, 232))
        + text(720, 254, f"weighted mean of the values: {weights @ values:.1f}", "bold", "end"),
    )


def mask() -> str:
    """Chapter 6: the scores of five positions, the causal mask, and the weights."""
    names = example("06-attention", "query = np.array(", "x @ x.T", "Q, K, V =")
    Q, K = names["Q"][0, 0], names["K"][0, 0]  # of the first text's first head
    scores = Q @ K.T / Q.shape[1] ** 0.5
    size = range(len(scores))
    hidden = [[column > row for column in size] for row in size]
    weights = names["softmax"](names["np"].where(hidden, -names["np"].inf, scores))
    kinds = [["grey" if hides else "blue" for hides in row] for row in hidden]

    def table(x: float, numbers: Any, instead: str) -> str:
        words = [[instead if hidden[r][c] else f"{numbers[r, c]:.2f}" for c in size] for r in size]
        return grid(x, 76, 54, 30, words, kinds) + "".join(
            text(x + 27 + 54 * c, 60, f"key {c}", "small grey") for c in size
        )

    return picture(
        "The causal mask",
        "A table of scores with a row for each query and a column for each key. All scores to the right of the "
        "diagonal are minus infinity. After a softmax of each row their weights are 0, and each row sums to 1.",
        246,
        text(80, 26, "scores, masked", "bold", "start") + text(470, 26, "weights", "bold", "start"),
        *(text(10, 91 + 30 * n, f"query {n}", "small grey", "start") for n in size),
        table(80, scores, "-∞")
        + text(408, 130, "softmax")
        + arrow((362, 151), (458, 151))
        + text(408, 172, "of each row"),
        table(470, weights, "0"),
    )


def stream() -> str:
    """Chapter 7: the residual stream, and the gradient that goes back on it."""
    names = example("07-residuals", "from stack import")

    def row(y: float, kind: str, formula: str, back: str, plus: float, *boxes: tuple[float, float, str]) -> str:
        """Three layers; `plus` and the boxes, each with place and name, count from where a layer begins."""
        states = names["Stack"](kind, cut=True).states
        sizes = [f"dL/dx: {names['size'](states[n].grad):.2g}" for n in (0, -1)]
        parts = [text(10, y - 112, f"{kind}: {formula}", "bold", "start"), text(750, y - 112, back, "orange", "end")]
        parts += [text(22, y, "x"), line((40, y), (428, y), kind="blue thick"), text(452, y, "…"), text(740, y, "L")]
        parts += [arrow((476, y), (724, y), kind="blue thick"), arrow((640, y + 56), (160, y + 56), kind="orange")]
        for x, layer in ((56, 1), (246, 2), (490, len(states) - 1)):
            parts += [line((x, y), (x, y - 60), (x + plus, y - 60)), arrow((x + plus, y - 60), (x + plus, y - 11))]
            parts += [
                box(x + dx, y + dy - 16, 56, 32, name, kind="green" if name == "f" else "grey")
                for dx, dy, name in boxes
            ]
            parts += [
                box(x + plus - 11, y - 11, 22, 22, "+", rx=11),
                text(x + 75, y + 28, f"layer {layer}", "small grey"),
            ]
        return (
            "".join(parts)
            + text(10, y + 56, sizes[0], "orange", "start")
            + text(750, y + 56, sizes[1], "orange", "end")
        )

    return picture(
        "The residual stream",
        "Above, pre-norm: each layer reads x, and adds a branch of norm and f to it. Below, post-norm: after each "
        "addition a norm stands on the stream itself. Arrows show the gradient that goes back on the stream alone.",
        424,
        row(
            132,
            "pre-norm",
            "x + f(norm(x))",
            "back on the stream: additions alone",
            156,
            (14, -60, "norm"),
            (86, -60, "f"),
        ),
        row(
            350,
            "post-norm",
            "norm(x + f(x))",
            "back on the stream: additions and norms",
            92,
            (18, -60, "f"),
            (118, 0, "norm"),
        ),
    )


def model() -> str:
    """Chapter 8: the GPT from tokens to the loss, and one of its blocks."""
    names = example("08-gpt", "from gpt_numpy import gpt")
    (B, T, V), C = names["logits"].shape, names["model"].token_embedding.weight.shape[1]

    def plus(x: float, y: float) -> str:
        return box(x - 11, y - 11, 22, 22, "+", rx=11)

    def branch(y: float, *words: str) -> str:
        """From the stream through a norm and a part, and back to it."""
        way = line((450, y), (620, y), (620, y + 138)) + arrow((620, y + 138), (461, y + 138))
        return (
            way
            + box(530, y + 16, 180, 30, "norm")
            + box(530, y + 64, 180, 54, *words, kind="green")
            + plus(450, y + 138)
        )

    parts = [box(4, 10, 156, 32, "tokens (B, T)", kind="blue"), box(170, 10, 176, 32, "positions 0 to T - 1")]
    parts += [box(4, 62, 156, 50, "token embedding", "small|(V, C)", kind="green")]
    parts += [box(170, 62, 176, 50, "position embedding", "small|(block_size, C)", kind="green")]
    for x, side in ((82, 160), (258, 182)):
        parts += [arrow((x, 42), (x, 61)), arrow((x, 112), (x, 140), (side, 140))]
    parts += [line((171, 140), (171, 186), kind="blue thick"), line((171, 292), (171, 480), kind="blue thick")]
    for y, name in ((186, "block 1"), (258, "block n_layer"), (330, "final norm")):
        parts += [box(91, y, 160, 34, name), text(190, y - 16, "(B, T, C)", "small grey", "start")]
    parts += [box(51, 402, 240, 50, "lm_head", "small|the token embedding's table", kind="green")]
    parts += [text(190, 386, "(B, T, C)", "small grey", "start"), text(171, 239, "⋮", "bold"), plus(171, 140)]
    parts += [box(91, 476, 160, 32, "logits (B, T, V)", kind="blue"), arrow((171, 508), (171, 533))]
    parts += [box(91, 534, 160, 32, "cross-entropy"), arrow((171, 566), (171, 590)), text(171, 602, "loss", "bold")]
    parts += [box(320, 534, 140, 32, "targets (B, T)", kind="blue"), arrow((320, 550), (252, 550))]
    parts += [line((251, 186), (400, 96)), line((251, 220), (400, 504))]
    parts += [box(400, 96, 350, 408), text(735, 116, "one block", "bold", "end")]
    parts += [arrow((450, 108), (450, 496), kind="blue thick"), text(464, 120, "(B, T, C)", "small grey", "start")]
    parts += [
        branch(146, "attention", "small|mixes positions"),
        branch(322, "feed-forward", "small|each position alone"),
    ]
    return picture(
        "The GPT, and one of its blocks",
        "On the left, from tokens through embeddings, blocks, norm and lm_head to logits and loss. On the right a "
        "block: attention and feed-forward part read the stream through a norm and add to it.",
        620,
        *parts,
        lines(500, 542, "The model of this chapter:", f"B = {B}, T = {T}, C = {C}, V = {V}", kind="grey"),
    )


def cache() -> str:
    """Chapter 10: what one layer computes for the last of eight tokens, without the cache and with it."""
    multiplications = example("10-writing", "def multiplications")["multiplications"]
    T, C = 8, 16

    def panel(left: float, name: str, cached: bool) -> str:
        first = T - 1 if cached else 0  # the first position to compute
        new = [["blue on" if n >= first else "grey" for n in range(T)]]
        numbers = [[f"small|{n + 1}" for n in range(T)]]
        scores = [["blue on"] * (n + 1) for n in range(first, T)]
        top, x = 86 + 24 * first, left + 110
        matrices, attention = (
            a - b for a, b in zip(multiplications(T, C, cached), multiplications(T - 1, C, cached), strict=True)
        )
        return "".join(
            (
                text(left, 22, name, "bold", "start"),
                text(x - 10, 59, "keys, values", "small grey", "end") + grid(x, 48, 28, 22, numbers, new),
                text(x - 42, 266, "queries", "small grey", "end")
                + text(x + 224, top - 12 * cached + 12 * (not cached), "scores", "small grey", "end"),
                *(grid(x - 36, 86 + 24 * n, 28, 24, [[numbers[0][n]]], [["blue on"]]) for n in range(first, T)),
                *(grid(x, top + 24 * n, 28, 24, [[""] * len(row)], [row]) for n, row in enumerate(scores)),
                lines(
                    left,
                    306,
                    f"positions: {T - first}, multiplications in matrices: {matrices:,}",
                    f"scores: {sum(map(len, scores))}, multiplications in attention: {attention:,}",
                    kind="small",
                ),
            )
        )

    return picture(
        "The cache of keys and values",
        "Two tables of scores with a row for each query and a column for each key. Without the cache the whole lower "
        "triangle is computed for a new token, with it one row; the keys and values of earlier tokens are kept.",
        380,
        panel(10, "without a cache", False) + panel(390, "with the cache", True),
        text(750, 22, f"one layer of width C = {C}", "small grey", "end"),
        box(10, 348, 28, 22, kind="blue on", rx=0) + text(48, 359, f"computed when token {T} is new", "small", "start"),
        box(390, 348, 28, 22, rx=0) + text(428, 359, "kept from earlier tokens", "small", "start"),
    )


PICTURES = {
    "01-derivatives/picture.svg": graph,
    "02-tensors/picture.svg": shapes,
    "06-attention/look-up.svg": look_up,
    "06-attention/mask.svg": mask,
    "07-residuals/picture.svg": stream,
    "08-gpt/picture.svg": model,
    "10-writing/picture.svg": cache,
}


def main() -> None:
    """Write all pictures."""
    for name, draw in PICTURES.items():
        (COURSE / name).write_text(draw(), encoding="utf-8", newline="\n")
        print(f"wrote {COURSE / name}")


if __name__ == "__main__":
    main()
