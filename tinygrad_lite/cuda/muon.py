"""`muon` on a GPU: the products by cuBLAS in the precision in use, everything else by four kernels."""

from tinygrad_lite.cuda.gemm import gemm
from tinygrad_lite.cuda.launch import kernel, launch, launch_elements, pack
from tinygrad_lite.optim.muon import EPS, ROUNDS, scale_of
from tinygrad_lite.precision import activation_type
from tinygrad_lite.tensor import Tensor

BLOCKS = 128  # blocks that share a matrix


def muon_cuda(
    w: Tensor,
    g: Tensor,
    m: Tensor,
    lr: float,
    momentum: float,
    weight_decay: float,
    adjust_lr_fn: str,
    guard: Tensor | None = None,
) -> None:
    """`muon_composed` in place; w, g and m (n, R, C) have one type and are contiguous, as an optimizer keeps them.

    Given the numbers of a guard (guard.py), g is first multiplied by the guard's factor, and nothing changes after a
    broken step.

    The powers of X X^T are computed as in `newton_schulz_fused`, but a matrix with more rows than columns uses those of
    X^T X, multiplied from the right, so that nothing is transposed.
    """
    xp, (n, rows, columns) = w.xp, w.shape
    small, kind = min(rows, columns), activation_type(w.dtype)
    now, later = xp.empty((2, *w.shape), kind)
    gram, square = xp.empty((2, n, small, small), kind)
    numbers = None if guard is None else guard.data
    packed = pack(rows * columns, w.data, g.data, m.data, now, later)
    packs = rows * columns // packed
    blocks = min(BLOCKS, -(-packs // 256)), n
    sums = xp.empty(blocks[::-1], "float64")
    of_stack = {"X": w.dtype, "Y": kind, "PACK": packed}
    of_gram = of_stack | {"PACK": pack(small, gram, square)}

    given = packs, g.data, m.data, numbers, momentum, sums
    launch(kernel("muon", "muon_momentum", **of_stack), blocks, (256,), *given)
    launch(kernel("muon", "muon_normalize", **of_stack), blocks, (256,), *given, EPS, now)
    polynomial = kernel("muon", "muon_polynomial", **of_gram)
    for a, b, c in ROUNDS:
        turned = now.swapaxes(1, 2)
        gemm(*((now, turned) if rows <= columns else (turned, now)), out=gram)
        gemm(gram, gram, out=square)
        launch(polynomial, (small, n), (128,), small, a, b, c, gram, square)
        gemm(*((square, now) if rows <= columns else (now, square)), out=later)
        now, later = later, now
    step, keep = lr * scale_of(rows, columns, adjust_lr_fn), 1.0 - lr * weight_decay
    launch_elements(kernel("muon", "muon_update", **of_stack), n * packs, w.data, now, numbers, keep, step)
