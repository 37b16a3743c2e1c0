"""Every argument of a kernel arrives in the type that the kernel declares, whatever type Python gives it."""

import functools
import math

import numpy as np
import pytest

from tests.tinygrad_lite.functional.test_registry import assert_close, outcome
from tests.tinygrad_lite.functional.version_cases import CASES
from tinygrad_lite import functional as F
from tinygrad_lite import optim
from tinygrad_lite.cuda import launch
from tinygrad_lite.device import get_device

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


INTEGERS = [7, -(2**63), 2**63 - 1, True, 7.0, np.int32(-7), np.array(7)]
NUMBERS = [0.1, -2, True, 2**70, math.inf, np.float32(0.1), np.int64(2), np.array(0.1, "float32")]


@pytest.mark.parametrize("count", INTEGERS, ids=repr)
def test_an_integer_arrives_in_any_type(echo, count):
    converted, *_ = echo.in_c(count, 0.5, None, None, None)
    assert type(converted) is (int if type(count) is int and count != -(2**63) else np.int64)
    assert converted == count
    assert written_by(echo, count, 0.5, None, None) == [float(count), 0.5, -1, -1]


@pytest.mark.parametrize("factor", NUMBERS, ids=repr)
def test_a_number_arrives_in_any_type(echo, factor):
    assert written_by(echo, 3, factor, None, None) == [3, float(factor), -1, -1]


def test_arrays_arrive_and_the_kernel_of_the_right_name_is_read(echo, cuda):
    xp = get_device(cuda).xp
    assert written_by(echo, 3, 0.5, xp.full(1, 2.5), xp.full(1, 9, np.int64)) == [3, 0.5, 2.5, 9]
    assert written_by(launch.kernel("echo", "other", X=np.dtype("float64")), 4) == [4, 0, 0, 0]


MISFITS = [
    ((0.5, 0.5, None, None, None), "kernel echo, parameter count: 0.5 is not an integer"),
    ((math.nan, 0.5, None, None, None), "count: .*NaN"),
    ((2**63, 0.5, None, None, None), "count: .*too large"),
    (("3", 0.5, None, None, None), "count: '3' is not an integer"),
    ((3, 1j, None, None, None), "factor: .*complex"),
    ((3, np.ones(2), None, None, None), "factor: "),
    ((3, 0.5, None, None), "kernel echo takes 5 arguments, not 4"),
]


@pytest.mark.parametrize(("arguments", "message"), MISFITS, ids=str)
def test_what_does_not_fit_is_refused(echo, arguments, message):
    with pytest.raises(TypeError, match=message):
        launch.launch(echo, (1,), (1,), *arguments)


# --- the numbers that a user can set -------------------------------------------------------------------------------


SETTINGS = [
    ("layer_norm", "rows", {"eps": np.array(0.5)}),
    ("scaled_dot_product_attention", "causal, T = S", {"scale": np.float32(0.5)}),
    ("rms_norm", "rows, no weight", {"eps": np.float32(0.5)}),
    ("cross_entropy", "rows", {"label_smoothing": 1}),
    ("cross_entropy", "rows", {"label_smoothing": np.array(0.5), "ignore_index": np.array(2)}),
    ("rotary", "from the start", {"frequencies": (np.float32(0.5), np.int64(1))}),
    ("adamw", "later", {"lr": 1, "eps": 1, "weight_decay": 0}),
    ("adamw", "later", {"beta1": 0, "beta2": 0, "step": np.int64(3)}),
    ("muon", "wide", {"lr": np.array(0.5), "momentum": np.float32(0.5), "weight_decay": np.int64(1)}),
]


@pytest.mark.parametrize(("operation", "case", "settings"), SETTINGS, ids=str)
def test_settings_of_any_type_mean_the_same_as_on_the_cpu(cuda, operation, case, settings):
    version = getattr(optim if operation in ("adamw", "muon") else F, operation)
    arguments = {name: value for name, value in CASES[operation][case].items() if name not in settings}
    expected = outcome(functools.partial(version.composed, **settings), arguments, np.float64)
    found = outcome(functools.partial(version, **settings), arguments, np.float64, device=cuda)
    assert_close(found, expected, 1e-12)
