"""One HTML file from its parts: a page that works offline, and that no text in it can break out of.

    html = assemble(title, intro, panels, data={"prompt": "</script>"}, blobs={"weights-0": b"..."}, scripts=["talk"])

`page.html` is its frame, `section.html` that of a panel, and `panels.toml` has the panels' texts. The file contains
everything: styles, scripts, data as JSON, and binary data in base64. Three rules keep it closed:

1. A Content-Security-Policy forbids every connection and every script or style whose SHA-256 is not named in it. So
   even if a text did become a script, no browser would run it.
2. Data are JSON in ASCII, in which <, > and & are escaped too: nothing in them can end their element, and no
   right-to-left mark changes how the source is read.
3. The page's scripts only ever set text, never HTML (`widgets.js`).

What is shown first comes first in the file; data and scripts follow, so that a browser can paint before it reads them.

Reference: W3C, Content Security Policy Level 3, sections 2.3 and 6.7 (https://www.w3.org/TR/CSP3/).
"""

import base64
import hashlib
import html
import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from extra.inside import NOT_FINITE
from tinygrad_lite.errors import CheckpointError
from training.family import Trained

FOLDER = Path(__file__).parent
SHARED = ("data", "widgets", "formula", "maps")  # scripts of all pages
ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&"}


Panel = Mapping[str, Any]  # the texts of one part of a page, as in panels.toml


def panels_of(page: str, variant: str = "") -> dict[str, Panel]:
    """The panels of a page by name, as in panels.toml; a variant of the page has other texts for some of them."""
    texts = tomllib.loads(read(FOLDER / "panels.toml"))
    others = texts.get(variant, {})
    return {name: values | others.get(name, {}) for name, values in texts[page].items()}


def assemble(
    title: str,
    intro: Sequence[str],
    panels: Mapping[str, Panel],
    data: Mapping[str, Any],
    blobs: Mapping[str, bytes],
    scripts: Sequence[str],
    opens: Sequence[str] = (),
) -> str:
    """The page as HTML.

    Args:
        intro: a sentence below the title, and paragraphs that are shown on request, as text.
        panels: their texts by name, which is the id of an element that the scripts fill.
        data: JSON values, for the element with the id "data".
        blobs: binary data by the ids of their elements.
        scripts: names of files of JavaScript beside this one, run in this order after the shared ones.
        opens: names of scripts of a page that these may make and open, and which this policy holds for, too; they may
            also make a worker.
    Raises: CheckpointError if a number in the data is NaN or infinite.
    """
    try:
        facts = embedded(data)
    except ValueError:
        raise CheckpointError(NOT_FINITE) from None
    style = read(FOLDER / "style.css")
    # With its name at its end, each script is a separate file in the browser's debugger.
    paths = [FOLDER / f"{name}.js" for name in (*SHARED, *scripts, *opens)]
    programs = [f"// {path.name}\n{read(path)}//# sourceURL={path.name}\n" for path in paths]
    policy = f"default-src 'none'; script-src {hashes(programs)}; style-src {hashes([style])}; base-uri 'none'; "
    elements = [f'<script type="application/json" id="data">{facts}</script>']
    for name, blob in blobs.items():
        elements.append(f'<script type="text/plain" id="{name}">{base64.b64encode(blob).decode()}</script>')
    links = [f'<li><a href="#{name}">{html.escape(panel["title"])}</a></li>' for name, panel in panels.items()]
    return read(FOLDER / "page.html").format(
        policy=policy + ("worker-src blob:; " if opens else "") + "form-action 'none'",
        title=html.escape(title),
        style=style,
        first=next(iter(panels)),
        intro=html.escape(intro[0]),
        more="\n".join(f"<p>{html.escape(paragraph)}</p>" for paragraph in intro[1:]),
        contents="\n".join(links),
        sections="\n".join(section(name, panel) for name, panel in panels.items()),
        data="\n".join(elements),
        scripts="\n".join(f"<script>{program}</script>" for program in programs[: len(SHARED) + len(scripts)]),
    )


def section(name: str, panel: Panel) -> str:
    """The frame of a panel, with its heading, and its formula and source below."""
    pairs = (html.escape(source).split(" ") for source in panel["sources"])
    sources = ", ".join(f"<code>{file}</code> {function}" for file, function in pairs)
    texts = {part: html.escape(panel.get(part, "")) for part in ("title", "lead", "more", "formula")}
    return read(FOLDER / "section.html").rstrip().format(name=name, **texts, sources=f"Computed in {sources}")


def blocks_formula(norm_first: bool, added: str = "x + ") -> str:
    """What a block computes, with its norms before its parts or after them.

    Args:
        added: what the result of a part is added to; empty without residual connections.
    """
    line = f"x = {added}{{}}(norm(x))" if norm_first else f"x = norm({added}{{}}(x))"
    return ";   ".join(line.format(part) for part in ("attention", "feedForward"))


def read(path: Path) -> str:
    """The text of a script, a style or a template, none of which may contain the end of its own element."""
    return path.read_text(encoding="utf-8")


def hashes(texts: Iterable[str]) -> str:
    """The sources of a policy that allow exactly these scripts or styles."""
    digests = (hashlib.sha256(text.encode("utf-8")).digest() for text in texts)
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)


def embedded(value: Any) -> str:
    r"""A value as JSON that is safe inside a script element.

    >>> embedded({"prompt": "</script> & \u202e"})
    '{"prompt":"\\u003c/script\\u003e \\u0026 \\u202e"}'
    """
    return json.dumps(value, separators=(",", ":"), allow_nan=False).translate(ESCAPES)


def halves(*arrays: np.ndarray) -> bytes:
    """All numbers as float16, one array after the other."""
    return b"".join(array.astype("<f2").tobytes() for array in arrays)


def described(trained: Trained) -> str:
    """What a model is, in words, without the folders of its files, which are private."""
    about = trained.about.removeprefix(f"{trained.path}: ")
    return about.replace(str(trained.adapter), trained.adapter.name) if trained.adapter else about
