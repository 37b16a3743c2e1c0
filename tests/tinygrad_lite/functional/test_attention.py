import math
import sys

import numpy as np
import pytest

from tests.tinygrad_lite.functional.version_cases import assert_close, both_versions, leaf, outcome
from tinygrad_lite import Tensor
from tinygrad_lite import functional as F
from tinygrad_lite.functional.attention import scaled_dot_product_attention_composed
from tinygrad_lite.random import random_key

pytestmark = pytest.mark.every_device

rng = np.random.default_rng(3)
both = both_versions(F.scaled_dot_product_attention)
INPUTS = ("query", "key", "value")
VERSIONS = F.scaled_dot_product_attention, scaled_dot_product_attention_composed


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


@both
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


SHAPES = [(2, 3, 5, 6), (3, 1, 6), (5, 6), (2, 1, 1, 6), ()]  # all broadcast to (B, H, T, S) = (2, 3, 5, 6)


@both
@pytest.mark.parametrize("shape", SHAPES)
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


@pytest.mark.cpu_only("the CPU's blocks")
def test_any_division_into_blocks_gives_the_same_results(monkeypatch):
    chapter = sys.modules["tinygrad_lite.functional.attention"]
    for row_block, scores in ((1, 1), (2, 30), (3, 100), (64, 1 << 17)):
        monkeypatch.setattr(chapter, "ROW_BLOCK", row_block)
        monkeypatch.setattr(chapter, "SCORES", scores)
        for t, s in ((7, 7), (4, 9), (9, 4), (0, 3), (3, 0)):
            for is_causal in (False, True):
                numbers = {name: x.numpy() for name, x in zip(INPUTS, qkv(batch=3, heads=2, t=t, s=s), strict=True)}
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


@both
def test_each_call_has_its_own_dropout_determined_by_the_key(version):
    inputs = qkv()

    def two(key):
        with random_key(key):
            return [version(*inputs, dropout_p=0.5).numpy() for _ in range(2)]

    (one, other), again, elsewhere = two(1), two(1), two(2)
    np.testing.assert_array_equal(again, (one, other))
    assert not any(np.allclose(one, different) for different in (other, *elsewhere))
