"""`gelu` and `linear_gelu` on a GPU: one kernel forward and one backward, in addition to the products."""

from tinygrad_lite.cuda.columns import column_gradients, launch_matrix
from tinygrad_lite.cuda.launch import are_known, kernel, pack
from tinygrad_lite.cuda.linear import linear_cuda
from tinygrad_lite.device import Array
from tinygrad_lite.functional.gelu import gelu_composed, linear_gelu_composed, wants_tanh
from tinygrad_lite.functional.linear import check_linear
from tinygrad_lite.tensor import Tensor, node


def gelu_cuda(x: Tensor, *, approximate: str = "none") -> Tensor:
    """`gelu_composed` in one node; keeps x."""
    if not are_known(x):
        return gelu_composed(x, approximate=approximate)
    return gelu_of_sum(x, None, approximate)


def linear_gelu_cuda(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, approximate: str = "none") -> Tensor:
    """`linear_gelu_composed` in two nodes: the product, and GELU of the product plus the bias; keeps the product."""
    if not are_known(x, weight, bias) or weight.numel() == 0:
        return linear_gelu_composed(x, weight, bias, approximate=approximate)
    check_linear(x, weight, bias)
    return gelu_of_sum(linear_cuda(x, weight), bias, approximate)


def gelu_of_sum(x: Tensor, bias: Tensor | None, approximate: str) -> Tensor:
    """gelu(x + bias) for x (..., C) and bias (C,) or None."""
    xp, shape, form = x.xp, x.shape, int(wants_tanh(approximate))
    kept, b = xp.ascontiguousarray(x.data), None if bias is None else bias.data
    width = max(1, kept.size) if b is None else len(b)  # without a bias, all is one row
    y = xp.empty(shape, x.dtype)
    run("gelu_forward", form, width, kept, b, y)

    def backward(dy):
        dx = xp.empty(shape, kept.dtype)
        run("gelu_backward", form, width, xp.ascontiguousarray(dy), kept, b, dx)
        return dx, *(column_gradients(dx.reshape(-1, width), [bias]) if b is not None else ())

    return node(y, (x,) if bias is None else (x, bias), backward, "gelu")


def run(name: str, form: int, width: int, *arrays: Array | None) -> None:
    """Launch a kernel of gelu.cu on these arrays; the last of them is the result."""
    packed, out = pack(width, *arrays), arrays[-1]
    function = kernel("gelu", name, X=out.dtype, PACK=packed, TANH=form)
    launch_matrix(function, out.size // width, width // packed, *arrays)
