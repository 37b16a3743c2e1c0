import math

import numpy as np
import pytest

from tests.tinygrad_lite.functional.version_cases import both_versions
from tinygrad_lite import Tensor, manual_seed
from tinygrad_lite import functional as F
from tinygrad_lite.functional.dropout import keep_mask
from tinygrad_lite.random import random_key

pytestmark = [pytest.mark.every_device, pytest.mark.emulated_by_default]

both = both_versions(F.dropout)
ONES = np.ones((200, 500), np.float32)


@both
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_the_kept_share_is_1_minus_p_and_the_mean_stays(version, p):
    """Within 5 standard deviations, 1 - p of the 100,000 elements are kept and their mean stays 1."""
    with random_key(1):
        y = version(Tensor(ONES), p).numpy()
    deviation = math.sqrt(p * (1 - p) / y.size)
    assert abs((y != 0).mean() - (1 - p)) < 5 * deviation
    assert abs(y.mean() - 1) < 5 * deviation / (1 - p)


@both
def test_p_0_returns_the_input_itself(version):
    x = Tensor(ONES)
    assert version(x, 0.0) is x


@both
def test_each_call_has_its_own_mask_determined_by_the_key(version):
    def two_masks(*key):
        with random_key(*key):
            return version(Tensor(ONES), 0.5).numpy(), version(Tensor(ONES), 0.5).numpy()

    first, second = two_masks(1, 7)
    again, again_second = two_masks(1, 7)
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(second, again_second)
    others = [second, *two_masks(1, 8), *two_masks(2, 7), *two_masks(1, 7, 0)]
    for other in others:
        assert 0.45 < (first == other).mean() < 0.55  # independent masks agree on half of the elements


def test_masks_do_not_depend_on_earlier_random_numbers():
    with random_key(5):
        expected = keep_mask((100,), 0.5)
    manual_seed(9)
    keep_mask((33,), 0.5)
    with random_key(5):
        np.testing.assert_array_equal(keep_mask((100,), 0.5), expected)


@pytest.mark.parametrize("shape", [(), (1,), (3,), (4,), (5, 3), (0, 2)])
def test_masks_have_the_shape_requested(shape):
    mask = keep_mask(shape, 0.5)
    assert (mask.shape, mask.dtype) == (shape, np.bool_)


def test_neighbours_are_independent():
    """Four elements share one raw 64-bit number; no two of them may be correlated."""
    with random_key(2):
        quads = keep_mask((50_000, 4), 0.5)
    correlation = np.corrcoef(quads.T)
    np.testing.assert_allclose(correlation, np.eye(4), atol=0.025)  # 5 standard deviations of 1/sqrt(50,000)


@both
def test_integers_become_floats(version):
    with random_key(1):
        y = version(Tensor([[8] * 50]), 0.2)
    assert y.dtype == np.float32
    assert set(np.unique(y.numpy())) == {0.0, 10.0}
