"""What the definitions do not try: linear maps with GELU, rotary positions, sums of columns, bfloat16 everywhere."""

import itertools

import numpy as np
import pytest

from tests.tinygrad_lite.op_cases import CASES, each_of
from tinygrad_lite import Tensor
from tinygrad_lite import functional as F
from tinygrad_lite.cuda.columns import ROW_BLOCKS, column_sums, pack_of_rows
from tinygrad_lite.cuda.linear import add_bias
from tinygrad_lite.debug.anomaly import NonFiniteError, detect_anomaly
from tinygrad_lite.device import get_device
from tinygrad_lite.functional.rotary import rotary_composed
from tinygrad_lite.precision import bfloat16, precision
from tinygrad_lite.transformer import rotary_frequencies

rng = np.random.default_rng(33)


@pytest.mark.parametrize(("width", "approximate"), [(8, "tanh"), (7, "none")])
def test_linear_gelu_in_bfloat16_rounds_to_eight_bits(cuda, width, approximate):
    """Activations are rounded once per product and once per GELU, each by at most 2^-9 of a number."""
    arrays = [rng.standard_normal((2, 9, 16)), rng.standard_normal((width, 16)) / 4, rng.standard_normal(width)]
    dy, results = rng.standard_normal((2, 9, width)), []
    for device, dtype, mode in (("cpu", "float64", "float32"), (cuda, "float32", "bfloat16")):
        inputs = [Tensor(a, dtype=dtype, device=device, requires_grad=True) for a in arrays]
        with precision(mode):
            y = F.linear_gelu(*inputs, approximate=approximate)
            y.backward(Tensor(dy, dtype=dtype, device=device).cast(y.dtype))
        results.append([y, *(x.grad for x in inputs)])
    assert [x.dtype for x in results[1]] == [bfloat16(), *["float32"] * 3]
    for expected, found in zip(*results, strict=True):
        tolerance = 0.02 * np.abs(expected.numpy()).max()
        np.testing.assert_allclose(found.numpy().astype(np.float64), expected.numpy(), rtol=0, atol=tolerance)


# --- rotary positions -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("position", [100_003, 2**31 + 5])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_distant_positions_are_accurate(cuda, dtype, position):
    """In float32 alone, angles of 100,000 radians would be off by 0.004."""
    x = rng.standard_normal((1, 1, 2, 64)).astype(dtype)
    expected = rotary_composed(Tensor(x.astype(np.float64)), Tensor([position]), rotary_frequencies(64)).numpy()
    found = F.rotary(Tensor(x, device=cuda), Tensor([position], device=cuda), rotary_frequencies(64)).numpy()
    # In float64, an angle of 100,000 radians has 11 digits behind the point.
    tolerance = 2e-6 if dtype == "float32" else 1e-15 * position
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)


# --- sums of columns and biases, with rows that touch and rows that are padded --------------------------------


SHAPES = [(1, 2052), (127, 5), (128, 32), (1000, 33), (600, 160), (8 * ROW_BLOCKS + 9, 4)]


@pytest.fixture(params=itertools.product(SHAPES, (0, 3, 4), ("float32", "bfloat16")), ids=str)
def matrix(request, cuda):
    """A random matrix, on the host and on a device, whose rows end in NaN; the width without them, and the type."""
    (rows, width), padding, kind = request.param
    whole = np.full((rows, width + padding), np.nan)
    whole[:, :width] = rng.standard_normal((rows, width))
    rounded = whole.astype(bfloat16() if kind == "bfloat16" else kind)
    return rounded.astype(np.float64), get_device(cuda).from_host(rounded), width, kind


def test_column_sums_are_accurate(cuda, matrix):
    host, memory, width, _ = matrix
    x = memory[:, :width]
    sums = column_sums(x)
    assert sums.dtype == "float32"
    found, exact = get_device(cuda).to_host(sums), host[:, :width].sum(0)
    np.testing.assert_allclose(found, exact, rtol=0, atol=3e-6 * len(x) ** 0.5)
    assert found.tobytes() == get_device(cuda).to_host(column_sums(x)).tobytes()


def test_a_bias_is_added_once_to_each_row_and_not_to_the_padding(cuda, matrix):
    expected, memory, width, kind = matrix
    bias = rng.standard_normal(width).astype("float32")
    add_bias(memory[:, :width], get_device(cuda).from_host(bias))
    expected[:, :width] += bias
    error = {"float32": 2**-22, "bfloat16": 2**-8}[kind]
    found = get_device(cuda).to_host(memory).astype(np.float64)
    np.testing.assert_allclose(found, expected, rtol=error, atol=error)


def test_packs_need_a_width_a_distance_and_an_address_that_four_divides(cuda):
    x = get_device(cuda).xp.zeros((6, 24), np.float32)
    assert [pack_of_rows(part) for part in (x, x[:, :8], x[:, 4:12])] == [4, 4, 4]
    assert [pack_of_rows(part) for part in (x[:, :6], x[:, 1:9], x.reshape(-1)[:126].reshape(6, 21)[:, :4])] == [1] * 3


# --- every operation on bfloat16 tensors, such as a model's activations; CuPy supports them only in part ------


FLOATS = [case for case in CASES if case.gradient and all(x.dtype.kind == "f" for xs in case.samples for x in xs)]


@each_of(FLOATS)
def test_values_and_gradients_are_those_of_rounded_inputs(case, cuda):
    for arrays in case.samples:
        leaves = [Tensor(x.astype(np.float32), device=cuda, requires_grad=True) for x in arrays]
        y = case.fn(*(x.cast(bfloat16()) for x in leaves))
        assert y.dtype in (bfloat16(), np.float32)
        y.cast(np.float32).sum().backward()
        assert [x.grad.dtype for x in leaves] == [np.float32] * len(leaves)
        rounded = [x.astype(np.float32).astype(bfloat16()).astype(np.float64) for x in arrays]
        expected = np.asarray(case.ref(*rounded))
        np.testing.assert_allclose(y.cast(np.float32).numpy(), expected, rtol=0.05, atol=0.05)


def test_gradients_of_indexed_rows_are_summed_in_float32(cuda):
    x = Tensor([[1.0], [2.0]], device=cuda, requires_grad=True)
    x.cast(bfloat16())[[0] * 1000].cast(np.float32).sum().backward()
    assert x.grad.tolist() == [[1000.0], [0.0]]  # a sum of ones in bfloat16 stops at 256


def test_the_checking_mode_checks_bfloat16_too(cuda):
    weight = Tensor([[1.0, 0.0]], device=cuda)
    with precision("bfloat16"), detect_anomaly(), pytest.raises(NonFiniteError, match="linear produced an infinity"):
        Tensor([[3e38, 1.0]], device=cuda).linear(weight * 2)
