import itertools

import numpy as np
import pytest

from tests.tinygrad_lite.functional.version_cases import both_versions, leaf
from tinygrad_lite import Tensor
from tinygrad_lite import functional as F

pytestmark = pytest.mark.every_device

rng = np.random.default_rng(7)

SETTINGS = [  # shape of x, of the weight, and the settings
    ((2, 3, 6, 5), (4, 3, 3, 2), {}),
    ((2, 3, 6, 5), (4, 3, 3, 3), {"padding": 1}),
    ((1, 4, 7, 8), (6, 2, 3, 3), {"groups": 2, "stride": 2, "padding": 1}),
    ((1, 3, 7, 6), (6, 1, 3, 2), {"groups": 3, "padding": (2, 0), "dilation": (2, 3)}),
    ((2, 2, 9, 7), (3, 2, 2, 2), {"stride": 3}),
    ((1, 1, 5, 5), (1, 1, 5, 4), {"stride": (1, 7), "padding": (0, 3)}),
]
NAMES = ("stride", "dilation", "padding")


@both_versions(F.conv2d)
@pytest.mark.parametrize(("x", "weight", "settings"), SETTINGS)
def test_the_formula_number_by_number(version, x, weight, settings):
    x, weight, bias = rng.standard_normal(x), rng.standard_normal(weight), rng.standard_normal(weight[0])
    (s, t), (d, e), (p, q) = (np.broadcast_to(settings.get(k, n), 2) for k, n in zip(NAMES, (1, 1, 0), strict=True))
    y = version(Tensor(x), Tensor(weight), Tensor(bias), **settings).numpy()
    (_, channels, height, width), (outputs, inputs, *kernel) = x.shape, weight.shape
    assert channels == inputs * settings.get("groups", 1)
    for b, o, u, v in itertools.product(*map(range, y.shape)):
        first = o // (outputs * inputs // channels) * inputs  # of the channels that this output sees
        expected = bias[o]
        for c, i, j in itertools.product(range(inputs), *map(range, kernel)):
            m, n = s * u + d * i - p, t * v + e * j - q
            if 0 <= m < height and 0 <= n < width:
                expected += weight[o, c, i, j] * x[b, first + c, m, n]
        assert y[b, o, u, v] == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_settings_are_given_by_name():
    with pytest.raises(TypeError) as caught:
        F.conv2d(leaf(1, 3, 4, 4), leaf(2, 3, 3, 3), None, 1, 1)
    by_name = "groups=..., stride=..., dilation=..., padding=..."
    assert str(caught.value) == f"conv2d: by position it takes x, weight, bias, and by name {by_name}"
    assert leaf(1, 3, 4, 4).conv2d(leaf(2, 3, 3, 3), padding=1).shape == (1, 2, 4, 4)
