"""Mixers beyond attention: chunks compute the recurrence, filters and gates by hand."""

import numpy as np
import pytest

from extra.mixers.mixers import CHUNK, Hyena, Mamba2, by_chunks, by_steps
from extra.mixers.window import WindowAttention
from tests.lively import gradients, lively
from tinygrad_lite import Tensor, no_grad

rng = np.random.default_rng(5)


@pytest.mark.parametrize("steps", [1, 7, CHUNK, 2 * CHUNK + 5])
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


@pytest.mark.parametrize("make", [lambda: Hyena(8, 16), lambda: Mamba2(8, 2)], ids=["hyena", "mamba2"])
def test_all_parts_learn(make):
    mixer, x = lively(make), Tensor(rng.standard_normal((2, 40, 8)), requires_grad=True)
    (mixer(x) * Tensor(rng.standard_normal((2, 40, 8)))).sum().backward()
    assert all(np.abs(gradient).max() > 1e-6 for gradient in gradients(mixer).values())


def test_softplus_is_exact_where_the_exponential_overflows():
    mixer = lively(lambda: Mamba2(4, 1), "float32")
    mixer.pace.bias.data[...] = 1000
    assert np.isfinite(mixer(Tensor(np.ones((1, 3, 4), np.float32))).numpy()).all()


@pytest.mark.parametrize("make", [lambda: Mamba2(8, 2), lambda: Hyena(8, 16), lambda: WindowAttention(8, 2, window=2)])
@pytest.mark.parametrize(("batch", "steps"), [(0, 3), (2, 0), (0, 0)])
def test_no_texts_and_no_positions_give_nothing(make, batch, steps):
    mixer, x = make(), Tensor.zeros(batch, steps, 8, requires_grad=True)
    y = mixer(x, is_causal=True)
    y.sum().backward()
    assert y.shape == x.grad.shape == x.shape
    cache = mixer.new_cache(16)
    before = mixer(Tensor.ones(2, 3, 8), cache=cache)
    assert mixer(Tensor.zeros(2, 0, 8), cache=cache).shape == (2, 0, 8)
    after, whole = mixer(Tensor.ones(2, 1, 8), cache=cache), mixer(Tensor.ones(2, 4, 8))
    np.testing.assert_allclose(before.cat(after, axis=1).numpy(), whole.numpy(), atol=1e-5)
