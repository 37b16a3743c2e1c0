"""Solutions of chapter 17."""

import numpy as np


def hide(
    ids: np.ndarray, special: np.ndarray, mask: int, vocab_size: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Hide tokens like BERT: ids (T,) -> the changed ids (T,), and the places of the tokens to predict, in order.

    15 % of the tokens that are not special are to be predicted. Of these, 80 % become `mask`, 10 % a random token that
    is not special, and 10 % stay. `special` has the ids of all special tokens; `ids` itself must not change.
    """
    words = np.flatnonzero(~np.isin(ids, special))
    places = np.sort(rng.permutation(words)[: round(0.15 * len(words))])
    chance = rng.random(len(places))
    replaced = places[(chance >= 0.8) & (chance < 0.9)]
    hidden = ids.copy()
    hidden[places[chance < 0.8]] = mask
    hidden[replaced] = rng.choice(np.setdiff1d(np.arange(vocab_size), special), len(replaced))
    return hidden, places


def patches(pictures: np.ndarray, size: int) -> np.ndarray:
    """Cut pictures into squares: (B, H, W, channels) -> (B, N, channels size size).

    The patches are in order row by row; the numbers of a patch are in the order channels, rows, columns.
    """
    batch, height, width, channels = pictures.shape
    cut = pictures.reshape(batch, height // size, size, width // size, size, channels)
    return cut.transpose(0, 1, 3, 5, 2, 4).reshape(batch, -1, channels * size * size)


def sentence_vectors(x: np.ndarray, is_text: np.ndarray) -> np.ndarray:
    """A vector of length 1 for each sentence: (B, T, C), and (B, T) which is False at padding -> (B, C)."""
    total = (x * is_text[..., None]).sum(1)  # the mean has the same direction
    return total / np.linalg.norm(total, axis=-1, keepdims=True)


def rollout(attention: np.ndarray) -> np.ndarray:
    """How much of each position is in each vector at the end: weights of all layers and heads (L, H, T, T) -> (T, T).

    attention[0] is the layer that reads the embeddings.
    """
    identity = np.eye(attention.shape[-1])
    whole = identity
    for weights in attention.mean(1):
        whole = (weights + identity) / 2 @ whole
    return whole
