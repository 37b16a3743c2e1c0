"""Checks of chapter 10."""

from dataclasses import replace

import numpy as np
from compare import same

from text.decoding.sampling import PLAIN, filter_tokens
from tinygrad_lite import Tensor
from tinygrad_lite import functional as F


def _compare(answer, about, probs, right):
    """Compare a distribution with that of `filter_tokens`, which are logarithms up to a constant."""
    right = np.exp(right)[0] / np.exp(right).sum()
    same(np.sum(answer), 1, f"{about} of {probs}, the sum")
    same(answer, right, f"{about} of {probs}", rtol=1e-6, atol=1e-12)


def _logarithms(probs):
    with np.errstate(divide="ignore"):
        return np.log([probs])


def temperature(exercise):
    """softmax(log p / T) is e^(log p / T), normalised, and e^(log p / T) is a power of p."""
    for probs in ([0.5, 0.25, 0.15, 0.1], [0.2, 0.8], [0.6, 0.0, 0.4]):
        for t in (0.5, 1.0, 2.0, 0.1):
            with np.errstate(all="ignore"):
                answer = exercise.temperature(np.array(probs), t)
            expected = filter_tokens(_logarithms(probs), replace(PLAIN, temperature=t))
            _compare(answer, f"temperature {t}", probs, expected)


def nucleus(exercise):
    """Take tokens from the most probable one on until their sum reaches top_p; the one that reaches it is included."""
    rng = np.random.default_rng(0)
    shuffled = [rng.dirichlet(np.full(6, 0.7)).round(3) for _ in range(3)]
    for probs in ([0.5, 0.25, 0.125, 0.125], [0.1, 0.6, 0.3], [0.03, 0.02, 0.91, 0.04], *shuffled):
        probs = np.array(probs) / np.sum(probs)
        for top_p in (0.05, 0.45, 0.5, 0.7, 0.75, 0.97):  # two of them are reached exactly by the first distribution
            answer = exercise.nucleus(probs.copy(), top_p)
            expected = filter_tokens(_logarithms(probs), replace(PLAIN, top_p=top_p))
            _compare(answer, f"top_p {top_p}", probs.round(4), expected)


def can_stop(exercise):
    """What is the best score that the open hypothesis can still reach, with any ending that the limit allows?"""
    rng = np.random.default_rng(0)
    seen = {True: 0, False: 0}
    for _ in range(400):
        length, limit = 3, int(rng.integers(4, 30))
        penalty = float(rng.choice([0.0, 0.6, 1.0, 2.0]))
        open_log_prob = -float(rng.uniform(0.5, 8.0))
        ends = [open_log_prob / ((5 + n) / 6) ** penalty for n in range(length + 1, limit + 1)]  # at no further cost
        best_finished = min(-0.05, float(rng.choice([min(ends), max(ends)])) + float(rng.uniform(-0.2, 0.2)))
        right = max(ends) <= best_finished
        seen[right] += 1
        answer = exercise.can_stop(best_finished, open_log_prob, limit, penalty)
        assert bool(answer) == right, (
            f"finished: score {best_finished:.3f}; open: log-prob {open_log_prob:.3f} after {length} tokens, limit "
            f"{limit}, length penalty {penalty:g}: it is wrong to {'stop' if answer else 'continue'}"
        )
    assert min(seen.values()) > 50
    assert exercise.can_stop(-2.0, -2.0, 9, 0.0), "an open hypothesis that can at best be equal changes nothing"


def attend(exercise):
    """Append first, so that the query sees its own position. Subtract the largest score before the exponential."""
    rng = np.random.default_rng(0)
    for size in (1, 30):  # the scores of the second case overflow without a shift
        x = rng.standard_normal((6, 5)) * size
        matrices = [rng.standard_normal((3, 5)) for _ in range(3)]
        query, key, value = (Tensor((x @ matrix.T)[None, None]) for matrix in matrices)
        right = F.scaled_dot_product_attention(query, key, value, is_causal=True).numpy()[0, 0]
        cache = []
        for position, row in enumerate(x):
            with np.errstate(all="ignore"):
                answer = exercise.attend(row.copy(), *matrices, cache)
            assert len(cache) == position + 1, f"after {position + 1} positions the cache holds {len(cache)}"
            scores = ", with large scores" if size > 1 else ""
            same(answer, right[position], f"position {position}{scores}", rtol=1e-6, atol=1e-9)
        for pair, keys, values in zip(cache, key.numpy()[0, 0], value.numpy()[0, 0], strict=True):
            is_right = np.allclose(pair[0], keys) and np.allclose(pair[1], values)
            assert is_right, "the cache does not hold the pairs (key, value) of the positions"
