"""Luong's encoder-decoder: its formulas in plain NumPy, where it looks, and what it refuses."""

from dataclasses import replace

import numpy as np
import pytest

from extra.mixers.seq2seq import Alignment
from extra.seq2seq.config import Seq2SeqConfig
from tests.lively import lively
from tinygrad_lite import Tensor

CONFIG = Seq2SeqConfig(30, 0, 1, 2, mixer="lstm", n_embd=6, n_layer=1, block_size=50, dropout=0.0, label_smoothing=0.0)
rng = np.random.default_rng(4)


def alignment(**settings):
    module = lively(lambda: Alignment(replace(CONFIG, **settings)), "float64")
    return module, {name: p.numpy() for name, p in module.named_parameters()}


def softmax(scores):
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


h, memory = rng.standard_normal((2, 1, 4, 6))[0], rng.standard_normal((1, 9, 6))
TEXT = Tensor(np.arange(9)[None, None] < 7)  # two positions of padding


@pytest.mark.parametrize("score", ["dot", "general", "additive"])
def test_scores_are_those_of_the_paper(score):
    module, w = alignment(score=score)
    text = memory[0, :7]
    if score == "dot":
        by_hand = h[0] @ text.T
    elif score == "general":
        by_hand = h[0] @ w["match.weight"] @ text.T
    else:
        sums = (h[0] @ w["of_state.weight"].T)[:, None] + text @ w["of_memory.weight"].T  # W [h; text], in two parts
        by_hand = np.tanh(sums) @ w["match.weight"][0]
    found = module.weights(Tensor(h), Tensor(memory), TEXT, 0).numpy()[0]
    np.testing.assert_allclose(found[:, :7], softmax(by_hand), rtol=1e-12)
    assert not found[:, 7:].any()
    vectors = module(Tensor(h), Tensor(memory), TEXT, 0).numpy()[0]
    joined = np.concatenate([found @ memory[0], h[0]], axis=1)
    np.testing.assert_allclose(vectors, np.tanh(joined @ w["join.weight"].T), rtol=1e-12)


def test_monotonic_attention_looks_near_the_same_place():
    module, w = alignment(attend="monotonic", attention_reach=2)
    scores = h[0] @ w["match.weight"] @ memory[0].T
    found = module.weights(Tensor(h), Tensor(memory), TEXT, 3).numpy()[0]
    for t, centre in enumerate([3, 4, 5, 6]):  # three tokens came before
        near = [s for s in range(7) if abs(s - centre) <= 2]
        assert np.flatnonzero(found[t]).tolist() == near
        np.testing.assert_allclose(found[t, near], softmax(scores[t, near]), rtol=1e-12)
    behind = module.weights(Tensor(h[:, :1]), Tensor(memory), TEXT, 40).numpy()[0, 0]
    assert np.flatnonzero(behind).tolist() == [4, 5, 6]  # the end of the source, not of its padding


def test_predictive_attention_chooses_its_place():
    module, w = alignment(attend="predictive", attention_reach=2)
    place = 7 / (1 + np.exp(-np.tanh(h[0] @ w["place.weight"].T) @ w["place_score.weight"][0]))
    scores = h[0] @ w["match.weight"] @ memory[0].T
    found = module.weights(Tensor(h), Tensor(memory), TEXT, 0).numpy()[0]
    for t in range(4):
        near = [s for s in range(7) if abs(s - place[t]) <= 2]
        bell = np.exp(-((near - place[t]) ** 2) / (2 * (2 / 2) ** 2))
        np.testing.assert_allclose(found[t, near], softmax(scores[t, near]) * bell, rtol=1e-12)
