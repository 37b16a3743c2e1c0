"""Source files as pages of the site: docstrings and comments, each above the code that it explains.

The list under "The reading path" in docs/map.md names the files, in order. `sections` divides a file; its words and its
code stay together because every function, class and comment begins a section.
"""

from __future__ import annotations

import ast
import functools
import html
import io
import re
import textwrap
import tokenize
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RULE = re.compile(r"-{3,}")  # the lines around the name of a part: --- a tensor -----


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

    The indented lines below "Raises: what and" continue its sentence; those below "Args:" are a list.
    """
    note = re.sub(r"^\w+: .+(\n +.+)+", lambda found: " ".join(found[0].split()), note, flags=re.MULTILINE)
    parts = []
    for paragraph in filter(None, re.split(r"\n\s*\n", note)):
        is_session = paragraph.startswith(">>>")  # whose output is not indented
        for is_indented, run in groupby(paragraph.splitlines(), lambda line: line.startswith(" ")):
            if is_indented or is_session:
                shown = html.escape(textwrap.dedent("\n".join(run)))
                parts.append(f'<div class="shown">{shown}</div>')
            else:
                said = re.sub("`([^`]+)`", r"<code>\1</code>", html.escape(" ".join(run)))
                parts.append(f"<p>{said}</p>")
    return "".join(parts)


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
        code = highlight(section.code, lexer, formatter).rstrip("\n")
        rows.append(f'<div class="note" id="L{section.line}">{prose(section.note)}</div>')
        rows.append(f'<div class="highlight code">{code}</div>' if code else "<div></div>")
    name = file.relative_to(ROOT).as_posix()
    front = f"---\ntitle: {name}\nsearch:\n  exclude: true\nhide:\n  - toc\n---\n\n# `{name}`\n\n"
    return front + "\n".join([*rows, "</div>"]).replace("\n\n", "\n&#10;") + "\n"
