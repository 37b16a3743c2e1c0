"""The live pages of the site: a GPT, a translation and a training in the browser, each in one file.

The models are those in a folder of runs, where `python train.py` and `python train.py reverse` leave them. A missing
one is trained for half a minute, on the text of the course.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tinygrad_lite.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
GPT = ["--n_layer", "3", "--max_iters", "350", "--eval_interval", "350", "--eval_iters", "20"]
PAGES = {  # the run, what trains it if it is missing, and how it is shown
    "gpt.html": ("goethe", GPT, ["--start", "Es irrt der Mensch, so lang er strebt. Und der"]),
    "translation.html": ("reverse", ["reverse", "--eval_interval", "500"], ["--start", "goethe", "--beam", "3"]),
}
FOOTER = '<footer class="note">\n'
LINKS = """<p>Part of the documentation: <a href="../index.html">its first page</a>,
<a href="index.html">all live pages</a>, <a href="../docs/pictures.html">what they show</a>.</p>
"""
INDEX = """# Live pages

- [Inside a GPT](gpt.html): type a text, and see what the model predicts, where it looks, and who wanted a token.
  `python sample.py --explain page.html` writes the same page for your model.
- [A GPT that learns](learn.html): it begins with random weights and learns a poem on this page within a minute; change
  its rate, its size or its text, or break it. `python -m studies.learn` writes the page.
- [A translation](translation.html): a small encoder-decoder reverses a word, step by step, with its beam search.
"""


def write(folder: Path, runs: Path, build: Path) -> None:
    """Write the pages, and one that lists them; a run that is missing in `runs` is trained in `build`."""
    folder.mkdir()
    texts = sorted(map(str, (ROOT / "docs" / "course").glob("*/README.md")))
    for name, (run, training, showing) in PAGES.items():
        out = runs / run
        if not (out / "best.safetensors").exists():
            out = build / run
            own = ["--text", *texts] if run == "goethe" else []
            program("train.py", *training, *own, "--out_dir", str(out), "--overwrite", "true")
            showing = ["--start", "The derivative of a product"] if own else showing
        program("sample.py", str(out), *showing, "--explain", str(folder / name))
    program("-m", "studies.learn", str(folder / "learn.html"))
    for page in folder.glob("*.html"):
        page.write_text(
            page.read_text(encoding="utf-8").replace(FOOTER, FOOTER + LINKS), encoding="utf-8", newline="\n"
        )
    (folder / "index.md").write_text(INDEX, encoding="utf-8")


def program(name: str, *arguments: str) -> None:
    """Run a program of the project.

    Raises: UserError with its own words if it fails.
    """
    command = [sys.executable, name, *arguments]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, encoding="utf-8")
    if run.returncode:
        raise UserError(f"{name} {' '.join(arguments[:2])} failed: {run.stderr.strip()}")
