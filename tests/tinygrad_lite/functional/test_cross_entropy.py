import math
import sys

import numpy as np
import pytest

from tests.tinygrad_lite.functional.version_cases import both_versions
from tinygrad_lite import Tensor
from tinygrad_lite import functional as F
from tinygrad_lite.functional.cross_entropy import cross_entropy_composed

pytestmark = pytest.mark.every_device

rng = np.random.default_rng(4)
both = both_versions(F.cross_entropy)


def leaf(*shape):
    return Tensor(rng.standard_normal(shape), requires_grad=True)


@both
def test_by_hand(version):
    """Probabilities 1/4 and 3/4; the loss is ln 4 nats for the first, ln 4/3 for the second."""
    logits = Tensor([[0.0, math.log(3)], [0.0, math.log(3)]], dtype="float64")
    assert version(logits, Tensor([0, 1]), reduction="none").tolist() == pytest.approx([math.log(4), math.log(4 / 3)])
    assert version(logits, Tensor([0, 1])).item() == pytest.approx(math.log(4 * 4 / 3) / 2)
    assert version(logits, Tensor([0, 1]), reduction="sum").item() == pytest.approx(math.log(4 * 4 / 3))


@both
def test_the_gradient_is_softmax_minus_one_hot(version):
    logits, targets = leaf(6, 5), rng.integers(0, 5, 6)
    version(logits, Tensor(targets), reduction="sum").backward()
    q = np.exp(logits.numpy()) / np.exp(logits.numpy()).sum(-1, keepdims=True)
    np.testing.assert_allclose(logits.grad.numpy(), q - np.eye(5)[targets], atol=1e-14)


@both
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
def test_the_gradient_of_each_position_sums_to_zero(version, smoothing):
    """Adding a number to all logits changes no probability."""
    logits = leaf(7, 9)
    version(logits, Tensor(rng.integers(0, 9, 7)), label_smoothing=smoothing).backward()
    np.testing.assert_allclose(logits.grad.numpy().sum(-1), 0, atol=1e-15)


@both
def test_the_loss_of_equal_logits_is_the_logarithm_of_the_vocabulary(version):
    assert version(Tensor.zeros(4, 100), Tensor([0, 1, 50, 99])).item() == pytest.approx(math.log(100), rel=1e-6)


@both
def test_label_smoothing_mixes_with_the_uniform_distribution(version):
    logits, target = rng.standard_normal(6), 2
    log_q = logits - np.log(np.exp(logits).sum())
    wanted = np.full(6, 0.3 / 6)
    wanted[target] += 0.7
    loss = version(Tensor(logits[None]), Tensor([target]), label_smoothing=0.3)
    assert loss.item() == pytest.approx(-(wanted * log_q).sum(), rel=1e-12)


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


def test_the_logits_stay_unchanged():
    logits = leaf(4, 5)
    before = logits.numpy().copy()
    F.cross_entropy(logits, Tensor([0, 1, 2, 3])).backward()
    np.testing.assert_array_equal(logits.numpy(), before)


def test_logits_used_twice_get_both_gradients():
    """The fused version returns the array that it worked in; the sum must not overwrite it."""
    logits, targets = leaf(4, 5), Tensor([0, 1, 2, 3])
    (F.cross_entropy(logits, targets) + F.cross_entropy(logits, targets) + logits.sum()).backward()
    twice = logits.grad.numpy().copy()
    logits.grad = None
    F.cross_entropy(logits, targets).backward()
    np.testing.assert_allclose(twice, 2 * logits.grad.numpy() + 1, rtol=1e-13)


@pytest.mark.cpu_only("not checked on a GPU")
@both
@pytest.mark.parametrize("bad", [5, -1, 1000])
def test_a_target_outside_the_vocabulary_is_refused(version, bad):
    with pytest.raises(ValueError, match=f"cross_entropy: target {bad} is outside the vocabulary of 5 tokens"):
        version(leaf(3, 5), Tensor([0, bad, 1]))


@both
@pytest.mark.parametrize(
    ("logits", "targets", "options", "message"),
    [
        ((3, 5), [0, 1], {}, r"logits \(3, 5\) need targets \(3,\), not \(2,\)"),
        ((), 0, {}, r"logits \(\) need targets"),
        ((2, 5), [0.0, 1.0], {}, "targets must be integers, not float32"),
        ((2, 5), [0, 1], {"reduction": "max"}, "reduction must be 'mean', 'sum' or 'none', not 'max'"),
        ((2, 5), [0, 1], {"label_smoothing": 1.5}, r"label_smoothing must be in \[0, 1\], not 1.5"),
        ((2, 5), [0, 1], {"label_smoothing": -0.1}, r"label_smoothing must be in \[0, 1\], not -0.1"),
    ],
)
def test_invalid_arguments_are_refused(version, logits, targets, options, message):
    with pytest.raises(ValueError, match=f"cross_entropy: {message}"):
        version(leaf(*logits), Tensor(targets), **options)


@both
def test_logits_must_be_floats(version):
    with pytest.raises(ValueError, match="cross_entropy: logits must be floats, not int64"):
        version(Tensor([[1, 2]]), Tensor([0]))
