"""Attention through a window: each query sees the N latest keys and the first few, so a text may be of any length.

    query t sees key s    if  s <= t  and  (t - s < N  or  s < SINKS)

The work grows with T N instead of T^2. What lies further back still reaches t, through the layers: each of L layers
passes on what is at most N - 1 positions away, so the last one knows something about L (N - 1) + 1 positions.

The first keys are always seen because trained models need them: a softmax must put its weight somewhere, and heads that
look for something that is not there learn to put it on the beginning of the text ("attention sinks"). A window that
loses these keys loses the weight they absorbed, and the text falls apart.

References: Beltagy et al. 2020 (arXiv:2004.05150) on windows; Xiao et al. 2023 (arXiv:2309.17453) on sinks.
"""

import math
from typing import Any

import numpy as np

from tinygrad_lite.tensor import Tensor
from tinygrad_lite.transformer import MIXERS, OF_ATTENTION, MultiHeadAttention, self_attention

SINKS = 4


class WindowAttention(MultiHeadAttention):
    """Causal self-attention in which a query sees the `window` latest keys, including its own, and the first ones."""

    def __init__(self, *args: Any, window: int, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.window = window

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, is_causal: bool, dropout_p: float
    ) -> Tensor:
        """(B, H, T, D) queries, (B, H, S, D) keys and values -> (B, H, T, D), one window of queries after the other."""
        queries, keys = query.shape[2], key.shape[2]
        places = np.arange(keys - queries, keys) if is_causal else np.full(queries, keys - 1)  # of the queries
        if mask is not None and not (is_text := text_of(mask)).all():  # each text begins at its own position
            behind, numbers = places[:, None] - np.arange(keys), is_text.cumsum(-1) - 1  # (T, S), (B, S)
            seen = (behind >= 0) & ((behind < self.window) | (numbers < SINKS)[:, None, None])
            return super().attend(query, key, value, both(mask, seen), False, dropout_p)
        parts = []
        for start in range(0, queries, self.window):
            rows = slice(start, start + self.window)
            first, last = max(0, places[start] - self.window + 1), places[rows][-1] + 1
            sinks = min(SINKS, first)
            seen = np.r_[0:sinks, first:last]
            behind = places[rows, None] - seen
            allowed = (behind >= 0) & ((behind < self.window) | (seen < SINKS))
            k, v = (chosen(x, 2, sinks, first, last) for x in (key, value))
            added = Tensor(allowed, device=query.device)
            if mask is not None:
                here = mask if mask.shape[-2] == 1 else mask[..., rows, :]
                added = both(chosen(here, -1, sinks, first, last), allowed)
            parts.append(super().attend(query[:, :, rows], k, v, added, False, dropout_p))
        return Tensor.cat(*parts, axis=2) if parts else query


def text_of(mask: Tensor) -> np.ndarray:
    """Which keys a mask, of truth values or terms of the scores, shows to the last query of each text: (B, S)."""
    rows = mask.detach().numpy()
    return np.array(rows if rows.dtype == np.bool_ else rows > -np.inf, ndmin=4)[:, 0, -1]


def both(mask: Tensor, seen: np.ndarray) -> Tensor:
    """A mask, of truth values or terms of the scores, that also hides what is not seen."""
    other = Tensor(seen, device=mask.device)
    return mask & other if mask.dtype == np.bool_ else mask.masked_fill(~other, -math.inf)


def chosen(x: Tensor, axis: int, sinks: int, first: int, last: int) -> Tensor:
    """The first few along an axis, and those from `first` to `last`."""
    before = (slice(None),) * (axis % x.ndim)
    near = x[(*before, slice(first, last))]
    return x[(*before, slice(sinks))].cat(near, axis=axis) if sinks else near


def through_window(config: Any) -> MultiHeadAttention:
    """A block's attention, through a window if its settings ask for one."""
    return self_attention(config, WindowAttention, window=config.window) if config.window else self_attention(config)


MIXERS["attention"] = MIXERS["attention"]._replace(make=through_window, reads=(*OF_ATTENTION, "window"))
