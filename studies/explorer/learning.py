"""Write the page in which a small GPT learns: the texts and settings it begins with, and the scripts that train it.

`derivatives.js` and `nano.js` are nano.py in JavaScript, `training.js` is the loop, in a worker; `learning.js` and
`watching.js` are what the user sees.
"""

from __future__ import annotations

import ast

from studies.explorer.page import FOLDER, Panel, assemble, read
from tinygrad_lite.errors import CorpusError
from workshop.corpora.texts import load_files

SCRIPTS = "derivatives nano training watching learning".split()
POEM = FOLDER.parents[1] / "docs" / "course" / "04-letters" / "letters.py"
WINDOW = 64  # characters that the model reads at once
LIMITS = {"window": WINDOW, "shortest": 10 * WINDOW + 20, "longest": 1_000_000, "kinds": 250}
SHAPE = {"n_layer": 2, "n_head": 4, "n_embd": 32, "block_size": WINDOW, "mask": True, "residual": True}
SETTINGS = {"shape": SHAPE, "steps": 2000, "rate": 0.01, "temperature": 0.8, "prompt": ""}
INTRO = (
    "A GPT begins with random weights and learns a text, character by character, while you watch. It has the parts of "
    "the project's larger models, and some ten thousand parameters instead of millions: enough to memorise a page "
    "of text within a minute. Once the loss has fallen, go to Break it: say what you expect, and then see.",
    "The page has no connection: your text stays in it, and it works from a file, without a network. Its scripts can "
    "be read in its source, or in the browser's debugger; nano.js is nano.py in JavaScript, with the same names.",
)
PANELS = (
    Panel(
        "loss",
        "The loss",
        "At every position the model gives each character a probability p of being the next. The loss is the mean of "
        "-ln p for those that are next, in nats; divided by ln 2, in bits. It is ln V for a model that takes all V "
        "characters for equally probable, as this one does before its first step, and 0 for one that is certain and "
        "right. A step updates all weights once, by 4 windows of 64 characters. No step learns from the last tenth of "
        "the text: the loss there tells whether the model learns a language, or memorises this text.",
        "loss = mean of -ln p(next character);   w = w - rate * (mean gradient / its usual size + 0.1 w)",
        (("nano.py", "GPT.loss"), ("nano.py", "AdamW.step"), ("nano.py", "train")),
    ),
    Panel(
        "writes",
        "What it writes",
        "The model draws a character from its probabilities, appends it, and reads again to draw the next. Frequent "
        "letters come first, then syllables, words, lines. The temperature divides its logits, the numbers that "
        "softmax turns into probabilities: at 0 the most probable character is always taken, above 1 improbable ones "
        "are drawn more often.",
        "p = softmax(logits / temperature)",
        (("nano.py", "write"),),
    ),
    Panel(
        "attends",
        "Where it looks",
        "Each head of each layer lets a position look at itself and those before it. A map has a row for each "
        "character of the text's first line, and a column for each that it can look at: the stronger the colour, the "
        "more weight. At first the weights are as random as the queries and keys. Choose a head, then a character, "
        "with the mouse or with Tab and the arrow keys: blue arcs lead to where it looks, orange ones come from those "
        "that look at it.",
        "P = softmax(scale Q K^T), row t over the positions 0 .. t;   head = P V",
        (("nano.py", "GPT.attention"),),
    ),
    Panel(
        "characters",
        "Its characters",
        "Each character is a vector, a row of the table with which the model begins and ends, and random at first. "
        "Soon frequent characters separate from rare ones, then kinds: look for signs that end a sentence, for "
        "capitals, for vowels.",
        "x = table[id];   logits = norm(x) table^T;   seen along the first two principal components of the rows",
        (("nano.py", "GPT.logits"),),
    ),
    Panel(
        "size",
        "Its size",
        "A wider or deeper model learns more with each step, and needs longer for it. Each change begins a new model; "
        "the curve of the run before stays in the picture.",
        "parameters = V C + layers * 12 C^2",
        (("nano.py", "GPT.__init__"),),
    ),
    Panel(
        "text",
        "Its text",
        "Learn another text, or paste your own: half a page is enough. One character is added to those of the text, "
        "for all that it does not have.",
        "text -> ids 0 .. V - 2, in the order of the characters in Unicode;   V - 1 for others",
        (("nano.py", "encode"),),
    ),
)


def page(path: str = "") -> str:
    """The page as HTML.

    Args:
        path: a file with the text to begin with; empty: Goethe's "Erlkönig", as in the course.
    Raises: CorpusError if the file is missing, no text, or too short or too long for a page.
    """
    poem = [part.value for part in ast.parse(read(POEM)).body if isinstance(part, ast.Assign)]
    texts = [("Erlkönig", "".join(map(ast.literal_eval, poem[:2]))), ("Hamlet", read(FOLDER / "hamlet.txt"))]
    if path:
        texts = [(path, own_text(path)), *texts]
    data = {"settings": SETTINGS, "limits": LIMITS, "texts": [{"name": name, "text": text} for name, text in texts]}
    scripts = [FOLDER / f"{name}.js" for name in SCRIPTS]
    return assemble("A GPT learns in this page", INTRO, PANELS, data, {}, scripts, works=True)


def own_text(path: str) -> str:
    """The text in a file, if a page can learn it.

    Raises: CorpusError if it cannot.
    """
    text = load_files([path]).text
    for problem, count, limit in (
        ("too short", -len(text), -LIMITS["shortest"]),
        ("too long", len(text), LIMITS["longest"]),
        ("made of too many different characters", len({*text}), LIMITS["kinds"]),
    ):
        if count > limit:
            raise CorpusError(f"{path} is {problem}: {abs(count):,}, and the limit of this page is {abs(limit):,}")
    return text
