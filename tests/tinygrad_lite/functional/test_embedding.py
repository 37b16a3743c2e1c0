import numpy as np
import pytest

from tests.tinygrad_lite.functional.version_cases import both_versions
from tinygrad_lite import Tensor
from tinygrad_lite import functional as F

pytestmark = pytest.mark.every_device

rng = np.random.default_rng(5)
both = both_versions(F.embedding)


@both
@pytest.mark.parametrize("rows", [7, 2000])
def test_an_embedding_equals_the_product_of_one_hot_rows_with_the_table(version, rows):
    weight = Tensor(rng.standard_normal((rows, 3)), requires_grad=True)
    ids, dy = rng.integers(0, rows, (4, 9)) // 3 * 3, rng.standard_normal((4, 9, 3))
    one_hot = np.eye(rows)[ids]
    y = version(Tensor(ids), weight)
    y.backward(Tensor(dy))
    np.testing.assert_array_equal(y.numpy(), one_hot @ weight.numpy())
    np.testing.assert_allclose(weight.grad.numpy(), np.einsum("btv,btc->vc", one_hot, dy), atol=1e-13)
