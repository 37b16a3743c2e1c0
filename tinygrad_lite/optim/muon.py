"""Muon's update: momentum whose matrix is made orthogonal before it is applied.

Any matrix is U S V^T, with orthonormal columns in U and V and singular values S >= 0: how much it lengthens each of
its directions. A gradient is dominated by a few large singular values, so a plain step moves a few directions far and
leaves the others almost where they are. Muon steps along

    O(G) = U V^T

instead: the same directions, all with singular value 1. Of all updates that lengthen no input by more than a factor of
1 (spectral norm <= 1), this is the one along which the loss falls fastest:

    <G, X> = tr(G^T X) = sum_i S_i (u_i^T X v_i) <= sum_i S_i,   with equality for X = U V^T

**Without computing U and V.** X X^T X = U S^3 V^T: an odd polynomial of a matrix is that polynomial of each singular
value, and leaves U and V alone. So a polynomial f(s) = a s + b s^3 + c s^5 that drives every s towards 1, applied again
and again, needs only matrix products:

    X <- a X + b (X X^T) X + c (X X^T)^2 X = (a I + b A + c A^2) X,   A = X X^T

It starts from X = G / |G|, whose singular values are at most 1, because the sum of their squares is |G|^2 / |G|^2 = 1.

**Why three rounds suffice.** The classical coefficients 15/8, -10/8, 3/8 converge to 1 exactly, but a round multiplies
a small s by at most 1.9. Here each round has its own polynomial: of all odd ones of degree 5, the one whose values on
an interval stay closest to 1 (Chebyshev's minimax problem). Its error e is reached at four points of the interval, with
alternating signs, and that determines a, b, c and e: the two ends, and the two extrema of f between them. The image of
[0.01, 1] under the first round is the interval of the second, and so on; each interval reaches 1 % further up, because
outside it a polynomial grows fast, and products in bfloat16 are rounded:

    [0.01, 1]  ->  [0.080, 1.920]  ->  [0.288, 1.712]  ->  [0.721, 1.279]

which is near enough to 1. A smaller s is multiplied by at most 77; so small a part of a gradient is hardly
distinguishable from the noise of a batch. (Two rounds, for [0.03, 1], cost 0.026 bits per character of the default;
five rounds of one polynomial, 3.4445, -4.7750, 2.0315, as in the first report on Muon, gain nothing.)

References: Jordan et al. 2024, https://kellerjordan.github.io/posts/muon, first used in KellerJordan/modded-nanogpt;
Bernstein, Newhouse 2024 (arXiv:2409.20325), section 3, for the spectral norm; Amsel et al. 2025, "The Polar Express"
(arXiv:2505.16932), section 3, for a polynomial in each round; `adjust_lr_fn` as in torch.optim.Muon.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from tinygrad_lite.autograd import no_grad
from tinygrad_lite.functional.registry import ReferenceAndFused
from tinygrad_lite.nn import Linear, Module
from tinygrad_lite.optim.adamw import AdamW, guarded
from tinygrad_lite.optim.optimizer import Optimizer, decay_groups, groups_of
from tinygrad_lite.tensor import Tensor, respelled

# a, b, c of each round
ROUNDS = (8.01717, -22.94095, 16.61126), (3.61194, -2.65206, 0.51230), (2.66096, -1.94513, 0.43569)
EPS = 1e-7  # the smallest norm to divide by, so that a gradient of 0 gives an update of 0
BLOCK = 1 << 17  # elements that the fused version updates at once
ELEMENT = 230  # operations of matrix products that take as long as AdamW's update of one element (80 per ns, 2.9 ns)
ADJUSTMENTS = ("original", "match_rms_adamw")


def scale_of(rows: int, columns: int, adjust_lr_fn: str) -> float:
    """What an orthogonal update of a matrix is multiplied by, besides the learning rate.

    original: sqrt(max(1, rows / columns)), so that a matrix with more outputs than inputs changes an output of root
        mean square 1 as much as a square one does.
    match_rms_adamw: 0.2 sqrt(max(rows, columns)), which gives the update a root mean square of 0.2, about that of
        AdamW's, so that AdamW's learning rates suit it (Liu et al. 2025, section 2.2, arXiv:2502.16982).
    """
    if adjust_lr_fn == "original":
        return math.sqrt(max(1, rows / columns))
    return 0.2 * math.sqrt(max(rows, columns))


def products(rows: int, columns: int) -> tuple[float, float]:
    """The products that `newton_schulz_fused` computes for one matrix, in units of a product of R x R matrices, R <= C.

    Returns: the number for rounds that multiply X, and for rounds that compute Q.
    """
    n, c = len(ROUNDS), columns / rows
    return n * (2 * c + 1), 2 * c + n + 3 * (n - 1)


def elements_of_work(rows: int, columns: int) -> float:
    """How many elements AdamW could update in the time that Muon takes for one element of such a matrix.

    A product of two R x R matrices takes 2 R^3 operations.
    """
    r, c = sorted((rows, columns))
    return 1 + min(products(r, c)) * 2 * r * r / c / ELEMENT


def newton_schulz_composed(x: Tensor) -> Tensor:
    """Each matrix of (..., R, C) with its singular values moved to between 0.72 and 1.28 (those that are not tiny).

    A is the smaller of the two possible products: a matrix with more rows than columns is transposed before and after.
    """
    is_tall = x.shape[-2] > x.shape[-1]
    if is_tall:
        x = x.transpose(-1, -2)
    x = x / (x * x).sum((-2, -1), keepdim=True).sqrt().maximum(EPS)
    for a, b, c in ROUNDS:
        gram = x @ x.transpose(-1, -2)
        x = x * a + (gram * b + gram @ gram * c) @ x
    return x.transpose(-1, -2) if is_tall else x


def newton_schulz_fused(x: np.ndarray) -> None:
    """`newton_schulz_composed` of a stack (n, R, C) in place, with the polynomial as a product F X.

    F = a I + A (b I + c A), which leaves only one product and two additions to a diagonal. Where it takes less work
    (C > 1.5 R), the rounds compute Q, the product of their factors F, and A, which becomes (F X) (F X)^T = F A F; both
    are R x R. X itself is multiplied once, by Q at the end.
    """
    x = x.swapaxes(1, 2) if x.shape[1] > x.shape[2] else x
    with_x, with_q = products(*x.shape[1:])
    keeps_x = with_q < with_x
    flat = x.reshape(len(x), -1)
    now = x / np.maximum(np.sqrt(np.vecdot(flat, flat)), EPS)[:, None, None]
    gram = now @ now.swapaxes(1, 2)
    inner, factor = np.empty((2, *gram.shape), x.dtype)
    of_inner, of_factor = np.einsum("nii->ni", inner), np.einsum("nii->ni", factor)  # their diagonals
    product = None if keeps_x else now  # Q, or F X
    for number, (a, b, c) in enumerate(ROUNDS):
        if number:
            gram = factor @ gram @ factor if keeps_x else product @ product.swapaxes(1, 2)
        np.multiply(gram, c, out=inner)
        of_inner += b
        np.matmul(gram, inner, out=factor)
        of_factor += a
        product = factor.copy() if product is None else factor @ product
    if keeps_x:
        np.matmul(product, now, out=x)
    else:
        x[...] = product


def muon_composed(
    w: Tensor,
    g: Tensor,
    m: Tensor,
    lr: float,
    momentum: float,
    weight_decay: float,
    adjust_lr_fn: str,
    guard: Tensor | None = None,
) -> None:
    """One Muon update of w and m in place; each is a stack of matrices (n, R, C), each matrix updated separately.

    m = momentum m + (1 - momentum) g       running mean of the gradient
    u = momentum m + (1 - momentum) g       the same again: where the mean will be if g stays (Nesterov)
    w = w - lr (scale O(u) + weight_decay w)

    A guard may scale g, or forbid the update (`guarded`).
    """
    if (g := guarded(g, guard)) is None:
        return
    with no_grad():
        m[...] = m * momentum + g * (1 - momentum)
        update = newton_schulz_composed(m * momentum + g * (1 - momentum))
        w[...] = w - (update * scale_of(*w.shape[-2:], adjust_lr_fn) + w * weight_decay) * lr


def muon_fused(
    w: Tensor, g: Tensor, m: Tensor, lr: float, momentum: float, weight_decay: float, adjust_lr_fn: str
) -> None:
    """`muon_composed` with every step in place, for as many matrices at a time as stay in the processor's cache."""
    n, rows, columns = w.shape
    at_once, step = max(1, BLOCK // (rows * columns)), lr * scale_of(rows, columns, adjust_lr_fn)
    for start in range(0, n, at_once):
        wp, gp, mp = (x.data[start : start + at_once] for x in (w, g, m))
        update = np.subtract(gp, mp)
        update *= 1 - momentum
        mp += update
        np.subtract(mp, gp, out=update)
        update *= momentum
        update += gp
        newton_schulz_fused(update)
        update *= step
        if weight_decay:
            wp *= 1 - lr * weight_decay
        wp -= update


muon = ReferenceAndFused(muon_composed, cpu=muon_fused, cuda="tinygrad_lite.cuda.muon")


# --- the optimizer --------------------------------------------------------------------------------------------


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
        for name, place in self.memory.places.items():
            each = elements_of_work(*shapes[name]) if shapes[name] else 1.0
            borders.append(place.stop)
            work.append(work[-1] + each * (place.stop - place.start))

        def cut(share: float) -> int:
            """Where this share of the work ends; within a matrix, at its nearer border."""
            place = np.interp(share * work[-1], work, borders)
            for name, whole in self.memory.places.items():
                if shapes[name] and whole.start < place < whole.stop:
                    return whole.start if place < (whole.start + whole.stop) / 2 else whole.stop
            return int(place)

        return slice(cut(rank / size), cut((rank + 1) / size))

    def state_dict(self) -> dict[str, np.ndarray]:
        unused = {f"exp_avg_sq.{name}" for g in self.param_groups if g["use_muon"] for name in g["param_names"]}
        return {name: array for name, array in super().state_dict().items() if name not in unused}
