"""Sums of columns and biases on a GPU, with rows that touch and rows that are padded."""

import itertools

import numpy as np
import pytest

from tinygrad_lite.cuda.columns import ROW_BLOCKS, column_sums, pack_of_rows
from tinygrad_lite.cuda.linear import add_bias
from tinygrad_lite.device import get_device
from tinygrad_lite.precision import bfloat16

rng = np.random.default_rng(23)
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
