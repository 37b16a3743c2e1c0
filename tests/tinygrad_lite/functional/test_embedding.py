import numpy as np
import pytest

from tests.tinygrad_lite.functional.version_cases import both_versions
from tinygrad_lite import Tensor
from tinygrad_lite import functional as F

pytestmark = pytest.mark.every_device

rng = np.random.default_rng(5)
both = both_versions(F.embedding)


@both
def test_tokens_select_rows_of_the_table(version):
    table = Tensor([[0.0, 1.0], [10.0, 11.0], [20.0, 21.0]])
    assert version(Tensor([[2, 0]]), table).tolist() == [[[20.0, 21.0], [0.0, 1.0]]]


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


@both
@pytest.mark.parametrize("rows", [4, 1500])
def test_gradients_of_repeated_tokens_are_added(version, rows):
    weight = Tensor.zeros(rows, 2).requires_grad_()
    version(Tensor([3, 1, 3, 3]), weight).backward(Tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]]))
    grad = weight.grad.numpy()
    assert grad[[3, 1]].tolist() == [[13.0, 16.0], [3.0, 4.0]]
    assert not np.delete(grad, [1, 3], axis=0).any()
