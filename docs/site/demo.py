"""The live pages of the site: a GPT, a translation and a training in the browser, each in one file.

The GPT is in English: the run that `python train.py plays` leaves in a folder of runs; without it, that of `python
train.py`, which has Goethe's language; without both, one is trained for half a minute, on the text of the course. With
both runs, each has its page. The translator is trained here, on words of 1 to 16 letters, and no page is written unless
it reverses new words of every length right.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from seq2seq.toys import LETTERS
from tinygrad_lite.errors import UserError
from tinygrad_lite.random import keyed_rng

ROOT = Path(__file__).resolve().parents[2]
# The runs that the page of a GPT may show, the best first, each with the text that is shown.
GPTS = {"plays": "ROMEO: O, she doth teach the torches to", "goethe": "Es irrt der Mensch, so lang er strebt. Und der"}
TRAINED = "The derivative of a product"
GPT = ["--n_layer", "3", "--max_iters", "350", "--eval_interval", "350", "--eval_iters", "20"]
REVERSE = ["reverse", "--max_iters", "4000", "--eval_interval", "2000", "--held_out", "100"]
LENGTHS = range(1, 17)  # letters of a word
WORD = "transformer"
BEAM = ["--beam", "3"]
FOOTER = '<footer class="note">\n'
LINKS = """<p>Part of the documentation: <a href="../index.html">its first page</a>,
<a href="index.html">all live pages</a>, <a href="../docs/extra/pictures.html">what they show</a>{repository}.</p>
"""
INDEX = """# Live pages

- [Inside a GPT](gpt.html): type a text, and see what the model predicts, where it looks, and who wanted a token.
  `python sample.py --explain page.html` writes the same page for your model.{goethe}
- [A GPT that learns](learn.html): it begins with random weights and learns a poem on this page within a minute; change
  its rate, its size or its text, or break it. `python -m extra.studies.learn` writes the page.
- [A translation](translation.html): a small encoder-decoder reverses any word of up to 16 letters that you type, and
  shows where it looks.
"""
GOETHE = " [The same in German](goethe.html), by a model that has read Goethe."


def write(folder: Path, runs: Path, build: Path, repository: str = "") -> None:
    """Write the pages, and one that lists them; what is missing in `runs` is trained in `build`.

    Args:
        repository: its address, to which the pages link; empty if it is unknown.
    Raises: UserError if the translator is wrong about a word.
    """
    folder.mkdir()
    shown = {runs / name: text for name, text in GPTS.items() if (runs / name / "best.safetensors").exists()}
    if not shown:
        texts = sorted(map(str, (ROOT / "docs" / "course").glob("*/README.md")))
        shown = {build / "goethe": TRAINED}
        program("train.py", *GPT, "--text", *texts, "--out_dir", str(build / "goethe"), "--overwrite", "true")
    for name, (run, text) in zip(("gpt.html", "goethe.html"), shown.items(), strict=False):
        program("sample.py", str(run), "--start", text, "--explain", str(folder / name))
    translator = build / "words"
    learn_words(translator, build / "words.tsv")
    program("sample.py", str(translator), "--start", WORD, *BEAM, "--explain", str(folder / "translation.html"))
    program("-m", "extra.studies.learn", str(folder / "learn.html"))
    source = f', <a href="{repository}">the repository</a>' if repository else ""
    for page in folder.glob("*.html"):
        linked = page.read_text(encoding="utf-8").replace(FOOTER, FOOTER + LINKS.format(repository=source))
        page.write_text(linked, encoding="utf-8", newline="\n")
    (folder / "index.md").write_text(INDEX.format(goethe=GOETHE if len(shown) > 1 else ""), encoding="utf-8")


def words(count: int, task: str) -> dict[str, str]:
    """Different words of 1 to 16 letters, each with its letters reversed; some repeat a few letters often."""
    found = {}
    for i in range(count):
        rng = keyed_rng(0, task, i)
        some = rng.choice(list(LETTERS), rng.integers(2, len(LETTERS) + 1), replace=False)
        word = "".join(rng.choice(some, LENGTHS[i % len(LENGTHS)]))
        found[word] = word[::-1]
    return found


def learn_words(out: Path, file: Path) -> None:
    """Train the translator on the words of a file, which is written here, and try it on letters and unseen words.

    Raises: UserError if it is wrong about one.
    """
    pairs = words(12_000, "words") | {letter: letter for letter in LETTERS}
    file.write_text("".join(f"{word}\t{answer}\n" for word, answer in pairs.items()), encoding="utf-8")
    program("train.py", *REVERSE, "--pairs", str(file), "--out_dir", str(out), "--overwrite", "true")
    asked = [WORD, *LETTERS, *(word for word in words(1000, "new words") if word not in pairs)]
    new = file.with_name("new-words.txt")
    new.write_text("\n".join(asked) + "\n", encoding="utf-8")
    said = program("sample.py", str(out), "--start", f"FILE:{new}", *BEAM).splitlines()
    wrong = [f"{answer!r} of {word!r}" for word, answer in zip(asked, said, strict=True) if answer != word[::-1]]
    if wrong:
        count = f"{len(wrong)} of {len(asked)} words"
        raise UserError(f"translation.html would show a model that is wrong about {count}: it makes {wrong[0]}")


def program(name: str, *arguments: str) -> str:
    """What a program of the project prints.

    Raises: UserError with its own words if it fails.
    """
    command = [sys.executable, name, *arguments]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, encoding="utf-8")
    if run.returncode:
        raise UserError(f"{name} {' '.join(arguments[:2])} failed: {run.stderr.strip()}")
    return run.stdout
