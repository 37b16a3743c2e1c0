"""Mutants: for each place of a file where an author could have slipped, the file with that slip.

A mutant is a small fault: `<` where `<=` belongs, a sign, a number that is off by one, a term or a statement that is
missing. If all tests still pass with it, they do not notice what that line is for. `python -m tests.mutation` tries
them all; this file only makes them.

What is for readers alone has no mutants: strings, f-strings, annotations, decorators, what `__repr__` and `__str__`
return. Nor has `del name`, which only frees memory earlier.
"""

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

ROOT = Path(__file__).parents[2]
PAIRS = [(ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.Is, ast.IsNot), (ast.In, ast.NotIn)]
PAIRS += [(ast.And, ast.Or), (ast.Add, ast.Sub), (ast.Mult, ast.Div), (ast.BitAnd, ast.BitOr), (ast.LShift, ast.RShift)]
OTHER = dict(PAIRS) | {b: a for a, b in PAIRS} | dict.fromkeys((ast.FloorDiv, ast.Mod, ast.Pow), ast.Mult)
SKIPPED = {"annotation", "returns", "decorator_list", "type_params"}  # fields of a node


@dataclass
class Mutant:
    """One fault in one file.

    Attributes:
        path: the file, relative to the repository.
        function: the qualified name of the function or class that has the fault.
        change: what is written, and what is written instead; with a number, if the function has that twice.
        on_import: whether the part runs when the file is imported: a table, a class's fields, a default argument.
        lines: tests that run none of these cannot notice: where the statement begins, and the part; if it runs on
            import, all lines of the function or class, or of the file.
        code: compiles the file with the fault.
    """

    path: str
    function: str
    change: str
    on_import: bool
    lines: set[int]
    code: Callable[[], CodeType]

    @property
    def name(self) -> str:
        """How the list of equivalent mutants refers to it: without a line's number, which would change too often."""
        return f"{self.path} {self.function}: {self.change}"


def mutants_of(path: str) -> Iterator[Mutant]:
    """All mutants of a file, from its first line to its last."""
    tree, seen = ast.parse((ROOT / path).read_text(encoding="utf-8")), Counter()
    for (function, on_import, around), holder, key, new in replacements(tree, ("", True, tree)):
        old = holder[key]
        ast.fix_missing_locations(ast.copy_location(new, old))
        change = f"{ast.unparse(old)} -> {ast.unparse(new)}"
        seen[function, change] += 1
        if (n := seen[function, change]) > 1:
            change += f" ({n})"
        first = getattr(around, "lineno", 1)
        lines = {old.lineno, *range(first, getattr(around, "end_lineno", 10**4) + 1 if on_import else first + 1)}

        def code(holder: list | dict = holder, key: int | str = key, new: ast.AST = new) -> CodeType:
            right, holder[key] = holder[key], new
            try:
                return compile(tree, ROOT / path, "exec", dont_inherit=True)
            finally:
                holder[key] = right

        yield Mutant(path, function, change, on_import, lines, code)


def replacements(node: ast.AST, context: tuple[str, bool, ast.AST]) -> Iterator[tuple]:
    """Walk a tree: for each fault its context, the list or dictionary that holds the right part, its key, the fault.

    The context is the function, whether it is not in the function's body, and the statement, function or class around.
    """
    function, on_import, around = context
    if isinstance(node, ast.FunctionDef | ast.Lambda | ast.ClassDef):
        function, around = f"{function}.{getattr(node, 'name', '<lambda>')}".lstrip("."), node
    if isinstance(node, ast.JoinedStr) or function.endswith(("__repr__", "__str__")):
        return
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return
    for field, value in ast.iter_fields(node):
        outside = on_import and not (isinstance(node, ast.FunctionDef | ast.Lambda) and field == "body")
        holder = value if isinstance(value, list) else vars(node)
        for key, child in enumerate(value) if isinstance(value, list) else [(field, value)]:
            if isinstance(child, ast.AST) and field not in SKIPPED:
                inner = (function, outside, child if isinstance(child, ast.stmt) and not outside else around)
                yield from ((inner, holder, key, new) for new in faults(child, outside))
                if field in ("test", "ifs") and not isinstance(child, ast.UnaryOp | ast.Compare | ast.Constant):
                    yield inner, holder, key, ast.UnaryOp(ast.Not(), child)  # a condition, negated
                yield from replacements(child, inner)


def faults(node: ast.AST, on_import: bool) -> Iterator[ast.AST]:
    """What could stand in a node's place."""
    match node:
        case ast.Compare(left, operators, others):
            for i, operator in enumerate(operators):
                yield ast.Compare(left, [*operators[:i], OTHER[type(operator)](), *operators[i + 1 :]], others)
        case ast.BoolOp(operator, values):
            yield ast.BoolOp(OTHER[type(operator)](), values)
        case ast.BinOp(left, operator, right):
            if type(operator) in OTHER and not (on_import and isinstance(operator, ast.BitOr)):  # `int | None`
                yield ast.BinOp(left, OTHER[type(operator)](), right)
            if isinstance(operator, ast.Add | ast.Sub):
                yield left  # without the second term
        case ast.UnaryOp(ast.USub() | ast.Not(), operand):
            yield operand
        case ast.Constant(bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(int() | float() as value):
            yield ast.Constant(value + 1)
        case ast.Expr(ast.Constant()) | ast.Return(None | ast.Constant(None)):
            pass
        case ast.AugAssign(target, operator, value):
            if type(operator) in OTHER:
                yield ast.AugAssign(target, OTHER[type(operator)](), value)
            yield ast.Pass()
        case ast.Return():
            yield ast.Return(ast.Constant(None))
        case ast.Expr() | ast.Raise() | ast.Continue() | ast.Break() | ast.Delete([ast.Subscript()]):
            yield ast.Pass()
        case ast.Assign() if not on_import:
            yield ast.Pass()
