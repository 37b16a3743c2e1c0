"""Solutions of chapter 10."""

import numpy as np


def temperature(probs: np.ndarray, t: float) -> np.ndarray:
    """The distribution probs (V,) at the temperature t > 0. A probability may be 0."""
    powers = probs ** (1 / t)
    return powers / powers.sum()


def nucleus(probs: np.ndarray, top_p: float) -> np.ndarray:
    """The distribution probs (V,), not sorted, after top-p: 0 where a token is removed, the rest normalised."""
    kept, total = np.zeros_like(probs), 0.0
    for token in np.argsort(-probs):
        if total >= top_p:
            break
        kept[token] = probs[token]
        total += probs[token]
    return kept / total


def can_stop(best_finished: float, open_log_prob: float, max_new_tokens: int, length_penalty: float) -> bool:
    """Whether a beam search for one result is over.

    best_finished is the score of the best finished hypothesis, the length penalty included; open_log_prob is the sum of
    log-probabilities of the best open one.
    """
    return open_log_prob / ((5 + max_new_tokens) / 6) ** length_penalty <= best_finished


def attend(x: np.ndarray, w_query: np.ndarray, w_key: np.ndarray, w_value: np.ndarray, cache: list) -> np.ndarray:
    """What one head of causal attention returns for a new position x (C,), whose query sees itself and all before it.

    The matrices are (D, C), a row for each output. The cache is a list of the pairs (key, value) of the earlier
    positions, of D numbers each; the new pair must be appended to it. Returns: (D,), softmax(q K^T / sqrt(D)) V.
    """
    query = x @ w_query.T
    cache.append((x @ w_key.T, x @ w_value.T))
    keys, values = (np.stack(part) for part in zip(*cache, strict=True))
    scores = keys @ query / len(query) ** 0.5
    weights = np.exp(scores - scores.max())
    return weights / weights.sum() @ values
