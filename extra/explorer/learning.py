"""Write the page in which a small GPT learns: the texts and settings it begins with, and the scripts that train it.

`derivatives.js` and `nano.js` are nano.py in JavaScript, `training.js` is the loop, in a worker; `bench.js`,
`watching.js` and `learning.js` are what the user sees.
"""

import ast
from pathlib import Path

from extra.explorer import gpt
from extra.explorer.page import FOLDER, assemble, panels_of, read
from tinygrad_lite.errors import CorpusError
from training.corpora.texts import load_files

SCRIPTS = "derivatives nano training inside bench watching learning".split()
POEM = FOLDER.parents[1] / "docs" / "course" / "04-letters" / "letters.py"
WINDOW = 64  # characters that the model reads at once
LIMITS = {"window": WINDOW, "shortest": 10 * WINDOW + 20, "longest": 1_000_000, "kinds": 250}
SHAPE = {"n_layer": 2, "n_head": 4, "n_embd": 32, "block_size": WINDOW, "mask": True, "residual": True}
SETTINGS = {"shape": SHAPE, "steps": 2000, "rate": 0.01, "temperature": 0.8, "prompt": ""}
LEAD = "It knows nothing yet, and learns a text letter by letter while you watch: break it, or paste your own."
MORE = "Blue: its surprise at the next letter. Orange: the same on the last tenth, which no step learns from."
INSIDE = ["It runs here: type, and press Enter.", "This is the model of the other tab, as it was then."]


def page(path: str = "") -> str:
    """The page as HTML.

    Args:
        path: a file with the text to begin with; empty: Goethe's "Erlkönig", as in the course.
    Raises: CorpusError if the file is missing, no text, or too short or too long for a page.
    """
    poem = [part.value for part in ast.parse(read(POEM)).body if isinstance(part, ast.Assign)]
    texts = [("Erlkönig", "".join(map(ast.literal_eval, poem[:2]))), ("Hamlet", read(FOLDER / "hamlet.txt"))]
    if path:
        texts = [(Path(path).name, own_text(path)), *texts]
    data = {"settings": SETTINGS, "limits": LIMITS, "texts": [{"name": name, "text": text} for name, text in texts]}
    # A page of the explorer, which inside.js puts the model into.
    panels = {name: panel for name, panel in panels_of("gpt", "learned").items() if name != "growing"}
    model = {"sampling": {"topK": 0, "topP": 1, "minP": 0}, "specials": ["<unk>"], "selected": 0, "panels": [*panels]}
    blobs = {"explorer": assemble("Inside the GPT that learns", INSIDE, panels, model, {}, gpt.SCRIPTS).encode()}
    return assemble("A GPT learns in this page", [LEAD, MORE], panels_of("learning"), data, blobs, SCRIPTS, gpt.SCRIPTS)


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
