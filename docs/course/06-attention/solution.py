"""Solutions of chapter 6."""

import numpy as np


def look_up(query: np.ndarray, keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The answer to one query: query (D,), keys (S, D), values (S, D) -> (D,). Scores may be as large as 1e5."""
    scores = keys @ query / len(query) ** 0.5
    e = np.exp(scores - scores.max())
    return e @ values / e.sum()


def causal_attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """The answers to the queries of a text: (..., T, D) three times -> (..., T, D). Position t sees 0 to t."""
    scores = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    future = np.triu(np.ones(scores.shape[-2:], bool), 1)
    scores = np.where(future, -np.inf, scores)
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v


def multi_head(
    x: np.ndarray,
    w_query: np.ndarray,
    w_key: np.ndarray,
    w_value: np.ndarray,
    w_output: np.ndarray,
    n_head: int,
) -> np.ndarray:
    """Causal self-attention with n_head heads: (B, T, C) -> (B, T, C). The matrices are (C, C), a row for each output.

    Head h uses columns h D to (h + 1) D of the queries, keys and values. Use `causal_attention` for all heads at once.
    """
    batch, length, width = x.shape

    def heads(weight):  # (B, T, C) -> (B, T, H, D) -> (B, H, T, D)
        return (x @ weight.T).reshape(batch, length, n_head, width // n_head).swapaxes(1, 2)

    out = causal_attention(heads(w_query), heads(w_key), heads(w_value))
    return out.swapaxes(1, 2).reshape(x.shape) @ w_output.T


# Layers times sequences times heads times queries times keys; the width of a head plays no part.
WEIGHTS = 6 * 32 * 6 * 256 * 256
