"""How many units in the last place is a result away from the exact one?

    python docs/course/03-checking/ulp.py              docs/reliability.md has its main columns
    python docs/course/03-checking/ulp.py gelu         only functions with this in their names

A unit in the last place (ULP) of a number is the distance between the two neighbours that enclose it in its type: 2^-23
(float32) or 2^-52 (float64) times the power of 2 at or below it. A correctly rounded result has an error of at most 0.5
ULP. Where terms cancel and the exact result comes near 0, its unit shrinks, and an error that is small beside the terms
is large beside the unit. So errors are compared with the unit of the *scale*: of the result itself, or if that is
larger, of x for activations (of 1 for their slopes), and of the largest number in the same row for functions of rows.
In units of the result itself, the largest error is given in parentheses where it is another.

The exact results are computed in long double, with 64 bits instead of 24 or 53, by formulas that lose no digits.
Gradients are those of a sum for functions of one number, and of a sum with random weights for functions of rows.
`formula` is the reference version, the formula written with NumPy's functions; `torch` is PyTorch, if it is installed.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from importlib.util import find_spec
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np

from tinygrad_lite import Tensor, functional
from tinygrad_lite.functional.registry import composed, is_composed
from tinygrad_lite.optim.muon import ROUNDS, newton_schulz_composed, newton_schulz_fused
from training.cli.console import run_command

LONG = np.longdouble
PI = LONG("3.14159265358979323846264338327950288")
WIDTH = 64  # of a row
FREQUENCIES = tuple(10000.0 ** (-np.arange(WIDTH // 2) / (WIDTH // 2)))


def error_function(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """erf(x), and erfc(|x|) = 1 - erf(|x|), which loses no digits if |x| is large."""
    z = np.abs(x)
    near, far = np.minimum(z, 1.5), np.maximum(z, 1.5)
    erf = term = 2 / np.sqrt(PI) * near * np.exp(-near * near)
    for n in range(1, 40):  # erf(z) = 2 / sqrt(pi) e^(-z^2) sum_n z (2 z^2)^n / (1 * 3 * 5 ... (2 n + 1))
        term = term * near * near * 2 / (2 * n + 1)
        erf = erf + term
    fraction = far
    for n in range(120, 0, -1):  # erfc(z) = e^(-z^2) / sqrt(pi) / (z + 1/2 / (z + 2/2 / (z + 3/2 / (z + ...))))
        fraction = far + LONG(n) / 2 / fraction
    erfc = np.where(z < 1.5, 1 - erf, np.exp(-far * far) / np.sqrt(PI) / fraction)
    return np.sign(x) * np.where(z < 1.5, erf, 1 - erfc), erfc


# The exact results and gradients, of x and the gradients dy of the results, all in long double.


def exact_sigmoid(x, dy):
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1) / (1 + e), dy * e / (1 + e) ** 2


def exact_silu(x, dy):
    s = 1 / (1 + np.exp(-x))
    return x * s, dy * s * (1 + x * s * np.exp(-x))


def exact_erf(x, dy):
    return error_function(x)[0], dy * 2 / np.sqrt(PI) * np.exp(-x * x)


def exact_gelu(x, dy):
    below = error_function(x * np.sqrt(LONG(0.5)))[1] / 2
    p = np.where(x < 0, below, 1 - below)
    return x * p, dy * (p + x * np.exp(-x * x / 2) / np.sqrt(2 * PI))


def exact_gelu_tanh(x, dy):
    twice_u = 2 * np.sqrt(2 / PI) * x * (1 + LONG("0.044715") * x * x)
    p, not_p = 1 / (1 + np.exp(-twice_u)), 1 / (1 + np.exp(twice_u))
    return x * p, dy * (p + x * p * not_p * 2 * np.sqrt(2 / PI) * (1 + 3 * LONG("0.044715") * x * x))


def exact_softmax(x, dy):
    e = np.exp(x - x.max(-1, keepdims=True))
    y = e / e.sum(-1, keepdims=True)
    return y, y * (dy - (dy * y).sum(-1, keepdims=True))


def exact_log_softmax(x, dy):
    z = x - x.max(-1, keepdims=True)
    others = np.where(z == 0, 0, np.exp(z)).sum(-1, keepdims=True)  # the largest number occurs once
    return z - np.log1p(others), dy - exact_softmax(x, dy)[0] * dy.sum(-1, keepdims=True)


def exact_logsumexp(x, dy):
    return x.max(-1) - exact_log_softmax(x, x)[0].max(-1), exact_softmax(x, x)[0] * dy[:, None]


def exact_cross_entropy(x, dy):
    is_target = np.arange(WIDTH) == x.argmin(-1)[:, None]
    losses = -exact_log_softmax(x, x)[0][is_target]
    return losses, dy[:, None] * (exact_softmax(x, x)[0] - is_target)


def exact_layer_norm(x, dy):
    w, b, u = x[0].clip(0.5, 2), x[1], x - x.mean(-1, keepdims=True)
    r = 1 / np.sqrt((u * u).mean(-1, keepdims=True) + LONG(1e-5))
    h, dh = u * r, dy * w
    return h * w + b, r * (dh - dh.mean(-1, keepdims=True) - h * (dh * h).mean(-1, keepdims=True))


def exact_rms_norm(x, dy):
    w, r = x[0].clip(0.5, 2), 1 / np.sqrt((x * x).mean(-1, keepdims=True) + LONG(1e-5))
    return x * r * w, r * (dy * w - x * r * (dy * w * x * r).mean(-1, keepdims=True))


def exact_attention(x, dy):
    seen = np.tri(x.shape[2], dtype=bool)
    keys = x[:, ::-1]
    scores = np.where(seen, x @ keys.swapaxes(2, 3) / 8, -np.inf)
    p, ds = exact_softmax(scores, dy @ keys.swapaxes(2, 3))
    return p @ keys, ds @ keys / 8


def exact_rotary(x, dy):
    angles = np.arange(x.shape[1])[:, None, None] * np.array(FREQUENCIES, LONG)  # exact: 11 bits times 53
    cos, sin, half = np.cos(angles), np.sin(angles), WIDTH // 2
    turned = [x[..., :half] * cos - x[..., half:] * sin, x[..., half:] * cos + x[..., :half] * sin]
    back = [dy[..., :half] * cos + dy[..., half:] * sin, dy[..., half:] * cos - dy[..., :half] * sin]
    return np.concatenate(turned, -1), np.concatenate(back, -1)


def exact_muon(x, dy):
    x = x / np.sqrt((x * x).sum((1, 2), keepdims=True))
    for a, b, c in ROUNDS:
        gram = x.swapaxes(1, 2) @ x
        x = x * LONG(a) + x @ (gram * LONG(b) + gram @ gram * LONG(c))
    return (x,)


def muon_rounds(F: Any, x: Tensor) -> Tensor:
    """The version that would run."""
    if is_composed():
        return newton_schulz_composed(x)
    y = x.numpy().copy()
    newton_schulz_fused(y)
    return Tensor(y)


class Case(NamedTuple):
    """A function and where it is measured.

    Attributes:
        call: of the module `functional`, or torch's, and a tensor.
        exact: its result and gradient for x and dy, both in long double.
        between: the ends of an interval of x.
        shape, mean: without an interval, those of normally distributed numbers in rows; -1: as many as fit.
        scale: "x", "row" or "", for the result itself.
        in_torch: whether torch has it.
    """

    call: Callable[[Any, Any], Any]
    exact: Callable[..., tuple[np.ndarray, ...]]
    between: tuple[float, ...] = ()
    shape: tuple[int, ...] = (-1, WIDTH)
    mean: float = 0
    scale: str = ""
    in_torch: bool = True


def of_rows(call: Callable[[Any, Any], Any], exact: Callable[..., tuple[np.ndarray, ...]], *shape: int, **more) -> Case:
    """A function of rows."""
    return Case(call, exact, shape=shape or (-1, WIDTH), scale="row", **more)


def norm(F: Any, x: Any, name: str, *shift: Any) -> Any:
    """A normalisation whose gain is the first row of x; a shift may be given."""
    shape = () if F is functional else (x.shape[-1:],)
    return getattr(F, name)(x, *shape, weight=x.detach()[0].clip(0.5, 2), eps=1e-5, **dict(shift))


CASES = {
    "exp": Case(lambda F, x: x.exp(), lambda x, dy: (np.exp(x), dy * np.exp(x)), (-87, 88)),
    "log": Case(lambda F, x: x.log(), lambda x, dy: (np.log(x), dy / x), (1e-6, 20)),
    "sqrt": Case(lambda F, x: x.sqrt(), lambda x, dy: (np.sqrt(x), dy / 2 / np.sqrt(x)), (1e-6, 20)),
    "sin": Case(lambda F, x: x.sin(), lambda x, dy: (np.sin(x), dy * np.cos(x)), (-100, 100)),
    "cos": Case(lambda F, x: x.cos(), lambda x, dy: (np.cos(x), -dy * np.sin(x)), (-100, 100)),
    "tanh": Case(lambda F, x: x.tanh(), lambda x, dy: (np.tanh(x), dy / np.cosh(x) ** 2), (-20, 20), scale="x"),
    "sigmoid": Case(lambda F, x: x.sigmoid(), exact_sigmoid, (-80, 80)),
    "erf": Case(lambda F, x: x.erf(), exact_erf, (-6, 6)),
    "gelu": Case(lambda F, x: F.gelu(x), exact_gelu, (-12, 12), scale="x"),
    "gelu, tanh": Case(lambda F, x: F.gelu(x, approximate="tanh"), exact_gelu_tanh, (-12, 12), scale="x"),
    "silu": Case(lambda F, x: x.silu() if F is functional else F.silu(x), exact_silu, (-80, 80), scale="x"),
    "swiglu": Case(lambda F, x: F.swiglu(x, x.detach() * 0 + 1), exact_silu, (-80, 80), scale="x", in_torch=False),
    "softplus": Case(  # the loss of a question whose answer is no
        lambda F, x: F.binary_cross_entropy_with_logits(x, x.detach() * 0, reduction="none"),
        lambda x, dy: (np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))), dy / (1 + np.exp(-x))),
        (-80, 80),
        scale="x",
    ),
    "softmax": of_rows(lambda F, x: x.softmax(-1), exact_softmax),
    "log_softmax": of_rows(lambda F, x: x.log_softmax(-1), exact_log_softmax),
    "logsumexp": of_rows(lambda F, x: x.logsumexp(-1), exact_logsumexp),
    "cross_entropy": of_rows(
        lambda F, x: F.cross_entropy(x, x.detach().argmin(-1), reduction="none"), exact_cross_entropy
    ),
    "layer_norm": of_rows(lambda F, x: norm(F, x, "layer_norm", ("bias", x.detach()[1])), exact_layer_norm, mean=1),
    "rms_norm": of_rows(lambda F, x: norm(F, x, "rms_norm"), exact_rms_norm, mean=1),
    "attention": of_rows(  # to the keys and values of another head
        lambda F, x: F.scaled_dot_product_attention(x, *[x.detach()[:, [1, 0]]] * 2, is_causal=True),
        exact_attention,
        *(-1, 2, 50, WIDTH),
    ),
    "rotary": of_rows(
        lambda F, x: F.rotary(x, Tensor.arange(x.shape[1]), FREQUENCIES),
        exact_rotary,
        *(1, -1, 1, WIDTH),
        in_torch=False,
    ),
    "Muon's rounds": of_rows(muon_rounds, exact_muon, -1, 100, WIDTH, in_torch=False),
}


class Errors(NamedTuple):
    """In ULP of the scale: the largest error, the mean, and where (x; of a row: y). In ULP of y: the largest."""

    largest: float
    mean: float
    at: float
    own: float

    def __str__(self) -> str:
        return short(self.largest) + (f" ({short(self.own)})" if self.own > 1.1 * self.largest else "")


def short(number: float) -> str:
    """Two or more digits."""
    return f"{number:.2g}" if number < 100 else f"{number:.0f}" if number < 1e4 else f"{number:.0e}"


def measure(case: Case, kind: type, points: int, how: str = "here") -> Iterator[Errors]:
    """The errors of the result and of the gradient, in one type; `how` is "here", "formula" or "torch"."""
    rng = np.random.default_rng(0)
    if case.between:
        low, high = case.between
        small = np.geomspace(1e-20, min(high, 1), points // 10)
        x = np.concatenate([np.linspace(low, high, points), small, -small if low < 0 else small]).astype(kind)
        dy = np.ones_like(x)
    else:
        x, dy = rng.standard_normal((2, max(points // 10_000, 1) * 100 * WIDTH)).astype(kind).reshape(2, *case.shape)
        x += case.mean
    if case.exact in (exact_logsumexp, exact_cross_entropy):
        dy = dy[:, 0].copy()
    with np.errstate(all="ignore"):
        exact = case.exact(x.astype(LONG), dy.astype(LONG))
    if how == "torch":
        import torch

        leaf = torch.tensor(x, requires_grad=True)
        y = case.call(torch.nn.functional, leaf)
        y.backward(torch.tensor(dy))
    else:
        leaf = Tensor(x, requires_grad=True)
        with composed() if how == "formula" else nullcontext():
            y = case.call(functional, leaf)
        if len(exact) > 1:
            y.backward(Tensor(dy))
    found = [y.detach().numpy(), *([leaf.grad.numpy()] if len(exact) > 1 else [])]
    for result, right, beside in zip(found, exact, (x, 1), strict=False):
        size = scale = np.abs(right)
        if case.scale == "row" and right.ndim > 1:
            scale = np.broadcast_to(size.max(-1, keepdims=True), size.shape)
        elif case.scale == "x":
            scale = np.maximum(size, np.abs(beside))
        errors, own = (np.abs(result - right) / unit(scale, kind) for scale in (scale, size))
        worst = np.unravel_index(errors.argmax(), errors.shape)
        yield Errors(*map(float, (errors.max(), errors.mean(), (x if case.between else right)[worst], own.max())))


def unit(y: np.ndarray, kind: type) -> np.ndarray:
    """The distance of the numbers of a type that enclose y >= 0."""
    about = np.finfo(kind)
    return np.ldexp(LONG(1), np.maximum(np.frexp(y)[1], about.minexp + 1) - about.nmant - 1)


def main(argv: list[str]) -> int:
    """Print the table."""
    start, hows = time.process_time(), ("here", "formula", *["torch"] * bool(find_spec("torch")))
    titles = [f"{kind} {column}" for kind in ("float32", "float64") for column in (*hows, "mean", "at")]
    print(f"| function | {' | '.join(titles)} |\n| --- |{' ---: |' * len(titles)}")
    for name, case in CASES.items():
        if argv and not any(word in name for word in argv):
            continue
        rows = {part: [] for part in ("", ", gradient")}
        for kind in (np.float32, np.float64):
            found = [list(measure(case, kind, 200_000, how)) if how != "torch" or case.in_torch else [] for how in hows]
            for part, errors in zip(rows, zip_longest(*found, fillvalue="-"), strict=False):
                at = f"{'x' if case.between else 'y'} = {errors[0].at:.2g}"
                rows[part] += [*map(str, errors), f"{errors[0].mean:.2g}", at]
        for part in filter(rows.get, rows):
            print(f"| {name}{part} | {' | '.join(rows[part])} |")
    print(f"\n{time.process_time() - start:.0f} s of processor time", file=sys.stderr)
    return 0


if __name__ == "__main__":
    run_command("ulp", main, __doc__)
