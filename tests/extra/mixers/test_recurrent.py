"""Recurrent layers: torch's results and gradients, states that go on where text ended, and what cannot go back."""

import numpy as np
import pytest

from extra.chat.interactive import resume
from extra.gpt.config import GPTConfig
from extra.mixers.recurrent import LSTM, RNN, RecurrentMixer, RecurrentState
from gpt.model import GPT
from tests.gpt.small_gpts import gpt_with_large_weights
from tests.lively import lively
from tinygrad_lite import Tensor, no_grad
from tinygrad_lite.flops import linear_flops
from tinygrad_lite.nn import shapes_only

KINDS = {"rnn": RNN, "lstm": LSTM}
each = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
rng = np.random.default_rng(3)


@each
def test_a_layer_with_torchs_weights_has_torchs_states_and_gradients(kind, torch):
    theirs = getattr(torch.nn, kind.__name__)(5, 3, batch_first=True).double()
    ours = kind(5, 3).to("cpu", "float64")
    given = (theirs.weight_ih_l0, theirs.bias_ih_l0 + theirs.bias_hh_l0, theirs.weight_hh_l0)
    for mine, other in zip((ours.input.weight, ours.input.bias, ours.weight), given, strict=True):
        mine.data[...] = other.detach().numpy()
    x = Tensor(rng.standard_normal((2, 7, 5)), requires_grad=True)
    start = [rng.standard_normal((2, 3)) for _ in range(1 if kind is RNN else 2)]
    copy = torch.tensor(x.numpy(), requires_grad=True)
    for begun in (False, True):
        state = [Tensor(part) for part in start] if begun else None
        other = [torch.tensor(part)[None] for part in start] if begun else None
        pick = (lambda parts: parts if parts is None else parts[0]) if kind is RNN else (lambda parts: parts)
        (y, last), (y2, last2) = ours(x, pick(state)), theirs(copy, pick(other))
        lasts, lasts2 = ([last], [last2]) if kind is RNN else (last, last2)
        for one, two in zip((y, *lasts), (y2, *(part[0] for part in lasts2)), strict=True):
            np.testing.assert_allclose(one.numpy(), two.detach().numpy(), rtol=0, atol=1e-14)
    ours.zero_grad()
    x.grad = None
    sum(((y * y).sum(), *(part.sum() for part in lasts))).backward()
    sum(((y2 * y2).sum(), *(part.sum() for part in lasts2))).backward()
    np.testing.assert_allclose(x.grad.numpy(), copy.grad.numpy(), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(ours.weight.grad.numpy(), theirs.weight_hh_l0.grad.numpy(), rtol=1e-12, atol=1e-14)


@each
def test_two_halves_with_the_state_between_are_the_whole(kind):
    layer, x = lively(lambda: kind(4, 6)), Tensor(rng.standard_normal((3, 9, 4)))
    first, state = layer(x[:, :5])
    found = first.cat(layer(x[:, 5:], state)[0], axis=1)
    np.testing.assert_allclose(found.numpy(), layer(x)[0].numpy(), rtol=0, atol=1e-12)


def test_the_forget_gate_begins_open():
    """Also in a GPT, whose initialisation would give all biases 0 and all matrices a deviation of 0.02."""
    layer = GPT(GPTConfig(9, mixer="lstm", n_state=32, n_embd=16, n_head=1)).blocks[0].mixer.recurrence
    for lstm in (layer, LSTM(16, 32)):
        assert lstm.input.bias.numpy().reshape(4, 32).tolist() == [[b] * 32 for b in (0.0, 1.0, 0.0, 0.0)]
        for matrix in (lstm.input.weight, lstm.weight):
            assert 0.9 / 32**0.5 < np.abs(matrix.numpy()).max() <= 1 / 32**0.5


def test_a_mixer_is_causal_and_says_so():
    mixer = RecurrentMixer(RNN(4, 4), 4)
    with pytest.raises(ValueError, match="reads from left to right, so it is causal"):
        mixer(Tensor.zeros(1, 2, 4), is_causal=False)


@pytest.mark.parametrize("mixer", ["lstm", "hyena", "mamba2"])
def test_a_conversation_goes_back_and_on(mixer):
    model = gpt_with_large_weights("float64", mixer=mixer, positions="none", n_embd=16)
    tokens = rng.integers(0, 11, 60)
    with no_grad():
        whole = model(Tensor(tokens[None])).log_softmax().numpy()[0]  # far beyond block_size
    _, state = model.start([tokens[:50]])
    for end in (51, 55, 53, 60, 20):  # on, on, back, on, back
        found, state = resume(model, tokens[:end], state)
        np.testing.assert_allclose(found[0], whole[end - 1], rtol=0, atol=1e-12 if mixer == "lstm" else 1e-10)
        assert state.caches[0].length == end


def test_a_state_cannot_go_back():
    empty = RecurrentState().select(np.array([0, 0]))
    assert (empty.length, empty.inputs, empty.state) == (0, None, None)
    cache = RecurrentState()
    cache.length, cache.state = 3, Tensor.ones(1, 2)
    cache.cut(3)
    assert cache.length == 3
    cache.cut(2)
    assert (cache.length, cache.state) == (0, None)


def test_learned_positions_end_with_the_context():
    model = gpt_with_large_weights(mixer="rnn")
    with pytest.raises(ValueError, match="GPT: 9 positions do not fit into block_size 8"):
        model(Tensor(np.zeros((1, 9), np.int64)))


@each
def test_products_from_the_state_are_counted(kind):
    with shapes_only():
        mixer = RecurrentMixer(kind(6, 5), 6)
    assert linear_flops(mixer) == 2 * (kind.GATES * 5 * 6 + kind.GATES * 5 * 5 + 5 * 6)
