"""AdamW, and Adam: each weight's step is divided by the size of its own recent gradients."""

import functools
import itertools
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextvars import copy_context
from typing import Any

import numpy as np

from tinygrad_lite.autograd import no_grad
from tinygrad_lite.functional.registry import ReferenceAndFused
from tinygrad_lite.optim.optimizer import Optimizer
from tinygrad_lite.tensor import Tensor, respelled

BLOCK = 1 << 17  # elements of an update at a time; shorter ones fit a smaller cache, but switch threads more often
PER_THREAD = 1 << 18  # elements; fewer are not worth a thread
MAX_THREADS = 8  # more would share the memory's bandwidth, and wait for Python's lock between two calls of NumPy


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


def guarded(g: Tensor, guard: Tensor | None) -> Tensor | None:
    """The gradient, scaled by a guard's first number; None if its second one forbids the update (see cuda/guard.py)."""
    factor, broken, *_ = (1.0, -1.0) if guard is None else guard.tolist()
    return g * factor if broken < 0 else None


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
