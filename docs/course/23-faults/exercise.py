"""Exercises of chapter 23: every ... is a blank to fill in."""

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
    return ...


def company(predict: Callable[[list[list[int]]], np.ndarray], prompts: list[list[int]]) -> list[int]:
    """The numbers, from 0, of the prompts that get other predictions in a batch than alone.

    Args:
        predict: from B prompts of any lengths to log-probabilities (B, V).
    """
    return ...


def stale(model: GPT, tokens: list[int]) -> list[int]:
    """After how many of the tokens, 1 to all, a model with a cache predicts otherwise than one that reads them at once.

    `model.start([tokens[:n]], use_cache=False)` reads n tokens at once. With a cache, `model.start([tokens[:1]])` reads
    the first, and `model.step(np.array([token]), state)` one more. Both return log-probabilities (1, V), and a state.
    """
    return ...


# Which of these is A? Inside `with RIDDLES["A"].planted():` (riddles.py) this process has it, and
# `python docs/course/23-faults/methods.py A` tries all methods. Answer with a number.
#
#  1  an evaluation does not switch dropout off           9  attention drops weights in evaluation, too
#  2  each position sees the next token                  10  the targets are the inputs
#  3  only the last micro-batch counts                   11  every step with a cache has the first one's angles
#  4  padding is read as if it were text                 12  losses of micro-batches are added, not averaged
#  5  the targets are the tokens after the next ones     13  an evaluation switches dropout off for good
#  6  heads are joined without swapping axes             14  the softmax is over the wrong axis
#  7  gradients are never cleared                        15  of a token's gradients, only the last counts
#  8  after a prompt, positions are those with padding   16  the end of a sentence is not learned
A = ...
B = ...
C = ...
D = ...
E = ...
