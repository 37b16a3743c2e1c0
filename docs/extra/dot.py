"""A recorded graph (`tinygrad_lite/debug/graph.py`) in the language of graphviz, whose program `dot` draws it.

    with Graph() as graph:
        y = (a * b + c).tanh()
    y.backward()
    Path("graph.dot").write_text(to_dot(graph.name(a=a, b=b, c=c, result=y), "y"), encoding="utf-8")

Then `dot -Tsvg graph.dot -o graph.svg` makes a picture of it.
"""

import textwrap

from tinygrad_lite.debug.graph import Graph


def to_dot(graph: Graph, title: str, caption: str = "") -> str:
    """The graph in graphviz's language: a box for each tensor, an arrow from each input."""
    lines = [
        "digraph {",
        f'graph [rankdir=LR, labelloc=t, labeljust=l, fontname="sans-serif", fontsize=11, nodesep=0.25, '
        f"label={quote(chr(10).join([title, *textwrap.wrap(caption, 90), '']), left=True)}];",
        'node [shape=box, style="rounded,filled", fontname="sans-serif", fontsize=10, color="#888888"];',
        'edge [color="#555555", arrowsize=0.7];',
    ]
    rows = graph.rows()
    numbers = {row.name: number for number, row in enumerate(rows)}
    for number, row in enumerate(rows):
        fill = "#d3e8f5" if row.operation == "leaf" else "#fdefc3" if row.name == "result" else "#f4f4f4"
        words = [row.name if row.operation in ("leaf", "constant") else f"{row.name} = {row.operation}"]
        words += [f"value {row.value}"] + ([f"gradient {row.gradient}"] if row.gradient else [])
        lines.append(f"n{number} [label={quote(chr(10).join(words))}, fillcolor={quote(fill)}];")
        for place, name in enumerate(row.inputs):
            box = numbers.get(name, f"{number}_{place}")
            # A constant has a separate box for each use.
            own = "" if name in numbers else f'n{box} [label={quote(name)}, fillcolor="white"]; '
            lines.append(f"{own}n{box} -> n{number};")
    return "\n".join([*lines, "}"])


def quote(text: str, left: bool = False) -> str:
    """A string of graphviz's language, its lines centred or on the left."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    end = "\\l" if left else "\\n"
    return '"' + escaped.replace("\n", end) + (end if left else "") + '"'
