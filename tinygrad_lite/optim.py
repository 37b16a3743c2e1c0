"""Optimizers: how the gradients change the parameters, and how the learning rate changes over time.

They are used as in torch: `AdamW(model.parameters(), lr=1e-3)`, then `zero_grad()`, `backward()` and `step()` in turn.
What they share is in `optimizer.py`, and how their memory is laid out, in `flat.py`.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextvars import copy_context
from typing import Any

import numpy as np

from tinygrad_lite.autograd import no_grad
from tinygrad_lite.functional.registry import ReferenceAndFused
from tinygrad_lite.muon import ADJUSTMENTS, elements_of_work, guarded, muon
from tinygrad_lite.nn import Linear, Module
from tinygrad_lite.optimizer import Optimizer, groups_of
from tinygrad_lite.tensor import Tensor, respelled

__all__ = """
    SGD Adam AdamW Muon Optimizer adamw constant cosine decay_groups inverse_square_root muon muon_groups trapezoid
""".split()


BLOCK = 1 << 17  # elements of an update at a time; shorter ones fit a smaller cache, but switch threads more often
PER_THREAD = 1 << 18  # elements; fewer are not worth a thread
MAX_THREADS = 8  # more would share the memory's bandwidth, and wait for Python's lock between two calls of NumPy


def decay_groups(model: Module, weight_decay: float) -> list[dict[str, Any]]:
    """nanoGPT's two groups: matrices and tables (2 axes or more) decay, gains and biases (1 axis) do not.

    Decay pulls a weight towards 0. A layer norm's gain belongs near 1, and a bias does no harm by being large.
    """
    named = list(model.named_parameters())
    return [
        {"params": [(n, p) for n, p in named if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [(n, p) for n, p in named if p.ndim < 2], "weight_decay": 0.0},
    ]


def muon_groups(model: Module, weight_decay: float) -> list[dict[str, Any]]:
    """Groups for Muon: the matrices of the hidden layers, and nanoGPT's two groups of everything else, for AdamW.

    Hidden layers are the linear maps in a list of layers, whose names contain a number, such as `blocks.0.mlp.up`.
    Embeddings and the output matrix are not hidden: their rows belong to single tokens, most of which do not occur in a
    batch.
    """
    hidden = {
        id(module.weight)
        for path, module in model.named_modules()
        if isinstance(module, Linear) and any(part.isdigit() for part in path.split("."))
    }
    matrices = [(name, parameter) for name, parameter in model.named_parameters() if id(parameter) in hidden]
    groups = [{"params": matrices, "weight_decay": weight_decay}]
    for group in decay_groups(model, weight_decay):
        others = [(name, parameter) for name, parameter in group["params"] if id(parameter) not in hidden]
        groups.append(group | {"params": others, "use_muon": False})
    return groups


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

    def update(self, value: Tensor, gradient: Tensor, *states: Tensor, step: int, lr: float, **options: float) -> None:
        (velocity,) = states
        with no_grad():
            if options["weight_decay"]:
                gradient = gradient + value * options["weight_decay"]
            # Without momentum nothing is remembered, not even an infinity, which times 0 is NaN.
            velocity[...] = velocity * options["momentum"] + gradient if options["momentum"] else gradient
            direction = gradient + velocity * options["momentum"] if options["nesterov"] else velocity
            value[...] = value - direction * lr


class AdamW(Optimizer):
    """Adam with decoupled weight decay: the decay acts on the weight directly, not through the moments.

    By default weight_decay is 0.01, and 0 for `Adam`.

    Reference: Loshchilov, Hutter 2019, algorithm 2 (arXiv:1711.05101), with the learning rate applied to the decay
    as in torch.
    """

    state_names = ("exp_avg", "exp_avg_sq")
    default_decay = 0.01

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        *more,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float | None = None,
        **names,
    ) -> None:
        respelled(AdamW.__init__, more, names)
        decay = self.default_decay if weight_decay is None else weight_decay
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=decay)

    def update(self, value: Tensor, gradient: Tensor, *states: Tensor, step: int, lr: float, **options: Any) -> None:
        guard = {} if self.guard is None else {"guard": self.guard}  # only on a GPU: the CPU's version takes none
        adamw(value, gradient, *states, step, lr, *options["betas"], options["eps"], options["weight_decay"], **guard)


class Adam(AdamW):
    """The original Adam: weight decay, if any, is added to the gradient (Kingma, Ba 2015, arXiv:1412.6980)."""

    default_decay = 0.0

    def update(self, value: Tensor, gradient: Tensor, *states: Tensor, weight_decay: float, **options: Any) -> None:
        if weight_decay:
            with no_grad():
                gradient = gradient + value * weight_decay
        super().update(value, gradient, *states, weight_decay=0.0, **options)


class Muon(Optimizer):
    """Muon for matrices, AdamW for everything else; formulas, derivation and sources are in `muon.py`.

    Args:
        params: as for the other optimizers. Anything that is not a matrix, or that AdamW is to update, belongs in a
            group with `use_muon: False`; `muon_groups` makes the usual groups of a model.
        lr: the learning rate of groups with AdamW; those with Muon use lr * muon_lr_factor. Muon's is usually larger,
            since the size of its update does not depend on the gradient; this way both follow one schedule.
        momentum, adjust_lr_fn: Muon's options, as in torch.optim.Muon.
        betas, eps: AdamW's.
    """

    state_names = ("exp_avg", "exp_avg_sq")  # Muon needs only the first

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        *more,
        muon_lr_factor: float = 1.0,
        momentum: float = 0.95,
        adjust_lr_fn: str = "original",
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.1,
        **names,
    ) -> None:
        respelled(Muon.__init__, more, names)
        options = {"lr": lr, "muon_lr_factor": muon_lr_factor, "momentum": momentum, "adjust_lr_fn": adjust_lr_fn}
        options |= {"betas": betas, "eps": eps, "weight_decay": weight_decay, "use_muon": True}
        super().__init__(list(self._by_shape(groups_of(params, options))), **options)
        for group in self.param_groups:
            group["shape"] = group["params"][0].shape if group["use_muon"] else None

    @staticmethod
    def _by_shape(groups: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """The groups, those for Muon cut into groups of one shape: these lie in the flat arrays as stacks (n, R, C)."""
        for group in groups:
            named = list(zip(group.pop("param_names"), group["params"], strict=True))
            if group["adjust_lr_fn"] not in ADJUSTMENTS:
                raise ValueError(f"Muon: adjust_lr_fn is one of {', '.join(ADJUSTMENTS)}, not {group['adjust_lr_fn']}")
            if not group["use_muon"]:
                yield group | {"params": named}
                continue
            stacks: dict[tuple[int, ...], list] = {}
            for name, parameter in named:
                stacks.setdefault(parameter.shape, []).append((name, parameter))
                if parameter.ndim != 2:
                    raise ValueError(
                        f"Muon: {name} is not a matrix, its shape is {parameter.shape}: put it into a group with "
                        "'use_muon': False, for AdamW; muon_groups(model, weight_decay) makes the usual groups"
                    )
            yield from (group | {"params": members} for members in stacks.values())

    def update(self, value: Tensor, gradient: Tensor, *states: Tensor, step: int, lr: float, **options: Any) -> None:
        if options["use_muon"]:
            stacks = (Tensor.wrap(x.data.reshape(-1, *options["shape"])) for x in (value, gradient, states[0]))
            lr *= options["muon_lr_factor"]
            guard = {} if self.guard is None else {"guard": self.guard}
            muon(*stacks, lr, options["momentum"], options["weight_decay"], options["adjust_lr_fn"], **guard)
        else:
            AdamW.update(self, value, gradient, *states, step=step, lr=lr, **options)

    def slice_of(self, rank: int, size: int) -> slice:
        """The part that one of several processes updates: whole matrices, and about the same work for each process."""
        shapes = {name: group["shape"] for group in self.param_groups for name in group["param_names"]}
        borders, work = [0], [0.0]
        for name, place in self.places.items():
            each = elements_of_work(*shapes[name]) if shapes[name] else 1.0
            borders.append(place.stop)
            work.append(work[-1] + each * (place.stop - place.start))

        def cut(share: float) -> int:
            """Where this share of the work ends; within a matrix, at its nearer border."""
            place = np.interp(share * work[-1], work, borders)
            for name, whole in self.places.items():
                if shapes[name] and whole.start < place < whole.stop:
                    return whole.start if place < (whole.start + whole.stop) / 2 else whole.stop
            return int(place)

        return slice(cut(rank / size), cut((rank + 1) / size))

    def state_dict(self) -> dict[str, np.ndarray]:
        unused = {f"exp_avg_sq.{name}" for g in self.param_groups if g["use_muon"] for name in g["param_names"]}
        return {name: array for name, array in super().state_dict().items() if name not in unused}


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
    the weights in them sum to 1 - beta^step. A guard may scale g, or forbid the update (`guarded`).
    """
    if (g := guarded(g, guard)) is None:
        return
    with no_grad():
        m[...] = m * beta1 + g * (1 - beta1)
        v[...] = v * beta2 + g * g * (1 - beta2)
        m_hat = m / (1 - beta1**step)
        v_hat = v / (1 - beta2**step)
        w[...] = w - (m_hat / (v_hat.sqrt() + eps) + w * weight_decay) * lr


# --- the fused version ----------------------------------------------------------------------------------------


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
) -> None:
    """`adamw_composed` in blocks that stay in the cache, with every step in place.

    The corrections are folded into constants: m' / (sqrt(v') + eps) = a m / (sqrt(v) b + eps) with
    a = 1 / (1 - beta1^step) and b = 1 / sqrt(1 - beta2^step).
    """
    if not all(x.data.flags.c_contiguous for x in (w, m, v)):  # not one stretch of memory
        adamw_composed(w, g, m, v, step, lr, beta1, beta2, eps, weight_decay)
        return
    a, b = 1 / (1 - beta1**step), 1 / math.sqrt(1 - beta2**step)
    flat = [x.data.reshape(-1) for x in (w, g, m, v)]

    def update(first: int, end: int) -> None:
        scratch = np.empty(min(BLOCK, end - first), w.dtype)
        for start in range(first, end, BLOCK):
            part = slice(start, min(end, start + BLOCK))
            wp, gp, mp, vp = (array[part] for array in flat)
            t = scratch[: wp.size]
            np.multiply(gp, 1 - beta1, out=t)
            mp *= beta1
            mp += t
            np.multiply(gp, gp, out=t)
            t *= 1 - beta2
            vp *= beta2
            vp += t
            np.sqrt(vp, out=t)
            t *= b
            t += eps
            np.divide(mp, t, out=t)
            t *= lr * a
            if weight_decay:
                wp *= 1 - lr * weight_decay
            wp -= t

    in_threads(update, w.numel())


def in_threads(work: Callable[[int, int], None], size: int) -> None:
    """Do work(first, end) for all of 0 to `size`, in parallel parts if matrix products may use several threads.

    NumPy computes each part on one core, but lets another Python thread compute meanwhile.
    """
    threads = min(size // PER_THREAD, blas_threads(), MAX_THREADS) if size >= 2 * PER_THREAD else 1
    if threads < 2:
        work(0, size)
        return
    borders = [size * number // threads for number in range(threads + 1)]
    # Each part has the settings of this thread, such as np.errstate.
    parts = [_pool(threads).submit(copy_context().run, work, *part) for part in itertools.pairwise(borders)]
    wait(parts)
    for part in parts:
        part.result()  # raises its error


def blas_threads() -> int:
    """The number of threads for a matrix product at this moment."""
    return min((library.num_threads for library in _blas()), default=1)


_pool = functools.cache(ThreadPoolExecutor)  # of this many threads, which wait for work


@functools.cache
def _blas() -> list[Any]:
    from threadpoolctl import ThreadpoolController  # only where arrays are large

    return ThreadpoolController().select(user_api="blas").lib_controllers


adamw = ReferenceAndFused(adamw_composed, cpu=adamw_fused, cuda="tinygrad_lite.cuda.adamw")


# --- learning rate over time: functions of the step, counted from 0 -------------------------------------------


def constant(step: int, learning_rate: float, warmup_iters: int = 0) -> float:
    """A linear rise over the first warmup_iters steps, then constant."""
    return learning_rate * min(1.0, (step + 1) / (warmup_iters + 1))


def cosine(step: int, learning_rate: float, warmup_iters: int, lr_decay_iters: int, min_lr: float) -> float:
    """A linear rise over warmup_iters steps, then half a cosine wave down to min_lr at lr_decay_iters.

    Reference: Loshchilov, Hutter 2017, eq. 5 (arXiv:1608.03983), without restarts; step for step as in nanoGPT.
    """
    if step < warmup_iters:
        return learning_rate * (step + 1) / (warmup_iters + 1)
    if step >= lr_decay_iters:
        return min_lr
    progress = (step - warmup_iters) / (lr_decay_iters - warmup_iters)
    return min_lr + 0.5 * (1 + math.cos(math.pi * progress)) * (learning_rate - min_lr)


def inverse_square_root(step: int, learning_rate: float, warmup_iters: int) -> float:
    """A linear rise to learning_rate over warmup_iters steps, then falling as 1 / sqrt(step).

    Reference: Vaswani et al. 2017, eq. 3 (arXiv:1706.03762), where learning_rate is
    1 / sqrt(d_model * warmup_steps).
    """
    warmup = max(1, warmup_iters)
    return learning_rate * min((step + 1) / warmup, math.sqrt(warmup / (step + 1)))


def trapezoid(
    step: int, learning_rate: float, warmup_iters: int, lr_decay_iters: int, min_lr: float, plateau: float
) -> float:
    """A linear rise over warmup_iters steps, a plateau, then a linear fall to min_lr at lr_decay_iters.

    The fall begins at step plateau * lr_decay_iters, or after the rise if that is later. Unlike the cosine's, the rates
    before it do not depend on where the run ends, so one plateau serves runs of several lengths.

    References: Zhai et al. 2022, section 3.5 (arXiv:2106.04560); Hägele et al. 2024, section 3 (arXiv:2405.18392). Also
    known as WSD: warm-up, stable, decay.
    """
    if step < warmup_iters:
        return learning_rate * (step + 1) / (warmup_iters + 1)
    if step >= lr_decay_iters:
        return min_lr
    begin = max(warmup_iters, plateau * lr_decay_iters)
    progress = max(0.0, (step - begin) / (lr_decay_iters - begin)) if begin < lr_decay_iters else 0.0
    return learning_rate + progress * (min_lr - learning_rate)


# Those that train.py offers, by name. Their parameters have the names of its options.
SCHEDULES = {schedule.__name__: schedule for schedule in (cosine, trapezoid, inverse_square_root, constant)}
