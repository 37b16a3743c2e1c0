import numpy as np
import pytest

from tests.tinygrad_lite.functional.version_cases import both_versions, leaf
from tinygrad_lite import Tensor
from tinygrad_lite import functional as F

pytestmark = pytest.mark.every_device

rng = np.random.default_rng(3)
both = both_versions(F.rms_norm)


@both
def test_by_hand(version):
    """The mean of 3^2, 4^2, 0 and 0 is 6.25, whose root is 2.5."""
    y = version(Tensor([3.0, 4.0, 0.0, 0.0]), weight=Tensor([5.0, 5.0, 1.0, 1.0]), eps=0.0)
    np.testing.assert_allclose(y.numpy(), [6.0, 8.0, 0.0, 0.0], rtol=1e-6)


def test_without_a_weight_the_backward_pass_does_not_change_the_result():
    x = leaf(4, 6)
    y = F.rms_norm(x)
    before = y.numpy().copy()
    (y * y).sum().backward()
    np.testing.assert_array_equal(y.numpy(), before)
