"""Optimizers: how the gradients change the parameters, and how fast over time.

An optimizer lays all its parameters into one flat array, group after group, and their gradients into another. The
parameters become views of it, so the model notices nothing; but the global norm, the update and a checkpoint of the
moments are now a few operations over long arrays instead of a few for each of a hundred small ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from tinygrad_lite.device import Array, device_of
from tinygrad_lite.functional.registry import Twin
from tinygrad_lite.nn import Module, Parameter
from tinygrad_lite.tensor import Tensor, no_grad

BLOCK = 1 << 16  # elements; the five arrays of an AdamW update fit into a 2 MiB cache


def decay_groups(model: Module, weight_decay: float) -> list[dict[str, Any]]:
    """nanoGPT's two groups: matrices and tables (2 axes or more) decay, gains and biases (1 axis) do not.

    Decay pulls a weight towards 0. A layer norm's gain belongs near 1, and a bias does no harm by being large.
    """
    named = list(model.named_parameters())
    return [
        {"params": [(n, p) for n, p in named if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [(n, p) for n, p in named if p.ndim < 2], "weight_decay": 0.0},
    ]


class Optimizer:
    """The flat arrays that all optimizers share.

    Args:
        params: `model.named_parameters()`, or groups as `decay_groups` makes them: dicts with "params" (pairs of
            name and parameter) and "weight_decay".
        lr: the learning rate; set `optimizer.lr` to change it.
        weight_decay: for parameters that came without groups.
    """

    state_names: tuple[str, ...] = ()  # what is remembered for each parameter from step to step

    def __init__(
        self,
        params: Iterable[tuple[str, Parameter]] | list[dict[str, Any]],
        lr: float,
        weight_decay: float = 0.0,
    ) -> None:
        groups = list(params)
        if not groups or not isinstance(groups[0], dict):
            groups = [{"params": groups, "weight_decay": weight_decay}]
        self.lr = lr
        self.steps = 0  # updates made
        self.guard: Tensor | None = None  # on a GPU, may forbid updates and scale gradients (see cuda/guard.py)
        self.named = {name: parameter for group in groups for name, parameter in group["params"]}
        if not self.named:
            raise ValueError("optimizer: there are no parameters")
        first = next(iter(self.named.values()))
        for name, parameter in self.named.items():
            if type(parameter.data) is not type(first.data) or parameter.dtype != first.dtype:
                raise ValueError(
                    f"optimizer: parameter {name} is {parameter.dtype} on {parameter.device}, "
                    f"others are {first.dtype} on {first.device}"
                )
        size = sum(parameter.numel() for parameter in self.named.values())
        self.values = Tensor.wrap(first.xp.empty(size, first.dtype))
        self.places: dict[str, slice] = {}
        self._views: dict[str, Array] = {}  # what each parameter's data are from now on
        self.groups: list[tuple[slice, float]] = []  # where each group lies, and its weight decay
        end = 0
        for group in groups:
            start = end
            for name, parameter in group["params"]:
                self.places[name] = place = slice(end, end + parameter.numel())
                self.values.data[place] = parameter.data.reshape(-1)
                parameter.data = self.values.data[place].reshape(parameter.shape)  # frees the array that it had
                end = place.stop
            self.groups.append((slice(start, end), group["weight_decay"]))
        # Only now, so that they can take the place of what was freed.
        self.gradients, *states = (
            Tensor.wrap(first.xp.zeros(size, first.dtype)) for _ in range(1 + len(self.state_names))
        )
        self.states = dict(zip(self.state_names, states, strict=True))
        self._lay_views()

    def _lay_views(self) -> None:
        """Make all parameters and their gradients views of the flat arrays."""
        for name, parameter in self.named.items():
            place = self.places[name]
            parameter.data = self._views[name] = self.values.data[place].reshape(parameter.shape)
            parameter._version = self.values._version
            parameter.grad = Tensor.wrap(self.gradients.data[place].reshape(parameter.shape))

    def move_into(self, values: Array, gradients: Array, states: Iterable[Array], contents: bool) -> None:
        """Lay everything into other flat arrays (n,), such as memory that several processes see.

        Args:
            contents: take values and states along; otherwise those that are in the arrays count from now on.
        """
        for flat, other in zip((self.values, *self.states.values()), (values, *states), strict=True):
            if contents:
                other[...] = flat.data
            flat.data = other
        self.gradients.data = gradients
        self._lay_views()

    def zero_grad(self) -> None:
        """Set all gradients to 0, in place."""
        self.gradients.data[...] = 0

    def step(self, part: slice | None = None) -> None:
        """Update all parameters from their gradients, or only what lies in this part of the flat arrays.

        Raises: ValueError if a parameter's array is not the optimizer's any more, so that it would not be updated.
        """
        for name, parameter in self.named.items():
            if parameter.data is not self._views[name]:
                raise ValueError(
                    f"optimizer: parameter {name} was given another array after the optimizer was made (by .to?): "
                    "make the optimizer last"
                )
        self.steps += 1
        arrays = (self.values, self.gradients, *self.states.values())
        for place, weight_decay in self.groups:
            if part is not None:
                place = slice(max(place.start, part.start), min(place.stop, part.stop))
            if place.start < place.stop:
                self.update(*(Tensor.wrap(array.data[place]) for array in arrays), weight_decay=weight_decay)
        self.values.mark_written()

    def update(self, value: Tensor, gradient: Tensor, *states: Tensor, weight_decay: float) -> None:
        """Change one group's values (and states) in place; every optimizer defines its own."""
        raise NotImplementedError

    def clip_grad_norm(self, max_norm: float) -> float:
        """Scale all gradients down so that their global norm is at most max_norm; return the norm before.

        The global norm is the length of all gradients taken as one vector. Scaling keeps its direction.
        max_norm 0 only measures.

        Reference: Pascanu et al. 2013, algorithm 1 (arXiv:1211.5063).
        """
        flat = self.gradients.data
        norm = math.sqrt(float(flat @ flat))
        if 0 < max_norm < norm:
            flat *= max_norm / norm
        return norm

    def state_dict(self) -> dict[str, np.ndarray]:
        """What the optimizer remembers, by parameter: `exp_avg.blocks.0...` and so on, on the host."""
        return {
            f"{state}.{name}": device_of(flat.data).to_host(flat.data[place]).reshape(self.named[name].shape)
            for state, flat in self.states.items()
            for name, place in self.places.items()
        }

    def load_state_dict(self, state: Mapping[str, np.ndarray], steps: int) -> None:
        """Take over what another run's optimizer remembered after this many steps.

        Raises: ValueError if names or shapes differ.
        """
        own = self.state_dict()
        wrong = sorted(own.keys() ^ state.keys()) or [n for n in own if own[n].shape != state[n].shape]
        if wrong:
            raise ValueError(f"the optimizer's state does not fit: {', '.join(wrong)}")
        for name, flat in self.states.items():
            for parameter, place in self.places.items():
                values = np.ascontiguousarray(state[f"{name}.{parameter}"]).reshape(-1)
                flat.data[place] = device_of(flat.data).from_host(values)
        self.steps = steps


class SGD(Optimizer):
    """Stochastic gradient descent: w = w - lr * v, with v = momentum * v + (g + weight_decay * w)."""

    state_names = ("momentum",)

    def __init__(self, params: Any, lr: float, momentum: float = 0.0, weight_decay: float = 0.0) -> None:
        super().__init__(params, lr, weight_decay)
        self.momentum = momentum

    def update(self, value: Tensor, gradient: Tensor, *states: Tensor, weight_decay: float) -> None:
        (velocity,) = states
        with no_grad():
            velocity[...] = velocity * self.momentum + gradient + value * weight_decay
            value[...] = value - velocity * self.lr


class AdamW(Optimizer):
    """Adam with decoupled weight decay: the decay acts on the weight directly, not through the moments.

    Reference: Loshchilov, Hutter 2019, algorithm 2 (arXiv:1711.05101), with the learning rate applied to the decay
    as in torch.
    """

    state_names = ("exp_avg", "exp_avg_sq")

    def __init__(
        self,
        params: Any,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(params, lr, weight_decay)
        self.betas = betas
        self.eps = eps

    def update(self, value: Tensor, gradient: Tensor, *states: Tensor, weight_decay: float) -> None:
        adamw(value, gradient, *states, self.steps, self.lr, *self.betas, self.eps, weight_decay, self.guard)


class Adam(AdamW):
    """The original Adam: weight decay, if any, is added to the gradient (Kingma, Ba 2015, arXiv:1412.6980)."""

    def __init__(self, params: Any, lr: float, weight_decay: float = 0.0, **options: Any) -> None:
        super().__init__(params, lr, weight_decay=weight_decay, **options)

    def update(self, value: Tensor, gradient: Tensor, *states: Tensor, weight_decay: float) -> None:
        if weight_decay:
            with no_grad():
                gradient[...] = gradient + value * weight_decay
        super().update(value, gradient, *states, weight_decay=0.0)


def adamw_composed(
    w: Tensor,
    g: Tensor,
    m: Tensor,
    v: Tensor,
    step: int,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    guard: Tensor | None = None,
) -> None:
    """One AdamW update of w, m and v in place.

    m = beta1 m + (1 - beta1) g             running mean of the gradient
    v = beta2 v + (1 - beta2) g^2           running mean of its square
    w = w - lr (m' / (sqrt(v') + eps) + weight_decay w)

    with m' = m / (1 - beta1^step) and v' = v / (1 - beta2^step): both averages started at 0, and after `step` updates
    the weights of what they have seen sum to 1 - beta^step.

    A guard (see cuda/guard.py) has the number by which g is multiplied first, and the step of a breakdown: if that is
    not below 0, everything stays as it is.
    """
    with no_grad():
        if guard is not None:
            g = g * guard[0].cast(g.dtype)
        new_m = m * beta1 + g * (1 - beta1)
        new_v = v * beta2 + g * g * (1 - beta2)
        m_hat = new_m / (1 - beta1**step)
        v_hat = new_v / (1 - beta2**step)
        new_w = w - (m_hat / (v_hat.sqrt() + eps) + w * weight_decay) * lr
        for old, new in ((m, new_m), (v, new_v), (w, new_w)):
            old[...] = new if guard is None else (guard[1] < 0).where(new, old)


def adamw_fused(
    w: Tensor,
    g: Tensor,
    m: Tensor,
    v: Tensor,
    step: int,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    guard: Tensor | None = None,
) -> None:
    """`adamw_composed` in blocks that stay in the cache, with every step in place.

    The corrections are folded into numbers: m' / (sqrt(v') + eps) = a m / (sqrt(v) b + eps) with
    a = 1 / (1 - beta1^step) and b = 1 / sqrt(1 - beta2^step).
    """
    if guard is not None:
        return adamw_composed(w, g, m, v, step, lr, beta1, beta2, eps, weight_decay, guard)
    a, b = 1 / (1 - beta1**step), 1 / math.sqrt(1 - beta2**step)
    scratch = np.empty(min(BLOCK, w.numel()), w.dtype)
    for start in range(0, w.numel(), BLOCK):
        part = slice(start, start + BLOCK)
        wp, gp, mp, vp = w.data[part], g.data[part], m.data[part], v.data[part]
        t = scratch[: wp.size]
        np.subtract(gp, mp, out=t)
        t *= 1 - beta1
        mp += t  # m + (1 - beta1) (g - m)
        np.multiply(gp, gp, out=t)
        t -= vp
        t *= 1 - beta2
        vp += t
        np.sqrt(vp, out=t)
        t *= b
        t += eps
        np.divide(mp, t, out=t)
        t *= lr * a
        if weight_decay:
            wp *= 1 - lr * weight_decay
        wp -= t


adamw = Twin(adamw_composed, cpu=adamw_fused, cuda="tinygrad_lite.cuda.adamw")


# --- learning rate over time: functions of the step, counted from 0 -------------------------------------------


def constant(step: int, learning_rate: float, warmup_iters: int = 0) -> float:
    """A straight rise over the first warmup_iters steps, then always the same."""
    return learning_rate * min(1.0, (step + 1) / (warmup_iters + 1))


def cosine(step: int, learning_rate: float, warmup_iters: int, lr_decay_iters: int, min_lr: float) -> float:
    """A straight rise over warmup_iters steps, then half a cosine wave down to min_lr at lr_decay_iters.

    Reference: Loshchilov, Hutter 2017, eq. 5 (arXiv:1608.03983), without restarts; step for step as in nanoGPT.
    """
    if step < warmup_iters:
        return learning_rate * (step + 1) / (warmup_iters + 1)
    if step >= lr_decay_iters:
        return min_lr
    progress = (step - warmup_iters) / (lr_decay_iters - warmup_iters)
    return min_lr + 0.5 * (1 + math.cos(math.pi * progress)) * (learning_rate - min_lr)


def inverse_square_root(step: int, learning_rate: float, warmup_iters: int) -> float:
    """A straight rise to learning_rate over warmup_iters steps, then falling as 1 / sqrt(step).

    Reference: Vaswani et al. 2017, eq. 3 (arXiv:1706.03762), where learning_rate is
    1 / sqrt(d_model * warmup_steps).
    """
    warmup = max(1, warmup_iters)
    return learning_rate * min((step + 1) / warmup, math.sqrt(warmup / (step + 1)))
