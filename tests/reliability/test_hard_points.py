"""The operations at difficult points: signed zeros, infinities, NaN, ties and saturation.

Empty arrays, axes of size 0 and single numbers are in the tables of all operations (op_cases.py, version_cases.py and
test_by_hand.py), with their gradients.

Every expected result is listed here, and the tests marked `torch` compare the lists with PyTorch; comments state where
the two differ. Warnings are errors in this suite, so no case causes one either.
"""

import contextlib
import functools
import importlib
import itertools
import math
from operator import methodcaller

import numpy as np
import pytest

from tests.places import is_fused
from tinygrad_lite import Tensor
from tinygrad_lite import functional as F
from tinygrad_lite.functional.registry import composed

pytestmark = pytest.mark.every_device

inf, nan = math.inf, math.nan
INCOMING = [1.0, -2.0, 0.0, inf, nan]  # dL/dy
BOTH = {"fused": contextlib.nullcontext, "composed": composed}
both = pytest.mark.parametrize("version", BOTH)
and_torch = pytest.mark.parametrize("version", ["fused", pytest.param("torch", marks=pytest.mark.torch)])


def agree(a, b, dtype=np.float64, hint=""):
    """Equal numbers, and NaN and infinities at the same places."""
    tolerance = {"rtol": 1e-12, "atol": 1e-14} if dtype == np.float64 else {"rtol": 1e-6, "atol": 1e-6}
    np.testing.assert_allclose(a, np.broadcast_to(b, np.shape(a)), err_msg=hint, **tolerance)


def run(fn, inputs, dy, version="fused", dtype=np.float64):
    """The values of a function and the gradients of its inputs, in a version of ours or in PyTorch."""
    if version == "torch":
        torch = pytest.importorskip("torch")
        tensors = [torch.tensor(array, requires_grad=True) for array in inputs]
        y = fn(*tensors)
        y.backward(torch.tensor(np.broadcast_to(dy, y.shape).copy()))
        return [a.detach().numpy() for a in (y, *(x.grad for x in tensors))]
    tensors = [Tensor(array, dtype=dtype, requires_grad=True) for array in inputs]
    with BOTH[version]():
        y = fn(*tensors)
    y.backward(Tensor(np.broadcast_to(dy, y.shape).astype(dtype)))
    return [a.numpy() for a in (y, *(x.grad for x in tensors))]


# --- one number -----------------------------------------------------------------------------------------------

NUMBERS = np.array([nan, -inf, -1e4, -2.0, -0.5, -0.0, 0.0, 0.5, 1e4, inf])
t, e, c, s = math.tanh(0.5), math.exp(0.5), math.cos(0.5), math.sin(0.5)
E2, C2, S2, C4, S4 = math.exp(-2), math.cos(2), math.sin(2), math.cos(1e4), math.sin(1e4)
T2, F2, F5 = math.tanh(2), math.erf(2), math.erf(0.5)
B2, B5, B0 = (2 / math.sqrt(math.pi) * math.exp(-x * x) for x in (2, 0.5, 0))
r5 = math.sqrt(0.5)
P2, P5 = (0.5 * (1 + math.erf(x * r5)) for x in (-2, 0.5))
D2, D5 = (P + x * math.exp(-x * x / 2) / math.sqrt(2 * math.pi) for P, x in ((P2, -2), (P5, 0.5)))
M5, N5 = 1 - P5, (1 - P5) - 0.5 * math.exp(-0.125) / math.sqrt(2 * math.pi)
u = 1 - t * t
INVERSE = [nan, -0.0, -1e-4, -0.5, -2, -inf, inf, 2, 1e-4, 0]
# The operation, its values at NUMBERS, its slopes there. Operations in GATES give the gradient 0 where the slope is 0,
# even for an infinite incoming gradient; the others multiply the incoming gradient by the slope.
GATES = {"relu", "clip", "x ** 0"}
ONE = {
    "neg": (lambda x: -x, [nan, inf, 1e4, 2, 0.5, 0, 0, -0.5, -1e4, -inf], [-1] * 10),
    "exp": (lambda x: x.exp(), *[[nan, 0, 0, E2, 1 / e, 1, 1, e, inf, inf]] * 2),
    "log": (lambda x: x.log(), [*[nan] * 5, -inf, -inf, math.log(0.5), math.log(1e4), inf], INVERSE),
    "sqrt": (lambda x: x.sqrt(), [*[nan] * 5, 0, 0, r5, 100, inf], [*[nan] * 5, -inf, inf, 0.5 / r5, 0.005, 0]),
    "tanh": (lambda x: x.tanh(), [nan, -1, -1, -T2, -t, 0, 0, t, 1, 1], [nan, 0, 0, 1 - T2**2, u, 1, 1, u, 0, 0]),
    "sin": (lambda x: x.sin(), [nan, nan, -S4, -S2, -s, 0, 0, s, S4, nan], [nan, nan, C4, C2, c, 1, 1, c, C4, nan]),
    "cos": (lambda x: x.cos(), [nan, nan, C4, C2, c, 1, 1, c, C4, nan], [nan, nan, S4, S2, s, 0, 0, -s, -S4, nan]),
    "erf": (lambda x: x.erf(), [nan, -1, -1, -F2, -F5, 0, 0, F5, 1, 1], [nan, 0, 0, B2, B5, B0, B0, B5, 0, 0]),
    "relu": (lambda x: x.relu(), [nan, 0, 0, 0, 0, 0, 0, 0.5, 1e4, inf], [1, 0, 0, 0, 0, 0, 0, 1, 1, 1]),
    # At NaN PyTorch has the slope 0.
    "abs": (lambda x: x.abs(), [nan, inf, 1e4, 2, 0.5, 0, 0, 0.5, 1e4, inf], [nan, -1, -1, -1, -1, 0, 0, 1, 1, 1]),
    "clip": (lambda x: x.clip(-0.5, 0.0), [nan, -0.5, -0.5, -0.5, -0.5, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1, 1, 0, 0, 0]),
    "x ** 0": (lambda x: x**0, [1] * 10, [0] * 10),
    "x ** 1": (lambda x: x**1, list(NUMBERS), [1] * 10),
    "x ** 2": (lambda x: x**2, [nan, inf, 1e8, 4, 0.25, 0, 0, 0.25, 1e8, inf], 2 * NUMBERS),
    "x ** 3": (
        lambda x: x**3,
        [nan, -inf, -1e12, -8, -0.125, 0, 0, 0.125, 1e12, inf],
        [nan, inf, 3e8, 12, 0.75, 0, 0, 0.75, 3e8, inf],
    ),
    "x ** -1": (lambda x: x**-1, INVERSE, [nan, 0, -1e-8, -0.25, -4, -inf, -inf, -4, -1e-8, 0]),
    "x ** -2": (
        lambda x: x**-2,
        [nan, 0, 1e-8, 0.25, 4, inf, inf, 4, 1e-8, 0],
        [nan, 0, 2e-12, 0.25, 16, inf, -inf, -16, -2e-12, 0],
    ),
    # PyTorch takes the square root: NaN at -inf (so do some versions of NumPy), and -inf for the slope at -0.0.
    "x ** 0.5": (
        lambda x: x**0.5,
        [nan, inf, nan, nan, nan, 0, 0, r5, 100, inf],
        [nan, 0, nan, nan, nan, inf, inf, 0.5 / r5, 0.005, 0],
    ),
    "gelu": (
        lambda x: x.gelu() if isinstance(x, Tensor) else importlib.import_module("torch").nn.functional.gelu(x),
        [nan, nan, 0, -2 * P2, -0.5 * M5, 0, 0, 0.5 * P5, 1e4, inf],
        [nan, nan, 0, D2, N5, 0.5, 0.5, D5, 1, nan],
    ),
}


def _expected(name, dy, slopes):
    with np.errstate(invalid="ignore"):
        return np.where(np.array(slopes) == 0, 0.0, dy * np.array(slopes)) if name in GATES else dy * np.array(slopes)


@pytest.mark.parametrize(
    ("version", "dtype"),
    [*itertools.product(BOTH, (np.float64, np.float32)), pytest.param("torch", np.float64, marks=pytest.mark.torch)],
)
def test_operations_of_one_number_are_as_listed(version, dtype):
    for name, (fn, values, slopes) in ONE.items():
        here = ~np.isneginf(NUMBERS) | (name != "x ** 0.5")
        if version == "torch":  # the exceptions are named in the list
            here &= ~(np.isnan(NUMBERS) & (name == "abs")) & ~(
                (NUMBERS == 0) & np.signbit(NUMBERS) & (name == "x ** 0.5")
            )
        composed_gelu = name == "gelu" and (version == "composed" or (version == "fused" and not is_fused(name)))
        for dy in INCOMING:
            if (composed_gelu or (version == "torch" and name == "x ** 0")) and not math.isfinite(dy):
                continue  # of the first, the product rule adds two gradients, and inf - inf is NaN
            y, dx = run(fn, [NUMBERS], dy, version, dtype)
            with np.errstate(over="ignore"):
                agree(y[here], np.array(values).astype(dtype)[here], dtype, name)
                expected = _expected(name, dy, slopes).astype(dtype)
                agree(dx[here], expected[here], dtype, f"gradient of {name}, dy {dy}")


# --- two numbers ----------------------------------------------------------------------------------------------

LEFT, RIGHT = (grid.ravel() for grid in np.meshgrid(NUMBERS, NUMBERS))


def _pow_slopes(x, n):
    """0 where the power is constant: x ** 0 for all x, and 0 ** n for all n >= 0."""
    return 0.0 if n == 0 else n * x ** (n - 1), 0.0 if x == 0 and n >= 0 else x**n * np.log(x)


def _chosen(loses):
    """Equal numbers get half each, and the one not chosen gets 0; if one is NaN, both get the whole gradient."""
    return lambda x, y: (0.5, 0.5) if x == y else (float(not loses(x, y)), float(not loses(y, x)))


TWO = {
    "add": (lambda x, y: x + y, lambda x, y: (1, 1)),
    "sub": (lambda x, y: x - y, lambda x, y: (1, -1)),
    "mul": (lambda x, y: x * y, lambda x, y: (y, x)),
    "div": (lambda x, y: x / y, lambda x, y: (1 / y, -x / y / y)),
    "pow": (lambda x, y: x**y, _pow_slopes),
    "maximum": (lambda x, y: x.maximum(y), _chosen(lambda x, y: x < y)),
    "minimum": (lambda x, y: x.minimum(y), _chosen(lambda x, y: x > y)),
}
GATED = {"pow", "maximum", "minimum"}


def _expected_of_two(name, dz):
    with np.errstate(all="ignore"):
        pairs = np.array([TWO[name][1](x, y) for x, y in zip(LEFT, RIGHT, strict=True)], float).T
        return [np.where(slope == 0, 0.0, dz * slope) if name in GATED else dz * slope for slope in pairs]


@pytest.mark.parametrize(
    ("version", "dtype"),
    [("fused", np.float64), ("fused", np.float32), pytest.param("torch", np.float64, marks=pytest.mark.torch)],
)
@pytest.mark.parametrize("name", TWO)
def test_operations_of_two_numbers_are_as_listed(name, version, dtype):
    """The number not chosen by maximum and minimum gets no gradient, even if it is infinite."""
    in_numpy = {"maximum": np.maximum, "minimum": np.minimum, "pow": np.power}
    for dz in INCOMING if name in ("maximum", "minimum") else INCOMING[:3]:
        with np.errstate(all="ignore"):
            values = in_numpy.get(name, TWO[name][0])(LEFT, RIGHT)
        found = run(TWO[name][0], [LEFT, RIGHT], dz, version, dtype)
        for got, expected in zip(found, (values, *_expected_of_two(name, dz)), strict=True):
            # Where a slope is 0 by rounding alone, 0 * NaN may be either.
            agree(got, expected, dtype)


# --- rows of numbers ------------------------------------------------------------------------------------------

ROWS = "1 1 1, 0 -0 -1, 2 2 -3, 1e4 -1e4 0, 1e4 1e4 -1e4, -1e4 -1e4 -1e4, -inf 0 0, -inf -inf 5, -inf -inf -inf, "
ROWS += "inf 0 1, inf inf 0, inf nan -inf, nan 1 2"
ROWS = np.array([row.split() for row in ROWS.split(", ")], float)


def _share(row, chosen):
    """Ties share the gradient evenly; in a row with NaN nothing equals the result: 0/0."""
    with np.errstate(invalid="ignore"):
        return (row == chosen) / np.float64((row == chosen).sum())


def _softmax(row):
    if (row == -inf).all():
        return np.zeros(3)  # nothing to attend to (PyTorch: NaN)
    if np.isnan(row).any() or (row == inf).any():
        return np.full(3, nan)
    e = np.exp(row - row.max())
    return e / e.sum()


@and_torch
def test_reductions_of_rows_with_ties_infinities_and_nan(version):
    for name, theirs in (("amax", np.max), ("amin", np.min)):
        y, dx = run(methodcaller(name, 1), [ROWS], 3.0, version)
        agree(y, theirs(ROWS, 1))
        agree(dx, [3 * _share(row, theirs(row)) for row in ROWS])
    for name in ("sum", "mean"):
        y, dx = run(methodcaller(name, 1), [ROWS], 6.0, version)
        with np.errstate(invalid="ignore"):
            agree(y, getattr(ROWS, name)(1))
        agree(dx, 6.0 if name == "sum" else 2.0)
    assert Tensor(ROWS).argmax(1).tolist() == np.argmax(ROWS, 1).tolist()


@and_torch
def test_softmax_of_rows_with_ties_infinities_and_nan(version):
    dy = np.array([1.0, 2.0, -4.0])
    p = np.array([_softmax(row) for row in ROWS])
    here = ~np.isneginf(ROWS).all(1) if version == "torch" else slice(None)
    y, dx = run(methodcaller("softmax", 1), [ROWS], dy, version)
    agree(y[here], p[here])
    agree(dx[here], (p * (dy - (p * dy).sum(1, keepdims=True)))[here])
    with np.errstate(all="ignore"):
        agree(run(methodcaller("logsumexp", 1), [ROWS], 2.0, version)[0], np.logaddexp.reduce(ROWS, 1))


# --- cross-entropy and attention ------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_saturated_cross_entropy_is_exact(version, dtype):
    """Logits of 1e4 and -1e4: the loss is exact, and the gradient is 1 and -1 without rounding."""
    logits = np.array([[1e4, -1e4, 0], [-1e4, 1e4, 0], [-1e4, -1e4, 1e4], [1e4, 1e4, -1e4]], dtype)
    targets = Tensor([0, 0, 1, 2])
    losses, dx = run(lambda x: F.cross_entropy(x, targets, reduction="none"), [logits], 1.0, version, dtype)
    agree(losses, [0, 2e4, 2e4, 2e4 + math.log(2)], dtype)
    agree(dx, [[0, 0, 0], [-1, 1, 0], [0, -1, 1], [0.5, 0.5, -1]], dtype)
    loss, dx = run(lambda x: F.cross_entropy(x, targets, label_smoothing=0.1), [logits], 1.0, version, dtype)
    mean = (2e4 + 1e4) / 3, 1e4, 4e4 / 3, 2e4 / 3 + math.log(2)  # of -log q over the three tokens
    agree(loss, np.mean([0.9 * a + 0.1 * b for a, b in zip(losses.tolist(), mean, strict=True)]), dtype)
    assert np.isfinite(dx).all()
    agree(dx.sum(1), 0, dtype)


@pytest.mark.parametrize("count", [20, pytest.param(400, marks=pytest.mark.slow)])
def test_fully_masked_queries_give_zeros_and_disturb_nothing(count):
    """Their results and gradients are 0 and other queries are not affected, with saturated scores too."""
    rng, blind_rows = np.random.default_rng(count), 0
    for trial in range(count):
        t, s = rng.integers(1, 6, 2)
        q, k, v = (rng.standard_normal((2, 2, n, 4)) for n in (t, s, s))
        q *= 10.0 ** rng.choice([0, 2, 4])  # up to scores of 1e4
        mask = rng.random((2, 1, t, s)) < 0.4
        options = {"mask": Tensor(mask), "is_causal": bool(rng.random() < 0.5)}
        allowed = mask & (np.tril(np.ones((t, s), bool), s - t) if options["is_causal"] else True)
        allowed = np.broadcast_to(allowed, (2, 2, t, s))
        blind = ~allowed.any(-1)
        hint = f"seed {count}, trial {trial}"
        attend, dy = functools.partial(F.scaled_dot_product_attention, **options), np.linspace(-1, 1, q.size)
        results = {version: run(attend, (q, k, v), dy.reshape(q.shape), version) for version in BOTH}
        for out, dq, dk, dv in results.values():
            assert (out[blind] == 0).all(), hint
            assert (dq[blind] == 0).all(), hint
            assert all(np.isfinite(a).all() for a in (out, dq, dk, dv)), hint
            nobody = ~allowed.any(-2)  # keys that no query may attend to
            assert (dk[nobody] == 0).all(), hint
            assert (dv[nobody] == 0).all(), hint
        for a, b in zip(*results.values(), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9 * max(1, np.abs(q).max()), err_msg=hint)
        blind_rows += int(blind.sum())
    assert blind_rows
