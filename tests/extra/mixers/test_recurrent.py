"""Recurrent layers: torch's results, states that go on where text ended, and what cannot go back."""

import numpy as np
import pytest

from extra.chat.interactive import resume
from extra.gpt.config import GPTConfig
from extra.mixers.recurrent import LSTM, RNN
from gpt.model import GPT
from tests.gpt.small_gpts import gpt_with_large_weights
from tinygrad_lite import Tensor, no_grad

KINDS = {"rnn": RNN, "lstm": LSTM}
each = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
rng = np.random.default_rng(3)


@each
def test_a_layer_with_torchs_weights_has_torchs_states(kind, torch):
    theirs = getattr(torch.nn, kind.__name__)(5, 3, batch_first=True).double()
    ours = kind(5, 3).to("cpu", "float64")
    given = (theirs.weight_ih_l0, theirs.bias_ih_l0 + theirs.bias_hh_l0, theirs.weight_hh_l0)
    for mine, other in zip((ours.input.weight, ours.input.bias, ours.weight), given, strict=True):
        mine.data[...] = other.detach().numpy()
    x, start = rng.standard_normal((2, 7, 5)), rng.standard_normal((2, 2, 3))
    one, two = map(Tensor, start), (torch.tensor(part)[None] for part in start)
    state, same_state = (next(one), next(two)) if kind is RNN else (tuple(one), tuple(two))
    y, last = ours(Tensor(x), state)
    y2, last2 = theirs(torch.tensor(x), same_state)
    found, expected = ([y, last], [y2, last2]) if kind is RNN else ([y, *last], [y2, *last2])
    for one, two in zip(found, expected, strict=True):
        np.testing.assert_allclose(one.numpy(), two.detach().numpy().reshape(one.shape), rtol=0, atol=1e-14)


def test_the_forget_gate_begins_open():
    """Also in a GPT, whose initialisation would give all biases 0 and all matrices a deviation of 0.02."""
    layer = GPT(GPTConfig(9, mixer="lstm", n_state=32, n_embd=16, n_head=1)).blocks[0].mixer.recurrence
    for lstm in (layer, LSTM(16, 32)):
        assert lstm.input.bias.numpy().reshape(4, 32).tolist() == [[b] * 32 for b in (0.0, 1.0, 0.0, 0.0)]
        for matrix in (lstm.input.weight, lstm.weight):
            assert 0.9 / 32**0.5 < np.abs(matrix.numpy()).max() <= 1 / 32**0.5


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
