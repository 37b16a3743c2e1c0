"""Every argument of a kernel arrives in the type that the kernel declares, whatever type Python gives it."""

import functools
import math
import re

import numpy as np
import pytest

from tests.emulator.cupy_on_cpu import KERNEL
from tests.tinygrad_lite.cuda import attention_in_numpy as formula
from tests.tinygrad_lite.cuda.test_guard import judged
from tests.tinygrad_lite.cuda.tiny_training import tiny_gpt, written
from tests.tinygrad_lite.functional.test_registry import assert_close, outcome
from tests.tinygrad_lite.functional.version_cases import CASES
from tinygrad_lite import functional as F
from tinygrad_lite import optim
from tinygrad_lite.cuda import attention, launch
from tinygrad_lite.cuda.attention import attention_by_blocks
from tinygrad_lite.device import get_device

KERNELS = [
    pytest.param(path.stem, name, [" ".join(parameter.split()) for parameter in parameters.split(",")], id=name)
    for path in sorted(launch.SOURCES.glob("*.cu"))
    for name, parameters in KERNEL.findall(launch.source(path.stem))
]
# Its parameters stand as they may in a source file: over several lines, and the star on either side of the space.
ECHO = """
extern "C" __global__ void other(double factor, A* out) { out[0] = factor; }
extern "C" __global__ void __launch_bounds__(32) echo(long long count, double factor, const X* __restrict__ given,
                                                      const long long *ids, A* out) {
    out[0] = count;
    out[1] = factor;
    out[2] = given ? given[0] : -1;
    out[3] = ids ? ids[0] : -1;
}
"""


@pytest.fixture
def echo(cuda, monkeypatch):
    """A kernel that writes its arguments; -1 for a null pointer."""
    monkeypatch.setattr(launch, "source", lambda file: ECHO)
    return launch.kernel("echo", "echo", X=np.dtype("float64"))


def written_by(kernel, *arguments):
    """The four numbers that a kernel writes into its last argument."""
    out = get_device("cuda").xp.zeros(4)
    launch.launch(kernel, (1,), (1,), *arguments, out)
    return out.tolist()


@pytest.mark.parametrize(("file", "name", "parameters"), KERNELS)
def test_the_parameters_of_every_kernel_are_read(file, name, parameters):
    """No scalar is double but that of a kernel of one warp: most GPUs compute double at 1/64 of the rate of float."""
    scalars = launch.SCALARS | {"A": launch.SCALARS["float"]}
    assert name == "judge" or not any(text.startswith("double ") and "*" not in text for text in parameters)
    expected = {
        re.search(r"\w+$", text)[0]: launch.pointer if "*" in text else scalars[text.rsplit(" ", 1)[0]]
        for text in parameters
    }
    assert launch.parameters_of(launch.source(file), name, "float") == expected
    assert len(expected) == len(parameters)  # no two have the same name


INTEGERS = [7, 0, -(2**63), 2**63 - 1, True, 7.0, np.int64(7), np.int32(-7), np.uint8(7), np.bool_(True)]
INTEGERS += [np.float32(7), np.array(7), np.array(7.0)]
NUMBERS = [0.1, 1, 0, -2, True, 2**70, math.inf, np.float64(0.1), np.float32(0.1), np.int64(2), np.int32(2)]
NUMBERS += [np.uint8(2), np.bool_(True), np.array(0.1), np.array(0.1, "float32"), np.array(2)]


def typed(value):
    return f"{type(value).__name__} {value}"


@pytest.mark.parametrize("count", INTEGERS, ids=typed)
def test_an_integer_arrives_in_any_type(echo, count):
    converted, *_ = echo.in_c(count, 0.5, None, None, None)
    assert type(converted) is (int if type(count) is int and count != -(2**63) else np.int64)
    assert converted == count
    assert written_by(echo, count, 0.5, None, None) == [float(count), 0.5, -1, -1]


@pytest.mark.parametrize("factor", NUMBERS, ids=typed)
def test_a_number_arrives_in_any_type(echo, factor):
    assert written_by(echo, 3, factor, None, None) == [3, float(factor), -1, -1]


def test_arrays_arrive_and_the_kernel_of_the_right_name_is_read(echo, cuda):
    xp = get_device(cuda).xp
    assert written_by(echo, 3, 0.5, xp.full(1, 2.5), xp.full(1, 9, np.int64)) == [3, 0.5, 2.5, 9]
    assert written_by(launch.kernel("echo", "other", X=np.dtype("float64")), 4) == [4, 0, 0, 0]


MISFITS = [
    ((0.5, 0.5, None, None, None), "kernel echo, parameter count: 0.5 is not an integer"),
    ((np.float32(0.5), 0.5, None, None, None), "count: .*0.5.* is not an integer"),
    ((math.nan, 0.5, None, None, None), "count: .*NaN"),
    ((2**63, 0.5, None, None, None), "count: .*too large"),
    (("3", 0.5, None, None, None), "count: '3' is not an integer"),
    ((None, 0.5, None, None, None), "count: .*NoneType"),
    ((3, None, None, None, None), "kernel echo, parameter factor: .*NoneType"),
    ((3, 1j, None, None, None), "factor: .*complex"),
    ((3, np.ones(2), None, None, None), "factor: "),
    ((3, 0.5, None, None), "kernel echo takes 5 arguments, not 4"),
    ((3, 0.5, None, None, None, None), "kernel echo takes 5 arguments, not 6"),
]


@pytest.mark.parametrize(("arguments", "message"), MISFITS, ids=str)
def test_what_does_not_fit_is_refused(echo, arguments, message):
    with pytest.raises(TypeError, match=message):
        launch.launch(echo, (1,), (1,), *arguments)


# --- the numbers that a user can set -------------------------------------------------------------------------------

SCALES = [1, np.float32(0.5), np.int64(2), np.array(0.5)]


@pytest.mark.parametrize("scale", SCALES, ids=typed)
@pytest.mark.parametrize(("kind", "width", "tolerance"), [("float64", 3, 1e-12), ("bfloat16", 32, 4e-3)])
def test_attention_scales_by_a_number_of_any_type(cuda, monkeypatch, scale, kind, width, tolerance):
    """In blocks, and in bfloat16 by flash attention."""
    blocks = []
    monkeypatch.setattr(attention, "attention_by_blocks", lambda *a: blocks.append(1) or attention_by_blocks(*a))
    arrays = formula.inputs(1, 2, 5, 5, width, kind)
    arrays.query /= 8  # else one weight is almost 1, and the gradients are small differences
    found = formula.outcome(F.scaled_dot_product_attention, arrays, cuda, scale=scale)
    for name, expected in formula.attention(**vars(arrays), scale=scale).items():
        assert formula.relative_error(found[name], expected) < tolerance, name
    assert bool(blocks) == (kind == "float64")


@pytest.mark.parametrize("scale", [1, np.float32(0.5), np.int64(2)], ids=typed)
def test_a_model_with_a_scale_of_any_type_writes_the_same(cuda, scale):
    expected, found = (written(tiny_gpt(device, attention_scale=scale)) for device in ("cpu", cuda))
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)


SETTINGS = [
    ("layer_norm", "rows", {"eps": 0}),
    ("layer_norm", "rows", {"eps": 1}),
    ("layer_norm", "rows", {"eps": np.array(0.5)}),
    ("rms_norm", "rows", {"eps": 0}),
    ("rms_norm", "rows, no weight", {"eps": np.float32(0.5)}),
    ("cross_entropy", "rows", {"label_smoothing": 0}),
    ("cross_entropy", "rows", {"label_smoothing": 1}),
    ("cross_entropy", "rows", {"label_smoothing": np.float32(0.125)}),
    ("cross_entropy", "rows", {"label_smoothing": np.array(0.5), "ignore_index": np.array(2)}),
    ("cross_entropy", "rows", {"ignore_index": 2.0}),
    ("cross_entropy", "rows", {"ignore_index": True}),
    ("dropout", "few", {"p": 0}),
    ("rotary", "from the start", {"frequencies": (1, 0)}),
    ("rotary", "from the start", {"frequencies": (np.float32(0.5), np.int64(1))}),
    ("adamw", "later", {"lr": 1, "eps": 1, "weight_decay": 0}),
    ("adamw", "later", {"beta1": 0, "beta2": 0, "step": np.int64(3)}),
    ("adamw", "later", {"lr": np.float64(0.5), "weight_decay": np.array(0.5), "eps": np.int32(1)}),
    ("muon", "wide", {"lr": np.array(0.5), "momentum": np.float32(0.5), "weight_decay": np.int64(1)}),
    ("muon", "tall", {"lr": 1, "momentum": 0, "weight_decay": 0}),
]


@pytest.mark.parametrize(("operation", "case", "settings"), SETTINGS, ids=str)
def test_settings_of_any_type_mean_the_same_as_on_the_cpu(cuda, operation, case, settings):
    version = getattr(optim if operation in ("adamw", "muon") else F, operation)
    arguments = {name: value for name, value in CASES[operation][case].items() if name not in settings}
    expected = outcome(functools.partial(version.composed, **settings), arguments, np.float64)
    found = outcome(functools.partial(version, **settings), arguments, np.float64, device=cuda)
    assert_close(found, expected, 1e-12)


@pytest.mark.parametrize("p", [np.float32(0.5), np.array(0.5)], ids=typed)
@pytest.mark.parametrize(
    ("operation", "name"), [("dropout", "p"), ("scaled_dot_product_attention", "dropout_p")], ids=str
)
def test_a_probability_of_any_type_drops_the_same(cuda, operation, name, p):
    """As a float of Python does on the same device: the CPU would drop other elements."""
    arguments = next(iter(CASES[operation].values()))
    arguments = {key: value for key, value in arguments.items() if key != name}
    expected, found = (
        outcome(functools.partial(getattr(F, operation), **{name: given}), arguments, np.float64, device=cuda)
        for given in (float(p), p)
    )
    assert_close(found, expected, 0.0)


@pytest.mark.parametrize("max_norm", [2, np.float32(2), np.int64(2), np.array(2.0)], ids=typed)
def test_a_guard_takes_a_norm_and_a_step_of_any_type(cuda, max_norm):
    guard = judged(cuda, [3.0, 4.0], max_norm=max_norm, step=np.int64(3))
    assert guard.numbers.tolist()[0] == pytest.approx(0.4)
    assert judged(cuda, [math.nan], max_norm=max_norm, step=np.int32(3)).read()[2] == 3
