"""Devices by name, reproducible random numbers, accurate sums, adding at repeated positions."""

import itertools
from contextlib import nullcontext

import numpy as np
import pytest

from tinygrad_lite import Tensor, manual_seed
from tinygrad_lite import functional as F
from tinygrad_lite.device import DeviceError, add_rows, device_of, get_device, sum_over, xp_of
from tinygrad_lite.functional.registry import composed
from tinygrad_lite.random import keyed_rng, next_bits, next_rng, random_key

pytestmark = pytest.mark.without_kernels

# --- devices ----------------------------------------------------------------------------------------------------


def test_an_array_determines_its_device():
    cpu = get_device("cpu")
    assert device_of(np.ones(2)) is cpu
    assert xp_of(np.ones(2)) is cpu.xp is np
    array = np.ones(2)
    assert cpu.from_host(array) is cpu.to_host(array) is array
    with pytest.raises(TypeError, match=r"^a list is not an array of a known device \(ndarray"):
        device_of([1, 2])


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(DeviceError, match=r"^there is no device 'gpu': use one of cpu.* auto$"):
        get_device("gpu")


# --- random numbers ---------------------------------------------------------------------------------------------


def test_keyed_numbers_never_change():
    """Resumed runs and the README's numbers depend on them."""
    assert keyed_rng(1337, "batch", 0).bit_generator.random_raw(2).tolist() == [
        13219109327969504389,
        7290099089512269799,
    ]
    assert keyed_rng(1337, "batch", 5).integers(0, 1000, 4).tolist() == [345, 558, 205, 369]
    assert keyed_rng(0, "init", 1, 2).random() == 0.32416590040941307
    with random_key(1, 2, 3):
        assert next_rng("dropout").bit_generator.random_raw() == 1918683291350188554
        assert next_rng("dropout").bit_generator.random_raw() == 2896475222020387710


def test_each_part_of_the_key_matters():
    keys = [(1, "a", 5), (2, "a", 5), (1, "b", 5), (1, "a", 6), (1, "a", 5, 1), (1, "a", 1, 5)]
    keys += [(1, "a"), (1, "a", 0), (1, "a", 5, 0)]
    assert len({keyed_rng(*key).random() for key in keys}) == len(keys)


def test_random_key_counts_its_draws_and_restores_the_previous_key():
    manual_seed(3)
    first, second, third = (next_rng("x").random() for _ in range(3))
    assert first == keyed_rng(3, "x", 1).random()
    manual_seed(3)
    assert next_rng("x").random() == first
    with random_key(9, 4):
        assert next_rng("x").random() == keyed_rng(9, "x", 4, 1).random()
        with random_key(9, 5):
            assert next_rng("x").random() == keyed_rng(9, "x", 5, 1).random()
        assert next_rng("x").random() == keyed_rng(9, "x", 4, 2).random()
    assert next_rng("x").random() == second
    with pytest.raises(KeyError), random_key(9, 4):
        raise KeyError
    assert next_rng("x").random() == third


def test_random_bits_depend_on_key_stream_and_draw():
    with random_key(9, 4):
        first, second = next_bits("x"), next_bits("x")
    with random_key(9, 4):
        next_rng("y")
        assert next_bits("x") == second != first  # draws are counted together
    found = set()
    for key in ((9, 4), (9, 5), (94,), (9, 4, 0), (9, 4, 1)):
        for stream in ("x", "y"):
            with random_key(*key):
                found.add(next_bits(stream))
    assert len(found) == 10
    assert all(0 <= bits < 2**64 for bits, _ in found)


# --- sums -------------------------------------------------------------------------------------------------------

LONG = 200_000  # rows; added one by one in float32, their sum has a relative error of up to 2e-3
HARD = {
    "0.1": lambda n: np.full(n, 0.1),  # rounding errors keep the same sign for a long time
    "offset": lambda n: 1000 + np.random.default_rng(0).standard_normal(n),
    "both signs": lambda n: np.random.default_rng(0).standard_normal(n),
}
LAYOUTS = {  # float32 numbers in an array, and the axes to be added
    "rows": lambda x: (x.reshape(-1, 5), (0,)),
    "rows of one block and more": lambda x: (x[: 16 * 1024 + 15].reshape(-1, 1), (0,)),
    "long rows": lambda x: (x.reshape(-1, 2000), (0,)),
    "two leading axes": lambda x: (x.reshape(20, -1, 4), (0, 1)),
    "the middle": lambda x: (x.reshape(2, -1, 2), (1,)),
    "few in the middle": lambda x: (x.reshape(2, 4, -1), (1,)),
    "the last": lambda x: (x.reshape(5, -1), (1,)),
    "all": lambda x: (x.reshape(-1, 5), None),
    "none": lambda x: (x.reshape(-1, 5), ()),
    "first and last": lambda x: (x.reshape(-1, 5, 2), (0, 2)),
    "backwards": lambda x: (x.reshape(-1, 4)[::-1], (0,)),
    "small": lambda x: (x[:5000].reshape(-1, 5), (0,)),
}


def error(found, x, axes):
    """The largest error of all sums, relative to the sum of |x|."""
    exact, size = x.sum(axes, np.float64), np.abs(x).sum(axes, np.float64)
    assert (found.dtype, found.shape) == (np.float32, exact.shape)
    return np.max(np.abs(found - exact) / size)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("numbers", HARD.values(), ids=HARD)
def test_float32_sums_are_accurate(numbers, layout):
    x, axes = layout(numbers(LONG).astype(np.float32))
    assert error(sum_over(x, axes), x, axes) <= 1e-6
    kept = sum_over(x, axes, keepdims=True)
    assert kept.shape == x.sum(axes, keepdims=True).shape
    assert kept.tobytes() == sum_over(x, axes).tobytes()  # the same each time


GRADIENTS = {  # operations that add rows in their backward pass: the shape of a leaf, and the operation on it
    "stretched": ((2,), lambda b: b * Tensor.ones(LONG, 2)),
    "indexed": ((1, 2), lambda w: w[np.zeros(LONG, int)]),
    "linear": ((2,), lambda b: F.linear(Tensor.zeros(LONG, 1), Tensor.zeros(2, 1), b)),
    "linear_gelu": ((2,), lambda b: F.linear_gelu(Tensor.zeros(LONG, 1), Tensor.zeros(2, 1), b) * 2.0),
    "conv2d": ((2,), lambda b: F.conv2d(Tensor.zeros(LONG, 1, 1, 1), Tensor.zeros(2, 1, 1, 1), b).reshape(LONG, 2)),
    "layer_norm, bias": ((2,), lambda b: F.layer_norm(Tensor.zeros(LONG, 2), weight=Tensor.ones(2), bias=b)),
    "layer_norm, weight": ((2,), lambda w: F.layer_norm(Tensor([-1.0, 1.0]).expand(LONG, 2), weight=w, eps=0.0)),
    "embedding": ((1, 2), lambda w: F.embedding(Tensor.zeros(LONG, dtype=int), w)),
}


@pytest.mark.parametrize("version", [nullcontext, composed], ids=["fused", "composed"])
@pytest.mark.parametrize(("shape", "fn"), GRADIENTS.values(), ids=GRADIENTS)
def test_gradients_that_add_rows_are_accurate(shape, fn, version):
    leaf, dy = Tensor.zeros(*shape).requires_grad_(), np.full((LONG, 2), 1 / 3, np.float32)
    with version():
        fn(leaf).backward(Tensor(dy))
    assert error(np.abs(leaf.grad.numpy().reshape(2)), dy, 0) <= 1e-6


def test_mean_and_variance_are_accurate():
    x = np.tile(np.float32([[0.1], [0.3]]), (LONG // 2, 2))
    exact = x.astype(np.float64)
    np.testing.assert_allclose(Tensor(x).mean(0).numpy(), exact.mean(0), rtol=1e-6)
    np.testing.assert_allclose(Tensor(x).var(0).numpy(), exact.var(0, ddof=1), rtol=3e-6)


@pytest.mark.parametrize("dtype", ["float64", "int64", "int32", "uint8", "bool"])
def test_sums_of_other_types_equal_numpys(dtype):
    for shape in ((), (3, 4), (40, 7, 100)):
        x = np.random.default_rng(0).integers(0, 200, shape).astype(dtype)
        for axes in (None, (), *((axis,) for axis in range(x.ndim)), tuple(range(1, x.ndim))):
            found, expected = sum_over(x, axes), x.sum(axes)
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)


def test_sums_of_infinity_and_nan_equal_numpys():
    for rows in (4, 50, 10_000):
        x = np.ones((rows, 5), np.float32)
        x[1], x[rows - 1, 1:] = [np.inf, np.inf, -np.inf, np.nan, 1], [np.inf, np.inf, 1, 1]
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(sum_over(x, (0,)), [np.inf, np.inf, np.nan, np.nan, rows])
            assert np.isnan(sum_over(x, None))


# --- adding at repeated positions -------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 7, 3000])
def test_add_rows_equals_add_at(count):
    rng = np.random.default_rng(0)
    for n, width in itertools.product((0, 1, 2, 20), (0, 1, 3)):
        ids, rows = rng.integers(0, count, n), rng.standard_normal((n, width))
        table = rng.standard_normal((count, width))
        expected = table.copy()
        np.add.at(expected, ids, rows)
        np.testing.assert_allclose(add_rows(table, ids, rows), expected, rtol=1e-12, atol=1e-14)


def test_add_rows_works_on_each_device_and_in_each_dtype(device):
    place, count = get_device(device), 10
    for dtype in (np.float32, np.float64):
        ids, rows = np.array([3, 0, 3, 9, 3]), np.arange(10, dtype=dtype).reshape(5, 2)
        table = place.xp.zeros((count, 2), dtype)
        out = add_rows(table, place.from_host(ids), place.from_host(rows))
        assert out is table
        assert out.dtype == dtype
        host = place.to_host(out)
        assert (host[[0, 3, 9]].tolist(), host.sum()) == ([[2, 3], [12, 15], [6, 7]], rows.sum())
