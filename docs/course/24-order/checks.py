"""Checks of chapter 24."""

import functools
import math

import numpy as np
from compare import same

from extra.diffusion.model import hide
from extra.gpt.speculative import verified

_same = functools.partial(same, atol=1e-6)


def order_bound(exercise):
    """Each order is a product: one token while both are hidden, the other one with the first shown."""
    for alone, given in (((0.5, 0.4), (0.6, 0.9)), ((0.2, 0.8), (0.1, 0.4)), ((0.3, 0.3), (0.5, 0.5))):
        orders = alone[0] * given[1], alone[1] * given[0]
        right = -(math.log(orders[0]) + math.log(orders[1])) / 2, -math.log(sum(orders) / 2)
        _same(exercise.order_bound(np.array(alone), np.array(given)), right, f"alone {alone}, given {given}")


def hidden_weights(exercise):
    """Count the hidden tokens of each row; the weights of a row add up to 1 / B, and those of the batch to 1."""
    rng = np.random.default_rng(0)
    for shape in ((1, 4), (3, 6), (5, 2)):
        hidden = rng.random(shape) < 0.5
        hidden[:, -1] = True
        right = np.zeros(shape)
        right[hidden] = hide(np.zeros(shape, int), hidden, 1, "cpu").weights.numpy()
        _same(exercise.hidden_weights(hidden), right, f"hidden {hidden.astype(int).tolist()}")


def surest(exercise):
    """A row is as sure as its largest probability; take the rows with the largest ones."""
    rng = np.random.default_rng(0)
    for rows, count in ((4, 1), (5, 3), (3, 3)):
        probabilities = rng.dirichlet(np.full(3, 0.5), rows)
        order = sorted(range(rows), key=lambda row: -probabilities[row].max())
        _same(exercise.surest(probabilities, count), sorted(order[:count]), f"{count} of {probabilities.round(2)}")


def checked(exercise):
    """A token is kept with probability min(1, p / q), so always where p is at least q."""
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.6, 0.2])
    for token, u in ((0, 0.9), (1, 0.4), (1, 0.6), (2, 0.99)):
        numbers = iter((u, 0.5))  # the second is for the other token, which is 0 here: only it has p above q
        drawn = type("Numbers", (), {"random": lambda self, numbers=numbers: next(numbers)})()
        right = verified(np.array([p, p]), q[None], [token], drawn)[0]
        _same(exercise.checked(p, q, token, u, 0), right, f"token {token}, u = {u}")
