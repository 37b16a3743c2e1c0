"""Single operations: what the cases of version_cases.py do not try."""

import functools
import itertools
import math
from contextlib import nullcontext

import numpy as np
import pytest

from tests.places import here
from tests.tinygrad_lite.functional.version_cases import both_versions, leaf, normal, outcome
from tinygrad_lite import Tensor
from tinygrad_lite import functional as F
from tinygrad_lite.debug.gradcheck import gradcheck
from tinygrad_lite.functional.linear import linears
from tinygrad_lite.functional.registry import composed

pytestmark = pytest.mark.every_device

rng = np.random.default_rng(3)


# --- several maps of one input --------------------------------------------------------------------------------


WIDTHS = (5, 1, 3)


def inputs_of_several(shape, biases, dtype=np.float64):
    """x, three weights, and the biases of the first maps; the same numbers in every call."""
    numbers = np.random.default_rng(2)
    shapes = [shape, *((width, shape[-1]) for width in WIDTHS), *((width,) for width in WIDTHS[:biases])]
    return [Tensor(numbers.standard_normal(s).astype(dtype), device=here(), requires_grad=True) for s in shapes]


def side_by_side(version, x, *parameters):
    """The results of a version of `linears`, joined along the last axis."""
    biases = [*parameters[len(WIDTHS) :], *[None] * len(WIDTHS)][: len(WIDTHS)]
    first, *others = version(x, list(parameters[: len(WIDTHS)]), biases)
    return first.cat(*others, axis=-1)


@pytest.mark.parametrize("biases", [3, 0, 1])
@pytest.mark.parametrize("shape", [(4,), (2, 3, 4), (0, 4)])
def test_several_maps_equal_single_ones(shape, biases):
    for dtype, tolerance in ((np.float64, 1e-12), (np.float32, 1e-5)):
        found = []
        for version in (linears.composed, linears):
            inputs = inputs_of_several(shape, biases, dtype)
            with composed() if version is linears.composed else nullcontext():
                y = side_by_side(version, *inputs)
                (y * y).sum().backward()
            found.append([y.numpy(), *(x.grad.numpy() for x in inputs)])
        for one, other in zip(*found, strict=True):
            assert one.dtype == other.dtype == dtype
            np.testing.assert_allclose(other, one, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("biases", [3, 0, 1])
def test_several_maps_pass_gradcheck(biases):
    for version in (linears.composed, linears.version_for(here())):
        assert gradcheck(functools.partial(side_by_side, version), inputs_of_several((2, 3, 4), biases)) < 1e-6


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
@pytest.mark.parametrize("ignore_index", [-100, 3])
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


def qkv(batch=2, heads=3, t=5, s=6):
    return [leaf(batch, heads, length, 4) for length in (t, s, s)]


def one_query_at_a_time(query, key, value, allowed, added=None):
    """The definition as loops: each query of each head of each sequence on its own; `added` is added to the scores."""
    added = np.zeros(allowed.shape) if added is None else added
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
@pytest.mark.parametrize(("t", "s"), [(3, 6), (6, 3), (70, 70), (0, 3), (3, 0)])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("kind", ["no mask", "truth values", "floats"])
def test_attention_equals_a_loop_over_queries(version, t, s, is_causal, kind):
    """A mask of floats is added to the scores: where it is -inf, a query does not see the key."""
    query, key, value = qkv(t=t, s=s)
    shape, mask, added = (2, 3, t, s), None, None
    allowed = np.tril(np.ones(shape, bool), s - t if is_causal else s)
    if kind == "truth values":
        mask = rng.random(shape) < 0.5
        allowed &= mask
    elif kind == "floats":
        mask = added = np.where(rng.random(shape) < 0.5, rng.standard_normal(shape), -math.inf)
        allowed &= added > -math.inf
    y = version(query, key, value, None if mask is None else Tensor(mask), is_causal=is_causal)
    expected = one_query_at_a_time(query.numpy(), key.numpy(), value.numpy(), allowed, added)
    np.testing.assert_allclose(y.numpy(), expected, atol=1e-13)


@pytest.mark.parametrize("largest", [39.5, 40.5, 300])
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
