"""Reported of other programs: angles and windows. Docstrings name the public threads."""

import numpy as np
import pytest

from extra.mixers.window import SINKS
from tests.gpt.small_gpts import gpt_with_large_weights
from tinygrad_lite import Tensor, no_grad

rng = np.random.default_rng(6)


def test_models_with_other_angles_do_not_disturb_each_other():
    """lucidrains/rotary-embedding-torch#11, skyzh/tiny-llm#46: no table is kept by its length alone."""
    kinds = [{}, {"rope_theta": 50.0}, {"rope_scaling": "8,1,4,10"}, {"block_size": 32}, {"head_dim": 4}]
    models = [gpt_with_large_weights(positions="rotary", **{"block_size": 20} | kind) for kind in kinds]
    text = rng.integers(0, 11, 20)
    alone = [model.start([text[:n]])[0] for model in models for n in range(9, 21)]
    states = [model.start([text[:8]])[1] for model in models]
    found = [[] for _ in models]
    for token in text[8:, None]:  # in turns, token by token
        for number, model in enumerate(models):
            log_probs, states[number] = model.step(token, states[number])
            found[number].append(log_probs)
    np.testing.assert_allclose(np.reshape(found, (-1, 1, 11)), alone, rtol=0, atol=1e-11)
    assert np.abs(np.diff(np.reshape(found, (len(models), -1)), axis=0)).max(axis=1).min() > 1e-3


WINDOW, LENGTH = 6, 20


def in_pieces(*lengths):
    """A way to read a text: cut into pieces of these lengths, behind a cache."""

    def read(model, text):
        caches = model.new_caches()
        with no_grad():
            return [model(part, caches).numpy()[0, -1] for part in Tensor(text[None]).split(lengths, axis=1)][-1]

    return read


def stepwise(model, text):
    log_probs, state = model.start([text[:1]])
    for token in text[1:]:
        log_probs, state = model.step(np.array([token]), state)
    return log_probs[0]


WAYS = {
    "at once": lambda model, text: model(Tensor(text[None])).numpy()[0, -1],
    "behind padding": lambda model, text: model.start([text, [1] * (LENGTH + 3)])[0][0],
    "before padding": lambda model, text: model.start([text, [1]])[0][0],
    "in two pieces": in_pieces(13, LENGTH - 13),
    "token by token": stepwise,
}


@pytest.mark.parametrize("positions", ["none", "rotary"])
@pytest.mark.parametrize("way", WAYS)
def test_a_window_of_n_tokens_is_n_tokens(way, positions):
    """huggingface/transformers#39408, vllm-project/vllm#3385, ml-explore/mlx-lm#390: by mask and by cache alike."""
    model = gpt_with_large_weights(block_size=32, n_layer=1, window=WINDOW, positions=positions)
    text, edge = rng.integers(0, 11, LENGTH), LENGTH - WINDOW
    places = [0, SINKS - 1, SINKS, edge - 1, edge, LENGTH]  # the last one changes nothing
    found = [WAYS[way](model, (text + (np.arange(LENGTH) == place)) % 11) for place in places]
    moved = np.abs(np.array(found) - found[-1]).max(axis=1) > 1e-9
    assert moved.tolist() == [True, True, False, False, True, False]
