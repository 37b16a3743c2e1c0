import numpy as np
import pytest

from tests.tinygrad_lite.functional.version_cases import both_versions
from tinygrad_lite import Tensor
from tinygrad_lite import functional as F
from tinygrad_lite.functional.registry import composed
from tinygrad_lite.functional.rotary import rotary_composed

pytestmark = pytest.mark.every_device

rng = np.random.default_rng(4)
both = both_versions(F.rotary)
FREQUENCIES = (1.0, 0.3, 0.01)


def normal(*shape):
    return rng.standard_normal(shape)


@both
def test_scores_depend_on_the_distance_only(version):
    query, key = normal(1, 1, 1, 6), normal(1, 1, 1, 6)

    def score(p, s):
        turned = [version(Tensor(x), Tensor([place]), FREQUENCIES).numpy() for x, place in ((query, p), (key, s))]
        return (turned[0] * turned[1]).sum()

    assert score(7, 3) == pytest.approx(score(4, 0), rel=1e-12)
    assert score(1007, 1003) == pytest.approx(score(4, 0), rel=1e-12)
    assert score(7, 4) != pytest.approx(score(4, 0), rel=1e-3)


@both
def test_position_0_and_all_lengths_are_unchanged(version):
    x = normal(2, 5, 3, 6)
    y = version(Tensor(x), Tensor(np.arange(5)), FREQUENCIES).numpy()
    np.testing.assert_array_equal(y[:, 0], x[:, 0])
    np.testing.assert_allclose(np.linalg.norm(y, axis=-1), np.linalg.norm(x, axis=-1), rtol=1e-13)


def test_distant_positions_are_accurate_in_float32():
    """Angles are computed in float64: 100,000 radians as float32 would be off by 0.004."""
    x, far = normal(1, 1, 1, 2).astype(np.float32), Tensor([100_003])
    expected = rotary_composed(Tensor(x.astype(np.float64)), far, (1.0,)).numpy()
    np.testing.assert_allclose(F.rotary(Tensor(x), far, (1.0,)).numpy(), expected, rtol=1e-5)
    with composed():
        np.testing.assert_allclose(F.rotary(Tensor(x), far, (1.0,)).numpy(), expected, rtol=1e-5)
