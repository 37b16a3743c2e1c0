"""Every operation with kernels of its own equals its reference version on the CPU.

In the cases of version_cases.py, and in sizes, layouts and types at which kernels work in another way.
"""

import numpy as np
import pytest

from tests.tinygrad_lite.functional.test_registry import UPDATES, assert_close, outcome
from tests.tinygrad_lite.functional.version_cases import CASES, of_case, tensors
from tinygrad_lite import Tensor
from tinygrad_lite.cuda.columns import ROW_BLOCKS
from tinygrad_lite.cuda.layer_norm import BLOCKS, MOST_OWN
from tinygrad_lite.functional.registry import REGISTRY, composed
from tinygrad_lite.precision import bfloat16
from tinygrad_lite.tensor import node
from tinygrad_lite.transformer import rotary_frequencies

TOLERANCES = {  # in float64 and in float32
    "adamw": (1e-12, 1e-5),
    "cross_entropy": (1e-10, 1e-5),
    "embedding": (1e-12, 1e-6),
    "gelu": (1e-10, 1e-5),
    "layer_norm": (1e-12, 3e-5),
    "linear": (1e-12, 3e-5),
    "linear_gelu": (1e-10, 1e-5),
    "muon": (1e-12, 5e-6),
    "relu_squared": (1e-12, 1e-6),
    "residual": (1e-12, 1e-6),
    "rms_norm": (1e-12, 5e-6),  # a row of one number has a small gradient, the difference of two larger ones
    "rotary": (1e-12, 1e-6),
    "scaled_dot_product_attention": (1e-12, 1e-5),
    "swiglu": (1e-12, 1e-6),
}
rng = np.random.default_rng(11)
normal = rng.standard_normal


def sized(names, *shapes):
    """For each size the arguments with these names, all of the same shape."""
    return [{name: normal(shape) for name in names.split()} for shape in shapes]


def rows_of(width_of, *sizes):
    """Matrices x (rows, width), with and without the parameters that an operation has beside it."""
    return [{"x": normal((rows, width))} | more for rows, width in sizes for more in width_of(width)]


ELEMENTS = [(1,), (3,), (255, 1), (2, 511), (2, 512), (2, 516), (3, 1028), (300, 20)]
ROWS = [(1, 1), (2, 3), (5, 4), (7, 33), (300, 36), (9, 256)]
WIDTHS = [1, 33, 64, 257, 4100]  # packs and single numbers, rows longer than a warp
SIZES = {
    "gelu": sized("x", *((n,) for n in (1, 3, 255, 256, 257, 1024, 1025, 4100))),
    "relu_squared": sized("x", *ELEMENTS),
    "swiglu": sized("gate up", *ELEMENTS),
    "linear_gelu": rows_of(
        lambda width: [{"weight": normal((width, width)), "bias": normal(width)}],
        *((rows, 4) for rows in (1, 7, 8, 9, 8 * ROW_BLOCKS + 1)),  # where a thread takes several rows
    ),
    "layer_norm": rows_of(
        lambda width: [{"weight": normal(width)}, *sized("weight bias", width)],
        *ROWS,
        *((4 * BLOCKS + 5, 3), (3, 128 * MOST_OWN), (9, 128 * MOST_OWN + 4)),  # several rows for a warp; wide rows
    ),
    "linear": rows_of(lambda n: [{"weight": normal((6, n))}, {"weight": normal((6, n)), "bias": normal(6)}], *ROWS),
    "rms_norm": rows_of(lambda n: [{"eps": 0.1}, {"eps": 0.1, "weight": normal(n)}], *ROWS, (33, 32), (17, 64)),
    "rotary": [
        {"x": normal((3, 7, 5, w)), "positions": rng.integers(0, 5000, shape), "frequencies": rotary_frequencies(w)}
        for w, shape in ((2, 7), (6, (3, 7)), (8, 7), (80, (3, 7)))
    ],
    "cross_entropy": [
        {"logits": normal((9, n)), "targets": rng.integers(0, n, 9), "label_smoothing": share, "reduction": reduction}
        for n in WIDTHS
        for share, reduction in ((0.1, "none"), (0.0, "mean"))
    ]
    + [
        {"logits": normal((rows, 3)), "targets": np.where(np.arange(rows) % 5 > 3, -100, 1), "reduction": reduction}
        for rows in (1, 33, 1100)
        for reduction in ("mean", "sum")
    ],
}


def between_packs(operation):
    """The operation of tensors that begin beside an address at which packs can begin."""

    def moved(x):
        memory = x.xp.empty(x.numel() + 1, x.dtype)[1:].reshape(x.shape)
        memory[...] = x.data
        return node(memory, (x,), lambda dy: (dy,), "move", linear=True, uses_result=False)

    return lambda **made: operation(**{name: moved(x) if isinstance(x, Tensor) else x for name, x in made.items()})


LAYOUTS = [(name, "contiguous") for name in TOLERANCES]  # that of an optimizer's memory
LAYOUTS += [(name, layout) for name in TOLERANCES if name not in UPDATES for layout in ("gaps", "between packs")]


@pytest.mark.parametrize(("name", "layout"), LAYOUTS)
def test_it_equals_its_definition(cuda, name, layout):
    # Dropout has other masks here, and an optimizer's memory is contiguous.
    cases = [(given, case) for case, given in CASES[name].items() if "dropout_p" not in given and case != "turned"]
    cases += [(arguments, None) for arguments in SIZES.get(name, []) if layout == "contiguous"]
    version = between_packs(REGISTRY[name]) if layout == "between packs" else REGISTRY[name]
    for arguments, case in cases:
        with composed(), np.errstate(all="ignore"):
            expected = of_case(name, case) if case else outcome(REGISTRY[name], arguments)
        for dtype, tolerance in zip(("float64", "float32"), TOLERANCES[name], strict=True):
            if layout != "contiguous" and dtype == "float64":
                continue  # to which the layout makes no other difference
            found = outcome(version, arguments, dtype, device=cuda, strided=layout == "gaps")
            assert_close(found, {key: array.astype(dtype) for key, array in expected.items()}, tolerance)


# Parts of a joint array (4, 3, 80) as an operation gets them in a model, which are copied only if they must be.
PARTS = {
    "layer_norm": {"rows apart": lambda x: (x[::2, :, 1:9],), "every second number": lambda x: (x[..., :16:2],)},
    "swiglu": {
        "halves of rows": lambda x: (x[..., :16], x[..., 16:32]),
        "between packs": lambda x: (x[..., 1:17], x[..., 18:34]),
        "one row for all": lambda x: (x[:1, :1, :16].expand(4, 3, 16), x[..., 4:20]),
    },
    "rms_norm": {
        "queries": lambda x: (x[..., :24].reshape(4, 3, 3, 8),),
        "some positions": lambda x: (x[:, 1:3, 4:20].reshape(4, 2, 2, 8),),
        "between packs": lambda x: (x[..., 1:25].reshape(4, 3, 3, 8),),
        "heads first": lambda x: (x[..., :48].reshape(4, 3, 6, 8).transpose(1, 2),),
    },
    "rotary": {
        "heads inside longer rows": lambda x: (x[..., :48].reshape(4, 3, 3, 16),),
        "between packs": lambda x: (x[..., 1:33].reshape(4, 3, 2, 16),),
        "heads first": lambda x: (x[:3, :, :48].reshape(3, 3, 3, 16).transpose(1, 2),),
        "one row for all": lambda x: (x[:1, :, :32].reshape(1, 3, 2, 16).expand(4, 3, 2, 16),),
    },
}


@pytest.mark.parametrize(("name", "part"), [(name, part) for name, parts in PARTS.items() for part in parts])
@pytest.mark.parametrize(("dtype", "width"), [("float32", 80), ("float64", 83)])
def test_inputs_may_be_parts_of_a_joint_array(cuda, name, part, dtype, width):
    joint, found = normal((4, 3, width)).astype(dtype), []
    for device, version in (("cpu", REGISTRY[name].composed), (cuda, REGISTRY[name])):
        x = Tensor(joint, device=device, requires_grad=True)
        weight = Tensor(np.linspace(1, 2, 8).astype(dtype), device=device, requires_grad=True)
        others = {
            "layer_norm": {"weight": weight},
            "rms_norm": {"weight": weight},
            "rotary": {"positions": Tensor(np.arange(3, 6), device=device), "frequencies": rotary_frequencies(16)},
        }
        # The gradient arrives with its axes swapped, as from attention.
        y = version(*PARTS[name][part](x), **others.get(name, {})).transpose(0, 1)
        y.backward(Tensor(np.sin(np.arange(y.numel())).reshape(y.shape).astype(dtype), device=device))
        found.append([y.numpy(), x.grad.numpy(), *([weight.grad.numpy()] if "norm" in name else [])])
    for expected, other in zip(*found, strict=True):
        np.testing.assert_allclose(other, expected, rtol=0, atol=1e-12 if dtype == "float64" else 3e-6)


# --- types ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [8, 6])
@pytest.mark.parametrize("name", ["gelu", "layer_norm", "relu_squared", "rms_norm", "rotary", "swiglu"])
def test_bfloat16_is_rounded_once_by_one_operation(cuda, name, width):
    """The result by at most 2^-9 of a number; parameters and their gradients are float32."""
    arguments = {
        "gelu": {"x": normal((5, width)), "approximate": "tanh" if width == 8 else "none"},
        "swiglu": {"gate": normal((5, width)), "up": normal((5, width))},
        "rotary": {"x": normal((2, 5, 3, width)), "positions": np.arange(1000, 1005)},
    }.get(name, {"x": normal((5, width))})
    arguments |= {"frequencies": rotary_frequencies(width)} if name == "rotary" else {}
    arguments |= {"weight": np.linspace(0.5, 1, width)} if "norm" in name else {}
    made = tensors(arguments, np.float32, device=cuda)
    given = {k: x.cast(bfloat16()) if k in ("x", "gate", "up") else x for k, x in made.items() if isinstance(x, Tensor)}
    exact = {key: x.numpy() for key, x in given.items()}
    exact = {key: x if x.dtype == np.int64 else x.astype(np.float64) for key, x in exact.items()}
    y = REGISTRY[name](**made | given)
    z = REGISTRY[name].composed(**(wanted := made | tensors(exact, np.float64)))
    assert (y.dtype, y.op) == (bfloat16(), name)
    np.testing.assert_allclose(y.numpy().astype("float64"), z.numpy(), rtol=2**-8, atol=1e-6)
    y.backward(y.detach())
    z.backward(Tensor(y.numpy().astype("float64")))
    for key, x in made.items():
        if isinstance(x, Tensor) and x.requires_grad:
            expected = wanted[key].grad.numpy()
            atol = 2**-8 * np.abs(expected).max() if "norm" in name else 1e-6
            np.testing.assert_allclose(x.grad.numpy(), expected, rtol=2**-7, atol=atol)
