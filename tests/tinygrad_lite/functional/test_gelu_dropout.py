"""GELU's accuracy, and dropout's random numbers; on the emulated GPU too."""

import math

import numpy as np
import pytest

from tests.places import here
from tests.tinygrad_lite.functional.version_cases import both_versions
from tinygrad_lite import Tensor, manual_seed
from tinygrad_lite import functional as F
from tinygrad_lite.functional.dropout import keep_mask
from tinygrad_lite.functional.gelu import _probability, gelu_composed
from tinygrad_lite.random import random_key

pytestmark = [pytest.mark.every_device, pytest.mark.emulated_by_default]


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_float32_errors_are_within_their_bounds(approximate):
    """Fused float32 is within 6e-7 of the definition in float64 for |x| <= 12 (values up to 12, so half of a last
    digit is 5e-7 there), and within 3e-7 for |x| <= 2; the derivative within 3e-6 and 1e-6. The composed version, which
    rounds after every step, is within 7e-7."""
    far = 7e-7 if F.gelu.version_for(here()) is gelu_composed else 6e-7
    numbers = np.linspace(-12, 12, 48_001).astype(np.float32)
    x, exact = Tensor(numbers, requires_grad=True), Tensor(numbers.astype(np.float64), requires_grad=True)
    y, z = F.gelu(x, approximate=approximate), gelu_composed(exact, approximate=approximate)
    y.sum().backward()
    z.sum().backward()
    near = np.abs(numbers) <= 2
    for error, bound, bound_near in (
        (np.abs(y.numpy() - z.numpy()), far, 3e-7),
        (np.abs(x.grad.numpy() - exact.grad.numpy()), 3e-6, 1e-6),
    ):
        assert error.max() < bound
        assert error[near].max() < bound_near


def test_the_polynomial_for_erf_is_accurate_to_float32():
    """The error of P is below the last digit of float32, and for large x the polynomial stays positive."""
    x = np.concatenate([np.linspace(0, 12, 12_001), np.geomspace(12, 1e18, 1000)]).astype(np.float32)
    p = np.empty_like(x)
    with np.errstate(over="ignore"):
        _probability(x, np.empty_like(x), p, is_tanh=False)
    exact = np.array([1 - math.erfc(v / math.sqrt(2)) / 2 for v in x.tolist()])
    assert np.abs(p - exact).max() < np.finfo(np.float32).eps
    assert (p[x > 6] == 1).all()


# --- dropout ----------------------------------------------------------------------------------------------------

ONES = np.ones((200, 500), np.float32)


@both_versions(F.dropout)
@pytest.mark.parametrize("p", [0.1, 0.999])
def test_the_kept_share_is_1_minus_p_and_the_mean_stays(version, p):
    """Within 5 standard deviations, 1 - p of the 100,000 elements are kept and their mean stays 1."""
    with random_key(1):
        y = version(Tensor(ONES), p).numpy()
    deviation = math.sqrt(p * (1 - p) / y.size)
    assert abs((y != 0).mean() - (1 - p)) < 5 * deviation
    assert abs(y.mean() - 1) < 5 * deviation / (1 - p)


@both_versions(F.dropout)
def test_p_0_returns_the_input_itself(version):
    x = Tensor(ONES)
    assert version(x, 0.0) is x


@both_versions(F.dropout)
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
        assert keep_mask((1 << 18,), 0.9).sum() == 26176  # as in every version, or runs could not be repeated


def test_neighbours_are_independent():
    """Four elements share one raw 64-bit number; no two of them may be correlated."""
    with random_key(2):
        quads = keep_mask((50_000, 4), 0.5)
    correlation = np.corrcoef(quads.T)
    np.testing.assert_allclose(correlation, np.eye(4), atol=0.025)  # 5 standard deviations of 1/sqrt(50,000)
