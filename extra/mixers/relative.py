"""Positions as terms of attention's scores: what counts is how far a key is before a query, not where either is.

    S_ts = q_t . k_s / sqrt(D) + b(t - s)                     for s <= t

    ALiBi    b = -m_h (t - s)                   with a slope m_h for each head: near keys count more, nothing is learned
    Shaw     b = q_t . a_min(t - s, K) / sqrt(D)    with a learned vector a of D numbers for each distance up to K

Both cover distances that no training text had: ALiBi continues its line, and Shaw's vectors treat all keys at distance
K or more alike. So a text may be longer than those in training; whether the model is still good then is another
question, which `docs/course/14-today/longer.py` examines.

References: Press, Smith, Lewis 2022 (arXiv:2108.12409) on ALiBi; Shaw, Uszkoreit, Vaswani 2018 (arXiv:1803.02155),
section 3, with vectors for keys only.
"""

import numpy as np

from tinygrad_lite.nn import Module, Parameter, uniform
from tinygrad_lite.tensor import Tensor
from tinygrad_lite.transformer import POSITIONS

REACH = 16  # K, the largest distance with a vector of its own


def distances(queries: int, keys: int) -> np.ndarray:
    """How far each key is before each query; the last query is at the last key: (T, S), 0 for later keys."""
    return np.maximum(np.arange(keys - queries, keys)[:, None] - np.arange(keys), 0)


class ALiBi(Module):
    """A line that falls with the distance, with a different slope in each head: 2^(-8 / H), 2^(-16 / H), ... 2^-8."""

    def __init__(self, n_head: int) -> None:
        self.slopes = 2.0 ** (-8 * np.arange(1, n_head + 1) / n_head)

    def forward(self, query: Tensor, keys: int) -> Tensor:
        """What is added to the scores of queries (B, H, T, D): (H, T, S)."""
        lines = -self.slopes[:, None, None] * distances(query.shape[2], keys)
        return Tensor(lines.astype(query.dtype), device=query.device)


class Shaw(Module):
    """A learned vector for each distance; queries are compared with it as they are with keys."""

    def __init__(self, head_dim: int, scale: float) -> None:
        self.scale = scale  # of the scores
        self.vectors = Parameter.create((REACH + 1, head_dim), uniform(head_dim))

    def forward(self, query: Tensor, keys: int) -> Tensor:
        """What is added to the scores of queries (B, H, T, D): (B, H, T, S)."""
        by_distance = query @ self.vectors.transpose(0, 1) * self.scale  # (B, H, T, REACH + 1)
        chosen = np.minimum(distances(query.shape[2], keys), REACH)
        return by_distance.gather(-1, Tensor(chosen, device=query.device).expand(*query.shape[:3], keys))


POSITIONS["alibi"] = lambda config: ALiBi(config.n_head)
POSITIONS["shaw"] = lambda config: Shaw(config.head_width, config.attention_scale or config.head_width**-0.5)
