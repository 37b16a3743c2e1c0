"""Checks of chapter 11."""

import math
from types import SimpleNamespace

import numpy as np
from compare import same

from tinygrad_lite import Tensor
from tinygrad_lite import functional as F
from tinygrad_lite.debug.gradcheck import gradcheck
from tinygrad_lite.random import keyed_rng


def shifted(exercise):
    """Write each row as <bos>, its tokens, <eos>, then padding. One array lacks the last column, one the first."""
    rows, bos, eos, pad = [[5, 6, 7], [8], []], 1, 2, 0
    read, predicted = map(np.asarray, exercise.shifted(rows, bos, eos, pad))
    assert read.shape == predicted.shape == (3, 4), f"yours are {read.shape} and {predicted.shape}, both must be (3, 4)"
    for row, tokens in enumerate(rows):
        real = predicted[row] != pad
        pairs = list(zip(read[row][real].tolist(), predicted[row][real].tolist(), strict=True))
        wanted = [bos, *tokens], [*tokens, eos]
        assert len(pairs) == len(tokens) + 1, f"of {tokens}, yours predict {len(pairs)}, it must be {len(tokens) + 1}"
        seen, after = (list(part) for part in zip(*pairs, strict=True))
        assert seen == wanted[0], f"at the positions that predict {tokens}, the decoder reads {seen}"
        assert after == wanted[1], f"for {tokens}, the answer has the decoder predict {after}"


def _inputs():
    rng = keyed_rng(0, "chapter 11")
    shapes = (2, 3, 4), (2, 5, 4), (2, 4), (2, 4), (2, 4)  # x, memory, wq, wk, wv
    tensors = [Tensor(rng.normal(0, 1, shape), requires_grad=True, dtype="float64") for shape in shapes]
    return tensors, Tensor(np.array([[True] * 5, [True, True, True, False, False]]))


def cross_attention(exercise):
    """A query is x @ wq.T; keys and values are products of memory. Masked scores become -inf before the softmax.

    is_text needs an axis for the T queries: `is_text.unsqueeze(1)`.
    """
    (x, memory, *weights), is_text = _inputs()

    def run(x, memory, *weights):
        return exercise.cross_attention(x, memory, is_text, *weights)

    y = run(x, memory, *weights).numpy()
    assert y.shape == (2, 3, 2), f"the shape of your result is {y.shape}, it must be (2, 3, 2)"
    other = memory.numpy().copy()
    other[1, 3:] += 10
    moved = np.abs(run(x, Tensor(other), *weights).numpy() - y).max()
    assert moved < 1e-9, f"what is in the padding of the memory changes the result by {moved:.2g}"
    query, key, value = (source @ weight.T for source, weight in zip((x, memory, memory), weights, strict=True))
    rows = [part.unsqueeze(1) for part in (query, key, value)]
    right = F.scaled_dot_product_attention(*rows, is_text.reshape(2, 1, 1, 5)).numpy()[:, 0]
    same(y, right, "the result", rtol=0, atol=1e-9)
    gradcheck(run, [x, memory, *weights])


class _Reverser:
    """A model that spells its source backwards, then says <eos>, and again; each logit depends on the target so far."""

    config = SimpleNamespace(pad=0, bos=1, eos=2)

    def __init__(self):
        self.encoded = 0

    def encode(self, source):
        self.encoded += 1
        return source, source != 0

    def decode(self, target, memory, mask):
        source, target = memory.numpy()[0], target.numpy()
        assert target.ndim == 2, f"the shape of your target of decode() is {target.shape}, it must be (1, T)"
        assert target[0, 0] == self.config.bos, f"your target begins with token {target[0, 0]}, it must be <bos>"
        line = [*source[::-1], self.config.eos] * 5
        right = [self.config.bos, *line][: target.shape[1]]
        assert target[0].tolist() == right, f"after {target[0, :-1]}, the likeliest token was not {target[0, -1]}"
        logits = np.zeros((1, target.shape[1], 30))
        logits[0, np.arange(target.shape[1]), line[: target.shape[1]]] = 1
        return Tensor(logits)


def translate(exercise):
    """Encode once. Begin with [<bos>]; append the argmax of the last position's logits, until it is <eos>."""
    model = _Reverser()
    found = exercise.translate(model, Tensor([[7, 8, 9]]), 10)
    assert found == [9, 8, 7], f"from a model that spells backwards, the translation of 7 8 9 is {found}"
    assert model.encoded == 1, f"the source was encoded {model.encoded} times"
    found = exercise.translate(_Reverser(), Tensor([[7, 8, 9]]), 2)
    assert found == [9, 8], f"with a limit of 2 tokens, the translation is {found}"


def smoothing_floor(exercise):
    """Entropy of w: one probability is 1 - e + e/V, the other V - 1 are e/V. What is 0 ln 0 in a sum of w ln w?"""
    for e, vocab_size in ((0.1, 10), (0.3, 4), (0.0, 10)):
        found = exercise.smoothing_floor(e, vocab_size)
        gaps = np.linspace(0, 20, 20001)
        logits = np.zeros((len(gaps), vocab_size))
        logits[:, 0] = gaps  # how far the right token's logit lies above all others
        targets = Tensor(np.zeros(len(gaps), int))
        lowest = F.cross_entropy(Tensor(logits), targets, label_smoothing=e, reduction="none").numpy().min()
        assert math.isclose(found, lowest, abs_tol=1e-5), (
            f"with e = {e} and {vocab_size} tokens, the answer is {found:.4f}, but a search finds another lowest loss"
        )
