"""Source files as pages of the site: docstrings and comments, each above the code that it explains.

The list under "The reading path" in docs/map.md names the files, in order. `sections` divides a file; its words and its
code stay together because every function, class and comment begins a section. Names in the code lead to the sections
that define them, in this file or another of the path.
"""

from __future__ import annotations

import ast
import functools
import html
import io
import os
import re
import textwrap
import tokenize
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RULE = re.compile(r"-{3,}")  # the lines around the name of a part: --- a tensor -----
ARGUMENT = re.compile(r"^(\*{0,2}\w+(?:, \*{0,2}\w+)*): ", re.MULTILINE)  # with which what is said about it begins
DOT = '<span class="o">.</span>'
# A name in highlighted code, with an attribute if it has one; not an attribute itself, nor what is assigned.
NAME = re.compile(
    rf'(?<!{re.escape(DOT)})(<span class="(?:n|ne|bp)">(\w+)</span>)(?! ?<span class="o">=</span>)'
    rf'(?:{re.escape(DOT)}(<span class="n">(\w+)</span>))?'
)


@dataclass
class Section:
    """A piece of a file: what is said about it, its code, and the line in which it begins."""

    line: int
    note: str
    code: str
    heading: str = ""


@functools.cache
def reading_path() -> list[Path]:
    """The files of the reading path, in order."""
    page = ROOT / "docs" / "map.md"
    part = page.read_text(encoding="utf-8").partition("## The reading path\n")[2].partition("\n## ")[0]
    return [(page.parent / link).resolve() for link in re.findall(r"\]\(([^)#]+\.py)\)", part)]


def sections(text: str) -> list[Section]:
    """A Python file in pieces, the first of which is the file's own docstring. No line is lost or occurs twice."""
    lines = text.splitlines()
    tree = ast.parse(text)
    comments = {}  # line -> the text of a comment on a line of its own
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and token.line.strip() == token.string:
            comments[token.start[0]] = token.string.removeprefix("#").strip()
    starts = {line for line in comments if line - 1 not in comments} | {1}
    notes, said = {}, set(comments)  # the line of a definition -> its docstring; the lines that are no code
    classes = [part for part in ast.walk(tree) if isinstance(part, ast.Module | ast.ClassDef)]
    members = [part for holder in classes for part in holder.body if hasattr(part, "decorator_list")]
    inner = [part for part in ast.walk(tree) if isinstance(part, ast.FunctionDef) and ast.get_docstring(part)]
    for definition in dict.fromkeys([tree, *members, *inner]):
        start = min((part.lineno for part in getattr(definition, "decorator_list", [])), default=0)
        start = start or getattr(definition, "lineno", 1)
        if docstring := ast.get_docstring(definition):
            notes[start] = docstring
            quoted = definition.body[0]
            said |= set(range(quoted.lineno, quoted.end_lineno + 1))
            if definition is tree:
                starts.add(quoted.end_lineno + 1)
        while start - 1 in comments:  # a comment above a definition is about it
            start -= 1
        starts.add(start)
    found = []
    ends = sorted(starts)[1:] + [len(lines) + 1]
    for start, end in zip(sorted(starts), ends, strict=True):
        spoken = [comments[line] for line in range(start, end) if line in comments]
        heading = next((RULE.sub("", line).strip() for line in spoken if RULE.match(line)), "")
        paragraphs = ["\n".join(line for line in spoken if not RULE.match(line))]
        paragraphs += [notes[line] for line in range(start, end) if line in notes]
        code = [lines[line - 1] for line in range(start, end) if line not in said]
        while code and not code[0].strip():
            code.pop(0)
        section = Section(start, "\n\n".join(filter(None, paragraphs)), "\n".join(code).rstrip(), heading)
        if section.note or section.code or section.heading:
            found.append(section)
    return found


def prose(note: str) -> str:
    """A docstring as HTML: paragraphs, in which `names` are code, and indented or typed lines are kept as they are.

    The indented lines below "Raises: what and" continue its sentence; those below "Args:" are a list of names.
    """
    note = re.sub(r"^\w+: .+(\n +.+)+", lambda found: " ".join(found[0].split()), note, flags=re.MULTILINE)
    parts = []
    for paragraph in filter(None, re.split(r"\n\s*\n", note)):
        is_session = paragraph.startswith(">>>")  # whose output is not indented
        before = ""
        for is_indented, run in groupby(paragraph.splitlines(), lambda line: line.startswith(" ")):
            if is_indented or is_session:
                shown = textwrap.dedent("\n".join(run))
                if before in ("Args:", "Attributes:") and ARGUMENT.match(shown):
                    parts.append(arguments(shown))
                else:
                    parts.append(f'<div class="shown">{html.escape(shown)}</div>')
            else:
                before = " ".join(run)
                parts.append(f"<p>{marked(before)}</p>")
    return "".join(parts)


def marked(text: str) -> str:
    """A sentence as HTML, in which `names` are code."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", html.escape(text))


def arguments(text: str) -> str:
    """Lines such as "x: what it is", which may continue in further lines, as a list."""
    _, *parts = ARGUMENT.split(text)
    pairs = zip(parts[::2], parts[1::2], strict=True)
    items = (f"<dt><code>{names}</code></dt><dd>{marked(' '.join(said.split()))}</dd>" for names, said in pairs)
    return f"<dl>{''.join(items)}</dl>"


# --- names that lead to their definitions -------------------------------------------------------------------------


@functools.cache
def definitions(file: Path) -> dict[str, int]:
    """The names that a file defines at its top, and methods by the name after self.; each with its section's line."""
    text = file.read_text(encoding="utf-8")
    starts = [section.line for section in sections(text)]
    found: dict[str, list[int]] = {}
    for part in ast.parse(text).body:
        inner = part.body if isinstance(part, ast.ClassDef) else []
        names = {f"self.{one.name}": one.lineno for one in inner if isinstance(one, ast.FunctionDef)}
        if isinstance(part, ast.FunctionDef | ast.ClassDef):
            names[part.name] = part.lineno
        elif isinstance(part, ast.Assign):
            names = {target.id: part.lineno for target in part.targets if isinstance(target, ast.Name)}
        for name, line in names.items():
            found.setdefault(name, []).append(max(start for start in starts if start <= line))
    return {name: lines[0] for name, lines in found.items() if len(lines) == 1}  # of two, none is meant


Place = tuple[Path, int]  # a file of the reading path, and the line in which a section begins


def module_file(module: str) -> Path | None:
    """The file of a module of this project."""
    path = ROOT.joinpath(*module.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


@functools.cache
def imports(file: Path) -> dict[str, tuple[str, str]]:
    """The names that a file imports, each with its module and its name there; for a module, this is empty."""
    found = {}
    for part in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        for alias in part.names if isinstance(part, ast.Import | ast.ImportFrom) else ():
            module = f"{part.module}.{alias.name}" if isinstance(part, ast.ImportFrom) else alias.name
            is_module = isinstance(part, ast.Import) or module_file(module)
            found[alias.asname or alias.name] = (module, "") if is_module else (part.module, alias.name)
    return found


def defined_in(module: str, name: str) -> Place | None:
    """Where the reading path defines a name of a module, which may have imported it."""
    file = module_file(module)
    if file in reading_path() and name in definitions(file):
        return file, definitions(file)[name]
    source = imports(file).get(name) if file else None
    return defined_in(*source) if source and source[1] else None


def place_of(file: Path, name: str, attribute: str = "") -> Place | None:
    """Where a name in a file, or an attribute of it, is defined; None if the reading path does not have it."""
    own = f"{name}.{attribute}" if attribute else name
    if own in definitions(file):
        return file, definitions(file)[own]
    module, source = imports(file).get(name, ("", ""))
    if attribute:
        return defined_in(module, attribute) if module and not source else None
    return defined_in(module, source) if source else None


@functools.cache
def local_names(file: Path) -> set[str]:
    """Names of arguments and variables, which may hide what a file defines or imports."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    functions = [part for part in ast.walk(tree) if isinstance(part, ast.FunctionDef | ast.Lambda)]
    parts = [part for function in functions for part in ast.walk(function)]
    stored = {part.id for part in parts if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
    return stored | {part.arg for part in parts if isinstance(part, ast.arg)} - {"self"}


def linked(code: str, file: Path) -> str:
    """Highlighted code in which names lead to their definitions."""

    def link(shown: str, place: Place | None) -> str:
        if not place:
            return shown
        target, line = place
        address = "" if target == file else f"{os.path.relpath(target, file.parent)}.html".replace(os.sep, "/")
        return f'<a href="{address}#L{line}">{shown}</a>'

    def change(found: re.Match) -> str:
        first, name, rest, attribute = found.groups()
        if name in local_names(file):
            return found[0]
        if attribute and (place := place_of(file, name, attribute)):
            return first + DOT + link(rest, place)
        return link(first, place_of(file, name)) + (DOT + rest if attribute else "")

    return NAME.sub(change, code)


def page(file: Path) -> str:
    """The page of a source file. The search leaves it out, as it does all sources."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    lexer, formatter = PythonLexer(stripnl=False), HtmlFormatter(nowrap=True)
    first, *others = sections(file.read_text(encoding="utf-8"))
    rows = [f'<div class="about">{prose(first.note)}</div>', '<div class="annotated">']
    if first.code:  # a file that begins with a definition
        others.insert(0, Section(first.line, "", first.code))
    for section in others:
        if section.heading:
            rows.append(f"<h2>{html.escape(section.heading[0].upper() + section.heading[1:])}</h2>")
        code = linked(highlight(section.code, lexer, formatter).rstrip("\n"), file)
        rows.append(f'<div class="note" id="L{section.line}">{prose(section.note)}</div>')
        rows.append(f'<div class="highlight code">{code}</div>' if code else "<div></div>")
    name = file.relative_to(ROOT).as_posix()
    front = f"---\ntitle: {name}\nsearch:\n  exclude: true\nhide:\n  - toc\n---\n\n# `{name}`\n\n"
    return front + "\n".join([*rows, "</div>"]).replace("\n\n", "\n&#10;") + "\n"
