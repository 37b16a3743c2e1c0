"""The live pages of the site: a GPT, a translation and a training in the browser, each in one file.

The models are those in a folder of runs, where `python train.py` and `python train.py reverse` leave them. A missing
one is trained for half a minute, on the text of the course. No page is written of a model that answers wrong.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tinygrad_lite.errors import UserError
from training.cli.console import quoted

ROOT = Path(__file__).resolve().parents[2]
GPT = ["--n_layer", "3", "--max_iters", "350", "--eval_interval", "350", "--eval_iters", "20"]
REVERSE = ["reverse", "--eval_interval", "500"]
SEARCH = ["--beam", "3"]
# The run, what trains it if it is missing, the text that is shown, how it is decoded, and the right answer, if there is
# one. The dataset `reverse` consists of words of ten letters: of other lengths its model knows nothing.
PAGES = {
    "gpt.html": ("goethe", GPT, "Es irrt der Mensch, so lang er strebt. Und der", [], None),
    "translation.html": ("reverse", REVERSE, "heidelberg", SEARCH, "grebledieh"),
}
FOOTER = '<footer class="note">\n'
LINKS = """<p>Part of the documentation: <a href="../index.html">its first page</a>,
<a href="index.html">all live pages</a>, <a href="../docs/extra/pictures.html">what they show</a>.</p>
"""
HOME = (
    "**Live pages**: [look inside a GPT](demo/gpt.html), [watch one learn](demo/learn.html), [follow a "
    "translation](demo/translation.html)."
)
INDEX = """# Live pages

- [Inside a GPT](gpt.html): type a text, and see what the model predicts, where it looks, and who wanted a token.
  `python sample.py --explain page.html` writes the same page for your model.
- [A GPT that learns](learn.html): it begins with random weights and learns a poem on this page within a minute; change
  its rate, its size or its text, or break it. `python -m extra.studies.learn` writes the page.
- [A translation](translation.html): a small encoder-decoder reverses a word of ten letters, step by
  step, with its beam search.
"""


def write(folder: Path, runs: Path, build: Path) -> None:
    """Write the pages, and one that lists them; a run that is missing in `runs` is trained in `build`.

    Raises: UserError if a model is wrong about the text that its page shows.
    """
    folder.mkdir()
    texts = sorted(map(str, (ROOT / "docs" / "course").glob("*/README.md")))
    for name, (run, training, text, decoding, answer) in PAGES.items():
        out = runs / run
        if not (out / "best.safetensors").exists():
            out = build / run
            own = ["--text", *texts] if run == "goethe" else []
            program("train.py", *training, *own, "--out_dir", str(out), "--overwrite", "true")
            text = "The derivative of a product" if own else text
        showing = [str(out), "--start", text, *decoding]
        if answer and (said := program("sample.py", *showing).strip()) != answer:
            raise UserError(
                f"{name} would show a wrong answer: the model in {out} makes {said!r} of {text!r}, and {answer!r} is "
                f"right; train it again: python train.py {run} --out_dir {quoted(out)} --overwrite true"
            )
        program("sample.py", *showing, "--explain", str(folder / name))
    program("-m", "extra.studies.learn", str(folder / "learn.html"))
    for page in folder.glob("*.html"):
        linked = page.read_text(encoding="utf-8").replace(FOOTER, FOOTER + LINKS)
        page.write_text(linked, encoding="utf-8", newline="\n")
    (folder / "index.md").write_text(INDEX, encoding="utf-8")


def program(name: str, *arguments: str) -> str:
    """What a program of the project prints.

    Raises: UserError with its own words if it fails.
    """
    command = [sys.executable, name, *arguments]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, encoding="utf-8")
    if run.returncode:
        raise UserError(f"{name} {' '.join(arguments[:2])} failed: {run.stderr.strip()}")
    return run.stdout
