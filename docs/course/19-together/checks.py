"""Checks of chapter 19."""

import functools

import numpy as np
from compare import same
from together import best_for_other_half as chosen

from tinygrad_lite import Tensor
from tinygrad_lite import functional as F

_same = functools.partial(same, atol=1e-6)


def mean_log_probs(exercise):
    """log mean e^x = m + log mean e^(x - m): with m the largest of each column, one of the exponentials is 1."""
    rng = np.random.default_rng(0)
    for models in (1, 2, 5):
        x = -5 * rng.random((models, 7))
        _same(exercise.mean_log_probs(x), np.log(np.exp(x).mean(axis=0)), f"of {models} models")
        _same(exercise.mean_log_probs(x - 9000), np.log(np.exp(x).mean(axis=0)) - 9000, "of tiny probabilities")


def distilled(exercise):
    """The target w has (1 - a) more at t; the loss is -sum w log softmax(z), and its gradient softmax(z) - w."""
    rng = np.random.default_rng(0)
    for a in (0.0, 0.3, 1.0):
        z, q, t = rng.standard_normal(6), rng.dirichlet(np.ones(6)), 4
        logits, w = Tensor(z, requires_grad=True), a * q
        w[t] += 1 - a
        loss = F.cross_entropy(logits, Tensor(w))
        loss.backward()
        given = q.copy()
        found, gradient = exercise.distilled(z, t, given, a)
        assert (given == q).all(), "q has changed"
        _same(found, loss.item(), f"the loss with a = {a}")
        _same(gradient, logits.grad.numpy(), f"the gradient with a = {a}")


def dynamic_bits(exercise):
    """Predict, count the bits, then z -= rate * (softmax(z) - [v = letter])."""
    text = np.random.default_rng(0).integers(0, 3, 40) ** 2 // 2
    _same(exercise.dynamic_bits(text, 4, 0.0), 2.0, "a rate of 0, four letters")
    _same(exercise.dynamic_bits(np.array([1]), 4, 5.0), 2.0, "one letter, before which nothing was learned")
    z, nats = Tensor(np.zeros(4), requires_grad=True), 0.0
    for letter in text:
        loss = F.cross_entropy(z, Tensor(np.array(letter)))
        loss.backward()
        nats += loss.item()
        z = Tensor(z.numpy() - 0.4 * z.grad.numpy(), requires_grad=True)
    _same(exercise.dynamic_bits(text, 4, 0.4), nats / np.log(2) / len(text), "forty letters at a rate of 0.4")


def best_for_other_half(exercise):
    """Sum -log2 p over one half for each setting; the smallest sum chooses for the other half."""
    for seed, tokens in ((0, 8), (1, 9), (2, 30)):
        p = np.random.default_rng(seed).random((4, tokens)) + 0.01
        right, names = chosen(range(4), p.__getitem__)
        settings, found = exercise.best_for_other_half(p)
        assert [*map(int, settings)] == names, f"of {tokens} tokens, yours are {settings}, they must be {names}"
        _same(found, right, f"the probabilities of {tokens} tokens")
