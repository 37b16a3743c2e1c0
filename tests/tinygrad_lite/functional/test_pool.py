import numpy as np
import pytest

from tests.tinygrad_lite.functional.version_cases import both_versions
from tinygrad_lite import Tensor
from tinygrad_lite import functional as F

pytestmark = pytest.mark.every_device


@both_versions(F.max_pool2d)
@pytest.mark.parametrize("value", [-5.0, -np.inf])
def test_the_padding_never_wins(version, value):
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
