"""The notebooks of the course and the check of the site's links. Zensical is not needed: .ci/run builds the site."""

import ast
import contextlib
import io
import itertools
import json
import re
import zipfile
from pathlib import Path

import pytest

from docs.site import build
from tests.test_rings import code_lines
from tinygrad_lite.errors import UserError

annotate = build.annotate
CHAPTER = build.ROOT / "docs" / "course" / "01-derivatives" / "README.md"


@pytest.fixture
def notebook():
    """The notebook of the first chapter, as a file has it."""
    return json.loads(json.dumps(build.notebook(CHAPTER)))


def code_cells(notebook: dict) -> list[tuple[str, str]]:
    """The source of every code cell, and the text shown below it."""
    cells = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            texts = [output.get("text") or output["data"]["text/plain"] for output in cell["outputs"]]
            cells.append(("".join(cell["source"]), "".join(itertools.chain(*texts))))
    return cells


def run(source: str, names: dict) -> str:
    """Run a cell as Jupyter does, and return what is shown below it."""
    body = ast.parse(source).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(ast.Module(body, []), "cell", "exec"), names)
        value = eval(compile(ast.Expression(last.value), "cell", "eval"), names) if last else None
    return printed.getvalue() + ("" if value is None else repr(value))


def test_the_cells_of_a_notebook_run_in_order_and_show_what_the_page_shows(notebook, monkeypatch):
    monkeypatch.syspath_prepend(CHAPTER.parent)
    names, cells = {"__name__": "__main__"}, code_cells(notebook)
    assert [run(source, names) for source, _ in cells] == [shown for _, shown in cells]
    session = "".join(re.findall(r"^```python\n(>>>.*?)^```", CHAPTER.read_text(encoding="utf-8"), re.M | re.DOTALL))
    typed = [line for source, _ in cells for line in source.splitlines()]
    assert typed == re.findall(r"^(?:>>>|\.\.\.) (.*)$", session, re.M)
    shown = [line for _, text in cells for line in text.splitlines()]
    assert shown == re.findall(r"^(?!>>>|\.\.\.).+$", session, re.M)


PAGE = """# Title

**Predict.** What?

    y = 1

<details><summary>Answer</summary>

Told.

```python
>>> 1 + 1
2
```

Because of this:

- an item

</details>

After.
"""


@pytest.mark.parametrize("page", build.chapters(), ids=lambda page: page.parent.name)
def test_every_prediction_of_the_course_is_followed_by_an_answer_that_is_folded_away(page):
    text = page.read_text(encoding="utf-8")
    assert re.findall(r"^</?details.*", text, re.M) == [build.ANSWER, build.END] * text.count("**Predict.**")
    for line in (build.ANSWER, build.END):  # without the blank lines, GitHub shows Markdown as it is written
        assert f"{text}\n".count(f"\n\n{line}\n\n") == text.count(line)
    blocks = list(build.blocks(text))
    for i, (block, _) in enumerate(blocks):
        if block.startswith("**Predict.**"):
            assert any(is_answer for _, is_answer in blocks[i + 1 : i + 3]), block


def test_answers_are_folded_away_in_pages_and_notebooks(notebook):
    page = build.folded(PAGE)
    assert page.count('??? answer "Answer"\n\n    Told.\n\n    ```pycon\n    >>> 1 + 1\n    2\n    ```\n') == 1
    assert page.endswith("    - an item\n\nAfter.\n")
    assert "details" not in page
    hidden = [cell for cell in notebook["cells"] if cell["metadata"].get("jupyter") == {"outputs_hidden": True}]
    assert "(1 / x).backward()\n" in hidden[1]["source"]
    texts = ["".join(cell["source"]) for cell in notebook["cells"]]
    assert sum("<details><summary>Answer</summary>\n\nThat is why" in text for text in texts) == 1


def test_formulas_are_mathml():
    pytest.importorskip("latex2mathml")
    pages = {path: build.folded(path.read_text(encoding="utf-8")) for path in (build.ROOT / "docs").rglob("*.md")}
    assert not [path for path, text in pages.items() if "```math" in text]
    formulas = [line for text in pages.values() for line in text.splitlines() if 'class="formula"' in line]
    assert len(formulas) > 15
    for formula in formulas:  # what latex2mathml does not know remains as it was
        assert not re.search(r"\\|<m[ion]>&<", formula), formula


def test_links_of_a_page_lead_to_pages_of_the_site():
    text = "[a](../engine.md#b) `[c](d)` [e](../../train.py) ![p](../gpt.svg) ![q](../page.png)\n"
    text += "```sh\n[f](../../train.py)\n```\n[g](https://h)\n"
    changed, targets = build.relinked(text, build.ROOT / "docs" / "course" / "README.md", build.html)
    assert changed == text.replace("engine.md", "engine.html").replace("[e](../../train.py", "[e](../../train.py.html")
    assert [path.name for path in targets] == ["engine.md", "train.py", "gpt.svg", "page.png"]


@pytest.mark.parametrize("page", build.chapters(), ids=lambda page: page.parent.name)
def test_every_target_of_a_notebook_is_a_picture_beside_it_or_a_page_of_the_site(page, tmp_path):
    name = build.write_notebook(page, tmp_path)
    with zipfile.ZipFile(tmp_path / name) as archive:
        inside = {Path(file).name for file in archive.namelist()}
    assert inside == {file.name for file in tmp_path.iterdir()} - {name} >= {f"{page.parent.name}.ipynb"}
    made = build.notebook(page)
    _, linked = build.relinked(page.read_text(encoding="utf-8"), page)
    finished = {build.ROOT / build.html(build.place(file)) for file in linked}
    for target in build.targets(made):
        is_picture = target.endswith((".svg", ".png"))
        assert (page.parent / target).resolve() in finished, target
        assert not is_picture or target in inside, target
    shown = re.findall(r"!\[.*?\]\((.*?)\)", json.dumps(made))
    assert [path for path in shown if not (page.parent / path).is_file()] == []


def test_dead_links_and_other_hosts_are_found(tmp_path):
    (tmp_path / "a.html").write_text(
        '<h1 id="top">A</h1><a href="#top">1</a><a href="b.html#b">2</a><a href="https://x.org">3</a>'
        '<a href="b.html#c">4</a><a href="c.html">5</a><script src="https://x.org/y.js"></script>'
    )
    (tmp_path / "b.html").write_text('<h1 id="b">B</h1>')
    cell = {"cell_type": "markdown", "source": ["[b](b.html#b) ![c](c.svg)\n", "[d](https://x.org) [e](#e)"]}
    (tmp_path / "d.ipynb").write_text(json.dumps({"cells": [cell]}))
    assert list(build.dead_links(tmp_path)) == [
        "d.ipynb: there is no file c.svg",
        "a.html: there is no heading b.html#c",
        "a.html: there is no file c.html",
        "a.html: <script> asks another host for https://x.org/y.js",
    ]


def test_navigation_names_pages_that_exist():
    def files(part: dict | list | str) -> list[str]:
        if isinstance(part, str):
            return [part]
        return [file for each in (part.values() if isinstance(part, dict) else part) for file in files(each)]

    named = files(build.navigation())
    made = {"demo/index.md", "index.md", "overview.md"}
    assert all((build.ROOT / name.replace(".py.md", ".py")).is_file() for name in named if name not in made)
    assert {path.relative_to(build.ROOT).as_posix() for path in (build.ROOT / "docs").rglob("*.md")} <= set(named)


@pytest.mark.parametrize("file", annotate.reading_path(), ids=lambda file: file.name)
def test_an_annotated_source_has_every_line_of_its_file_once(file):
    text = file.read_text(encoding="utf-8")
    sections = annotate.sections(text)
    code = "\n".join(section.code for section in sections)
    assert len(list(filter(str.strip, code.splitlines()))) == code_lines(text)
    kept = set(map(str.strip, code.splitlines()))
    said = " ".join(f"{section.heading} {section.note}" for section in sections)
    said = set(re.findall(r"\S+", said))
    for line in filter(None, map(str.strip, text.splitlines())):
        words = set(re.findall(r"\S+", re.sub(r'^[rf]?"""|"""$|^#|-{3,}', "", line)))
        assert line in kept or words <= said, line
    assert [section.line for section in sections] == sorted({section.line for section in sections})


def test_names_in_annotated_code_lead_to_their_definitions():
    pytest.importorskip("pygments")
    found, code = {}, {}
    for file in annotate.reading_path():
        for section in annotate.sections(file.read_text("utf-8")):
            code[file, section.line] = section.code
    for file in annotate.reading_path():
        imported = annotate.imports(file)
        for address, line, name in re.findall(r'<a href="([^"#]*)#L(\d+)"><span[^>]*>(\w+)<', annotate.page(file)):
            target = (file.parent / address.removesuffix(".html")).resolve() if address else file
            defined = imported.get(name, ("", ""))[1] or name
            pattern = rf"^ *(def |class |){defined}\b"
            assert re.search(pattern, code[target, int(line)], re.MULTILINE), (file, name)
            found[file.name, name] = target.name
    assert len(found) > 500
    assert found["attention.py", "softmax_composed"] == "softmax.py"
    assert found["model.py", "cross_entropy"] == "cross_entropy.py"  # F.cross_entropy, which F imports
    assert ("model.py", "replace") not in found  # of a module that is none of ours


def test_no_translation_is_shown_by_a_model_that_is_wrong_about_a_word(tmp_path, monkeypatch):
    asked = []

    def program(name, *arguments):
        if name == "sample.py":
            asked.extend((tmp_path / "new-words.txt").read_text().split())
        return "\n".join([*(word[::-1] for word in asked[:-1]), "x"])

    monkeypatch.setattr(build.demo, "program", program)
    with pytest.raises(UserError, match=r"wrong about 1 of \d+ words: it makes 'x' of"):
        build.demo.learn_words(tmp_path / "words", tmp_path / "words.tsv")
    learned = dict(line.split("\t") for line in (tmp_path / "words.tsv").read_text().splitlines())
    assert {len(word) for word in learned} == {len(word) for word in asked} == {*range(1, 17)}
    assert all(answer == word[::-1] for word, answer in learned.items())
    assert all(len(word) == 1 for word in {*asked} & {*learned})
