"""A deep stack of random layers, put together in four ways, and what arrives at each depth."""

import numpy as np

from tinygrad_lite import Tensor
from tinygrad_lite import functional as F

WIDTH = 64
ONES = Tensor(np.ones(WIDTH))


def norm(x: Tensor) -> Tensor:
    """Layer norm of each row, without gain and shift."""
    return F.layer_norm(x, weight=ONES)


# How a layer uses its branch f, a function with random weights.
LAYERS = {
    "plain": lambda x, f: f(x),
    "residual": lambda x, f: x + f(x),
    "pre-norm": lambda x, f: x + f(norm(x)),
    "post-norm": lambda x, f: norm(x + f(x)),
}


class Stack:
    """A stack of `depth` layers of one kind, after a forward and a backward pass.

    Attributes:
        states: x before the first layer, and after each: (rows, WIDTH), with dL/dx in `.grad`.
        weights: the matrix of each layer, with dL/dW in `.grad`.
    """

    def __init__(
        self, kind: str, depth: int = 50, gain: float = 2**0.5, cut: bool = False, final_norm: bool = False
    ) -> None:
        """The branch is relu(x) W, with weights of deviation gain / sqrt(WIDTH).

        relu halves the mean square of x, so with the gain sqrt(2) the branch's output is as large as its input.

        Args:
            cut: let no gradient into the branches, so that what arrives has come through additions and norms alone.
            final_norm: one more norm at the end, before L, as in GPT-2.
        """
        rng = np.random.default_rng(0)
        x = Tensor(rng.standard_normal((64, WIDTH)), requires_grad=True)
        self.states, self.weights = [x], []
        for _ in range(depth):
            weight = Tensor(rng.standard_normal((WIDTH, WIDTH)) * gain / WIDTH**0.5, requires_grad=True)

            def branch(x, weight=weight):
                return (x.detach() if cut else x).relu() @ weight

            x = LAYERS[kind](x, branch).retain_grad()
            self.states.append(x)
            self.weights.append(weight)
        # L is chosen so that dL/d(result) are random numbers of size 1.
        result = norm(x) if final_norm else x
        (result * Tensor(rng.standard_normal(x.shape))).sum().backward()


def size(x: Tensor) -> float:
    """The root mean square of the elements."""
    return float(np.sqrt((x.numpy() ** 2).mean()))


def show(kind: str, **options: float) -> None:
    """Print the size of x, and of dL/dx, at every tenth layer."""
    states = Stack(kind, **options).states[::10]
    print("x     " + " ".join(f"{size(x):8.2g}" for x in states))
    print("dL/dx " + " ".join(f"{size(x.grad):8.2g}" for x in states))
