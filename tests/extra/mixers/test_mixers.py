"""Mixers beyond attention: chunks compute the recurrence, filters and gates by hand."""

import numpy as np
import pytest

from extra.mixers.exclusive import ExclusiveAttention
from extra.mixers.mixers import CHUNK, Hyena, Mamba2, by_chunks, by_steps
from extra.mixers.relative import REACH, ALiBi, Shaw
from extra.mixers.window import SINKS, WindowAttention
from tests.lively import gradients, lively
from tinygrad_lite import Tensor, no_grad
from tinygrad_lite.debug.gradcheck import gradcheck
from tinygrad_lite.transformer import MultiHeadAttention

rng = np.random.default_rng(5)


@pytest.mark.parametrize("steps", [1, CHUNK, 2 * CHUNK + 5])
def test_chunks_compute_the_recurrence(steps):
    """Values, last state and all gradients, with decays from almost nothing to almost everything."""
    inputs = [rng.standard_normal((2, 3, steps, 4)) for _ in range(3)] + [-np.exp(rng.normal(-1, 2, (2, 3, steps)))]
    inputs.append(rng.standard_normal((2, 3, 4, 4)))
    weights, of_state = rng.standard_normal((2, 3, steps, 4)), rng.standard_normal((2, 3, 4, 4))
    found = []
    for compute in (by_steps, by_chunks):
        given = [Tensor(array, requires_grad=True) for array in inputs]
        o, state = compute(*given)
        ((o * Tensor(weights)).sum() + (state * Tensor(of_state)).sum()).backward()
        found.append([o.numpy(), state.numpy(), *(x.grad.numpy() for x in given)])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-9, atol=1e-10)


def test_hyena_is_two_gates_and_a_convolution():
    hyena, x = lively(lambda: Hyena(4, 16)).eval(), rng.standard_normal((1, 9, 4))
    with no_grad():
        h, found = hyena.filter(9).numpy(), hyena(Tensor(x)).numpy()[0]
    w = {name: p.numpy() for name, p in hyena.named_parameters()}
    maps = x[0] @ w["maps.weight"].T + w["maps.bias"]
    short = np.array([sum(w["short.taps"][n] * maps[t + n - 2] for n in range(3) if t + n >= 2) for t in range(9)])
    q, k, v = np.split(short, 3, axis=1)
    u = k * v
    mixed = np.array([sum(h[t - s] * u[s] for s in range(t + 1)) for t in range(9)]) + w["through"] * u
    np.testing.assert_allclose(found, (q * mixed) @ w["output.weight"].T + w["output.bias"], rtol=1e-10)
    assert (np.abs(h[8:]).max() < np.abs(h[:1]).max()).all()


def test_softplus_is_exact_where_the_exponential_overflows():
    mixer = lively(lambda: Mamba2(4, 1), "float32")
    mixer.pace.bias.data[...] = 1000
    assert np.isfinite(mixer(Tensor(np.ones((1, 3, 4), np.float32))).numpy()).all()


# --- exclusive attention, against attention ---------------------------------------------------------------------------


@pytest.mark.parametrize("groups", [1, 2])
def test_exclusive_attention_returns_nothing_along_the_own_value(groups):
    """The rest is what attention returns; the last positions alone, after cached ones, get the same."""
    exclusive = lively(lambda: ExclusiveAttention(12, 2, n_kv_head=groups))
    plain = lively(lambda: MultiHeadAttention(12, 2, n_kv_head=groups))
    for module in (exclusive, plain):
        module.output.weight.data[...], module.output.bias.data[...] = np.eye(12), 0
    x = Tensor(rng.standard_normal((3, 7, 12)))
    with no_grad():
        y, v = plain(x, is_causal=True).numpy(), plain.value(x).numpy()
        found = exclusive(x, is_causal=True).numpy().reshape(3, 7, 2, 6)
        cache, parts = exclusive.new_cache(7), []
        for start, end in ((0, 3), (3, 4), (4, 7)):
            parts.append(exclusive(x[:, start:end], is_causal=True, cache=cache).numpy())
        weights, usual = (module.weights(x, is_causal=True).numpy() for module in (exclusive, plain))
    y, v = y.reshape(3, 7, 2, 6), np.broadcast_to(v.reshape(3, 7, groups, 6), (3, 7, 2, 6))
    u = v / np.linalg.norm(v, axis=-1, keepdims=True)
    np.testing.assert_allclose(found, y - (y * u).sum(-1, keepdims=True) * u, rtol=0, atol=1e-5)
    np.testing.assert_allclose(np.concatenate(parts, 1).reshape(found.shape), found, rtol=0, atol=1e-12)
    np.testing.assert_allclose(weights, usual * (1 - np.eye(7)), rtol=0, atol=2e-6)


# --- attention through a window, against attention with the whole mask ------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"n_kv_head": 1}])
@pytest.mark.parametrize("length", [1, 6, 23])
def test_a_window_is_attention_with_a_mask(length, settings):
    attention = lively(lambda: WindowAttention(12, 2, window=5, **settings))
    x, weights = Tensor(rng.standard_normal((2, length, 12)), requires_grad=True), rng.standard_normal((2, length, 12))
    found = []
    behind = np.subtract.outer(np.arange(length), np.arange(length))
    seen = (behind >= 0) & ((behind < 5) | (np.arange(length) < SINKS))
    for mask, window in ((None, 5), (Tensor(seen), length + 1)):
        attention.window = window
        y = attention(x, mask=mask, is_causal=True)
        (y * Tensor(weights)).sum().backward()
        found.append({"y": y.numpy(), "x": x.grad.numpy()} | gradients(attention))
        x.grad = None
    for name, expected in found[1].items():
        np.testing.assert_allclose(found[0][name], expected, rtol=0, atol=1e-12, err_msg=name)
    attention.window = 5
    shown = attention.weights(x, is_causal=True).numpy()
    np.testing.assert_allclose(shown.sum(-1), 1)
    assert ((shown > 0) == seen).all()


@pytest.mark.parametrize("as_floats", [False, True])
def test_a_mask_of_queries_and_keys_hides_what_it_hides(as_floats):
    """Also if the last query sees everything."""
    attention = lively(lambda: WindowAttention(12, 2, window=5))
    x, behind = Tensor(rng.standard_normal((2, 17, 12))), np.subtract.outer(np.arange(17), np.arange(17))
    shown = (rng.random((17, 17)) < 0.7) | (behind == 0)
    shown[-1] = True
    near = (behind >= 0) & ((behind < 5) | (np.arange(17) < SINKS))
    found = []
    for window, seen in ((5, shown), (18, shown & near)):
        attention.window = window
        mask = np.where(seen, 0.0, -np.inf) if as_floats else seen
        found.append(attention(x, mask=Tensor(mask), is_causal=True).numpy())
    np.testing.assert_allclose(found[0], found[1], rtol=0, atol=1e-12)


# --- positions in the scores, and codes of positions, against their formulas ------------------------------------------


@pytest.mark.parametrize(("queries", "keys"), [(2, 9), (1, 30), (24, 24)])
def test_what_is_added_is_that_of_the_papers(queries, keys):
    q = rng.standard_normal((2, 4, queries, 6))
    lines = ALiBi(4)(Tensor(q), keys).numpy()
    shaw = lively(lambda: Shaw(6, 0.3))
    vectors, found = shaw.vectors.numpy(), shaw(Tensor(q), keys).numpy()
    for t in range(queries):
        for s in range(keys - queries + t + 1):
            distance = keys - queries + t - s
            np.testing.assert_allclose(lines[:, t, s], [-distance / 4**head for head in (1, 2, 3, 4)])
            np.testing.assert_allclose(found[:, :, t, s], 0.3 * q[:, :, t] @ vectors[min(distance, REACH)], rtol=1e-12)


def test_gradients_of_the_vectors():
    shaw, q = lively(lambda: Shaw(3, 0.5)), Tensor(rng.standard_normal((1, 2, 4, 3)), requires_grad=True)
    weights = Tensor(rng.standard_normal((1, 2, 4, 6)))
    gradcheck(lambda q, vectors: (shaw(q, 6) * weights).sum(), [q, shaw.vectors])
