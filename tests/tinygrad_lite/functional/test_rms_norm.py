import numpy as np
import pytest

from tinygrad_lite import Tensor
from tinygrad_lite import functional as F
from tinygrad_lite.functional.rms_norm import rms_norm_composed

rng = np.random.default_rng(3)
both = pytest.mark.parametrize("version", [rms_norm_composed, F.rms_norm], ids=["composed", "fused"])


def leaf(*shape):
    return Tensor(rng.standard_normal(shape), requires_grad=True)


@both
def test_by_hand(version):
    """The mean of 3^2, 4^2, 0 and 0 is 6.25, whose root is 2.5."""
    y = version(Tensor([3.0, 4.0, 0.0, 0.0]), Tensor([5.0, 5.0, 1.0, 1.0]), 0.0)
    np.testing.assert_allclose(y.numpy(), [6.0, 8.0, 0.0, 0.0], rtol=1e-6)


@both
def test_the_length_of_the_input_does_not_matter_and_gets_no_gradient(version):
    x, weight = leaf(6, 10), leaf(10)
    y = version(x, weight, 0.0)
    np.testing.assert_allclose(version(x * 20.0, weight, 0.0).numpy(), y.numpy(), rtol=1e-12)
    y.backward(Tensor(rng.standard_normal((6, 10))))
    np.testing.assert_allclose((x.grad.numpy() * x.numpy()).sum(-1), 0, atol=1e-13)


def test_a_vector_of_mean_0_gets_the_same_from_layer_norm():
    x = rng.standard_normal((5, 8))
    x -= x.mean(-1, keepdims=True)
    weight = leaf(8)
    np.testing.assert_allclose(F.rms_norm(Tensor(x), weight).numpy(), F.layer_norm(Tensor(x), weight).numpy())


def test_without_a_weight_the_result_is_not_touched_by_the_backward_pass():
    x = leaf(4, 6)
    y = F.rms_norm(x)
    before = y.numpy().copy()
    (y * y).sum().backward()
    np.testing.assert_array_equal(y.numpy(), before)


def test_a_weight_of_another_width():
    with pytest.raises(ValueError, match=r"rms_norm: weight has shape \(5,\), x \(2, 4\) needs \(4,\)"):
        F.rms_norm(leaf(2, 4), leaf(5))


@pytest.mark.torch
@pytest.mark.parametrize("has_weight", [True, False])
@pytest.mark.parametrize("shape", [(6,), (2, 3, 6), (2, 3, 4, 6)])
def test_torch_agrees(shape, has_weight):
    torch = pytest.importorskip("torch")
    inputs = [leaf(*shape), *([leaf(6)] if has_weight else [])]
    theirs = [torch.tensor(x.numpy().copy(), requires_grad=True) for x in inputs]
    weight = theirs[1] if has_weight else None
    y, expected = F.rms_norm(*inputs, eps=1e-3), torch.nn.functional.rms_norm(theirs[0], (6,), weight, 1e-3)
    dy = rng.standard_normal(shape)
    y.backward(Tensor(dy))
    expected.backward(torch.tensor(dy))
    np.testing.assert_allclose(y.numpy(), expected.detach().numpy(), rtol=1e-12, atol=1e-14)
    for x, x_theirs in zip(inputs, theirs, strict=True):
        np.testing.assert_allclose(x.grad.numpy(), x_theirs.grad.numpy(), rtol=1e-11, atol=1e-13)
