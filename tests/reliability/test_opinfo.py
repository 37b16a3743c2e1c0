"""The operations beside PyTorch's own samples (OpInfo), in every spelling that a user of torch would type.

A sample is a call with its arguments. Its result is either agreed (equal shapes, dtypes, values and gradients), or
refused by a sentence of this library, or a difference that LISTED gives a reason for. Anything else fails, and so does
an entry of the list that no sample needs. What torch itself refuses is left out, as are complex numbers and halves.
"""

import operator
import random
import re
import traceback
import warnings
from collections import Counter

import numpy as np
import pytest

import tinygrad_lite
from tinygrad_lite import Tensor
from tinygrad_lite import functional as F

try:
    from extra.torch_names import Elsewhere
except ModuleNotFoundError:  # without the shelf, no name says where torch's method is
    Elsewhere = ()

pytestmark = pytest.mark.torch

# The name, a pattern that occurs in the report "call -> difference", and the reason.
LISTED = [
    ("abs", "-> gradient nan, not 0.0", "the slope at NaN is NaN here and 0 in torch: see test_hard_points.py"),
    ("all", "^uint8.*-> dtype bool", "torch keeps uint8, which was its type of truth values before it had bool"),
    ("any", "^uint8.*-> dtype bool", "as for all"),
    ("dropout", r"^(?!.*p=0\.0).*-> values", "random numbers"),
    ("one_hot", "-> dtype float32", "floats, ready to be multiplied: see the docstring"),
    ("randn", "-> values", "random numbers"),
    ("scaled_dot_product_attention", "dropout_p=0.5.*-> values", "random numbers"),
    (
        "scaled_dot_product_attention",
        r"3, 8\], float64\[4, 4, 6, 8\], .*is_causal=True, dropout_p=0.0.*-> values",
        "with 3 queries and 6 keys, the last query sees all keys: see the docstring",
    ),
    ("sign", "-> values nan, not 0.0", "NaN stays NaN, as in NumPy: see the docstring"),
]
# Samples state many options that are torch's default anyway. If such a call is refused, it is repeated without these.
DEFAULTS = {"alpha": 1, "ceil_mode": False, "device": "cpu", "dilation": 1, "return_indices": False, "training": True}
# OpInfo puts the tensor first. This is the order of torch's functions.
ORDER = {
    "einsum": lambda tensors, equation: (equation, *tensors),
    "embedding": lambda weight, ids: (ids, weight),
    "where": lambda x, condition, y: (condition, x, y),
}
OPERATORS = {"floor_divide": operator.floordiv, "true_divide": operator.truediv, "__rdiv__": lambda x, y: y / x}
DTYPES = ["float64", "int64", "uint8", "bool"]
KNOWN = {*DTYPES, "float32", "int8", "int16", "int32"}  # samples also mix dtypes
MOST = 70  # samples of an operation for one dtype; large ones are left out, to save time
REFUSALS = (TypeError, ValueError, IndexError, RuntimeError, AttributeError, ZeroDivisionError)
SIGNATURE = re.compile(r"takes .* positional argument|unexpected keyword argument|multiple values for argument")


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


@pytest.fixture(scope="module")
def shared(torch):
    """OpInfo's entries, by the names that both libraries have."""
    pytest.importorskip("expecttest")  # which OpInfo imports
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    entries = {}
    for op in op_db:
        for full_name in (op.name, *(alias.name for alias in op.aliases)):
            name = full_name.removeprefix("nn.functional.")
            if "." not in name and any(spellings(torch, op, name)):
                entries.setdefault(name, []).append(op)
    return entries


# --- calls ----------------------------------------------------------------------------------------------------


def spellings(torch, op, name):
    """The ways to type an operation: what stands before the name, torch's function, ours, the arguments' order."""
    here = getattr(Tensor, name, None)
    is_here = here is not None and not isinstance(here, Elsewhere)
    is_method = is_here and hasattr(torch.Tensor, name)
    function = getattr(torch.nn.functional, name, None) or getattr(torch, name, None)
    sign = OPERATORS.get(name) or (op.operator_variant if name == op.name else None)
    if is_method:
        yield "x.", method(name), method(name), None
    if name in F.__all__ and function:
        yield "F.", function, getattr(F, name), ORDER.get(name)
    elif is_here and function and (not is_method or name in ORDER):
        yield "Tensor.", function, here, ORDER.get(name)
    if sign and (name in OPERATORS or hasattr(Tensor, f"__{sign.__name__.strip('_')}__")):
        yield "operator ", sign, sign, None


def method(name):
    """x.name(...) of any x; or x.name, if that is no method."""

    def call(x, *args, **options):
        value = getattr(x, name)
        return value(*args, **options) if callable(value) else value

    return call


def samples_of(torch, op, dtype):
    """OpInfo's calls with tensors of this dtype, always the same ones: pairs of arguments and options."""
    dtype = getattr(torch, dtype)
    if dtype not in op.supported_dtypes("cpu"):
        return []
    torch.manual_seed(0), np.random.seed(0), random.seed(0)
    needs = dtype.is_floating_point and op.supports_autograd
    try:
        samples = list(op.reference_inputs("cpu", dtype, requires_grad=needs, set_seed=False))
    except ValueError:  # some of these ask for gradients of integers
        samples = list(op.sample_inputs("cpu", dtype, requires_grad=needs, set_seed=False))
    samples = [s for s in samples if getattr(s.input, "nbytes", 0) < 1 << 17]
    return [((s.input, *s.args), s.kwargs) for s in samples[:: -(-len(samples) // MOST) or 1]]


def each(change, value):
    """The value, with everything in its lists, tuples and dicts changed."""
    if isinstance(value, dict):
        return {key: each(change, part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return (list if isinstance(value, list) else tuple)(each(change, part) for part in value)
    return change(value)


def typed(name, before, args, options):
    """The call as text, with tensors as float64[2, 3]."""

    def text(value):
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(map(text, value))}]"
        return f"{value.dtype}{[*value.shape]}".removeprefix("torch.") if hasattr(value, "dtype") else repr(value)

    first, *rest = [*map(text, args), *(f"{key}={text(value)}" for key, value in options.items())]
    return f"{first}.{name}({', '.join(rest)})" if before == "x." else f"{before}{name}({', '.join([first, *rest])})"


# --- results --------------------------------------------------------------------------------------------------


def outcome(torch, theirs, ours, args, options):
    """What becomes of a call (left out, failed, refused, different, agreed), and how."""
    known, leaves = [], {}  # leaves: torch's tensors, each with ours

    def for_torch(x):
        if isinstance(x, (torch.Tensor, torch.dtype, complex)):
            known.append(str(getattr(x, "dtype", x)).removeprefix("torch.") in KNOWN)
        return x.detach().requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) else x

    def for_us(x):
        if isinstance(x, torch.Tensor):
            leaves[x] = Tensor.wrap(x.detach().numpy()).requires_grad_(x.requires_grad)
            return leaves[x]
        return str(x).removeprefix("torch.") if isinstance(x, (torch.dtype, torch.device)) else x

    args, options = each(for_torch, args), each(for_torch, options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            right = theirs(*args, **options)
        except Exception:
            return "left out", ""
    if not all(known):
        return "left out", ""
    try:
        y = ours(*each(for_us, args), **each(for_us, options))
        detail = difference(torch, y, right) or difference_of_gradients(torch, y, right, leaves)
    except Exception as error:  # warnings are errors, too
        return "refused" if is_refusal(error) else "failed", f"{type(error).__name__}: {error}".split("\n")[0]
    return "different" if detail else "agreed", detail


def is_refusal(error):
    """Whether the error is a sentence of this library, or Python's about arguments: not one from inside NumPy."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    is_own = last.filename.startswith(tinygrad_lite.__path__[0]) and last.line.startswith("raise ")
    is_about_arguments = isinstance(error, TypeError) and SIGNATURE.search(str(error))
    return isinstance(error, REFUSALS) and (is_own or is_about_arguments) and "\n" not in str(error)


def difference(torch, y, right):
    """The first difference between our result and torch's; empty if there is none."""
    if isinstance(right, (list, tuple)):
        if not isinstance(y, (list, tuple)) or len(y) != len(right):
            return f"{type(y).__name__}, not {len(right)} results"
        return next(filter(None, (difference(torch, *pair) for pair in zip(y, right, strict=True))), "")
    if not isinstance(right, torch.Tensor):
        return "" if type(y) is type(right) and y == right else f"{y!r}, not {right!r}"
    if not isinstance(y, Tensor):
        return f"{type(y).__name__}, not a tensor"
    return unequal("values", y.numpy(), right.detach().numpy())


def unequal(what, a, b):
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"shape {a.shape}, not {b.shape}" if a.shape != b.shape else f"dtype {a.dtype}, not {b.dtype}"
    tolerance = {"float32": 1e-5, "float64": 1e-7}.get(a.dtype.name, 0)
    with np.errstate(all="ignore"):
        wrong = ~np.isclose(a, b, rtol=tolerance, atol=tolerance / 100, equal_nan=True)
    return f"{what} {a[wrong][0]}, not {b[wrong][0]}" if wrong.any() else ""


def difference_of_gradients(torch, y, right, leaves):
    """The same for the gradients of all leaves. A gradient that is missing, here or there, counts as zeros."""
    y, right = ([*z] if isinstance(z, (list, tuple)) else [z] for z in (y, right))
    asked = [x for x in leaves if x.requires_grad]
    if not asked or not any(getattr(z, "requires_grad", False) for z in right):
        return ""
    incoming = [np.random.default_rng(i).standard_normal(z.shape) for i, z in enumerate(right)]
    total = sum((z * torch.tensor(dz)).sum() for z, dz in zip(right, incoming, strict=True) if z.requires_grad)
    try:
        expected = torch.autograd.grad(total, asked, allow_unused=True)
    except RuntimeError:  # torch has no derivative
        return ""
    if results := [(z * Tensor(dz)).sum() for z, dz in zip(y, incoming, strict=True) if z.requires_grad]:
        sum(results).backward()
    for x, dx in zip(asked, expected, strict=True):
        zeros, grad = np.zeros_like(x.detach().numpy()), leaves[x].grad
        detail = unequal("gradient", zeros if grad is None else grad.numpy(), zeros if dx is None else dx.numpy())
        if detail:
            return detail
    return ""


# --- the tests ------------------------------------------------------------------------------------------------


def test_every_sample_is_agreed_or_refused_or_listed(torch, shared, report):
    counts, wrong, needed = Counter(), [], set()
    calls = [
        (name, op, *sample)
        for name, entries in shared.items()
        for op in entries
        for dtype in DTYPES
        for sample in samples_of(torch, op, dtype)
    ]
    for name, op, args, options in calls:
        for before, theirs, ours, order in spellings(torch, op, name):
            given = order(*args) if order else args
            found, detail = outcome(torch, theirs, ours, given, options)
            short = {key: value for key, value in options.items() if DEFAULTS.get(key, ...) != value}
            if found == "refused" and short != options:
                found, detail = outcome(torch, theirs, ours, given, short)
            if found in ("failed", "different"):
                call = f"{typed(name, before, given, options)} -> {detail}"
                entries = {entry for entry in LISTED if entry[0] == name and re.search(entry[1], call)}
                if entries and found == "different":
                    found = "listed"
                    needed |= entries
                else:
                    wrong.append(call)
            counts[found] += 1
    report(f"OpInfo's samples: {', '.join(f'{n} {found}' for found, n in counts.most_common())}")
    assert len(shared) == 113  # the names that both libraries have
    assert not wrong, f"{len(wrong)} calls:\n" + "\n".join(wrong[:20])
    assert {*LISTED} == needed, "no sample needs an entry of the list"
