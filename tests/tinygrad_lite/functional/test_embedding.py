import numpy as np
import pytest

from tinygrad_lite import Tensor
from tinygrad_lite import functional as F
from tinygrad_lite.functional.embedding import embedding_composed

rng = np.random.default_rng(5)
both = pytest.mark.parametrize("version", [embedding_composed, F.embedding], ids=["composed", "fused"])


@both
def test_rows_of_the_table(version):
    table = Tensor([[0.0, 1.0], [10.0, 11.0], [20.0, 21.0]])
    assert version(table, Tensor([[2, 0]])).tolist() == [[[20.0, 21.0], [0.0, 1.0]]]


@both
@pytest.mark.parametrize("rows", [7, 2000])
def test_it_is_the_product_of_one_hot_rows_with_the_table(version, rows):
    weight = Tensor(rng.standard_normal((rows, 3)), requires_grad=True)
    ids, dy = rng.integers(0, rows, (4, 9)) // 3 * 3, rng.standard_normal((4, 9, 3))
    one_hot = np.eye(rows)[ids]
    y = version(weight, Tensor(ids))
    y.backward(Tensor(dy))
    np.testing.assert_array_equal(y.numpy(), one_hot @ weight.numpy())
    np.testing.assert_allclose(weight.grad.numpy(), np.einsum("btv,btc->vc", one_hot, dy), atol=1e-13)


@both
@pytest.mark.parametrize("rows", [4, 1500])
def test_gradients_of_repeated_tokens_are_added(version, rows):
    weight = Tensor.zeros(rows, 2).requires_grad_()
    version(weight, Tensor([3, 1, 3, 3])).backward(Tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]]))
    grad = weight.grad.numpy()
    assert grad[[3, 1]].tolist() == [[13.0, 16.0], [3.0, 4.0]]
    assert not np.delete(grad, [1, 3], axis=0).any()


@both
@pytest.mark.parametrize(("bad", "ids"), [(5, [0, 5]), (-1, [0, -1, 2]), (70_000, [[70_000]])])
def test_a_token_outside_the_table(version, bad, ids):
    with pytest.raises(ValueError, match=f"embedding: token {bad} is outside the table of 5 rows"):
        version(Tensor.zeros(5, 2), Tensor(ids))


@both
def test_ids_must_be_integers(version):
    with pytest.raises(ValueError, match="embedding: ids must be integers, not float32"):
        version(Tensor.zeros(5, 2), Tensor([1.0]))


@pytest.mark.torch
@pytest.mark.parametrize("rows", [7, 1500])
def test_torch_agrees(rows):
    torch = pytest.importorskip("torch")
    weight, ids = Tensor(rng.standard_normal((rows, 3)), requires_grad=True), rng.integers(0, 7, (2, 9))
    theirs = torch.tensor(weight.numpy().copy(), requires_grad=True)
    y, expected = F.embedding(weight, Tensor(ids)), torch.nn.functional.embedding(torch.tensor(ids), theirs)
    dy = rng.standard_normal(y.shape)
    y.backward(Tensor(dy))
    expected.backward(torch.tensor(dy))
    np.testing.assert_array_equal(y.numpy(), expected.detach().numpy())
    np.testing.assert_allclose(weight.grad.numpy(), theirs.grad.numpy(), atol=1e-9)
