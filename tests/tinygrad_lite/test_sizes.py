"""Numbers of very different sizes: a large mean, a far position, an infinity at the end of a text.

The right values are computed in float64 by the definitions, from the same float32 inputs.
"""

import tracemalloc

import numpy as np
import pytest

from tests.tinygrad_lite.functional.version_cases import both_versions
from tinygrad_lite import Tensor
from tinygrad_lite import functional as F
from tinygrad_lite.transformer import rotary_frequencies

rng = np.random.default_rng(8)
EQUAL = [(100000.3, 7), (1234.567, 768), (0.1, 7), (-3e7, 5), (1e10, 33), (1e18, 768)]
FAR = [(10_000, np.arange(10) / 1024), (-1e6, rng.standard_normal(768)), (30, rng.standard_normal(64) * 1e-2)]


# --- a large mean -------------------------------------------------------------------------------------------------


def normalised(version, rows, dtype, device="cpu"):
    """A layer norm of rows without gain and shift, and its gradient for random dy; exactly, if there is no version."""
    dy = np.random.default_rng(1).standard_normal(rows.shape).astype(dtype)
    if version is None:
        u = rows.astype(np.longdouble)
        u = u - u.mean(1, keepdims=True)
        r = 1 / np.sqrt((u * u).mean(1, keepdims=True) + 1e-5)
        h, d = u * r, dy.astype(np.longdouble)
        return h, r * (d - d.mean(1, keepdims=True) - h * (d * h).mean(1, keepdims=True))
    one, zero = (Tensor(np.full(rows.shape[1], n, dtype), device=device) for n in (1, 0))
    x = Tensor(rows.astype(dtype), device=device, requires_grad=True)
    y = version(x, weight=one, bias=zero)
    y.backward(Tensor(dy, device=device))
    return y.numpy(), x.grad.numpy()


def check_layer_norm_far_from_zero(version, dtypes=("float32", "float64"), device="cpu"):
    for dtype in dtypes:
        for value, count in EQUAL:
            assert not normalised(version, np.full((3, count), value, dtype), dtype, device)[0].any(), (value, count)
        for centre, around in FAR:
            rows = np.stack([np.roll(around, n) * (n + 1) + centre for n in range(3)]).astype(dtype)
            rows[1] -= rows.dtype.type(centre)  # a row near zero between two far ones
            for actual, exact in zip(
                normalised(version, rows, dtype, device), normalised(None, rows, dtype), strict=True
            ):
                np.testing.assert_allclose(actual, exact, rtol=0, atol=40 * np.finfo(dtype).eps * np.abs(exact).max())


@both_versions(F.layer_norm)
def test_layer_norm_of_numbers_far_from_zero(version):
    check_layer_norm_far_from_zero(version)


def test_layer_norm_of_numbers_far_from_zero_on_a_gpu(cuda):
    check_layer_norm_far_from_zero(F.layer_norm, ["float32"], cuda)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_variance_and_deviation_of_numbers_far_from_zero(dtype):
    for value, count in EQUAL:
        x = Tensor(np.full((2, count), value, dtype), requires_grad=True)
        x.std(1).sum().backward()
        assert x.var().item() == x.std().item() == np.abs(x.grad.numpy()).max() == 0, (value, count)
    for centre, around in FAR:
        rows = np.stack([around + centre, 3 * around + centre]).astype(dtype)
        for axis in (None, 0, 1):
            given = Tensor(rows, requires_grad=True)
            given.std(axis).sum().backward()
            exact = rows.astype(np.longdouble)
            u = exact - exact.mean(axis, keepdims=True)
            std = np.sqrt((u * u).sum(axis, keepdims=True) / (rows.size // u.mean(axis).size - 1))
            slope = u / np.where(std == 0, 1, std) / (rows.size // std.size - 1)
            tolerance = {"rtol": 40 * np.finfo(dtype).eps, "atol": 40 * np.finfo(dtype).eps}
            np.testing.assert_allclose(given.std(axis).numpy(), std.squeeze(axis), **tolerance)
            np.testing.assert_allclose(given.var(axis).numpy(), std.squeeze(axis) ** 2, **tolerance)
            np.testing.assert_allclose(given.grad.numpy(), slope, **tolerance)


# --- ranges and positions -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [(10_000, 10_001, 0.001), (0, 1, 0.1), (5.0,), (2**24, 2**24 + 5), (10, 0, -2.5), (3.0, 1), (1e6, 2e6, 1e4)],
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_range_is_rounded_once(given, dtype):
    start, step = (given[0] if given[1:] else 0), (*given, 1)[2] if given[1:] else 1
    count = len(np.arange(*given))
    expected = np.array([start + i * step for i in range(count)], np.float64).astype(dtype)
    np.testing.assert_array_equal(Tensor.arange(*given, dtype=dtype).numpy(), expected)


@pytest.mark.parametrize("positions", [[-1, 0, 1], [5, 4, -3], [10**6], [-(10**6), 3, 10**6], [[255], [0]]])
@pytest.mark.parametrize("kind", ["int64", "int32", "uint8"])
def test_rotary_at_any_position(positions, kind):
    """The same as the reference, and no table is built up to a far position. Angles are computed in float64."""
    places = np.array(positions).astype(kind)
    x, kinds, turn = rng.standard_normal((2, places.shape[-1], 3, 8)), ("float64", "float32"), rotary_frequencies(8)
    tracemalloc.start()
    versions = [(version, dtype) for dtype in kinds for version in (F.rotary.composed, F.rotary)]
    exact, *found = [version(Tensor(x.astype(dtype)), Tensor(places), turn).numpy() for version, dtype in versions]
    assert tracemalloc.get_traced_memory()[1] < 1e6
    tracemalloc.stop()
    for numbers, tolerance in zip(found, (1e-12, 2e-6, 2e-6), strict=True):
        np.testing.assert_allclose(numbers, exact, rtol=0, atol=tolerance)
    assert len({tuple(row) for row in exact.reshape(2, -1, 24)[0].round(6).tolist()}) == places.shape[-1]


def test_erf_in_blocks_is_erf():
    x = Tensor(rng.standard_normal((1000, 1000)).astype("float32"))
    np.testing.assert_array_equal(x.erf().numpy()[-1], x[-1].erf().numpy())
    assert np.isnan(Tensor(np.full(40_000, np.nan)).erf().numpy()).all()
