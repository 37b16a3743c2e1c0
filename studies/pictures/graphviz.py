"""An expression with the value and the gradient of every operation: as text, and as a picture by graphviz's `dot`.

    python -m studies.draw graph "(a * b + c).tanh()" --values a=2 b=-3 c=5

The text is parsed by Python and walked here, so that nothing but arithmetic and the methods listed can be computed.
"""

from __future__ import annotations

import ast
import json
import operator
import shutil
import subprocess
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from studies.pictures.command import DrawOptions
from tinygrad_lite.debug.graph import Graph
from tinygrad_lite.errors import OptionError, UserError
from tinygrad_lite.tensor import Tensor
from workshop.cli.options import option
from workshop.figure import Picture, write_image

OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.MatMult: operator.matmul,
}
METHODS = frozenset(
    "abs clip cos erf exp gelu log log_softmax logsumexp max maximum mean min minimum prod relu reshape sigmoid silu "
    "sin softmax sqrt std sum tanh transpose var".split()
)
MAX_LENGTH = 1000  # characters of an expression


@dataclass
class GraphOptions(DrawOptions):
    """The options of `graph`."""

    values: list[str] = option([], "the values of the names in it, such as a=2 or x=[1,2,3]")


def draw_graph(names: Sequence[str], options: GraphOptions) -> Picture:
    """The graph of an expression, with the gradients after `backward()`.

    Raises: OptionError if it cannot be computed, or is not a single number.
    """
    (text,) = names
    leaves = read_values(options.values)
    with np.errstate(all="ignore"), Graph() as graph:
        result = evaluate(text, leaves)
        if not isinstance(result, Tensor) or not result.op:
            raise OptionError(f"{text}: nothing to differentiate; use a name, as in --values a=2")
        if result.numel() != 1:
            raise OptionError(f"{text} has the shape {result.shape}, but a gradient needs one number: append .sum()")
        result.backward()
    graph.name(leaves, result=result)
    caption = (
        "Values are computed along the arrows, gradients against them: each says by how much the result changes per "
        "unit of change there. A name that is used several times adds up the gradients of its uses."
    )
    rows = [("name", "operation", "inputs", "shape", "value", "gradient")]
    rows += [(r.name, r.operation, " ".join(r.inputs), r.shape, r.value, r.gradient) for r in graph.rows()]
    return Picture(
        title=text,
        caption=caption,
        table=rows,
        text=str(graph),
        image=lambda path: run_dot(to_dot(graph, text, caption), path),
    )


# --- the expression -------------------------------------------------------------------------------------------


def read_values(words: Sequence[str]) -> dict[str, Tensor]:
    """The leaves that "a=2" and "x=[1, 2]" describe.

    Raises: OptionError if one is not of this form.

    >>> read_values(["a=2"])["a"].item()
    2.0
    """
    leaves = {}
    for word in words:
        name, _, value = word.partition("=")
        try:
            array = np.array(json.loads(value), np.float32)
        except (ValueError, TypeError, OverflowError, RecursionError):
            array = None
        if array is None or array.size == 0 or not name.isidentifier():
            raise OptionError(f"--values {word}: write a name and its value, such as a=2 or x=[1,2,3]")
        leaves[name] = Tensor(array, requires_grad=True)
    return leaves


def evaluate(text: str, leaves: dict[str, Tensor]) -> Any:
    """The value of an expression of these names, numbers, + - * / ** @, and METHODS.

    Raises: OptionError if it is not one, or cannot be computed.
    """
    if len(text) > MAX_LENGTH:
        raise OptionError(f"the expression has {len(text):,} characters: at most {MAX_LENGTH}")
    try:
        return walk(ast.parse(text.strip(), mode="eval").body, leaves)
    except SyntaxError:
        raise OptionError(f"{text} is not an expression: write one such as (a * b + c).tanh()") from None
    except (ArithmeticError, MemoryError, RecursionError, TypeError, ValueError, IndexError) as error:
        raise OptionError(f"{text} cannot be computed: {error}") from None


def walk(node: ast.expr, leaves: dict[str, Tensor]) -> Any:
    """The value of a part of an expression; numbers remain numbers.

    Raises: OptionError if it is anything else.
    """
    match node:
        case ast.Constant(value=int() | float()) if type(node.value) is not bool:
            return float(node.value)
        case ast.Name(id=name) if name in leaves:
            return leaves[name]
        case ast.Name(id=name):
            raise OptionError(f"{name} has no value: --values {name}=2")
        case ast.UnaryOp(op=ast.USub()):
            return -walk(node.operand, leaves)
        case ast.BinOp() if type(node.op) in OPERATORS:
            return OPERATORS[type(node.op)](walk(node.left, leaves), walk(node.right, leaves))
        case ast.Call(func=ast.Attribute(value=owner, attr=name)) if name in METHODS and not node.keywords:
            tensor, values = walk(owner, leaves), [walk(part, leaves) for part in node.args]
            if isinstance(tensor, Tensor):  # integers, such as axes, remain integers
                whole = (int(x) if isinstance(x, float) and x.is_integer() else x for x in values)
                return getattr(tensor, name)(*whole)
    known = ", ".join(sorted(METHODS))
    raise OptionError(f"{ast.unparse(node)}: only names, numbers, + - * / ** @, and methods of tensors: {known}")


# --- graphviz -------------------------------------------------------------------------------------------------


def to_dot(graph: Graph, title: str, caption: str) -> str:
    """The graph in graphviz's language: a box for each tensor, an arrow from each input."""
    lines = [
        "digraph {",
        f'graph [rankdir=LR, labelloc=t, labeljust=l, fontname="sans-serif", fontsize=11, nodesep=0.25, '
        f"label={quote(title + chr(10) + chr(10).join(textwrap.wrap(caption, 90)) + chr(10), left=True)}];",
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


def run_dot(source: str, path: Path) -> None:
    """Let graphviz draw.

    Raises: UserError if it is not installed; OptionError if the file cannot be written.
    """
    if not shutil.which("dot"):
        raise UserError(
            f"{path}: graphviz's program dot, which draws graphs, is not installed: install graphviz, or name no --out "
            "for the text, or a .csv"
        )
    command = ["dot", f"-T{path.suffix[1:].lower()}"]
    done = subprocess.run(command, input=source.encode(), capture_output=True, check=False)
    if done.returncode:
        raise UserError(f"{path}: graphviz's dot failed: {done.stderr.decode('utf-8', 'replace').strip()}")
    write_image(path, done.stdout)
