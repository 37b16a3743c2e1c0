"""Muon on a GPU: NaN, the precision of the products, layouts. With a guard: test_guard.py."""

import numpy as np
import pytest

from tinygrad_lite import Tensor
from tinygrad_lite.cuda.muon import muon_cuda
from tinygrad_lite.optim.muon import muon_composed
from tinygrad_lite.precision import precision

rng = np.random.default_rng(34)
SETTINGS = (0.02, 0.95, 0.1, "original")


def test_nan_stays_in_its_matrix(cuda):
    w, g, m = (rng.standard_normal((3, 4, 8)) for _ in range(3))
    g[1, 2, 3] = np.nan
    after = [Tensor(array, device=cuda) for array in (w, g, m)]
    muon_cuda(*after, *SETTINGS)
    assert np.isnan(after[0].numpy()[1]).all()
    assert np.isfinite(after[0].numpy()[[0, 2]]).all()


@pytest.mark.parametrize("shape", [(2, 24, 40), (2, 40, 24), (1, 7, 9)])
@pytest.mark.parametrize("mode", ["tf32", "bfloat16"])
def test_coarser_products_still_make_the_update_orthogonal(cuda, mode, shape):
    """All singular values of an update lie between 0.72 and 1.28 (muon.py), but for rounding to 8 or 11 bits.

    Those of the gradients here are between 1/2 and 1: the smallest ones would magnify the rounding up to 77 times.
    """
    left, _, right = np.linalg.svd(np.random.default_rng(5).standard_normal(shape), full_matrices=False)
    g = ((left * np.linspace(0.5, 1, left.shape[-1])) @ right).astype("float32")
    w = m = np.zeros(shape, "float32")
    given = [Tensor(array, device=cuda) for array in (w, g, m)]
    with precision(mode):
        muon_cuda(*given, 1.0, 0.0, 0.0, "original")
    assert [x.dtype for x in given] == [np.float32] * 3
    np.testing.assert_allclose(given[2].numpy(), g, rtol=1e-6)  # momentum 0
    exact = [Tensor(array) for array in (w, g, m)]
    muon_composed(*exact, 1.0, 0.0, 0.0, "original")
    scale = max(1, shape[1] / shape[2]) ** 0.5
    lengths = np.linalg.svd(given[0].numpy().astype("float64") / scale, compute_uv=False)
    assert lengths.min() > 0.70
    assert lengths.max() < 1.30
    error = np.linalg.norm(given[0].numpy() - exact[0].numpy()) / np.linalg.norm(exact[0].numpy())
    rounding = 2**-11 if mode == "tf32" else 2**-9
    assert rounding / 2 < error < 16 * rounding  # of 9 products; over 40 such matrices, at most 14


def test_stacks_may_begin_between_packs(cuda):
    """A slice of an optimizer's flat arrays need not begin at a multiple of 16 bytes."""
    flat = [rng.standard_normal(2 * 4 * 8 + 1).astype("float32") for _ in range(3)]
    expected = [Tensor(array[1:].reshape(2, 4, 8).astype("float64")) for array in flat]
    muon_composed(*expected, *SETTINGS)
    on_gpu = [Tensor(array, device=cuda) for array in flat]
    muon_cuda(*(Tensor.wrap(x.data[1:].reshape(2, 4, 8)) for x in on_gpu), *SETTINGS)
    np.testing.assert_allclose(on_gpu[0].numpy()[1:].reshape(2, 4, 8), expected[0].numpy(), rtol=0, atol=5e-6)
    assert on_gpu[0].numpy()[0] == flat[0][0]
