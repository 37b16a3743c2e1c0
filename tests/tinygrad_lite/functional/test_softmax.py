import math

import numpy as np
import pytest

from tests.tinygrad_lite.functional.version_cases import both_versions
from tinygrad_lite import Tensor
from tinygrad_lite import functional as F

pytestmark = pytest.mark.every_device


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_logits_of_ten_thousand_do_not_overflow(dtype):
    x = Tensor([1e4, -1e4, 1e4], dtype=dtype, requires_grad=True)
    assert x.softmax().tolist() == [0.5, 0.0, 0.5]
    np.testing.assert_allclose(x.log_softmax().numpy(), [-math.log(2), -2e4 - math.log(2), -math.log(2)], rtol=1e-6)
    assert x.logsumexp().item() == pytest.approx(1e4 + math.log(2), rel=1e-7)
    (x.softmax() * Tensor([1.0, 2.0, 3.0], dtype=dtype)).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [-0.5, 0.0, 0.5])


log_both = both_versions(F.log_softmax)


@log_both
def test_the_logarithm_of_probability_zero_is_minus_infinity(version):
    x = Tensor([0.0, -math.inf, 0.0], dtype="float64", requires_grad=True)
    y = version(x)
    np.testing.assert_allclose(y.numpy(), [-math.log(2), -math.inf, -math.log(2)])
    y[0].backward()
    np.testing.assert_allclose(x.grad.numpy(), [0.5, 0.0, -0.5])


@log_both
def test_the_logarithm_of_a_row_of_minus_infinity_is_not_a_number(version):
    x = Tensor([[-math.inf, -math.inf], [0.0, 0.0]], dtype="float64", requires_grad=True)
    y = version(x)
    assert np.isnan(y.numpy()[0]).all()
    y[1, 0].backward()
    np.testing.assert_allclose(x.grad.numpy()[1], [0.5, -0.5])
