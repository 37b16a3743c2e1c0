"""Checks of chapter 15, by a small GPT with random weights."""

import numpy as np

from gpt.config import GPTConfig
from gpt.inside import look_inside
from gpt.model import GPT
from tinygrad_lite import manual_seed

_TOKENS = [3, 1, 4, 1, 5, 0, 2]


def _model():
    manual_seed(1)
    sizes = {"vocab_size": 6, "block_size": 8, "n_layer": 3, "n_head": 2, "n_embd": 12}
    model = GPT(GPTConfig(**sizes, norm="rmsnorm", norm_weight=False))
    for parameter in model.parameters():
        parameter.data *= 20
    return model


def _same(answer, right, what):
    answer = np.asarray(answer, float)
    assert answer.shape == right.shape, f"{what} has shape {answer.shape}, not {right.shape}"
    assert np.allclose(answer, right, atol=1e-5), f"{what} is off by up to {np.abs(answer - right).max():g}"


def read_early(exercise):
    """Norm and softmax work along the last axis only; keep that axis (keepdims) where you divide."""
    model = _model()
    inside = look_inside(model, _TOKENS)
    odds = np.exp(inside.logits.astype(float))
    answer = exercise.read_early(inside.stream, model.lm_head.weight.numpy())
    _same(answer, odds / odds.sum(-1, keepdims=True), "the reading of a stream")


def added(exercise):
    """Subtract the stream before a block from the stream behind it; the length is a root of a sum over C."""
    inside = look_inside(_model(), _TOKENS)
    _same(exercise.added(inside.stream), np.linalg.norm(inside.added.sum(1), axis=-1), "what is added")


def character_bits(exercise):
    """A token of three characters with p = 1/8 costs 3 bits: 1 for each character."""
    answer = exercise.character_bits(["der", " ", "Mensch"], [1 / 8, 1 / 2, 1 / 64])
    _same(answer, np.ones(10), "der Mensch, which should cost 1 bit per character,")
    _same(exercise.character_bits(["a", "bc"], [1.0, 0.25]), np.array([0.0, 1.0, 1.0]), "abc")


def induction(exercise):
    """For every t, go through s = 1 to t, and compare tokens[s - 1] with tokens[t]. Nothing comes before s = 0."""
    right = np.zeros((5, 5), bool)
    right[2, 1] = right[3, 2] = right[4, 1] = right[4, 3] = True  # every token also comes before its successor ...
    right[2, 1] = True  # ... 7 at 2: before 1 stands the 7 at 0
    answer = np.asarray(exercise.induction([7, 8, 7, 8, 7]))
    assert answer.shape == (5, 5), f"its shape is {answer.shape}, not (5, 5)"
    for t in range(5):
        looks, expected = np.flatnonzero(answer[t]).tolist(), np.flatnonzero(right[t]).tolist()
        assert looks == expected, f"in 7 8 7 8 7, position {t} looks at {looks}, not at {expected}"
