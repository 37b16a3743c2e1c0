"""`adamw` on a GPU: one kernel that reads four arrays and writes three."""

import math

from tinygrad_lite.cuda.launch import launch_packs
from tinygrad_lite.tensor import Tensor


def adamw_cuda(
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
    """`adamw_composed` in one pass; w, g, m and v have one type and are contiguous, as an optimizer keeps them.

    Given the numbers of a guard (guard.py), g is first multiplied by the guard's factor, and nothing changes after a
    broken step. If w has a bfloat16 copy, `w.rounded` (see optim/memory.py), the kernel writes that too, and the
    attribute is removed.
    """
    arrays = [*(tensor.data.reshape(-1) for tensor in (w, g, m, v)), vars(w).pop("rounded", None)]
    a, b = 1 / (1 - beta1**step), 1 / math.sqrt(1 - beta2**step)
    others = 1 - lr * weight_decay, lr * a, 1 - beta1, 1 - beta2, b, eps
    launch_packs("adamw", "adamw", arrays, None if guard is None else guard.data, *others, X=w.dtype)
