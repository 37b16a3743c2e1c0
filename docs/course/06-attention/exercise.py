"""Exercises of chapter 6: every ... is a blank to fill in."""

import numpy as np


def look_up(query: np.ndarray, keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The answer to one query: query (D,), keys (S, D), values (S, D) -> (D,). Scores may be as large as 1e5."""
    return ...


def causal_attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """The answers to the queries of a text: (..., T, D) three times -> (..., T, D). Position t sees 0 to t."""
    return ...


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
    return ...


# A GPT has 6 layers of 6 heads, each 64 wide, and is trained on batches of 32 sequences of 256 tokens. How many
# attention weights do all its layers compute for one batch, if those of hidden positions are counted too?
WEIGHTS = ...
