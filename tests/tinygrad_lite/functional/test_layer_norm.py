import numpy as np
import pytest

from tests.tinygrad_lite.functional.version_cases import both_versions
from tinygrad_lite import Tensor
from tinygrad_lite import functional as F

pytestmark = pytest.mark.every_device

rng = np.random.default_rng(2)
both = both_versions(F.layer_norm)


def test_by_hand():
    """Mean 2, biased variance 1: each number is 1 from the mean, which is 1 standard deviation."""
    x = Tensor([[1.0, 3.0, 1.0, 3.0]])
    y = F.layer_norm(x, weight=Tensor([1.0, 1.0, 2.0, 2.0]), bias=Tensor([0.0, 0.0, 5.0, 5.0]), eps=0.0)
    assert y.tolist() == [[-1.0, 1.0, 3.0, 7.0]]


@both
def test_every_row_gets_mean_0_and_variance_1(version):
    x = Tensor(rng.standard_normal((50, 32)) * 7 + 3)
    y = version(x, weight=Tensor.ones(32, dtype=np.float64), eps=0.0).numpy()
    np.testing.assert_allclose(y.mean(-1), 0, atol=1e-14)
    np.testing.assert_allclose(y.var(-1), 1, rtol=1e-13)


@both
def test_a_row_of_equal_numbers_gives_the_bias(version):
    weight, bias = Tensor([1.0, 2.0, 3.0, 4.0]), Tensor([5.0, 6.0, 7.0, 8.0])
    y = version(Tensor.full((2, 4), 3.0), weight=weight, bias=bias)
    assert y.tolist() == [[5.0, 6.0, 7.0, 8.0]] * 2
