import math

import numpy as np
import pytest

from tests.places import here
from tinygrad_lite import Tensor, no_grad
from tinygrad_lite import functional as F
from tinygrad_lite.nn import Linear, Module, recorded
from tinygrad_lite.random import random_key
from tinygrad_lite.transformer import (
    ACTIVATIONS,
    POSITION_CODES,
    Block,
    FeedForward,
    KVCache,
    MultiHeadAttention,
    rotary_frequencies,
    sinusoidal_positions,
)

pytestmark = pytest.mark.every_device

rng = np.random.default_rng(8)


def normal(*shape, requires_grad=False):
    return Tensor(rng.standard_normal(shape), requires_grad=requires_grad)


# --- positions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1, 2, 6, 7, 128])
def test_sinusoidal_positions_follow_their_formula(width):
    codes, i = sinusoidal_positions(50, width), np.arange(width)
    angles = np.arange(50)[:, None] / 10000 ** (2 * (i // 2) / width)
    assert codes.dtype == np.float32
    np.testing.assert_allclose(codes, np.where(i % 2, np.cos(angles), np.sin(angles)), atol=1e-6)


# --- attention ------------------------------------------------------------------------------------------------


def by_hand(layer, x, memory, allowed):
    """Attention head by head: slices of the projections, softmax by its formula, and the heads concatenated."""
    width = x.shape[-1] // layer.n_head
    q, k, v = (
        source @ projection.weight.numpy().T + projection.bias.numpy()
        for source, projection in ((x, layer.query), (memory, layer.key), (memory, layer.value))
    )
    heads = []
    for h in range(layer.n_head):
        part = slice(h * width, (h + 1) * width)
        scores = np.einsum("btd,bsd->bts", q[..., part], k[..., part]) / math.sqrt(width)
        weights = np.where(allowed, np.exp(scores), 0)
        heads.append(weights / weights.sum(-1, keepdims=True) @ v[..., part])
    return np.concatenate(heads, axis=-1) @ layer.output.weight.numpy().T + layer.output.bias.numpy()


def test_codes_that_are_added_and_angles():
    assert rotary_frequencies(4) == pytest.approx((1.0, 0.01), rel=1e-12)
    assert POSITION_CODES["index"](5, 3).tolist() == [[t, 0, 0] for t in range(5)]
    assert POSITION_CODES["binary"](9, 4)[[3, 4, 8]].tolist() == [[1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    assert POSITION_CODES["binary"](2, 80).sum() == 1  # wider than any number has digits


@pytest.mark.parametrize("n_head", [1, 2, 4])
@pytest.mark.parametrize("is_causal", [False, True])
def test_self_attention_by_hand(n_head, is_causal):
    layer, x = MultiHeadAttention(8, n_head).to(here(), "float64"), normal(2, 5, 8)
    expected = by_hand(layer, x.numpy(), x.numpy(), np.tril(np.ones((5, 5), bool), 0 if is_causal else 5))
    np.testing.assert_allclose(layer(x, is_causal=is_causal).numpy(), expected, atol=1e-13)


def test_cross_attention_by_hand():
    layer, x, memory = MultiHeadAttention(8, 2).to(here(), "float64"), normal(2, 3, 8), normal(2, 6, 8)
    padding = np.arange(6) < np.array([4, 6])[:, None]  # (B, S)
    y = layer(x, memory, Tensor(padding[:, None, None, :]))
    expected = by_hand(layer, x.numpy(), memory.numpy(), padding[:, None, :])
    np.testing.assert_allclose(y.numpy(), expected, atol=1e-13)


def test_positions_that_are_not_given_are_counted_from_0_or_after_the_cache():
    layer, x = MultiHeadAttention(8, 2, frequencies=(1.0, 0.1)), normal(1, 5, 8)
    expected = layer(x, positions=Tensor([0, 1, 2, 3, 4])).numpy()
    for y in (layer(x), layer(x, x)):  # as its own memory, too
        np.testing.assert_allclose(y.numpy(), expected, rtol=1e-5, atol=1e-6)
    cache = layer.new_cache(5)
    with no_grad():
        steps = [layer(x[:, t : t + 1], cache=cache).numpy() for t in range(5)]
    np.testing.assert_allclose(np.concatenate(steps, 1), layer(x, is_causal=True).numpy(), rtol=1e-5, atol=1e-6)
    layer.frequencies = None
    assert np.abs(layer(x).numpy() - expected).max() > 0.01


def test_attention_weights_are_dropped_in_training_only():
    layer, x = MultiHeadAttention(8, 2, dropout=0.5), Tensor.randn(2, 5, 8)
    with random_key(1):
        one, another = layer(x).numpy(), layer(x).numpy()
    assert (one != another).any()
    layer.eval()
    np.testing.assert_array_equal(layer(x).numpy(), layer(x).numpy())


# --- the cache ------------------------------------------------------------------------------------------------


def test_a_full_cache_raises_an_error_and_stays_unchanged():
    cache, piece = KVCache(5), Tensor.ones(1, 2, 3, 4)
    cache.extend(piece, piece)
    for key, value in ((True, False), (False, True)):
        with pytest.raises(RuntimeError, match="KVCache: gradients do not pass through a cache"):
            cache.extend(Tensor(piece.numpy(), requires_grad=key), Tensor(piece.numpy(), requires_grad=value))
    with pytest.raises(ValueError, match="KVCache: 6 positions do not fit into a cache of 5"):
        cache.extend(piece, piece)
    assert cache.length == 3
    keys, _ = cache.extend(piece[:, :, :2], piece[:, :, :2])
    assert keys.shape == (1, 2, 5, 4)


def test_selected_rows_are_extended_independently(device):
    cache = KVCache(4)
    assert cache.select(np.array([0, 0])).length == 0
    numbers = Tensor(np.arange(3.0).reshape(3, 1, 1, 1), device=device)
    cache.extend(numbers, numbers * 10)
    chosen = cache.select(np.array([2, 0, 2]))
    assert chosen.length == 1
    keys, values = chosen.extend(numbers + 5, numbers)
    assert keys[:, 0, :, 0].tolist() == [[2, 5], [0, 6], [2, 7]]
    assert values[:, 0, :, 0].tolist() == [[20, 0], [0, 1], [20, 2]]
    keys, _ = cache.extend(numbers + 90, numbers)
    assert keys[:, 0, :, 0].tolist() == [[0, 90], [1, 91], [2, 92]]


# --- feed-forward and block -----------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_feed_forward_by_hand(activation):
    layer, x = FeedForward(4, 12, activation=activation).to(here(), "float64"), normal(2, 3, 4)
    hidden = F.linear(x, layer.up.weight, layer.up.bias)
    hidden = hidden.gelu() if activation == "gelu" else hidden.relu()
    np.testing.assert_allclose(layer(x).numpy(), F.linear(hidden, layer.down.weight, layer.down.bias).numpy())


class Rectify(Module):
    """A mixer other than attention."""

    def forward(self, x, factor=1.0):
        return x.relu() * factor


def normalised(x):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_pre_norm_and_post_norm_follow_their_formulas_and_arguments_reach_the_mixer(factor):
    x = normal(2, 3, 6)
    a = x.numpy()

    def block(norm_first):
        made = Block(Rectify(), Rectify(), 6, norm_first=norm_first).to(here(), "float64")
        return made(x, factor=factor).numpy()

    inner = a + np.maximum(normalised(a), 0) * factor
    np.testing.assert_allclose(block(True), inner + np.maximum(normalised(inner), 0), atol=1e-13)
    inner = normalised(a + np.maximum(a, 0) * factor)
    np.testing.assert_allclose(block(False), normalised(inner + np.maximum(inner, 0)), atol=1e-13)


# --- what is shown ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_linear_map_of_a_feed_forward_part_is_recorded(activation):
    mlp = FeedForward(4, 8, activation=activation).to(here(), "float64")
    with recorded(mlp, Linear) as calls:
        mlp(normal(2, 4))
    mlp(normal(2, 4))  # no longer
    assert [call.name for call in calls] == ["gate"] * (activation == "swiglu") + ["up", "down"]


@pytest.mark.parametrize("is_causal", [False, True])
def test_the_weights_shown_are_those_that_attention_uses(is_causal):
    attention, x = MultiHeadAttention(6, 2).to(here(), "float64"), normal(2, 4, 6)
    weights = attention.weights(x, is_causal=is_causal)
    assert weights.shape == (2, 2, 4, 4)
    heads = (weights @ attention._heads(attention.value(x))).transpose(1, 2).reshape(2, 4, 6)
    expected = attention(x, is_causal=is_causal).numpy()
    np.testing.assert_allclose(attention.output(heads).numpy(), expected, atol=1e-12)
    mask = Tensor(np.array([True, True, False, True]).reshape(1, 1, 1, 4))
    masked = attention.weights(x, mask=mask, is_causal=is_causal).numpy()
    assert np.array_equal(masked > 0, (weights.numpy() > 0) & mask.numpy())
