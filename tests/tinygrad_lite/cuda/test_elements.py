"""Activations, rotary positions, sums of columns, and all operations in bfloat16: what their definitions do not try."""

import itertools
import math

import numpy as np
import pytest

from tests.tinygrad_lite.op_cases import CASES, each_of
from tinygrad_lite import Tensor
from tinygrad_lite import functional as F
from tinygrad_lite.cuda.columns import ROW_BLOCKS, column_sums, pack_of_rows
from tinygrad_lite.cuda.linear import add_bias, array_around
from tinygrad_lite.debug.anomaly import NonFiniteError, detect_anomaly
from tinygrad_lite.device import get_device
from tinygrad_lite.functional.registry import composed
from tinygrad_lite.functional.rotary import rotary_composed
from tinygrad_lite.precision import bfloat16, precision
from tinygrad_lite.transformer import rotary_frequencies

rng = np.random.default_rng(33)

# --- SwiGLU and ReLU squared ----------------------------------------------------------------------------------


forms = pytest.mark.parametrize("approximate", ["none", "tanh"])


def leaf(array, device, dtype="float32"):
    return Tensor(np.asarray(array, dtype), device=device, requires_grad=True)


def test_an_infinite_gradient_does_not_pass_where_the_result_is_0(cuda):
    found = []
    for device, version in (("cpu", F.relu_squared.composed), (cuda, F.relu_squared)):
        x = leaf([-1.0, 0.0, 2.0], device)
        version(x).backward(Tensor(np.full(3, math.inf, np.float32), device=device))
        found.append(x.grad.tolist())
    assert found[0] == found[1] == [0.0, 0.0, math.inf]


def test_the_gradients_of_gate_and_up_lie_side_by_side(cuda):
    gate, up, dy = (Tensor(rng.standard_normal((2, 3, 8)).astype("float32"), device=cuda) for _ in range(3))
    d_gate, d_up = F.swiglu(gate.requires_grad_(), up.requires_grad_())._node.backward(dy.data)
    whole = array_around(d_gate, (2, 3, 16), 0)
    assert whole is not None
    assert array_around(d_up, (2, 3, 16), 8).data.ptr == whole.data.ptr


# --- GELU, alone and after a linear map -------------------------------------------------------------------------------


def test_linear_gelu_is_a_product_and_one_operation(cuda):
    x, weight, bias = leaf(np.ones((2, 3)), cuda), leaf(np.ones((4, 3)), cuda), leaf(np.ones(4), cuda)
    y = F.linear_gelu(x, weight, bias)
    product, second = y._node.parents
    assert (y.op, product.op, second) == ("gelu", "linear", bias._node)
    assert product.parents == (x._node, weight._node)
    assert F.gelu(x).op == "gelu"
    with composed():
        assert F.linear_gelu(x, weight, bias).op == F.gelu(x).op == "add"


@forms
@pytest.mark.parametrize("width", [8, 7])
@pytest.mark.parametrize("with_bias", [True, False])
def test_bfloat16_rounds_to_eight_bits(cuda, approximate, width, with_bias):
    """Activations are rounded once per product and once per GELU, each by at most 2^-9 of a number."""
    arrays = [rng.standard_normal((2, 9, 16)), rng.standard_normal((width, 16)) / 4, rng.standard_normal(width)]
    arrays = arrays if with_bias else arrays[:2]
    names, dy = ("x", "weight", "bias"), rng.standard_normal((2, 9, width))
    exact = [Tensor(a, requires_grad=True) for a in arrays]
    F.linear_gelu(*exact, approximate=approximate).backward(Tensor(dy))
    with precision("bfloat16"):
        inputs = [leaf(a, cuda) for a in arrays]
        y = F.linear_gelu(*inputs, approximate=approximate)
        assert y.dtype == bfloat16()
        y.backward(Tensor.wrap(Tensor(dy.astype(np.float32), device=cuda).data.astype(bfloat16())))
    expected = F.linear_gelu(*exact, approximate=approximate).numpy()
    np.testing.assert_allclose(y.numpy().astype(np.float64), expected, rtol=0, atol=0.02 * np.abs(expected).max())
    for name, x, other in zip(names, inputs, exact, strict=False):
        largest = np.abs(other.grad.numpy()).max()
        assert x.grad.dtype == np.float32
        np.testing.assert_allclose(x.grad.numpy(), other.grad.numpy(), rtol=0, atol=0.02 * largest, err_msg=name)


def test_tf32_and_float32_differ_only_in_the_product(cuda):
    x, weight, bias = (leaf(rng.standard_normal(shape), cuda) for shape in ((5, 64), (8, 64), (8,)))
    exact = F.linear_gelu(x, weight, bias).numpy()
    with precision("tf32"):
        rounded = F.linear_gelu(x, weight, bias)
        product = F.linear(x, weight)
    assert rounded.dtype == np.float32
    assert 0 < np.abs(rounded.numpy() - exact).max() < 0.1
    np.testing.assert_allclose(F.gelu(product + bias).numpy(), rounded.numpy(), rtol=0, atol=1e-6)


def test_the_checking_mode_names_the_callers_line(cuda):
    x, weight = leaf([[1e38, 1e38]], cuda), leaf([[1e38, 1e38]], cuda)
    with detect_anomaly(), pytest.raises(NonFiniteError, match=r"test_elements\.py:\d+ \(`F.linear_gelu"):
        F.linear_gelu(x, weight, leaf([0.0], cuda))


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


@pytest.mark.parametrize("kind", ["int32", "uint16", "int64"])
def test_positions_of_any_integer_type(cuda, kind):
    x = rng.standard_normal((1, 4, 1, 6))
    places = np.array([7, 0, 300, 2])
    expected = rotary_composed(Tensor(x), Tensor(places), (1.0, 0.3, 0.01)).numpy()
    found = F.rotary(Tensor(x, device=cuda), Tensor(places.astype(kind), device=cuda), (1.0, 0.3, 0.01))
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-13)


def test_the_host_reads_no_positions(cuda, monkeypatch):
    """Reading one would block until all queued work is done."""
    x = Tensor(rng.standard_normal((2, 3, 2, 8)), device=cuda, requires_grad=True)
    positions = Tensor(np.arange(3), device=cuda)
    array_type = type(x.data)
    for name in ("__int__", "__float__", "__bool__", "__index__", "max", "item", "tolist", "get"):
        monkeypatch.setattr(array_type, name, lambda *_: pytest.fail("a number was read"), raising=False)
    there = get_device(cuda)
    monkeypatch.setattr(type(there), "to_host", lambda *_: pytest.fail("an array was read"), raising=False)
    F.rotary(x, positions, rotary_frequencies(8)).sum().backward()
    assert x.grad.shape == x.shape


def test_positions_that_are_overwritten_before_backward_are_an_error(cuda):
    x = Tensor(rng.standard_normal((1, 3, 1, 4)), device=cuda, requires_grad=True)
    positions = Tensor(np.arange(3), device=cuda)
    y = F.rotary(x, positions, (1.0, 0.1)).sum()
    positions[0] = 5
    with pytest.raises(RuntimeError, match="a value that 'rotary' still needs was overwritten"):
        y.backward()


# --- sums of columns and biases, with rows that touch and rows that are padded --------------------------------


SHAPES = [(1, 1), (1, 2052), (7, 132), (127, 5), (128, 32), (1000, 33), (600, 160), (8 * ROW_BLOCKS + 9, 4)]


@pytest.fixture(params=itertools.product(SHAPES, (0, 3, 4), ("float32", "float64", "bfloat16")), ids=str)
def matrix(request, cuda):
    """A random matrix, on the host and on a device, whose rows end in NaN; the width without them, and the type."""
    (rows, width), padding, kind = request.param
    whole = np.full((rows, width + padding), np.nan)
    whole[:, :width] = rng.standard_normal((rows, width))
    rounded = whole.astype(bfloat16() if kind == "bfloat16" else kind)
    return rounded.astype(np.float64), get_device(cuda).from_host(rounded), width, kind


def test_column_sums_are_accurate(cuda, matrix):
    host, memory, width, kind = matrix
    x = memory[:, :width]
    sums = column_sums(x)
    assert sums.dtype == ("float64" if kind == "float64" else "float32")
    found, exact = get_device(cuda).to_host(sums), host[:, :width].sum(0)
    np.testing.assert_allclose(found, exact, rtol=0, atol=1e-12 if kind == "float64" else 3e-6 * len(x) ** 0.5)
    assert found.tobytes() == get_device(cuda).to_host(column_sums(x)).tobytes()


def test_a_bias_is_added_once_to_each_row_and_not_to_the_padding(cuda, matrix):
    expected, memory, width, kind = matrix
    bias = rng.standard_normal(width).astype("float64" if kind == "float64" else "float32")
    add_bias(memory[:, :width], get_device(cuda).from_host(bias))
    expected[:, :width] += bias
    error = {"float64": 1e-15, "float32": 2**-22, "bfloat16": 2**-8}[kind]
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


KEEPING = {
    "relu": lambda x: x.relu(),
    "where": lambda x: (x > 0).where(x, 0.0),
    "maximum": lambda x: x.maximum(1.0),
    "getitem": lambda x: x[[1, 1]],
    "masked_fill": lambda x: x.masked_fill(x < 0, 1.0),
    "gather": lambda x: x.gather(1, Tensor([[1, 0], [0, 0]], device=x.device)),
}


@pytest.mark.parametrize("operation", KEEPING.values(), ids=KEEPING)
def test_bfloat16_stays_bfloat16(operation, cuda):
    x = Tensor([[1.5, -2.0], [0.0, 3.0]], device=cuda).cast(bfloat16())
    assert operation(x).dtype == bfloat16()


def test_gradients_of_indexed_rows_are_summed_in_float32(cuda):
    x = Tensor([[1.0], [2.0]], device=cuda, requires_grad=True)
    x.cast(bfloat16())[[0] * 1000].cast(np.float32).sum().backward()
    assert x.grad.tolist() == [[1000.0], [0.0]]  # a sum of ones in bfloat16 stops at 256


def test_the_checking_mode_checks_bfloat16_too(cuda):
    weight = Tensor([[1.0, 0.0]], device=cuda)
    with precision("bfloat16"), detect_anomaly(), pytest.raises(NonFiniteError, match="linear produced an infinity"):
        Tensor([[3e38, 1.0]], device=cuda).linear(weight * 2)
