"""Exercises of chapter 8: every ... is a blank to fill in."""

import numpy as np

from gpt.model import GPT


def parameters(vocab_size: int, block_size: int, n_layer: int, n_embd: int, is_tied: bool) -> int:
    """How many parameters a GPT without biases has: norms have a gain only, F is 4 n_embd."""
    return ...


def batch(tokens: np.ndarray, starts: np.ndarray, block_size: int) -> tuple[np.ndarray, np.ndarray]:
    """The ids and targets of the windows that begin at `starts` (B,): both (B, block_size)."""
    return ...


def tied_gradient(ids: np.ndarray, d_embedded: np.ndarray, x: np.ndarray, d_logits: np.ndarray, vocab_size: int):
    """dL/dW (V, C) of a table W that is used at both ends: embedded = W[ids], and logits = x W^T.

    Args:
        ids: (T,) tokens; the same one may occur several times.
        d_embedded: (T, C), the gradient that reaches the embeddings.
        x: (T, C), what comes out of the final norm.
        d_logits: (T, V), the gradient that reaches the logits.
    """
    return ...


def continue_text(model: GPT, ids: list[int], count: int) -> list[int]:
    """ids and `count` more tokens, each the most probable one given those before it.

    The model takes at most `model.config.block_size` tokens: if the text is longer, give it the last ones.
    """
    return ...
