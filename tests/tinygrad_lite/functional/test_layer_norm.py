import pytest

from tests.tinygrad_lite.functional.version_cases import both_versions
from tinygrad_lite import Tensor
from tinygrad_lite import functional as F

pytestmark = pytest.mark.every_device


@both_versions(F.layer_norm)
def test_by_hand(version):
    """Mean 2, biased variance 1: each number is 1 from the mean, which is 1 standard deviation."""
    x = Tensor([[1.0, 3.0, 1.0, 3.0]])
    y = version(x, weight=Tensor([1.0, 1.0, 2.0, 2.0]), bias=Tensor([0.0, 0.0, 5.0, 5.0]), eps=0.0)
    assert y.tolist() == [[-1.0, 1.0, 3.0, 7.0]]
