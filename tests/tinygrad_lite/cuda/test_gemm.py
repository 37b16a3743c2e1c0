"""Products by cuBLAS: every layout of matrices, without copies where none are needed."""

import itertools

import numpy as np
import pytest

from tinygrad_lite.cuda.gemm import gemm, laid_out
from tinygrad_lite.device import get_device
from tinygrad_lite.precision import bfloat16, precision

rng = np.random.default_rng(20)


@pytest.fixture
def place(cuda):
    return get_device(cuda)


def on(place, *shape, dtype="float64"):
    return place.from_host(rng.standard_normal(shape).astype(dtype))


def assert_right(place, a, b, **tolerance):
    product = place.to_host(gemm(a, b))
    np.testing.assert_allclose(product, place.to_host(a) @ place.to_host(b), **tolerance)


# Layouts of a matrix (..., 4, 6): contiguous rows, contiguous columns, a part of a larger one.
LAYOUTS = {
    "rows": lambda place, *front: on(place, *front, 4, 6),
    "columns": lambda place, *front: on(place, *front, 6, 4).swapaxes(-1, -2),
    "some columns of more": lambda place, *front: on(place, *front, 4, 9)[..., 2:8],
    "some rows of more": lambda place, *front: on(place, *front, 9, 6)[..., 3:7, :],
    "every second column": lambda place, *front: on(place, *front, 4, 12)[..., ::2],
    "one row, stretched": lambda place, *front: place.xp.broadcast_to(on(place, *front, 1, 6), (*front, 4, 6)),
    "backwards": lambda place, *front: on(place, *front, 4, 6)[..., ::-1, :],
}


@pytest.mark.parametrize("front", [(), (3,), (2, 3)])
@pytest.mark.parametrize("first", LAYOUTS)
def test_every_layout_gives_the_product(place, first, front):
    for second, lay_out in LAYOUTS.items():
        a, b = LAYOUTS[first](place, *front), lay_out(place, *front).swapaxes(-1, -2)
        assert_right(place, a, b, rtol=1e-12, atol=1e-12, err_msg=second)


@pytest.mark.parametrize("m", [1, 3])
@pytest.mark.parametrize("n", [1, 5])
@pytest.mark.parametrize("k", [1, 4])
def test_single_rows_and_columns_give_the_product(place, m, n, k):
    for a, b in itertools.product([on(place, m, k), on(place, k, m).T], [on(place, k, n), on(place, n, k).T]):
        assert_right(place, a, b, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(("sequences", "layout"), [(1, (0, 12, 4)), (2, (0, 4, 20))])
def test_only_heads_of_several_sequences_are_copied(place, sequences, layout):
    """cuBLAS cannot take them: the distance to the next sequence's first head is larger than that to the next head."""
    heads = on(place, sequences, 5, 3, 4).swapaxes(1, 2)  # (B, H, T, D) of (B, T, H, D)
    array, *found = laid_out(heads)
    assert (array is heads, tuple(found)) == (sequences == 1, layout)
    assert (place.to_host(array) == place.to_host(heads)).all()


def test_one_matrix_may_serve_a_whole_batch(place):
    a, b = on(place, 3, 4, 5), on(place, 5, 2)
    stretched = place.xp.broadcast_to(b, (3, 5, 2))
    assert laid_out(stretched)[3] == 0
    assert_right(place, a, stretched, rtol=1e-12)


def test_a_scaled_product_can_be_added_to_part_of_a_larger_array(place):
    """Or replace that part, whose old contents then have no effect."""
    a, b, large = on(place, 4, 5), on(place, 5, 3), on(place, 6, 7)
    before, product = place.to_host(large).copy(), place.to_host(a) @ place.to_host(b)
    gemm(a, b, out=large[1:5, 2:5], scale=0.5, add=True)
    expected = before.copy()
    expected[1:5, 2:5] += 0.5 * product
    np.testing.assert_allclose(place.to_host(large), expected, rtol=1e-12)
    large[1:5, 2:5] = np.nan
    gemm(a, b, out=large[1:5, 2:5])
    expected[1:5, 2:5] = product
    np.testing.assert_allclose(place.to_host(large), expected, rtol=1e-12)


def test_a_result_without_contiguous_rows_is_rejected(place):
    for out in (place.xp.empty((4, 2)).T, place.xp.empty((2, 8))[:, ::2]):
        with pytest.raises(ValueError, match="rows of out"):
            gemm(on(place, 2, 3), on(place, 3, 4), out=out)


@pytest.mark.parametrize(("m", "n", "k"), [(0, 3, 2), (3, 0, 2), (3, 2, 0)])
def test_empty_matrices_give_zeros(place, m, n, k):
    out = place.to_host(gemm(on(place, m, k), on(place, k, n)))
    assert out.shape == (m, n)
    assert (out == 0).all()


ERRORS = [("float32", 0, 1e-6), ("tf32", 1e-5, 1e-3), ("bfloat16", 1e-3, 1e-2)]


@pytest.mark.parametrize(("mode", "low", "high"), ERRORS)
def test_each_precision_has_its_error(place, mode, low, high):
    """Of matrices so large that cuBLAS does not take a kernel without tensor cores, which would be more exact."""
    a, b = on(place, 256, 256, dtype="float32"), on(place, 256, 256, dtype="float32")
    exact = place.to_host(a).astype(np.float64) @ place.to_host(b)
    with precision(mode):
        out = gemm(a, b, dtype="float32")
    assert out.dtype == np.float32
    error = np.linalg.norm(place.to_host(out) - exact) / np.linalg.norm(exact)
    assert low <= error < high


def test_bfloat16_operands_give_either_type(place):
    with precision("bfloat16"):
        a, b = (on(place, 8, 8, dtype="float32").astype(bfloat16()) for _ in range(2))
        exact = place.to_host(a).astype(np.float64) @ place.to_host(b).astype(np.float64)
        whole, rounded = gemm(a, b, dtype="float32"), gemm(a, b)
    assert rounded.dtype == bfloat16()
    np.testing.assert_allclose(place.to_host(whole), exact, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(place.to_host(rounded).astype(np.float64), exact, rtol=2**-8, atol=1e-5)


@pytest.mark.parametrize("mode", ["tf32", "bfloat16"])
def test_float64_is_always_exact(place, mode):
    with precision(mode):
        assert_right(place, on(place, 4, 5), on(place, 5, 6), rtol=1e-13)
