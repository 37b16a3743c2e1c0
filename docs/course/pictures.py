"""Draw the diagrams of the course: SVG files in the folders of the chapters.

    python docs/course/pictures.py     writes all of them, always the same

The numbers are those of the chapters: `example` runs blocks of a chapter's page and returns the names that they define.
Coordinates are those of SVG, with y downwards, in a picture 760 wide. A `kind` is one or more classes of the style
sheet, such as "small grey end". Blue is computed from the data, green is learned, orange is for gradients.
"""

from __future__ import annotations

import doctest
import re
import sys
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from training.cli.console import run_command

COURSE = Path(__file__).resolve().parent
# Each colour on light and on dark pages: the fill of a box, the fill of a marked box, and lines and text.
COLOURS = {
    "grey": (("#f6f8fa", "#d1d9e0", "#59636e"), ("#161b22", "#3d444d", "#9198a1")),
    "blue": (("#ddf4ff", "#a5d6ff", "#0550ae"), ("#0c2138", "#184c86", "#79c0ff")),
    "green": (("#dafbe1", "#aceebb", "#116329"), ("#0b2a17", "#1b5c2e", "#56d364")),
    "orange": (("#fff1e5", "#ffd8b5", "#953800"), ("#33200d", "#7a3d0c", "#f0a35e")),
}
INK = ("#1f2328", "#e6edf3")
SHAPES = (
    "text{font:15px system-ui,sans-serif;text-anchor:middle}.start{text-anchor:start}.end{text-anchor:end}"
    ".small{font-size:13px}.bold{font-weight:600}.code{font-family:ui-monospace,monospace}"
    "path{stroke-width:1.8}.thick{stroke-width:3.5}"
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
        f'<svg xmlns="http://www.w3.org/2000/svg" width="760" height="{height}" viewBox="0 0 760 {height}" '
        f'role="img" aria-labelledby="title about">\n<title id="title">{escape(title)}</title>\n'
        f'<desc id="about">{escape(description)}</desc>\n{style()}{"".join(parts)}</svg>\n'
    )


def text(x: float, y: float, *lines: str, kind: str = "", step: float = 21) -> str:
    """Lines of text, the middle of the first at the height y. A line such as "bold end|x = 3" sets its own kinds."""
    drawn = ""
    for n, line in enumerate(lines):
        own, _, words = line.rpartition("|")
        place = f'x="{x:g}" y="{y + step * n + 5:g}" class="{f"{kind} {own}".strip()}"'
        drawn += f"<text {place}>{escape(words)}</text>\n" if words else ""
    return drawn


def box(x: float, y: float, width: float, height: float, *lines: str, kind: str = "grey", rx: float = 4) -> str:
    """A box with lines of text in its middle."""
    shape = f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{rx}" class="{kind}"/>\n'
    return shape + text(x + width / 2, y + height / 2 - 10.5 * (len(lines) - 1), *lines)


def cells(x: float, y: float, width: float, height: float, words: list[str], kinds: list[str]) -> str:
    """Boxes side by side."""
    pairs = enumerate(zip(words, kinds, strict=True))
    return "".join(box(x + width * n, y, width, height, word, kind=kind, rx=0) for n, (word, kind) in pairs)


def plus(x: float, y: float) -> str:
    """A sum."""
    return box(x - 11, y - 11, 22, 22, "+", rx=11)


def line(*points: tuple[float, float], kind: str = "grey") -> str:
    """A line through points."""
    return f'<path d="M{"L".join(f"{x:g} {y:g}" for x, y in points)}" class="{kind}"/>\n'


def arrow(*points: tuple[float, float], kind: str = "grey") -> str:
    """A line through points, with a head at the last of them."""
    (x0, y0), (x1, y1) = points[-2:]
    length = ((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5
    ex, ey = (x1 - x0) / length, (y1 - y0) / length  # the direction of the last part
    bx, by = x1 - 10 * ex, y1 - 10 * ey  # the middle of the head's base
    head = f"M{x1:g} {y1:g}L{bx - 5 * ey:g} {by + 5 * ex:g}L{bx + 5 * ey:g} {by - 5 * ex:g}Z"
    return line(*points[:-1], (bx, by), kind=kind) + f'<path d="{head}" class="{kind} head" stroke="none"/>\n'


def example(chapter: str, *marks: str) -> dict[str, Any]:
    """The names that examples of a chapter define: those blocks of its page in which these strings occur."""
    folder = COURSE / chapter
    page = (folder / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(>>>.*?)^```", page, re.MULTILINE | re.DOTALL)
    chosen = "\n".join(block for block in blocks if any(mark in block for mark in marks))
    test = doctest.DocTestParser().get_doctest(chosen, {}, chapter, None, None)
    neighbours = {file.stem for file in folder.glob("*.py")}
    others = {name: sys.modules.pop(name) for name in neighbours & sys.modules.keys()}  # those of another chapter
    sys.path.insert(0, str(folder))
    try:
        doctest.DocTestRunner().run(test, out=lambda _: None, clear_globs=False)
    finally:
        sys.path.remove(str(folder))
        for name in neighbours & sys.modules.keys():
            del sys.modules[name]
        sys.modules.update(others)
    return test.globs


# --- pictures ----------------------------------------------------------------------------------------------------


def graph() -> str:
    """Chapter 1: y = x² · x, its values and its gradients."""
    y = example("01-derivatives", "y = x**2 * x")["y"]
    u, x = y.parents
    to_u, to_x = y.derivative(y.grad)  # what y passes on
    (through_u,) = u.derivative(u.grad)
    dy_du, dy_dx = y.derivative(1.0)  # the derivatives of the steps
    (du_dx,) = u.derivative(1.0)

    def number(x: float, y: float, name: str, value: float, gradient: str) -> str:
        return box(x, y, 180, 84, f"bold|{name}", f"blue|value {value:g}", f"orange|gradient {gradient}")

    def step(x: float, y: float, rule: str, slope: float, gradient: float, passed: float, kind: str) -> str:
        return text(x, y, f"{rule} = {slope:g}", f"passed on: {gradient:g} · {slope:g} = {passed:g}", kind=kind)

    parts = [arrow((8, 24), (58, 24), kind="blue"), text(70, 24, "blue start|forward: values")]
    parts += [arrow((58, 50), (8, 50), kind="orange"), text(70, 50, "orange start|backward: gradients")]
    for x0, y0, x1, y1 in ((136, 179, 289, 88), (471, 88, 624, 179), (191, 214, 569, 214)):
        parts.append(arrow((x0, y0), (x1, y1), kind="blue"))
    for x0, y0, x1, y1 in ((289, 70, 106, 179), (654, 179, 471, 70), (569, 230, 191, 230)):
        parts.append(arrow((x0, y0), (x1, y1), kind="orange"))
    return picture(
        "The graph of y = x² · x",
        "Values flow forward from x to u = x² and to y = u · x. Gradients flow back along the same edges, each "
        "multiplied by the derivative of the step; at x, those of both paths are added.",
        284,
        *parts,
        number(10, 180, "x", x.value, f"{to_x:g} + {through_u:g} = {x.grad:g}"),
        number(290, 20, "u = x²", u.value, f"{u.grad:g}"),
        number(570, 180, "y = u · x", y.value, f"{y.grad:g}"),
        step(8, 98, "du/dx = 2x", du_dx, u.grad, through_u, "orange start"),
        step(604, 98, "dy/du = x", dy_du, y.grad, to_u, "orange start"),
        step(380, 249, "dy/dx = u", dy_dx, y.grad, to_x, "orange"),
    )


def shapes() -> str:
    """Chapter 2: the shapes of Y = X Wᵀ and of its gradients."""
    names = example("02-tensors", "from tiny_tensor import", "dy = TinyTensor(")
    x, w = names["x"], names["w"]
    assert (x.grad.shape, w.grad.shape) == (x.value.shape, w.value.shape)
    sizes = {"N": len(x.value), "C_in": x.value.shape[1], "C_out": len(w.value)}
    axes = {"X": ("N", "C_in"), "Y": ("N", "C_out"), "W": ("C_out", "C_in")}

    def matrix(x: float, y: float, name: str, row: int | None, column: int | None) -> str:
        """A matrix with its name above and its shape below; this row and column are marked, None marks all."""
        rows, columns = axes[name.strip("dᵀ")][:: -1 if "ᵀ" in name else 1]
        height, width = sizes[rows], sizes[columns]
        colour = "orange" if "d" in name else "green" if "W" in name else "blue"
        left, top = x - 10.5 * width, y - 10.5 * height
        drawn = text(x, top - 13, f"bold|{name}")
        for r in range(height):
            kinds = [colour + " on" * (row in (None, r) and column in (None, c)) for c in range(width)]
            drawn += cells(left, top + 21 * r, 21, 21, [""] * width, kinds)
        below = f"small|{rows} × {columns}", f"small|{height} × {width}"
        return drawn + text(x, y + 10.5 * height + 15, *below, step=18)

    parts = []
    for y, formula, *why in (
        (80, "Y = X Wᵀ", "A number of Y is the sum over", "all inputs of its row: C_in products."),
        (230, "dX = dY W", "A number of X was used for all", "outputs of its row: C_out products."),
        (376, "dW = dYᵀ X", "A number of W was used", "in every row: N products."),
    ):
        result, _, left, right = formula.split()
        parts += [text(10, y - 21, f"bold|{formula}", *why, kind="start"), text(455, y, "bold|·"), text(614, y, "=")]
        parts += [matrix(375, y, left, 1, None), matrix(535, y, right, None, 0), matrix(690, y, result, 1, 0)]
    marked = "Marked: one number of each result, and the row and the column that it is the product of."
    return picture(
        "The shapes of Y = X Wᵀ and of its gradients",
        "Three matrix products, drawn as tables of cells. In each, one row of the left matrix, one column of the "
        "right one and one cell of the result are marked. The gradients have the shapes of their values.",
        484,
        *parts,
        text(10, 466, f"small grey start|{marked}"),
    )


def look_up() -> str:
    """Chapter 6: one query, three keys, and the weighted mean of three values."""
    names = example("06-attention", "query = np.array(")
    query, keys, values, weights = (names[name] for name in ("query", "keys", "values", "weights"))

    def vector(y: float, word: str, numbers: Any) -> str:
        written = [f"{number:g}" for number in numbers]
        return text(10, y, f"bold start|{word}") + cells(90, y - 14, 36, 28, written, ["blue"] * len(written))

    parts = [vector(42, "er", query), text(250, 42, "grey start|the query"), box(404, 92, 76, 128, "softmax")]
    for x, name in ((162, "keys"), (284, "q · k"), (354, "/ √D"), (572, "weights"), (690, "values")):
        parts.append(text(x, 82, f"grey|{name}"))
    for n, word in enumerate(("Mensch", "Stadt", "irrt")):
        y, score = 112 + 44 * n, keys[n] @ query
        parts += [vector(y, word, keys[n]), *(arrow((x, y), (x + 24, y)) for x in (238, 304, 378, 482))]
        parts += [text(284, y, f"{score:g}"), text(354, y, f"{score / len(query) ** 0.5:g}")]
        parts += [text(528, y, f"{weights[n]:.2f}"), box(552, y - 9, 70 * weights[n], 18, kind="blue on", rx=0)]
        parts += [text(640, y, "bold|·"), box(660, y - 14, 60, 28, f"{values[n]:g}", kind="blue", rx=0)]
    return picture(
        "One look-up of attention",
        "The query of the word er is multiplied by the keys of three words. The scores, divided by the square root "
        "of D, become weights by a softmax, and the result is the mean of the three values with these weights.",
        276,
        *parts,
        line((530, 232), (720, 232)),
        text(720, 254, f"bold end|weighted mean of the values: {weights @ values:.1f}"),
    )


def mask() -> str:
    """Chapter 6: the scores of five positions, the causal mask, and the weights."""
    names = example("06-attention", "query = np.array(", "x @ x.T", "Q, K, V =")
    Q, K = names["Q"][0, 0], names["K"][0, 0]  # of the first text's first head
    scores = Q @ K.T / Q.shape[1] ** 0.5
    T = len(scores)
    parts = [text(80, 26, "bold start|scores, masked"), text(470, 26, "bold start|weights")]
    parts += [text(408, 130, "softmax"), arrow((362, 151), (458, 151)), text(408, 172, "of each row")]
    for t in range(T):
        weights = names["softmax"](scores[t, : t + 1])  # what e to the power of -∞ gives to the others is 0
        parts += [text(x + 27 + 54 * t, 60, f"small grey|key {t}") for x in (80, 470)]
        parts.append(text(10, 91 + 30 * t, f"small grey start|query {t}"))
        for x, numbers, hidden in ((80, scores[t, : t + 1], "-∞"), (470, weights, "0")):
            words = [f"{number:.2f}" for number in numbers] + [hidden] * (T - t - 1)
            parts.append(cells(x, 76 + 30 * t, 54, 30, words, ["blue"] * (t + 1) + ["grey"] * (T - t - 1)))
    return picture(
        "The causal mask",
        "A table of scores with a row for each query and a column for each key. All scores to the right of the "
        "diagonal are minus infinity. After a softmax of each row their weights are 0, and each row sums to 1.",
        246,
        *parts,
    )


def stream() -> str:
    """Chapter 7: the residual stream, and the gradient that flows back along it."""
    names = example("07-residuals", "from stack import")
    parts = []
    for y, kind, formula, back, sum_at, *boxes in (
        (132, "pre-norm", "x + f(norm(x))", "additions alone", 156, (14, -60, "norm"), (86, -60, "f")),
        (350, "post-norm", "norm(x + f(x))", "additions and norms", 92, (18, -60, "f"), (118, 0, "norm")),
    ):
        states = names["Stack"](kind, cut=True).states
        first, last = (f"dL/dx: {names['size'](states[n].grad):.2g}" for n in (0, -1))
        parts += [text(10, y - 112, f"bold start|{kind}: {formula}"), text(22, y, "x"), text(740, y, "L")]
        parts += [line((40, y), (428, y), kind="blue thick"), text(452, y, "…")]
        parts += [arrow((476, y), (724, y), kind="blue thick"), arrow((640, y + 56), (160, y + 56), kind="orange")]
        parts += [text(10, y + 56, f"orange start|{first}"), text(750, y + 56, f"orange end|{last}")]
        parts += [text(750, y - 112, f"orange end|back along the stream: {back}")]
        for x, layer in ((56, 1), (246, 2), (490, len(states) - 1)):
            end = x + sum_at
            parts += [line((x, y), (x, y - 60), (end, y - 60)), arrow((end, y - 60), (end, y - 11)), plus(end, y)]
            parts += [text(x + 75, y + 28, f"small grey|layer {layer}")]
            for dx, dy, name in boxes:
                parts.append(box(x + dx, y + dy - 16, 56, 32, name, kind="green" if name == "f" else "grey"))
    return picture(
        "The residual stream",
        "Above, pre-norm: each layer reads x, and adds a branch of norm and f to it. Below, post-norm: after each "
        "addition a norm acts on the stream itself. Arrows show the gradient that flows back along the stream alone.",
        424,
        *parts,
    )


def model() -> str:
    """Chapter 8: the GPT from tokens to the loss, and one of its blocks."""
    names = example("08-gpt", "from gpt_numpy import gpt")
    (B, T, V), C = names["logits"].shape, names["model"].token_embedding.weight.shape[1]
    parts = [box(4, 10, 156, 32, "tokens (B, T)", kind="blue"), box(170, 10, 176, 32, "positions 0 to T - 1")]
    parts += [box(4, 62, 156, 50, "token embedding", "small|(V, C)", kind="green")]
    parts += [box(170, 62, 176, 50, "position embedding", "small|(block_size, C)", kind="green")]
    for x, side in ((82, 160), (258, 182)):
        parts += [arrow((x, 42), (x, 61)), arrow((x, 112), (x, 140), (side, 140))]
    parts += [line((171, 140), (171, 186), kind="blue thick"), line((171, 292), (171, 480), kind="blue thick")]
    for y, name in ((186, "block 1"), (258, "block n_layer"), (330, "final norm")):
        parts += [box(91, y, 160, 34, name), text(190, y - 16, "small grey start|(B, T, C)")]
    parts += [plus(171, 140), text(171, 239, "bold|⋮"), text(190, 386, "small grey start|(B, T, C)")]
    parts += [box(51, 402, 240, 50, "lm_head", "small|the token embedding's table", kind="green")]
    parts += [box(91, 476, 160, 32, "logits (B, T, V)", kind="blue"), arrow((171, 508), (171, 533))]
    parts += [box(91, 534, 160, 32, "cross-entropy"), arrow((171, 566), (171, 590)), text(171, 602, "bold|loss")]
    parts += [box(320, 534, 140, 32, "targets (B, T)", kind="blue"), arrow((320, 550), (252, 550))]
    # One block, drawn large.
    parts += [line((251, 186), (400, 96)), line((251, 220), (400, 504)), box(400, 96, 350, 408)]
    parts += [arrow((450, 108), (450, 496), kind="blue thick"), text(464, 120, "small grey start|(B, T, C)")]
    for y, name, what in ((146, "attention", "mixes positions"), (322, "feed-forward", "each position alone")):
        parts += [line((450, y), (620, y), (620, y + 138)), arrow((620, y + 138), (461, y + 138)), plus(450, y + 138)]
        parts += [box(530, y + 16, 180, 30, "norm"), box(530, y + 64, 180, 54, name, f"small|{what}", kind="green")]
    return picture(
        "The GPT, and one of its blocks",
        "On the left, from tokens through embeddings, blocks, norm and lm_head to logits and loss. On the right a "
        "block: attention and feed-forward part read the stream through a norm and add to it.",
        620,
        *parts,
        text(735, 116, "bold end|one block"),
        text(500, 542, "The model of this chapter:", f"B = {B}, T = {T}, C = {C}, V = {V}", kind="grey start"),
    )


def cache() -> str:
    """Chapter 10: what one layer computes for the last of eight tokens, without the cache and with it."""
    multiplications = example("10-writing", "def multiplications")["multiplications"]
    T, C = 8, 16
    parts = [text(750, 22, f"small grey end|one layer of width C = {C}")]
    for left, name, first in ((10, "without a cache", 0), (390, "with the cache", T - 1)):  # the first to compute
        whole, before = (multiplications(n, C, first > 0) for n in (T, T - 1))
        matrices, attention = (f"{a - b:,}" for a, b in zip(whole, before, strict=True))
        x, kinds = left + 110, ["blue on" if t >= first else "grey" for t in range(T)]
        parts += [text(left, 22, f"bold start|{name}"), text(x - 10, 59, "small grey end|keys, values")]
        parts += [cells(x, 48, 28, 22, [f"small|{t + 1}" for t in range(T)], kinds)]
        for t in range(first, T):
            y = 86 + 24 * t
            parts += [box(x - 36, y, 28, 24, f"small|{t + 1}", kind="blue on", rx=0)]
            parts += [cells(x, y, 28, 24, [""] * (t + 1), ["blue on"] * (t + 1))]
        parts += [text(x - 42, 266, "small grey end|queries")]
        parts += [text(x + 224, 242 if first else 98, "small grey end|scores")]
        computed = f"positions: {T - first}, multiplications in matrices: {matrices}"
        scores = f"scores: {sum(range(first + 1, T + 1))}, multiplications in attention: {attention}"
        parts += [text(left, 306, computed, scores, kind="small start")]
    return picture(
        "The cache of keys and values",
        "Two tables of scores with a row for each query and a column for each key. Without the cache the whole lower "
        "triangle is computed for a new token, with it one row; the keys and values of earlier tokens are kept.",
        380,
        *parts,
        box(10, 348, 28, 22, kind="blue on", rx=0) + text(48, 359, f"small start|computed when token {T} is new"),
        box(390, 348, 28, 22, rx=0) + text(428, 359, "small start|kept from earlier tokens"),
    )


def translation() -> str:
    """Chapter 11: encoder and decoder, and the cross-attention between them."""
    names = example("11-translation", "manual_seed(1)", "(memory, mask), (other", "letters = [", "target = Tensor(")
    (B, S, C), T, V = names["memory"].shape, names["target"].shape[1] - 1, names["config"].vocab_size
    source = names["letters"]
    target = [source[s] for s in names["weights"].numpy().argmax(-1)]
    parts = []
    for x, name, read, words, height in (
        (150, "encoder", "(B, S)", source, 146),
        (600, "decoder", "(B, T)", ["<bos>", *target], 224),
    ):
        parts += [text(x, 14, f"bold|{name} reads {read}"), arrow((x, 58), (x, 79))]
        parts += [cells(x - 28 * len(words), 30, 56, 28, [f"code|{word}" for word in words], ["blue"] * len(words))]
        parts += [box(x - 140, 126, 280, height), text(x - 130, 142, "small grey start|n_layer blocks")]
        parts += [box(x - 100, 80, 200, 24, "embeddings", kind="green"), arrow((x, 104), (x, 159))]
        what = "in both directions" if name == "encoder" else "causal"
        parts += [box(x - 100, 160, 200, 46, "self-attention", f"small|{what}", kind="green")]
    for x, y, length, *words in (
        (150, 206, 30, "feed-forward"),
        (600, 206, 34, "cross-attention", "small|to all of the memory"),
        (600, 286, 24, "feed-forward"),
        (600, 334, 42, "lm_head"),
    ):
        parts += [arrow((x, y), (x, y + length - 1))]
        parts += [box(x - 100, y + length, 200, 2 + 22 * len(words), *words, kind="green")]
    parts += [arrow((150, 260), (150, 301)), box(50, 302, 200, 32, "memory (B, S, C)", kind="blue")]
    parts += [arrow((250, 318), (350, 318), (350, 263), (499, 263)), text(360, 250, "small start|keys, values")]
    parts += [text(612, 221, "small start|queries"), text(612, 362, "small grey start|(B, T, C)")]
    parts += [arrow((600, 400), (600, 433)), text(612, 415, "small grey start|(B, T, V)")]
    notes = "The model and the word of this chapter:", f"B = {B}, S = {S}, T = {T}, C = {C}, V = {V}."
    predicted = [f"code|{word}" for word in (*target, "<eos>")]
    parts += [cells(600 - 28 * len(predicted), 434, 56, 28, predicted, ["blue"] * len(predicted))]
    return picture(
        "Encoder and decoder",
        "On the left the encoder turns the source tokens into the memory. On the right the decoder, whose blocks also "
        "attend to the memory: queries come from the decoder, keys and values from the memory.",
        490,
        *parts,
        text(600, 478, "bold|decoder must predict (B, T)"),
        text(10, 436, *notes, "Norms and additions are left out.", kind="small grey start"),
    )


def bottleneck() -> str:
    """Chapter 20: a reader and a writer, and what passes between them without attention and with it."""
    words, written = ["der", "rote", "Hut"], ["the", "red", "hat"]
    parts = []
    for top, title in ((30, "bold start|without attention: one state"), (190, "bold start|with attention: all states")):
        parts.append(text(8, top - 8, title))
        for n, (word, other) in enumerate(zip(words, written, strict=True)):
            x, y = 30 + 120 * n, 430 + 110 * n
            parts.append(box(x, top + 40, 70, 32, f"h{'₁₂₃'[n]}", kind="blue"))
            parts.append(text(x + 35, top + 112, word))
            parts.append(arrow((x + 35, top + 100), (x + 35, top + 74), kind="blue"))
            parts.append(box(y, top + 40, 70, 32, f"s{'₁₂₃'[n]}", kind="green"))
            parts.append(text(y + 35, top + 112, other))
            parts.append(arrow((y + 35, top + 74), (y + 35, top + 100), kind="green"))
            if n < 2:
                parts.append(arrow((x + 70, top + 56), (x + 118, top + 56), kind="blue"))
                parts.append(arrow((y + 70, top + 56), (y + 108, top + 56), kind="green"))
            if top > 100:
                parts.append(line((x + 35, top + 38), (x + 35, top + 20 - 4 * n), (575, top + 20 - 4 * n)))
        parts.append(arrow((340, top + 56), (428, top + 56), kind="blue thick" if top < 100 else "blue"))
        if top > 100:
            parts.append(arrow((575, top + 8), (575, top + 38)))
    about = "Without attention the writer knows the last state of the reader. With attention its state s2 looks at all."
    return picture("Reader and writer", about, 320, *parts)


def mixing() -> str:
    """Chapter 21: the matrices by which attention, a window, a convolution and a recurrence mix eight positions."""
    rng, behind = np.random.default_rng(3), np.subtract.outer(np.arange(8), np.arange(8))
    scores = np.exp(1.5 * rng.standard_normal((8, 8)))
    kept = np.cumprod(rng.uniform(0.5, 1, 8))
    matrices = {
        "attention": (scores, "any weights,", "computed from the text"),
        "window of 3": (np.where(behind < 3, scores, 0), "the same,", "for near positions only"),
        "long convolution": (1.2 * 0.6 ** np.maximum(behind, 0), "one weight", "for each distance"),
        "recurrence": (np.minimum(scores, 3) * kept[:, None] / kept, "weights from the text,", "with a decay"),
    }
    parts = []
    for n, (name, (weights, *lines)) in enumerate(matrices.items()):
        x0, shown = 12 + 190 * n, np.where(behind >= 0, weights, 0)
        shown = shown / shown.max(axis=1, keepdims=True)
        parts += [text(x0 + 80, 16, f"bold|{name}"), box(x0 - 1, 39, 161, 161, rx=0)]
        for t in range(8):
            for s in range(8):
                if shown[t, s] > 0.02:
                    shade = f'class="blue head" stroke="none" fill-opacity="{shown[t, s]:.2f}"'
                    parts.append(f'<path d="M{x0 + 20 * s} {40 + 20 * t}h19v19h-19Z" {shade}/>\n')
        parts.append(text(x0 + 80, 222, *(f"small|{words}" for words in lines), step=18))
    about = "Rows are positions that are computed, columns those that they see; the darker, the larger the weight."
    return picture("Four ways to mix positions", about, 254, *parts)


def pushes() -> str:
    """Chapter 22: where each of four drawn answers pushes the scores, without a baseline and with one."""
    found = example("22-rewards", "import numpy", "points = np.array")
    p, points = found["p"], found["points"]
    ways = {"points as they are": points, "points less their mean": points - p @ points}
    parts = [text(20, 16, "start bold|drawn"), text(150, 16, "bold|points")]
    for n, (name, weights) in enumerate(ways.items()):
        x0 = 240 + 270 * n
        parts.append(text(x0 + 110, 16, f"bold|{name}"))
        for row, weight in enumerate(weights):
            y = 70 + 62 * row
            parts.append(f'<path d="M{x0} {y}h220" class="grey"/>\n')
            for answer, push in enumerate(weight * (np.eye(4)[row] - p)):
                kind = "blue" if push >= 0 else "orange"
                height = 8 * abs(push)
                shape = f'x="{x0 + 10 + 55 * answer}" y="{y - (height if push > 0 else 0):.1f}" height="{height:.1f}"'
                parts.append(f'<rect {shape} width="35" class="{kind} on"/>\n')
    for row, point in enumerate(points):
        parts += [text(30, 70 + 62 * row, f"start|{'ABCD'[row]}"), text(150, 70 + 62 * row, f"{point:g}")]
    for n in range(2):
        parts += [text(267 + 270 * n + 55 * answer, 318, f"small|{name}") for answer, name in enumerate("ABCD")]
    about = "Each row is an answer that was drawn; its bars say how far it raises or lowers the score of every answer."
    return picture("Where a drawn answer pushes", about, 334, *parts)


def order() -> str:
    """Chapter 24: a text that is uncovered in four steps; and what is kept of a draft's distribution."""
    found = example("24-order", "import numpy", "p = np.array([0.5", "q = np.array", "kept = q")
    p, q, kept = (found[name] for name in ("p", "q", "kept"))
    words, steps = "Es irrt der Mensch , so lang er strebt .".split(), [0, 3, 2, 4, 1, 2, 4, 3, 1, 2]
    parts = [text(20, 16, "start bold|uncovered in any order")]
    for step in range(5):
        y = 42 + 40 * step
        shown = [word if at <= step else "" for word, at in zip(words, steps, strict=True)]
        kinds = ["green" if at == step else "grey" for at in steps]
        parts += [text(20, y + 14, f"start small|{'given' if not step else f'step {step}'}")]
        parts += [cells(70, y, 68, 28, shown, kinds)]
    parts.append(text(20, 262, "start bold|a draft's token, kept or replaced"))
    for token in range(3):
        x0, base = 70 + 235 * token, 420
        for n, (name, whole, part) in enumerate((("draft q", q, kept), ("model p", p, kept))):
            for height, kind in ((whole[token], "grey" if n == 0 else "orange"), (part[token], "blue")):
                shape = f'x="{x0 + 90 * n}" y="{base - 220 * height:.1f}" width="70" height="{220 * height:.1f}"'
                parts.append(f'<rect {shape} class="{kind} on"/>\n')
            parts.append(text(x0 + 90 * n + 35, base + 14, f"small|{name} {whole[token]:g}"))
        parts.append(text(x0 + 80, base + 36, f"bold|token {token}"))
    parts.append(
        text(380, 482, "small|blue: kept, min(p, q); grey: refused; orange: drawn instead, in proportion to p - q")
    )
    about = (
        "Above, the tokens of a sentence appear in four steps. Below, bars compare two distributions of three tokens."
    )
    return picture("In any order, and several at once", about, 500, *parts)


PICTURES = {
    "01-derivatives/picture.svg": graph,
    "02-tensors/picture.svg": shapes,
    "06-attention/look-up.svg": look_up,
    "06-attention/mask.svg": mask,
    "07-residuals/picture.svg": stream,
    "08-gpt/picture.svg": model,
    "10-writing/picture.svg": cache,
    "11-translation/picture.svg": translation,
    "20-before/picture.svg": bottleneck,
    "21-beyond/picture.svg": mixing,
    "22-rewards/picture.svg": pushes,
    "24-order/picture.svg": order,
}


def main(_: list[str]) -> int:
    """Write all pictures."""
    for name, draw in PICTURES.items():
        (COURSE / name).write_text(draw(), encoding="utf-8", newline="\n")
        print(f"wrote {COURSE / name}")
    return 0


if __name__ == "__main__":
    run_command("pictures", main, __doc__)
