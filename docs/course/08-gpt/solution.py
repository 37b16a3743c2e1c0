"""Solutions of chapter 8."""

import numpy as np

from gpt.model import GPT
from tinygrad_lite import Tensor


def parameters(vocab_size: int, block_size: int, n_layer: int, n_embd: int, is_tied: bool) -> int:
    """How many parameters a GPT without biases has: norms have a gain only, F is 4 n_embd."""
    tables = (vocab_size * (1 if is_tied else 2) + block_size) * n_embd
    return tables + n_layer * (12 * n_embd**2 + 2 * n_embd) + n_embd


def batch(tokens: np.ndarray, starts: np.ndarray, block_size: int) -> tuple[np.ndarray, np.ndarray]:
    """The ids and targets of the windows that begin at `starts` (B,): both (B, block_size)."""
    windows = tokens[starts[:, None] + np.arange(block_size + 1)]
    return windows[:, :-1], windows[:, 1:]


def tied_gradient(ids: np.ndarray, d_embedded: np.ndarray, x: np.ndarray, d_logits: np.ndarray, vocab_size: int):
    """dL/dW (V, C) of a table W that is used at both ends: embedded = W[ids], and logits = x W^T.

    Args:
        ids: (T,) tokens; the same one may occur several times.
        d_embedded: (T, C), the gradient that reaches the embeddings.
        x: (T, C), what comes out of the final norm.
        d_logits: (T, V), the gradient that reaches the logits.
    """
    gradient = np.zeros((vocab_size, x.shape[1]))
    for token, row in zip(ids, d_embedded, strict=True):
        gradient[token] += row
    return gradient + d_logits.T @ x


def continue_text(model: GPT, ids: list[int], count: int) -> list[int]:
    """ids and `count` more tokens, each the most probable one given those before it.

    The model takes at most `model.config.block_size` tokens: if the text is longer, give it the last ones.
    """
    ids = list(ids)
    for _ in range(count):
        logits = model(Tensor([ids[-model.config.block_size :]])).numpy()
        ids.append(int(logits[0, -1].argmax()))
    return ids
