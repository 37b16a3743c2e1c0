"""Solutions of chapter 23."""

from collections.abc import Callable

import numpy as np

from gpt.model import GPT

ENOUGH = 1e-3  # predictions that differ by less than this are the same, but for rounding


def leaks(predict: Callable[[np.ndarray], np.ndarray], tokens: np.ndarray, t: int, vocab_size: int) -> list[int]:
    """The positions before t whose predictions move when another token is put at t; none, in a sound model.

    Args:
        predict: from tokens (T,) to logits (T, V).
        tokens: must end up unchanged.
    """
    changed = tokens.copy()
    changed[t] = (changed[t] + 1) % vocab_size
    moved = np.abs(predict(tokens) - predict(changed)).max(axis=-1)
    return [position for position in range(t) if moved[position] > ENOUGH]


def company(predict: Callable[[list[list[int]]], np.ndarray], prompts: list[list[int]]) -> list[int]:
    """The numbers, from 0, of the prompts that get other predictions in a batch than alone.

    Args:
        predict: from B prompts of any lengths to log-probabilities (B, V).
    """
    together = predict(prompts)
    moved = [np.abs(row - predict([prompt])[0]).max() for row, prompt in zip(together, prompts, strict=True)]
    return [number for number, change in enumerate(moved) if change > ENOUGH]


def stale(model: GPT, tokens: list[int]) -> list[int]:
    """After how many of the tokens, 1 to all, a model with a cache predicts otherwise than one that reads them at once.

    `model.start([tokens[:n]], use_cache=False)` reads n tokens at once. With a cache, `model.start([tokens[:1]])` reads
    the first, and `model.step(np.array([token]), state)` one more. Both return log-probabilities (1, V), and a state.
    """
    found = []
    log_probs, state = model.start([tokens[:1]])
    for n in range(1, len(tokens) + 1):
        if n > 1:
            log_probs, state = model.step(np.array([tokens[n - 1]]), state)
        at_once, _ = model.start([tokens[:n]], use_cache=False)
        if np.abs(log_probs - at_once).max() > ENOUGH:
            found.append(n)
    return found


A = 3
B = 8
C = 6
D = 9
E = 5
