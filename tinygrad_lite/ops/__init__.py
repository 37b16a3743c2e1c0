"""The primitives: the operations that all others are composed of.

Each is one function that computes y and defines, right below, its gradient: `backward(dy)` receives dL/dy and returns
dL/dx for each parent x, by the chain rule dL/dx = dL/dy * dy/dx. In code, dy stands for dL/dy. Shapes follow NumPy's
broadcasting; a parent that was stretched gets the sum over the stretched axes, because each of its elements was used
once for every position along them.

Where a derivative does not exist (|x| at 0, the maximum of equal numbers), the choice is PyTorch's and the
docstring says which.

The functions have these in common:

    x.data, x.xp                         a tensor's array, and the module that it belongs to: numpy or cupy
    x.requires_grad                      whether a gradient flows to x; if not, `backward` may return None for it
    x, y = operands(x, y, "add")         both as tensors of one dtype; numbers, lists and arrays become constants
    node(y, parents, backward, "add")    the result as a tensor, with an `autograd.Node` if a parent needs a gradient
    node(..., linear=True)               the derivative needs no values of x, y or the result: they may be overwritten
    node(..., uses=(y,))                 it needs only these parents; with uses_result=False, not the result
    Tensor.wrap(y)                       an array as a tensor without a node: a constant, which passes no gradient on
    unbroadcast(dy, shape)               dy summed over the axes along which a parent of this shape was stretched
    @silent                              log(0) is -inf and 0 / 0 is NaN, without NumPy's warnings
    *more, **names                       what else a call gives: `respelled` reads another library's names for the
                                         arguments, such as dim for axis, and refuses the rest

`backward` uses arrays and shapes, never tensors, so a graph keeps no more memory than the derivatives need.
"""

from tinygrad_lite.ops.arithmetic import (
    add,
    compare,
    div,
    floordiv,
    invert,
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
from tinygrad_lite.ops.elementwise import abs, clip, clone, cos, erf, exp, log, relu, sigmoid, sign, sin, sqrt, tanh, to
from tinygrad_lite.ops.reductions import amax, amin, argmax, argmin, max, min, sum
from tinygrad_lite.ops.shapes import cat, expand, getitem, pad, permute, reshape

__all__ = """
    abs add amax amin argmax argmin cast cat clip clone compare cos div erf exp expand floordiv getitem invert log
    logical matmul max maximum min minimum mod mul neg pad permute pow relu reshape sigmoid sign sin sqrt sub sum
    tanh to where
""".split()
