"""Single operations: what the cases of version_cases.py do not try."""

import functools
import itertools
import math
import sys
from contextlib import nullcontext

import numpy as np
import pytest

from tests.places import here
from tests.tinygrad_lite.functional.version_cases import assert_close, both_versions, leaf, normal, outcome
from tinygrad_lite import Tensor
from tinygrad_lite import functional as F
from tinygrad_lite.debug.gradcheck import gradcheck
from tinygrad_lite.functional.linear import linears
from tinygrad_lite.functional.registry import composed
from tinygrad_lite.random import random_key

pytestmark = pytest.mark.every_device

rng = np.random.default_rng(3)


# --- several maps of one input --------------------------------------------------------------------------------


WIDTHS = (5, 1, 3)


def inputs_of_several(shape, bias, dtype=np.float64):
    """x, three weights, and their biases: all of them, none, or only the first; the same numbers in every call."""
    numbers = np.random.default_rng(2)
    shapes = [shape, *((width, shape[-1]) for width in WIDTHS)]
    shapes += [(width,) for width in WIDTHS[: {"all": 3, "none": 0, "one": 1}[bias]]]
    return [Tensor(numbers.standard_normal(s).astype(dtype), device=here(), requires_grad=True) for s in shapes]


def side_by_side(version, x, *parameters):
    """The results of a version of `linears`, joined along the last axis."""
    biases = [*parameters[len(WIDTHS) :], *[None] * len(WIDTHS)][: len(WIDTHS)]
    first, *others = version(x, list(parameters[: len(WIDTHS)]), biases)
    return first.cat(*others, axis=-1)


@pytest.mark.parametrize("bias", ["all", "none", "one"])
@pytest.mark.parametrize("shape", [(4,), (5, 4), (2, 3, 4), (0, 4)])
def test_several_maps_equal_single_ones(shape, bias):
    for dtype, tolerance in ((np.float64, 1e-12), (np.float32, 1e-5)):
        found = []
        for version in (linears.composed, linears):
            inputs = inputs_of_several(shape, bias, dtype)
            with composed() if version is linears.composed else nullcontext():
                y = side_by_side(version, *inputs)
                (y * y).sum().backward()
            found.append([y.numpy(), *(x.grad.numpy() for x in inputs)])
        for one, other in zip(*found, strict=True):
            assert one.dtype == other.dtype == dtype
            np.testing.assert_allclose(other, one, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("bias", ["all", "none", "one"])
def test_several_maps_pass_gradcheck(bias):
    for version in (linears.composed, linears.version_for(here())):
        assert gradcheck(functools.partial(side_by_side, version), inputs_of_several((2, 3, 4), bias)) < 1e-6


def test_several_maps_refuse_shapes_that_do_not_fit():
    x, wide, narrow = (Tensor.ones(*shape, device=here()) for shape in ((2, 4), (3, 5), (3, 4)))
    with pytest.raises(ValueError, match=r"linear: x .* do not fit: \(2, 4\) and \(3, 5\)"):
        linears(x, [narrow, wide], [None, None])
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        linears(x, [narrow, narrow], [None])


# --- convolution ----------------------------------------------------------------------------------------------


CONVOLUTIONS = [  # shape of x, of the weight, and the settings
    ((2, 3, 6, 5), (4, 3, 3, 2), {}),
    ((2, 3, 6, 5), (4, 3, 3, 3), {"padding": 1}),
    ((1, 4, 7, 8), (6, 2, 3, 3), {"groups": 2, "stride": 2, "padding": 1}),
    ((1, 3, 7, 6), (6, 1, 3, 2), {"groups": 3, "padding": (2, 0), "dilation": (2, 3)}),
    ((2, 2, 9, 7), (3, 2, 2, 2), {"stride": 3}),
    ((1, 1, 5, 5), (1, 1, 5, 4), {"stride": (1, 7), "padding": (0, 3)}),
    # Either not every window is computed, or there is one more in a row than pixels, or there is one less.
    *(((1, 2, 4, 5), (2, 2, 2, k), {"stride": s, "padding": (0, 1)}) for k, s in ((3, (2, 1)), (3, (1, 2)), (4, 1))),
    *(((1, 2, 4, 5), (2, 2, 2, k), {"padding": (0, 1)}) for k in (1, 2)),
]


@both_versions(F.conv2d)
@pytest.mark.parametrize(("x", "weight", "settings"), CONVOLUTIONS)
def test_the_formula_number_by_number(version, x, weight, settings):
    x, weight, bias = rng.standard_normal(x), rng.standard_normal(weight), rng.standard_normal(weight[0])
    (s, t), (d, e), (p, q) = (
        np.broadcast_to(settings.get(k, n), 2)
        for k, n in zip(("stride", "dilation", "padding"), (1, 1, 0), strict=True)
    )
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


# --- rotary positions -----------------------------------------------------------------------------------------


FREQUENCIES = (1.0, 0.3, 0.01)


@both_versions(F.rotary)
def test_scores_depend_on_the_distance_only(version):
    query, key = normal(1, 1, 1, 6), normal(1, 1, 1, 6)

    def score(p, s):
        turned = [version(Tensor(x), Tensor([place]), FREQUENCIES).numpy() for x, place in ((query, p), (key, s))]
        return (turned[0] * turned[1]).sum()

    assert score(7, 3) == pytest.approx(score(4, 0), rel=1e-12)
    assert score(1007, 1003) == pytest.approx(score(4, 0), rel=1e-12)
    assert score(7, 4) != pytest.approx(score(4, 0), rel=1e-3)


@both_versions(F.rotary)
def test_position_0_and_all_lengths_are_unchanged(version):
    x = normal(2, 5, 3, 6)
    y = version(Tensor(x), Tensor(np.arange(5)), FREQUENCIES).numpy()
    np.testing.assert_array_equal(y[:, 0], x[:, 0])
    np.testing.assert_allclose(np.linalg.norm(y, axis=-1), np.linalg.norm(x, axis=-1), rtol=1e-13)


# --- cross-entropy --------------------------------------------------------------------------------------------


@both_versions(F.cross_entropy)
@pytest.mark.parametrize("settings", [{}, {"label_smoothing": 0.3}, {"reduction": "sum"}])
def test_a_distribution_weighs_the_losses_of_all_tokens(version, settings):
    """Targets that need no gradient, as those of training are; with one, the versions are the same."""
    logits, weights = leaf(3, 6), rng.dirichlet(np.ones(6), 3)
    assert version(Tensor(logits.numpy().astype(np.float32)), Tensor(weights), **settings).dtype == np.float64
    loss = version(logits, Tensor(weights), **settings)
    loss.backward()
    other = Tensor(logits.numpy(), requires_grad=True)
    tokens = [version(other, Tensor(np.full(3, v)), **settings | {"reduction": "none"}) for v in range(6)]
    expected = sum((each * Tensor(weights[:, v])).sum() for v, each in enumerate(tokens))
    expected = expected if settings.get("reduction") == "sum" else expected / 3
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-13)
    np.testing.assert_allclose(logits.grad.numpy(), other.grad.numpy(), atol=1e-14)


@both_versions(F.cross_entropy)
def test_smoothing_asks_for_tokens_that_are_impossible(version):
    """As in torch: infinite, not NaN, although one of the targets is 0 where the logit is -inf."""
    logits = Tensor([[0.3, -math.inf, 1.0]], dtype="float64", requires_grad=True)
    loss = version(logits, Tensor([[0.5, 0.0, 0.5]], dtype="float64"), label_smoothing=0.3)
    loss.backward()
    weights, q = np.array([0.45, 0.1, 0.45]), np.exp([0.3, -math.inf, 1.0])
    assert loss.item() == math.inf
    np.testing.assert_allclose(logits.grad.numpy(), [q / q.sum() - weights], rtol=1e-12)


@both_versions(F.cross_entropy)
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


@both_versions(F.cross_entropy)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_all_ignored_is_zero_with_zero_gradients(version, reduction):
    logits = leaf(3, 4)
    loss = version(logits, Tensor([-100] * 3), reduction=reduction)
    loss.sum().backward()
    assert not loss.numpy().any()
    assert not logits.grad.numpy().any()


def test_any_division_into_blocks_gives_the_same_losses(monkeypatch):
    logits, targets = leaf(11, 7), Tensor(rng.integers(0, 7, 11))
    expected = F.cross_entropy.composed(logits, targets, reduction="none", label_smoothing=0.2)
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


def test_a_leaf_is_not_overwritten_and_a_derivative_that_needs_a_result_refuses():
    logits, targets = leaf(4, 5), Tensor([0, 1, 2, 3])
    before = logits.numpy().copy()
    F.cross_entropy(logits, targets, overwrite=True).backward()
    np.testing.assert_array_equal(logits.numpy(), before)
    with pytest.raises(RuntimeError, match="'exp' still needs was overwritten"):
        F.cross_entropy(logits.exp(), targets, overwrite=True).backward()


# --- attention ------------------------------------------------------------------------------------------------


VERSIONS = F.scaled_dot_product_attention, F.scaled_dot_product_attention.composed


def qkv(batch=2, heads=3, t=5, s=6, width=4, dtype=np.float64):
    return [leaf(batch, heads, length, width, dtype=dtype) for length in (t, s, s)]


def one_query_at_a_time(query, key, value, allowed, added=None):
    """The definition as loops: each query of each head of each sequence on its own; `added` is added to the scores."""
    added = np.zeros(allowed.shape) if added is None else np.broadcast_to(added, allowed.shape)
    out = np.zeros(query.shape)
    for b, h, t in np.ndindex(*query.shape[:3]):
        keys = np.flatnonzero(allowed[b, h, t])
        if len(keys) == 0:
            continue
        scores = [query[b, h, t] @ key[b, h, s] / math.sqrt(query.shape[-1]) + added[b, h, t, s] for s in keys]
        weights = np.exp(scores - np.max(scores))
        out[b, h, t] = sum(w * value[b, h, s] for w, s in zip(weights / weights.sum(), keys, strict=True))
    return out


@both_versions(F.scaled_dot_product_attention)
@pytest.mark.parametrize(("t", "s"), [(5, 5), (3, 6), (6, 3), (70, 70), (1, 4), (0, 3), (3, 0)])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_attention_equals_a_loop_over_queries(version, t, s, is_causal, masked):
    query, key, value = qkv(t=t, s=s)
    mask = rng.random((2, 3, t, s)) < 0.5 if masked else np.ones((2, 3, t, s), bool)
    allowed = mask & np.tril(np.ones((t, s), bool), s - t) if is_causal else mask
    y = version(query, key, value, Tensor(mask) if masked else None, is_causal=is_causal)
    expected = one_query_at_a_time(query.numpy(), key.numpy(), value.numpy(), allowed)
    np.testing.assert_allclose(y.numpy(), expected, atol=1e-13)


MASKS = [(2, 3, 5, 6), (3, 1, 6), (5, 6), (2, 1, 1, 6), ()]  # all broadcast to (B, H, T, S) = (2, 3, 5, 6)


@both_versions(F.scaled_dot_product_attention)
@pytest.mark.parametrize("shape", MASKS)
@pytest.mark.parametrize("is_causal", [False, True])
def test_a_mask_of_floats_is_added_to_the_scores(version, shape, is_causal):
    """Where it is -inf, a query does not see the key; one that sees none gets 0."""
    (query, key, value), mask = qkv(), rng.standard_normal(shape)
    if mask.ndim:
        mask[..., rng.random(6) < 0.4] = -math.inf
        mask[0] = -math.inf  # the first queries or sequences, all of them
    allowed = np.broadcast_to(mask > -math.inf, (2, 3, 5, 6)) & np.tril(np.ones((5, 6), bool), 1 if is_causal else 6)
    y = version(query, key, value, Tensor(mask), is_causal=is_causal)
    expected = one_query_at_a_time(query.numpy(), key.numpy(), value.numpy(), allowed, mask)
    np.testing.assert_allclose(y.numpy(), expected, atol=1e-13)
    assert not y.numpy()[~allowed.any(-1)].any()


@both_versions(F.scaled_dot_product_attention)
@pytest.mark.cpu_only("not tried on a GPU")
def test_a_query_whose_scores_are_all_minus_infinity_sees_nothing_also_without_a_mask(version):
    key = value = Tensor(np.ones((1, 1, 2, 2)))
    y = version(Tensor([[[[-math.inf, 1.0], [1.0, 1.0]]]], dtype="float64"), key, value)
    assert y.tolist() == [[[[0.0, 0.0], [1.0, 1.0]]]]


@pytest.mark.cpu_only("the CPU's blocks")
def test_any_division_into_blocks_gives_the_same_results(monkeypatch):
    chapter = sys.modules["tinygrad_lite.functional.attention"]
    for row_block, scores in ((1, 1), (2, 30), (3, 100), (64, 1 << 17)):
        monkeypatch.setattr(chapter, "ROW_BLOCK", row_block)
        monkeypatch.setattr(chapter, "SCORES", scores)
        for t, s in ((7, 7), (4, 9), (9, 4), (0, 3), (3, 0)):
            for is_causal in (False, True):
                numbers = {
                    name: x.numpy()
                    for name, x in zip(("query", "key", "value"), qkv(batch=3, heads=2, t=t, s=s), strict=True)
                }
                numbers |= {"is_causal": is_causal, "dropout_p": 0.25}
                fused, composed = (outcome(version, numbers) for version in VERSIONS)
                assert_close(fused, composed, 1e-12)


@pytest.mark.parametrize("largest", [1, 39.5, 40.5, 300])
@pytest.mark.parametrize("is_causal", [False, True])
def test_large_scores_are_shifted_and_moderate_ones_need_not_be(largest, is_causal):
    """The largest score just below and just above the limit for a shift, and far above it; some rows stay far below."""
    query, key, value = (x.numpy() for x in qkv(batch=2, heads=2, t=5, s=5))
    scores = query @ key.swapaxes(-2, -1) / query.shape[-1] ** 0.5
    query = query * (largest / np.abs(scores).max())
    query[:, :, 1] *= 1e-3
    arguments = {"query": query, "key": key, "value": value, "mask": rng.random((2, 1, 1, 5)) < 0.7}
    fused, composed = (outcome(version, arguments | {"is_causal": is_causal}) for version in VERSIONS)
    for name, array in composed.items():
        np.testing.assert_allclose(fused[name], array, rtol=1e-9, atol=1e-12, err_msg=name)
    alone = arguments | {"query": np.where(np.arange(5)[:, None] == 1, query, 0), "is_causal": is_causal}
    np.testing.assert_array_equal(outcome(VERSIONS[0], alone)["result"][:, :, 1], fused["result"][:, :, 1])


@both_versions(F.scaled_dot_product_attention)
def test_each_call_has_its_own_dropout_determined_by_the_key(version):
    inputs = qkv()

    def two(key):
        with random_key(key):
            return [version(*inputs, dropout_p=0.5).numpy() for _ in range(2)]

    (one, other), again, elsewhere = two(1), two(1), two(2)
    np.testing.assert_array_equal(again, (one, other))
    assert not any(np.allclose(one, different) for different in (other, *elsewhere))
