"""`swiglu` and `relu_squared` on a GPU: one kernel forward and one backward each."""

import math

from tinygrad_lite.cuda.columns import as_rows, stride_of
from tinygrad_lite.cuda.launch import are_known, kernel, launch, launch_packs, pack
from tinygrad_lite.device import Array
from tinygrad_lite.functional.relu_squared import relu_squared_composed
from tinygrad_lite.functional.swiglu import check_swiglu, swiglu_composed
from tinygrad_lite.tensor import Tensor, node

THREADS = 128  # per block, all in one row
MAX_BLOCKS = 65535  # along y


def swiglu_cuda(gate: Tensor, up: Tensor) -> Tensor:
    """`swiglu_composed` in one node; keeps the inputs, because on a GPU computation is cheaper than memory."""
    if gate.numel() == 0 or gate.dtype != up.dtype or not are_known(gate):
        return swiglu_composed(gate, up)  # mixed types, and empty tensors
    check_swiglu(gate, up)
    xp, shape, (g, u) = gate.xp, gate.shape, (as_rows(x.data) for x in (gate, up))
    strides = [stride_of(x) for x in (g, u)]
    rows, width = g.shape

    def run(name: str, *arrays: Array) -> None:
        """Launch a kernel on these arrays; a block takes packs of one row."""
        packed = pack(math.gcd(width, *strides), *arrays)
        blocks = rows, min(MAX_BLOCKS, -(-width // (packed * THREADS)))
        launch(kernel("activations", name, X=g.dtype, PACK=packed), blocks, (THREADS,), width, *strides, *arrays)

    y = xp.empty(shape, g.dtype)
    run("swiglu_forward", g, u, y)

    def backward(dy):
        # In one array, because `linears_cuda` (linear.py), which made both inputs, expects them there.
        both = xp.empty((rows, 2 * width), g.dtype)
        d_gate, d_up = both[:, :width], both[:, width:]
        run("swiglu_backward", g, u, xp.ascontiguousarray(dy), d_gate, d_up)
        return d_gate.reshape(shape), d_up.reshape(shape)

    return node(y, (gate, up), backward, "swiglu", uses_result=False)


def relu_squared_cuda(x: Tensor) -> Tensor:
    """`relu_squared_composed` in one node; keeps the result."""
    if not are_known(x):
        return relu_squared_composed(x)
    xp, shape = x.xp, x.shape

    def run(name: str, *arrays: Array) -> Array:
        """The result of a kernel run on these arrays."""
        out = xp.empty(shape, x.dtype)
        launch_packs("activations", name, (*arrays, out), X=x.dtype)
        return out

    y = run("relu_squared_forward", xp.ascontiguousarray(x.data))
    return node(y, (x,), lambda dy: (run("relu_squared_backward", xp.ascontiguousarray(dy), y),), "relu_squared")
