"""Stochastic gradient descent, with and without momentum."""

from typing import Any

from tinygrad_lite.autograd import no_grad
from tinygrad_lite.optim.optimizer import Optimizer
from tinygrad_lite.tensor import Tensor, respelled


class SGD(Optimizer):
    """Stochastic gradient descent: w = w - lr * v, with v = momentum * v + g' and g' = g + weight_decay * w.

    With nesterov w = w - lr * (g' + momentum * v): where the momentum will have led after the step.
    """

    state_names = ("momentum",)

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        *more,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        **names,
    ) -> None:
        respelled(SGD.__init__, more, names)
        super().__init__(params, lr=lr, momentum=momentum, weight_decay=weight_decay, nesterov=nesterov)

    def update(self, value: Tensor, gradient: Tensor, velocity: Tensor, *, lr: float, **options: float) -> None:
        with no_grad():
            if options["weight_decay"]:
                gradient = gradient + value * options["weight_decay"]
            # Without momentum nothing is remembered, not even an infinity, which times 0 is NaN.
            velocity[...] = velocity * options["momentum"] + gradient if options["momentum"] else gradient
            direction = gradient + velocity * options["momentum"] if options["nesterov"] else velocity
            value[...] = value - direction * lr
