"""The notebooks of the course and the check of the site's links. Zensical is not needed: .ci/run builds the site."""

import ast
import contextlib
import io
import itertools
import json
import re
import sys
import zipfile
from pathlib import Path

import pytest

from docs.site import build
from extra.explorer import learning
from tests.test_imports import FOLDERS
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


@pytest.mark.parametrize("page", build.chapters(), ids=lambda page: page.parent.name)
def test_a_notebook_imports_what_is_installed_or_stands_beside_it(page):
    known = {*FOLDERS, "numpy", *sys.stdlib_module_names}
    known |= {file.stem for file in page.parent.glob("*.py")}
    for cell in build.notebook(page)["cells"]:
        for node in ast.walk(ast.parse("".join(cell["source"]) if cell["cell_type"] == "code" else "")):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            assert {name.partition(".")[0] for name in names} <= known
            assert not isinstance(node, ast.Name) or node.id not in ("import_module", "__import__")


def test_a_notebook_is_valid_and_always_the_same(notebook):
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(set(ids)) == len(ids)
    for cell in notebook["cells"]:
        code = {"execution_count", "outputs"} if cell["cell_type"] == "code" else set()
        assert cell.keys() == {"cell_type", "id", "metadata", "source"} | code
        assert not re.search(r"^>>> ", "".join(cell["source"]), re.MULTILINE)
    assert build.notebook(CHAPTER) == notebook


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

## Next

```python
>>> 3
3
```
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
    assert page.endswith("    - an item\n\nAfter.\n\n## Next\n\n```pycon\n>>> 3\n3\n```\n")
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


def test_outputs_are_values_prints_or_errors():
    def shown(session: str) -> dict:
        return build.outputs(build.doctest.DocTestParser().get_examples(session)[0])[0]

    assert shown(">>> 1 + 1\n2\n")["data"] == {"text/plain": ["2"]}
    assert shown(">>> print(1, 2)\n1 2\n")["text"] == ["1 2"]
    assert shown(">>> for i in range(2):\n...     print(i)\n0\n1\n")["text"] == ["0\n", "1"]
    error = shown(">>> 1 / 0\nTraceback (most recent call last):\n    ...\nZeroDivisionError: division by zero\n")
    assert (error["ename"], error["evalue"]) == ("ZeroDivisionError", "division by zero")


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


@pytest.mark.parametrize("page", sorted((build.ROOT / "docs").rglob("*.md")), ids=lambda page: str(page.name))
def test_what_the_site_shows_in_another_way_than_github_does_not_occur(page):
    """GitHub nests a list that is indented by less than four spaces; on the site its items would be items of the outer
    list. And two quotations with only a blank line between them would be one there.
    """
    text = page.read_text(encoding="utf-8")
    prose = "".join(build.BLOCK.split(text)[::2])
    assert re.findall(r"^(?: {1,3}| {5,7})(?:[-*+]|\d+\.) .*", prose, re.MULTILINE) == []
    assert re.findall(r"^>.*\n\n+>.*", text, re.MULTILINE) == []


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


def test_a_section_begins_with_each_definition_and_each_comment():
    text = '"""File."""\n\nimport a\n\n# --- part ---\n\n\n# Above.\n@b\ndef f():\n'
    text += '    """Says `x`.\n\n        y < 1\n    Done.\n    """\n    # Here.\n    return 1  # beside\n\n\n'
    text += "class C:\n    def g(self):\n        return 2\n"
    found = [(part.line, part.heading, part.note, part.code) for part in annotate.sections(text)]
    assert found[:3] == [(1, "", "File.", ""), (2, "", "", "import a"), (5, "part", "", "")]
    assert found[3] == (8, "", "Above.\n\nSays `x`.\n\n    y < 1\nDone.", "@b\ndef f():")
    assert found[4:6] == [(16, "", "Here.", "    return 1  # beside"), (20, "", "", "class C:")]
    assert found[6:] == [(21, "", "", "    def g(self):\n        return 2")]
    shown = '<p>Above.</p><p>Says <code>x</code>.</p><div class="shown">y &lt; 1</div><p>Done.</p>'
    assert annotate.prose(found[3][2]) == shown
    note = (
        "Args:\n    x: one\n    and `two`\n    y, *z: three\nRaises: OptionError if it is not,\n    or two.\nReturns: y"
    )
    shown = "<dl><dt><code>x</code></dt><dd>one and <code>two</code></dd><dt><code>y, *z</code></dt><dd>three</dd></dl>"
    shown = f"<p>Args:</p>{shown}<p>Raises: OptionError if it is not, or two. Returns: y</p>"
    assert annotate.prose(note) == shown


def test_names_in_annotated_code_lead_to_their_definitions():
    pytest.importorskip("pygments")
    found, code = {}, {}
    for file in annotate.reading_path():
        for section in annotate.sections(file.read_text("utf-8")):
            code[file, section.line] = section.code
    for file in annotate.reading_path():
        for address, line, name in re.findall(r'<a href="([^"#]*)#L(\d+)"><span[^>]*>(\w+)<', annotate.page(file)):
            target = (file.parent / address.removesuffix(".html")).resolve() if address else file
            source = annotate.imports(file).get(name, ("", name))[1]
            assert re.search(rf"^ *(def |class |){source or name}\b", code[target, int(line)], re.MULTILINE), (
                file,
                name,
            )
            found[file.name, name] = target.name
    assert len(found) > 500
    assert found["attention.py", "softmax_composed"] == "softmax.py"
    assert found["model.py", "cross_entropy"] == "cross_entropy.py"  # F.cross_entropy, which F imports
    assert ("model.py", "replace") not in found  # of a module that is none of ours


REFUSED = {"": r'pip install -e "\.\[docs\]"', "nosuch": "nosuch: the only argument", ". -h": "-h: the only argument"}


@pytest.mark.parametrize(("argv", "sentence"), REFUSED.items())
def test_what_the_site_cannot_be_built_with_is_said(argv, sentence, monkeypatch):
    monkeypatch.setattr(build.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=sentence):
        build.main(argv.split())
    monkeypatch.setenv("REPOSITORY", "x.org")
    with pytest.raises(UserError, match=r"REPOSITORY=x\.org: the address|" + sentence):
        build.main(argv.split())


@pytest.fixture
def ran(monkeypatch):
    """What the build of the live pages runs; the translator answers right, unless the first item says otherwise."""
    ran = [None]

    def program(*arguments):
        ran.append(arguments)
        if arguments[-1].endswith(".html"):
            Path(arguments[-1]).write_text(learning.page(), encoding="utf-8")
        asked = arguments[3].removeprefix("FILE:") if arguments[0] == "sample.py" else ""
        return ran[0] or "\n".join(line[::-1] for line in Path(asked).read_text().split()) if "new" in asked else ""

    monkeypatch.setattr(build.demo, "program", program)
    return ran


RUNS = {"": ("build/goethe",), "goethe": ("goethe",), "plays": ("plays",), "goethe plays": ("plays", "goethe")}


@pytest.mark.parametrize(("runs", "shown"), RUNS.items())
def test_the_live_pages_show_the_runs_of_a_folder_and_what_is_missing_is_trained(tmp_path, ran, runs, shown):
    for name in ("build", *runs.split()):
        (tmp_path / name).mkdir()
        (tmp_path / name / "best.safetensors").touch()
    build.demo.write(tmp_path / "demo", tmp_path, tmp_path / "build", "https://x.org/y")
    done = [arguments for arguments in ran[1:] if arguments[0] == "sample.py" and "--explain" in arguments]
    assert [arguments[1] for arguments in done] == [str(tmp_path / name) for name in (*shown, "build/words")]
    assert sum(arguments[0] == "train.py" for arguments in ran[1:]) == 1 + (not runs)
    index = (tmp_path / "demo" / "index.md").read_text(encoding="utf-8")
    assert {*re.findall(r"\]\((.*?)\)", index)} == {path.name for path in (tmp_path / "demo").glob("*.html")}
    page = (tmp_path / "demo" / "learn.html").read_text(encoding="utf-8")
    links = ["../index.html", "index.html", "../docs/extra/pictures.html", "https://x.org/y"]
    assert re.findall('<a href="([^#].*?)"', page) == links
    assert "<code>python -m extra.studies.learn</code>" in page


def test_no_translation_is_shown_by_a_model_that_is_wrong_about_a_word(tmp_path, ran):
    build.demo.learn_words(tmp_path / "words", tmp_path / "words.tsv")
    learned = dict(line.split("\t") for line in (tmp_path / "words.tsv").read_text().splitlines())
    asked = (tmp_path / "new-words.txt").read_text().split()
    assert {len(word) for word in learned} == {len(word) for word in asked} == {*range(1, 17)}
    assert all(answer == word[::-1] for word, answer in learned.items())
    assert all(len(word) == 1 for word in {*asked} & {*learned})
    assert len(asked) > 700
    ran[0] = "\n".join(["remrofsnart", *(word[::-1] for word in asked[1:-1]), "x"])
    with pytest.raises(UserError, match=rf"wrong about 1 of {len(asked)} words: it makes 'x' of '{asked[-1]}'"):
        build.demo.learn_words(tmp_path / "words", tmp_path / "words.tsv")


def test_the_first_page_leads_everywhere():
    pytest.importorskip("pygments")
    page = build.home.page(build.chapters(), "https://x.org/y")
    links = set(re.findall(r'(?:href|src)="([^"#]*)', page))
    assert {"https://x.org/y", "docs/map.html", "overview.html", "nano.py.html"} < links
    assert {f"demo/{name}.html" for name in ("gpt", "learn", "translation")} < links
    assert page.count("<iframe ") == page.count('loading="lazy"') == 3
    assert len(re.findall('<li><a href="docs/course/.*?/index.html">', page)) == len(build.chapters()) == 24
    assert "# Python 3.11 or newer\ngit clone https://x.org/y " in page
    head = build.home.with_head("<head><title>Home</title></head>", "https://x.org/")
    assert f"<title>{build.home.TITLE}</title>" in head
    assert '<meta property="og:image" content="https://x.org/assets/preview.png">' in head
    data = build.home.PREVIEW.read_bytes()  # PNG: width and height at byte 16
    assert [*build.home.SIZE.values()] == [int.from_bytes(data[i : i + 4]) for i in (16, 20)]


@pytest.mark.parametrize("name", build.FRAMES)
def test_a_chapter_has_its_live_piece_below_the_line_that_names_it(name):
    chapter = build.ROOT / "docs" / "course" / name / "README.md"
    text = chapter.read_text(encoding="utf-8")
    lines = build.framed(text, chapter).split("\n")
    [place] = [i for i, line in enumerate(lines) if line.startswith("<iframe ")]
    assert lines[place - 2].startswith("Live")
    assert lines[: place - 1] + lines[place + 1 :] == text.split("\n")
    part = re.search("only=([a-z]+)", lines[place])[1]
    scripts = "".join(path.read_text(encoding="utf-8") for path in learning.FOLDER.glob("*.js"))
    assert re.search(rf'id: "{part}"|^  {part}: ', scripts, re.MULTILINE)
