import numpy as np
import pytest

from tests.tinygrad_lite.functional.version_cases import both_versions
from tinygrad_lite import Tensor
from tinygrad_lite import functional as F

pytestmark = pytest.mark.every_device

VERSIONS = [F.avg_pool2d.composed, F.avg_pool2d, F.max_pool2d.composed, F.max_pool2d]
both_means, both_maxima = both_versions(F.avg_pool2d), both_versions(F.max_pool2d)

PICTURE = [[[[1.0, 2.0, 3.0, 9.0], [6.0, 3.0, 8.0, 0.0], [7.0, 7.0, 7.0, 7.0]]]]  # the last row fills no 2 x 2 window


@pytest.mark.parametrize("version", VERSIONS)
def test_means_and_maxima_by_hand(version):
    means = [3.0, 5.0], [[1.0, 1.0, 2.0, 2.0], [1.0, 1.0, 2.0, 2.0], [0.0] * 4]
    maxima = [6.0, 9.0], [[0.0, 0.0, 0.0, 8.0], [4.0, 0.0, 0.0, 0.0], [0.0] * 4]
    values, gradients = means if version in VERSIONS[:2] else maxima
    x = Tensor(PICTURE, requires_grad=True)
    y = version(x)
    assert y.tolist() == [[[values]]]
    y.backward(Tensor([[[[4.0, 8.0]]]]))
    assert x.grad.tolist() == [[gradients]]


@both_means
def test_the_zeros_of_the_padding_count(version):
    assert version(Tensor.ones(1, 1, 2, 2), 2, padding=1).tolist() == [[[[0.25, 0.25], [0.25, 0.25]]]]


@both_maxima
@pytest.mark.parametrize("value", [-5.0, -np.inf])
def test_the_padding_never_wins(version, value):
    x = Tensor.full((1, 1, 2, 2), value).requires_grad_()
    y = version(x, 2, padding=1)
    y.sum().backward()
    assert y.tolist() == [[[[value, value], [value, value]]]]
    assert x.grad.tolist() == [[[[1.0, 1.0], [1.0, 1.0]]]]
    x = Tensor(np.full((1, 2, 5, 4), value), requires_grad=True)
    x.data[0, 1, 2, 1] = 1.0
    version(x, 4, 3, padding=2).sum().backward()
    right = [[wins(picture, 4, 3, 2) for picture in x.numpy()[0]]]
    np.testing.assert_array_equal(x.grad.numpy(), right)


def wins(picture, kernel, stride, padding):
    """How often each pixel is the first of the largest in a window."""
    count, (h, w) = np.zeros(picture.shape), picture.shape
    for top in range(-padding, h + padding - kernel + 1, stride):
        for left in range(-padding, w + padding - kernel + 1, stride):
            window = np.ix_(*(range(max(at, 0), min(at + kernel, end)) for at, end in ((top, h), (left, w))))
            row, column = np.unravel_index(picture[window].argmax(), picture[window].shape)
            count[window[0][row, 0], window[1][0, column]] += 1
    return count


@both_maxima
def test_of_equal_pixels_the_first_in_reading_order_gets_the_gradient(version):
    """Windows of 2 x 2, stride 1: each picks its upper left pixel; where 1 is larger, the first 1."""
    x = Tensor([[[[0.0, 0.0, 1.0], [0.0, 1.0, 1.0], [0.0, 0.0, 0.0]]]], requires_grad=True)
    version(x, 2, 1).backward(Tensor([[[[1.0, 2.0], [4.0, 8.0]]]]))
    assert x.grad.tolist() == [[[[0.0, 0.0, 2.0], [0.0, 1.0 + 4.0 + 8.0, 0.0], [0.0, 0.0, 0.0]]]]
    x = Tensor.zeros(1, 2, 4, 6).requires_grad_()
    version(x).sum().backward()
    assert x.grad.tolist() == [[[[1.0, 0.0] * 3, [0.0] * 6] * 2] * 2]


@both_maxima
def test_nan_is_larger_than_any_number_and_infinity_stays_in_its_window(version):
    x = Tensor([[[[1.0, np.nan, np.inf, 2.0], [np.inf, np.nan, 0.0, np.inf]]]], requires_grad=True)
    y = version(x)
    y.backward(Tensor([[[[1.0, np.inf]]]]))
    np.testing.assert_array_equal(y.numpy(), [[[[np.nan, np.inf]]]])
    assert x.grad.tolist() == [[[[0.0, 1.0, np.inf, 0.0], [0.0, 0.0, 0.0, 0.0]]]]


@both_means
def test_a_mean_is_not_finite_only_where_its_window_is_not(version):
    x = np.ones((1, 1, 4, 4))
    x[0, 0, 0, 0], x[0, 0, 3, 3] = np.inf, np.nan
    np.testing.assert_array_equal(version(Tensor(x)).numpy(), [[[[np.inf, 1.0], [1.0, np.nan]]]])
