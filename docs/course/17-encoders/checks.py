"""Checks of chapter 17."""

import functools

import numpy as np
from compare import same

from extra.encoders.bert import mean_of_text
from extra.encoders.vit import patches as project_patches
from tinygrad_lite import Tensor

_same = functools.partial(same, atol=1e-6)


def _near(count, of, share, what):
    """Whether a count is within five standard errors of the expected share."""
    error = 5 * (share * (1 - share) / of) ** 0.5
    assert abs(count / of - share) < error, f"{what} {count / of:.1%} of {of:,}: it must be {share:.1%}"


def hide(exercise):
    """Shuffle the places of ordinary tokens and keep 15 % of them, sorted. One random number for each chooses its fate.
    Change a copy of ids.
    """
    rng, special, mask, vocab_size = np.random.default_rng(1), np.array([0, 1, 2, 3, 40]), 3, 400
    ordinary = np.setdiff1d(np.arange(vocab_size), special)
    ids = rng.choice(ordinary, 40_000)
    ids[0], ids[-1], ids[1000:21_000:2] = 1, 2, 40
    words = np.flatnonzero(~np.isin(ids, special))
    before = ids.copy()
    hidden, places = exercise.hide(ids, special, mask, vocab_size, rng)
    assert (ids == before).all(), "the given ids have changed"
    assert hidden.shape == ids.shape, f"the shape of your changed ids is {hidden.shape}, it must be {ids.shape}"
    assert np.issubdtype(np.asarray(places).dtype, np.integer), "the places must be integers"
    assert (np.diff(places) > 0).all(), "the places are not in order, or one of them occurs twice"
    assert np.isin(places, words).all(), "some of the places hold special tokens, which are never hidden"
    others = np.delete(np.arange(len(ids)), places)
    assert (hidden[others] == ids[others]).all(), "tokens have changed at places that are not to be predicted"
    _near(len(places), len(words), 0.15, "to be predicted are")
    _near((places < np.median(words)).sum(), len(places), 0.5, "in the first half of the words are")
    _near(np.isin(places + 1, places).sum(), np.isin(places + 1, words).sum(), 0.15, "next to another place are")
    now, once = hidden[places], ids[places]
    is_mask = now == mask
    _near(is_mask.sum(), len(places), 0.8, "hidden behind the mask are")
    _near((now == once).sum(), len(places), 0.1 + 0.1 / len(ordinary), "unchanged are")
    random = now[~is_mask & (now != once)]
    assert not np.isin(random, special).any(), "some of the random tokens are special"
    _near((random < np.median(ordinary)).sum(), len(random), 0.5, "in the lower half of the vocabulary are")
    assert len(set(random.tolist())) > 150, f"the random tokens are only {len(set(random.tolist()))} different ones"
    again = exercise.hide(ids, special, mask, vocab_size, rng)[1]
    assert not np.array_equal(places, again), "a second call hides the same places: draw from the given generator"


def patches(exercise):
    """Reshape to (B, rows, size, columns, size, channels), bring the axes into the order (B, rows, columns, channels,
    size, size), and reshape again.
    """
    for channels, size in ((1, 2), (3, 2), (2, 3)):
        pictures = np.arange(2.0 * 6 * 12 * channels).reshape(2, 6, 12, channels)
        right = project_patches(Tensor(pictures), size).numpy()
        _same(exercise.patches(pictures, size), right, f"{channels} channels, patches of {size} x {size}")


def sentence_vectors(exercise):
    """Set the vectors at padding to 0 before the sum over T. Divide by the length at the end, for each sentence."""
    x = np.random.default_rng(0).standard_normal((3, 5, 4))
    ids = np.arange(5) < np.array([[5], [2], [1]])
    mean = mean_of_text(Tensor(x), Tensor(ids.astype(int)), 0).numpy()
    right = mean / (mean @ mean.T).diagonal()[:, None] ** 0.5
    got = np.asarray(exercise.sentence_vectors(x, ids), float)
    _same((got**2).sum(-1), np.ones(3), "the squared lengths of the vectors")
    _same(got, right, "the vectors of three sentences")
    x[1, 2:] = 100
    _same(exercise.sentence_vectors(x, ids), right, "other numbers at the padding change the result")


def rollout(exercise):
    """Mean over heads; half of it and half of the identity; multiply the result so far from the left."""
    attention = np.random.default_rng(0).dirichlet(np.full(5, 0.3), (3, 2, 5))  # 3 layers of 2 heads, 5 positions
    right = np.eye(5)  # what is sent from each position, and arrives at all
    for heads in attention:
        right = np.mean([(right + weights @ right) / 2 for weights in heads], axis=0)
    got = np.asarray(exercise.rollout(attention), float)
    _same(got.sum(-1), np.ones(5), "the sums of the rows")
    _same(got, right, "three layers of random weights")
    chain = np.zeros((2, 1, 3, 3))  # in the first layer 1 reads 2, in the second 0 reads 1
    chain[:, 0] = np.eye(3)
    chain[0, 0, 1], chain[1, 0, 0] = [0, 0, 1], [0, 1, 0]
    _same(exercise.rollout(chain)[0], np.array([0.5, 0.25, 0.25]), "0 reads 1, which has read 2: row 0")
