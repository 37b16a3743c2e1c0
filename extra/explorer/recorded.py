"""What a GPT computed for one text, for the page of a model that is too large to compute there."""

from __future__ import annotations

from typing import Any

import numpy as np

from extra.inside.gpt import look_inside
from gpt.model import GPT
from text.tokenizers.base import Tokenizer
from tinygrad_lite import functional as F
from tinygrad_lite.tensor import Tensor

MAX_RECORDED = 64  # tokens
EARLY = 5  # predictions kept for each layer and token


def record(model: GPT, tokenizer: Tokenizer, ids: list[int]) -> tuple[dict[str, Any], dict[str, bytes]]:
    """A recording of the first tokens of a text: JSON values, and arrays as float16.

    Returns: the JSON has ids (T,), pieces (V,), stream (L + 1, T), added (L, 2, T) and early (L + 1, T, 5); the arrays
        are recorded-logits (T, V), as log-probabilities, and recorded-attention (L, H, T, T).
    """
    ids = ids[: min(MAX_RECORDED, model.config.block_size)]
    found = look_inside(model, ids)
    log_probs = F.log_softmax(Tensor(found.logits.astype(np.float64))).numpy()
    recording = {
        "ids": ids,
        # The bytes of each token as characters of code points 0 to 255.
        "pieces": [tokenizer.token_bytes(token).decode("latin-1") for token in range(tokenizer.vocab_size)],
        "stream": rounded(np.linalg.norm(found.stream, axis=-1)),
        "added": rounded(np.linalg.norm(found.added, axis=-1)),
        "early": [[best(row) for row in layer] for layer in log_probs],
    }
    lowest = float(np.finfo(np.float16).min)
    arrays = {"logits": np.maximum(log_probs[-1], lowest), "attention": found.attention}
    return recording, {f"recorded-{name}": array.astype("<f2").tobytes() for name, array in arrays.items()}


def best(log_probs: np.ndarray) -> list[tuple[int, float]]:
    """The most probable tokens with their probabilities."""
    return [(int(n), float(np.exp(log_probs[n]))) for n in np.argsort(-log_probs, kind="stable")[:EARLY]]


def rounded(array: np.ndarray) -> list:
    """The numbers with six digits, which are enough to draw them."""
    return [rounded(part) for part in array] if array.ndim else float(f"{array:.6g}")
