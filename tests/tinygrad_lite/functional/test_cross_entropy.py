import math
import sys

import numpy as np
import pytest

from tests.tinygrad_lite.functional.version_cases import both_versions, leaf
from tinygrad_lite import Tensor
from tinygrad_lite import functional as F
from tinygrad_lite.functional.cross_entropy import cross_entropy_composed

pytestmark = pytest.mark.every_device

rng = np.random.default_rng(4)
both = both_versions(F.cross_entropy)


@both
@pytest.mark.parametrize("settings", [{}, {"label_smoothing": 0.3}, {"reduction": "sum"}])
def test_a_distribution_weighs_the_losses_of_all_tokens(version, settings):
    """Targets that need no gradient, as those of training are; with one, the versions are the same."""
    logits, weights = leaf(3, 6), rng.dirichlet(np.ones(6), 3)
    loss = version(logits, Tensor(weights), **settings)
    loss.backward()
    other = Tensor(logits.numpy(), requires_grad=True)
    tokens = [version(other, Tensor(np.full(3, v)), **settings | {"reduction": "none"}) for v in range(6)]
    expected = sum((each * Tensor(weights[:, v])).sum() for v, each in enumerate(tokens))
    expected = expected if settings.get("reduction") == "sum" else expected / 3
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-13)
    np.testing.assert_allclose(logits.grad.numpy(), other.grad.numpy(), atol=1e-14)


@both
def test_smoothing_asks_for_tokens_that_are_impossible(version):
    """As in torch: infinite, not NaN, although one of the targets is 0 where the logit is -inf."""
    logits = Tensor([[0.3, -math.inf, 1.0]], dtype="float64", requires_grad=True)
    loss = version(logits, Tensor([[0.5, 0.0, 0.5]], dtype="float64"), label_smoothing=0.3)
    loss.backward()
    weights, q = np.array([0.45, 0.1, 0.45]), np.exp([0.3, -math.inf, 1.0])
    assert loss.item() == math.inf
    np.testing.assert_allclose(logits.grad.numpy(), [q / q.sum() - weights], rtol=1e-12)


@both
@pytest.mark.parametrize("ignore_index", [-100, -1, 3, 77])
def test_ignored_positions_count_neither_in_the_loss_nor_in_the_mean(version, ignore_index):
    logits, targets = leaf(5, 4), np.array([0, ignore_index, 2, ignore_index, 1])
    loss = version(logits, Tensor(targets), ignore_index=ignore_index)
    loss.backward()
    counted = [0, 2, 4]
    rest = Tensor(logits.numpy()[counted], requires_grad=True)
    expected = version(rest, Tensor(targets[counted]))
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-14)
    np.testing.assert_allclose(logits.grad.numpy()[counted], rest.grad.numpy(), rtol=1e-14)
    assert not logits.grad.numpy()[[1, 3]].any()


@both
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_all_ignored_is_zero_with_zero_gradients(version, reduction):
    logits = leaf(3, 4)
    loss = version(logits, Tensor([-100] * 3), reduction=reduction)
    loss.sum().backward()
    assert not loss.numpy().any()
    assert not logits.grad.numpy().any()


def test_any_division_into_blocks_gives_the_same_losses(monkeypatch):
    logits, targets = leaf(11, 7), Tensor(rng.integers(0, 7, 11))
    expected = cross_entropy_composed(logits, targets, reduction="none", label_smoothing=0.2)
    for block in (1, 7, 15, 30, 1000):
        monkeypatch.setattr(sys.modules["tinygrad_lite.functional.cross_entropy"], "BLOCK", block)
        y = F.cross_entropy(logits, targets, reduction="none", label_smoothing=0.2)
        np.testing.assert_allclose(y.numpy(), expected.numpy(), rtol=1e-13)


def test_logits_used_twice_get_both_gradients():
    """The fused version returns the array that it worked in; the sum must not overwrite it."""
    logits, targets = leaf(4, 5), Tensor([0, 1, 2, 3])
    (F.cross_entropy(logits, targets) + F.cross_entropy(logits, targets) + logits.sum()).backward()
    twice = logits.grad.numpy().copy()
    logits.grad = None
    F.cross_entropy(logits, targets).backward()
    np.testing.assert_allclose(twice, 2 * logits.grad.numpy() + 1, rtol=1e-13)
