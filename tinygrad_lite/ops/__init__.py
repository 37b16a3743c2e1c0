"""The primitives: the closed list of operations from which everything else is composed.

Each is one function that computes y and defines, right below, what flows back: `backward(dy)` receives dL/dy and
returns dL/dx for each parent x, by the chain rule dL/dx = dL/dy * dy/dx. Shapes follow NumPy's broadcasting; a
parent that was stretched gets the sum over the stretched axes (`unbroadcast`), because it acted at every place.

Where a derivative does not exist (|x| at 0, the maximum of equal numbers), the choice is PyTorch's and the
docstring says which.
"""

from tinygrad_lite.ops.arithmetic import (
    add,
    compare,
    div,
    floordiv,
    logical,
    matmul,
    maximum,
    minimum,
    mod,
    mul,
    neg,
    pow,
    sub,
    where,
)
from tinygrad_lite.ops.common import cast
from tinygrad_lite.ops.elementwise import abs, clip, clone, cos, erf, exp, log, relu, sign, sin, sqrt, tanh, to
from tinygrad_lite.ops.reductions import argmax, argmin, max, min, sum
from tinygrad_lite.ops.shapes import cat, expand, getitem, pad, permute, reshape

__all__ = [
    "abs",
    "add",
    "argmax",
    "argmin",
    "cast",
    "cat",
    "clip",
    "clone",
    "compare",
    "cos",
    "div",
    "erf",
    "exp",
    "expand",
    "floordiv",
    "getitem",
    "log",
    "logical",
    "matmul",
    "max",
    "maximum",
    "min",
    "minimum",
    "mod",
    "mul",
    "neg",
    "pad",
    "permute",
    "pow",
    "relu",
    "reshape",
    "sign",
    "sin",
    "sqrt",
    "sub",
    "sum",
    "tanh",
    "to",
    "where",
]
