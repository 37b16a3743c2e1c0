"""Check derivatives: compare them with finite differences of the function.

For a number x and a small e,  dL/dx ≈ (L(x + e) - L(x - e)) / (2 e). The error of this central difference is O(e^2).
`gradcheck` computes it for every element of every input or, for large inputs, along random directions d (all elements
are changed at once), where the slope must be the sum of dL/dx * d.

With float64 and e = 1e-6 the truncation error is about 1e-12 and the rounding error about 1e-10, so a correct gradient
agrees to many digits and a wrong one does not. In float32 the rounding error is too large: use float64.
"""

from collections.abc import Callable, Sequence

import numpy as np

from tinygrad_lite.autograd import collect
from tinygrad_lite.device import device_of
from tinygrad_lite.random import keyed_rng, random_key
from tinygrad_lite.tensor import Tensor


class GradientError(AssertionError):
    """A gradient that differs from the central difference."""


def gradcheck(
    fn: Callable[..., Tensor], inputs: Sequence[Tensor], eps: float = 1e-6, tolerance: float = 1e-6, directions: int = 0
) -> float:
    """Compare the gradients of `fn(*inputs)` with central differences and return the largest relative error.

    The result of fn may have any shape: it is weighted with fixed random numbers and summed to a scalar L. Each
    evaluation starts from the same random position, so dropout drops the same elements every time. Afterwards
    the inputs and every `.grad` are as they were.

    Args:
        fn: takes the tensors, returns one tensor.
        inputs: tensors; those that require a gradient must be float64 leaves.
        eps: e, the step of the difference.
        tolerance: the largest |analytic - numeric| allowed, relative to the largest of |analytic|, |numeric|
            over the input and 1e-3 (so that a gradient that is zero everywhere can pass).
        directions: 0 varies every element separately; n > 0 uses n random directions instead.
    Raises: GradientError that names the input, the position and both numbers.

    >>> gradcheck(lambda x: x.exp(), [Tensor([0.0, 1.0], dtype="float64", requires_grad=True)]) < 1e-8
    True
    """
    for position, x in enumerate(inputs):
        if x.requires_grad and (x.dtype != np.float64 or x.op):
            raise TypeError(f"gradcheck: input {position} must be a float64 leaf, not {x!r}")

    def loss() -> Tensor:
        with random_key(0):
            y = fn(*inputs)
        weights = keyed_rng(0, "gradcheck").uniform(0.5, 1.5, y.shape)
        return (y * Tensor.wrap(device_of(y.data).from_host(weights))).sum()

    def slope(x: Tensor, nudge: np.ndarray) -> float:
        """The derivative of L in the direction `nudge`, by the central difference."""
        before = x.data.copy()
        step = device_of(x.data).from_host(nudge * eps)
        values = []
        for sign in (1, -1):
            x.data[...] = before + sign * step
            values.append(loss().item())
        x.data[...] = before
        return (values[0] - values[1]) / (2 * eps)

    before = [x.grad for x in inputs]
    for x in inputs:
        x.grad = None
    total = loss()
    others = {node: node.keep for node in collect(total._node) if node.backward is None} if total.requires_grad else {}
    for node in others.keys() - {x._node for x in inputs}:
        node.keep = lambda dx, op: None  # such as parameters that fn uses: their .grad must not change
    total.backward()
    gradients = [x.grad for x in inputs]
    for node, keep in others.items():
        node.keep = keep
    for x, gradient in zip(inputs, before, strict=True):
        x.grad = gradient
    worst = 0.0
    for position, x in enumerate(inputs):
        if not x.requires_grad:
            continue
        analytic = np.zeros(x.shape) if gradients[position] is None else gradients[position].numpy().copy()
        pairs = [(at, float((analytic * by).sum()), slope(x, by)) for at, by in _nudges(x.shape, directions, position)]
        scale = max([1e-3, *(abs(a) for _, a, _ in pairs), *(abs(n) for _, _, n in pairs)])
        for where, a, n in pairs:
            error = abs(a - n) / scale
            worst = max(worst, error)
            if not error <= tolerance:
                raise GradientError(
                    f"input {position} at {where}: backward says {a:.10g}, the central difference {n:.10g} "
                    f"(relative error {error:.2g}, allowed {tolerance:.2g})"
                )
    return worst


def _nudges(shape: tuple[int, ...], directions: int, position: int):
    for number in range(directions):
        yield f"direction {number}", keyed_rng(0, "direction", position, number).standard_normal(shape)
    for place in np.ndindex(shape) if not directions else ():
        nudge = np.zeros(shape)
        nudge[place] = 1
        yield place, nudge
