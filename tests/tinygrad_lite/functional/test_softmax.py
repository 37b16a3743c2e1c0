import math

import numpy as np
import pytest

from tests.tinygrad_lite.functional.version_cases import both_versions, leaf
from tinygrad_lite import Tensor
from tinygrad_lite import functional as F

pytestmark = pytest.mark.every_device

rng = np.random.default_rng(6)
NAMES = ["softmax", "log_softmax", "logsumexp"]


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_all_three_follow_their_formulas(axis):
    x = leaf(3, 4)
    e = np.exp(x.numpy())
    total = e.sum(axis, keepdims=True)
    np.testing.assert_allclose(x.softmax(axis).numpy(), e / total, rtol=1e-13)
    np.testing.assert_allclose(x.log_softmax(axis).numpy(), np.log(e / total), rtol=1e-13)
    np.testing.assert_allclose(x.logsumexp(axis, keepdim=True).numpy(), np.log(total), rtol=1e-13)
    np.testing.assert_allclose(x.logsumexp(axis).numpy(), np.log(total.squeeze(axis)), rtol=1e-13)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_logits_of_ten_thousand_do_not_overflow(dtype):
    x = Tensor([1e4, -1e4, 1e4], dtype=dtype, requires_grad=True)
    assert x.softmax().tolist() == [0.5, 0.0, 0.5]
    np.testing.assert_allclose(x.log_softmax().numpy(), [-math.log(2), -2e4 - math.log(2), -math.log(2)], rtol=1e-6)
    assert x.logsumexp().item() == pytest.approx(1e4 + math.log(2), rel=1e-7)
    (x.softmax() * Tensor([1.0, 2.0, 3.0], dtype=dtype)).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [-0.5, 0.0, 0.5])


both = both_versions(F.softmax)
log_both = both_versions(F.log_softmax)


@both
def test_minus_infinity_is_probability_zero(version):
    x = Tensor([0.0, -math.inf, 0.0], requires_grad=True)
    y = version(x)
    assert y.tolist() == [0.5, 0.0, 0.5]
    (y * Tensor([1.0, 5.0, 3.0])).sum().backward()
    assert x.grad.tolist() == [-0.5, 0.0, 0.5]


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


@both
def test_a_row_of_minus_infinity_gives_zeros(version):
    x = Tensor([[-math.inf, -math.inf], [0.0, 0.0]], requires_grad=True)
    y = version(x)
    assert y.tolist() == [[0.0, 0.0], [0.5, 0.5]]
    (y * Tensor([1.0, 2.0])).sum().backward()
    assert x.grad.tolist() == [[0.0, 0.0], [-0.25, 0.25]]
    assert x.logsumexp(-1).tolist() == [-math.inf, pytest.approx(math.log(2))]
