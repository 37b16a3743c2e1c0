"""Checks of chapter 15, by a small GPT with random weights."""

import functools

import numpy as np
from compare import same

from extra.gpt.config import GPTConfig
from extra.inside.gpt import look_inside
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


_same = functools.partial(same, atol=1e-5)


def read_early(exercise):
    """Norm and softmax work along the last axis only; keep that axis (keepdims) where you divide."""
    model = _model()
    inside = look_inside(model, _TOKENS)
    odds = np.exp(inside.logits.astype(float))
    answer = exercise.read_early(inside.stream, model.lm_head.weight.numpy())
    _same(answer, odds / odds.sum(-1, keepdims=True), "the reading of a stream")


def added(exercise):
    """Subtract the stream before a block from the stream after it; the length is a root of a sum over C."""
    inside = look_inside(_model(), _TOKENS)
    _same(exercise.added(inside.stream), np.linalg.norm(inside.added.sum(1), axis=-1), "what is added")


def character_bits(exercise):
    """A token of three characters with p = 1/8 costs 3 bits: 1 for each character."""
    answer = exercise.character_bits(["der", " ", "Mensch"], [1 / 8, 1 / 2, 1 / 64])
    _same(answer, np.ones(10), "der Mensch, at 1 bit per character")
    _same(exercise.character_bits(["a", "bc"], [1.0, 0.25]), np.array([0.0, 1.0, 1.0]), "abc")


def induction(exercise):
    """For every t, go through s = 1 to t, and compare tokens[s - 1] with tokens[t]. Nothing comes before s = 0."""
    right = np.zeros((5, 5), bool)
    right[2, 1] = right[3, 2] = right[4, 1] = right[4, 3] = True  # every token also comes before its successor ...
    right[2, 1] = True  # ... 7 at 2: the 7 at 0 is before 1
    answer = np.asarray(exercise.induction([7, 8, 7, 8, 7]))
    assert answer.shape == (5, 5), f"the shape of yours is {answer.shape}, it must be (5, 5)"
    for t in range(5):
        looks, expected = np.flatnonzero(answer[t]).tolist(), np.flatnonzero(right[t]).tolist()
        assert looks == expected, f"in 7 8 7 8 7, position {t}: yours looks at {looks}, it must look at {expected}"


def induction_head(exercise):
    """Four arrays: the one-hot vectors; the same moved down by one row; the scores, one product of the two, with -inf
    where s > t before the softmax; the weights times the one-hot vectors.
    """
    one_hot = np.eye(5)
    answer = np.asarray(exercise.induction_head([3, 1, 2, 3], 5), float)
    assert answer.shape == (4, 5), f"for 4 tokens of 5 the shape of yours is {answer.shape}, it must be (4, 5)"
    assert np.allclose(answer.sum(-1), 1), f"your rows sum to {answer.sum(-1)}, each must sum to 1"
    assert np.allclose(answer[0], one_hot[3]), "at position 0 it sees something other than the token there"
    likely = answer[3].argmax()
    assert likely == 1, f"the likeliest token after 3 1 2 3: yours is {likely}, it must be 1, as 1 followed 3 before"
    _same(answer[1], (one_hot[3] + one_hot[1]) / 2, "the row of a token that is new, whose scores are all 0")
    _same(answer[3], one_hot[1], "the last row of 3 1 2 3")
    answer = exercise.induction_head([0, 1, 0, 2, 0], 5)
    _same(np.asarray(answer)[-1], (one_hot[1] + one_hot[2]) / 2, "the last row of 0 1 0 2 0, where 1 and 2 followed 0")
    odds = np.exp([0, 1, 0, 0])  # 1, which comes after a 3, has the score 1
    right = odds / odds.sum() @ one_hot[[3, 1, 2, 3]]
    _same(np.asarray(exercise.induction_head([3, 1, 2, 3], 5, 1.0))[-1], right, "3 1 2 3 with a sharpness of 1")


def patched(exercise):
    """For each l and t: copy b's stream after l blocks, set row t to a's, run blocks[l:], and keep the last row. Both
    streams go through blocks[l] before l + 1 has its turn.
    """
    rng = np.random.default_rng(0)
    a, b, *weights = rng.standard_normal((5, 4, 4))  # 4 positions, width 4
    mixing = np.tril(rng.dirichlet(np.ones(4), 4))  # from earlier positions to later ones
    blocks = [lambda x, weight=weight: x + np.tanh(mixing @ x @ weight) for weight in weights]
    ends = [functools.reduce(lambda x, block: block(x), blocks, x)[-1] for x in (a, b)]
    before = a.copy(), b.copy()
    answer = np.asarray(exercise.patched(blocks, a, b), float)
    assert np.array_equal(before, (a, b)), "a or b has changed: change a copy"
    assert answer.shape == (4, 4, 4), f"for 3 blocks, 4 positions and a width of 4 its shape is {answer.shape}"
    _same(answer[3, 3], ends[0], "after the last block, the patch at the last position, which must give a's end")
    _same(answer[3, 0], ends[1], "after the last block, the patch at position 0, which must change nothing in b's end")
    right = np.empty_like(answer)
    for layer, t in np.ndindex(4, 4):
        one, other = a, b
        for number in range(4):
            if number == layer:
                other = np.where(np.arange(4)[:, None] == t, one, other)
            if number < 3:
                one, other = blocks[number](one), blocks[number](other)
        right[layer, t] = other[-1]
        _same(answer[layer, t], right[layer, t], f"the patch at position {t} after {layer} blocks")


def dimensions(exercise):
    """All products of directions with columns are one matrix, directions.T @ weight: square it, and sum each row. A
    column of 0 has no direction: divide it by 1.
    """
    angles = 2 * np.pi * np.arange(5) / 5
    pentagon = 1.2 * np.stack([np.cos(angles), np.sin(angles)])
    with np.errstate(invalid="ignore", divide="ignore"):
        _shares(exercise, np.eye(2), [1, 1], "two axes, which have a dimension each")
        _shares(exercise, np.array([[3.0, -3.0]]), [0.5, 0.5], "a feature and its opposite, which share one dimension")
        _shares(exercise, pentagon, [0.4] * 5, "a pentagon, where five share two dimensions")
        _shares(exercise, np.eye(2, 3), [1, 1, 0], "two axes and a column of 0")
        _shares(exercise, np.array([[1.0, 2.0]]), [0.2, 0.8], "two features of one direction, with the lengths 1 and 2")


def _shares(exercise, weight, right, what):
    same(exercise.dimensions(weight), right, f"for {what}")
