"""Exercises of chapter 24: every ... is a blank to fill in."""

import numpy as np


def order_bound(alone: np.ndarray, given: np.ndarray) -> tuple[float, float]:
    """The bound on -ln p of a text of two tokens, and -ln p itself, where p is the mean over both orders.

    Args:
        alone: the probabilities of the right token at both places (2,) while both are hidden.
        given: the same for each place while the other one is shown.
    """
    return ...


def hidden_weights(hidden: np.ndarray) -> np.ndarray:
    """The weights of all tokens in the loss: 1 / (m B) in a row with m hidden tokens, 0 if it is shown.

    Args:
        hidden: (B, T) booleans, True where a token is hidden, at least once in each row.
    """
    return ...


def surest(probabilities: np.ndarray, count: int) -> np.ndarray:
    """The numbers of the `count` hidden tokens to uncover first, in ascending order.

    Args:
        probabilities: (m, V), each hidden token's distribution; the most probable token is taken everywhere.
    """
    return ...


def checked(p: np.ndarray, q: np.ndarray, token: int, u: float, other: int) -> int:
    """The token that speculative decoding writes.

    Args:
        p, q: the model's distribution (V,), and the one from which the draft drew `token`.
        u: a random number from [0, 1): keep the token if u is below the probability of keeping it.
        other: what was drawn from max(p - q, 0), to be written otherwise.
    """
    return ...
