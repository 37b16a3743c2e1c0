"""Exercises of chapter 17: every ... is a blank to fill in."""

import numpy as np


def hide(
    ids: np.ndarray, special: np.ndarray, mask: int, vocab_size: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Hide tokens like BERT: ids (T,) -> the changed ids (T,), and the places of the tokens to predict, in order.

    15 % of the tokens that are not special are to be predicted. Of these, 80 % become `mask`, 10 % a random token that
    is not special, and 10 % stay. `special` has the ids of all special tokens; `ids` itself must not change.
    """
    return ...


def patches(pictures: np.ndarray, size: int) -> np.ndarray:
    """Cut pictures into squares: (B, H, W, channels) -> (B, N, channels size size).

    The patches are in order row by row; the numbers of a patch are in the order channels, rows, columns.
    """
    return ...


def sentence_vectors(x: np.ndarray, is_text: np.ndarray) -> np.ndarray:
    """A vector of length 1 for each sentence: (B, T, C), and (B, T) which is False at padding -> (B, C)."""
    return ...


def rollout(attention: np.ndarray) -> np.ndarray:
    """How much of each position is in each vector at the end: weights of all layers and heads (L, H, T, T) -> (T, T).

    attention[0] is the layer that reads the embeddings.
    """
    return ...
