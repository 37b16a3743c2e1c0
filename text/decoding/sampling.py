"""From log-probabilities to tokens: greedy decoding and sampling with temperature, top-k, top-p and min-p.

A language model gives the probability of each possible next token. Decoding chooses one, feeds it to the model, and
repeats. The algorithms here and in `beam.py` see the model only as a function

    step(tokens (B,), state) -> (log_probs (B, V), new state)

where tokens are the newest tokens of the B rows, V is the size of the vocabulary, and state is whatever the model must
remember (its key-value cache). So the same code serves every model, and a table of probabilities in a test. The model
reads the prompt itself; the algorithms start from the first (log_probs, state).

Everything here is NumPy on the host, in float64: (B, V) numbers per step take little work compared with the model. The
exception is plain greedy decoding on a GPU: there the largest are found where they are, and only they are copied.
"""

import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, fields, replace
from typing import Protocol

import numpy as np

from text.decoding.processors import Repetition
from tinygrad_lite.config import under
from tinygrad_lite.device import Array, on_host
from tinygrad_lite.errors import DecodingError
from tinygrad_lite.random import keyed_rng
from training.cli.options import allowed, in_range


class State(Protocol):
    """A model's memory of the text so far, for each row of the batch."""

    def select(self, rows: np.ndarray) -> "State":
        """The state of these rows in this order; rows may be repeated or omitted, as beam search does."""


Step = Callable[[np.ndarray, State], tuple[np.ndarray, State]]
Rule = tuple[bool, str]  # whether it holds, and what is wrong if not

_ROUNDING = 1e-6  # of float32 log-probabilities: so that 0.5 + 0.3 reaches 0.8, although e^log(0.3) is not exactly 0.3


def check_settings(
    rules: list[Rule], max_new_tokens: int, vocab_size: int, stops: Collection[int], forbidden: Collection[int]
) -> None:
    """Check the settings that all algorithms have, and additional rules.

    Raises: DecodingError with one sentence about the first setting that is out of its range.
    """
    rules = [(max_new_tokens >= 0, f"max_new_tokens is {max_new_tokens}, but must be 0 or more"), *rules]
    for token in stops:
        both = f"stop_token {token} is also in forbidden, so no text could stop: remove it from one of them"
        rules.append((token not in forbidden, both))
    for token in (*forbidden, *stops):
        rules.append((0 <= token < vocab_size, f"token {token} is not in the vocabulary of {vocab_size} tokens"))
    for holds, sentence in rules:
        if not holds:
            raise DecodingError(sentence)


# --- filters -------------------------------------------------------------------------------------------------


of_sampling, of_text = under("sampling", "text")


@dataclass(frozen=True)
class Sampling:
    """How a token is chosen from a distribution, with the defaults of sample.py, whose options these are.

    `filter_tokens` applies the first four. The two against repetition change the distribution before it, as
    `processors.py` says. At temperature 0, only these have an effect.

    Raises: DecodingError if a setting is out of its range.
    """

    temperature: float = of_sampling(0.8, "below 1 sharpens the distribution, above 1 flattens it; 0: greedy", low=0.0)
    top_k: int = of_sampling(200, "sample from the N most probable tokens only; 0: all", unit="tokens", low=0)
    top_p: float = of_sampling(
        1.0, "sample from the smallest set of tokens with at least this total probability", above=0.0, high=1.0
    )
    min_p: float = of_sampling(
        0.0, "sample from tokens with at least this fraction of the largest probability", low=0.0, high=1.0
    )
    # Above 100, its products with log-probabilities could overflow; common values are 1 to 1.5.
    repetition_penalty: float = of_sampling(
        1.0, "exponent for the probability of tokens that occurred; 1: none", above=0.0, high=100.0
    )
    no_repeat_ngram_size: int = of_sampling(0, "no sequence of N tokens occurs twice; 0: off", unit="tokens", low=0)
    seed: int = of_text(1337, "random seed; the same seed gives the same text", low=0)

    def __post_init__(self) -> None:
        for field in fields(Sampling):
            if not math.isfinite(value := getattr(self, field.name)) or not in_range(field, value):
                raise DecodingError(f"{field.name} is {value}, but must be {allowed(field, type(field.default))}")


PLAIN = Sampling(temperature=1.0, top_k=0, seed=0)  # draws from the distribution as it is
REPETITION = ("repetition_penalty", "no_repeat_ngram_size")
RANDOM = tuple(field.name for field in fields(Sampling) if field.name not in (*REPETITION, "seed"))


def filter_tokens(log_probs: np.ndarray, sampling: Sampling) -> np.ndarray:
    """Sharpen or flatten the distribution, then remove improbable tokens.

    1. temperature T: p_i ∝ p_i^(1/T), so l_i / T for logarithms; below 1 sharpens, above 1 flattens.
    2. top-k: the k most probable tokens stay (0: all).
    3. top-p: of the rest, renormalised, the smallest set whose probability reaches top_p stays (1: all).
    4. min-p: tokens with p_i >= min_p * max p stay (0: all). The threshold is relative to the largest probability, so
       many tokens stay where the model is uncertain, few where it is confident.

    The order is that of Hugging Face's transformers, and it matters: a high temperature widens the sets of top-p and
    min-p. Among equally probable tokens, top-k and top-p keep the lower ids, min-p keeps all.

    Args:
        log_probs: (B, V) float64, at least one finite per row.
        sampling: with a temperature above 0.
    Returns: (B, V), log-probabilities up to a constant: the largest of a row is 0, removed tokens are -inf.
    Reference: top-k: Fan, Lewis, Dauphin 2018, section 5.4 (arXiv:1805.04833); top-p ("nucleus"): Holtzman et al.
    2020, section 3.1 (arXiv:1904.09751); min-p: Nguyen et al. 2024 (arXiv:2407.01082).

    >>> p = np.array([[0.5, 0.25, 0.15, 0.1]])
    >>> np.exp(filter_tokens(np.log(p), Sampling(temperature=1.0, top_k=3, top_p=0.8))).tolist()
    [[1.0, 0.5, 0.0, 0.0]]
    >>> np.exp(filter_tokens(np.log(p), Sampling(temperature=1.0, min_p=0.3))).round(9).tolist()
    [[1.0, 0.5, 0.3, 0.0]]
    """
    with np.errstate(over="ignore"):  # at a temperature near 0, everything below the maximum becomes -inf, as it should
        values = (log_probs - log_probs.max(axis=-1, keepdims=True)) / sampling.temperature
    if 0 < sampling.top_k < values.shape[-1]:
        values = np.where(largest(values, sampling.top_k), values, -np.inf)
    if sampling.top_p < 1.0:
        values = np.where(_nucleus(values, sampling.top_p), values, -np.inf)
    if sampling.min_p > 0.0:  # the largest value is 0
        values = np.where(values >= math.log(sampling.min_p) - _ROUNDING, values, -np.inf)
    return values


def largest(values: np.ndarray, count: int) -> np.ndarray:
    """Mark the `count` largest values of each row, among equal ones those with the lower ids: (B, V) booleans.

    Partitioning finds the count-th largest value in O(V); sorting would take O(V log V).
    """
    position = values.shape[-1] - count
    threshold = np.partition(values, position, axis=-1)[..., position, None]
    return _at_least(values, threshold, count)


def _nucleus(values: np.ndarray, top_p: float) -> np.ndarray:
    """Mark the smallest set of each row whose probability reaches top_p; at least one token.

    The set consists of the n most probable tokens, so it suffices to find n, from the sorted values.
    """
    descending = np.sort(values, axis=-1)[..., ::-1]
    cumulative = np.cumsum(np.exp(descending), axis=-1)
    enough = (top_p - _ROUNDING) * cumulative[..., -1:]
    count = np.count_nonzero(cumulative < enough, axis=-1, keepdims=True) + 1
    return _at_least(values, np.take_along_axis(descending, count - 1, axis=-1), count)


def _at_least(values: np.ndarray, threshold: np.ndarray, count: int | np.ndarray) -> np.ndarray:
    """Mark the values above the threshold, and values equal to it, from the left, until `count` are marked."""
    marked = values >= threshold
    if (np.count_nonzero(marked, axis=-1, keepdims=True) == count).all():
        return marked
    above = values > threshold
    ties = marked & ~above
    room = count - np.count_nonzero(above, axis=-1, keepdims=True)
    return above | (ties & (np.cumsum(ties, axis=-1) <= room))


# --- choosing token after token ------------------------------------------------------------------------------


def generate(
    step: Step,
    log_probs: np.ndarray,
    state: State,
    *,
    max_new_tokens: int,
    sampling: Sampling = PLAIN,
    prompt: np.ndarray | None = None,
    first_row: int = 0,
    stop_token: int | None = None,
    forbidden: Collection[int] = (),
    **settings: float,
) -> Iterator[np.ndarray]:
    """Continue every row of a batch token by token, and yield each step's tokens as soon as they are chosen.

    Each token is drawn from the distribution that `filter_tokens` returns; at temperature 0 it is the most probable
    one (among equals the lowest id), and filters and seed have no effect. The random number for a token depends only on
    the seed, its row and its position in the row: a row's text does not depend on the other rows (if the model's
    log-probabilities do not).

    Args:
        step: the model, see the top of this file. It is not called again once the last token is chosen.
        log_probs, state: (B, V) and the model's state after the prompt.
        max_new_tokens: tokens per row; 0 yields nothing.
        sampling: how each token is chosen; without it, from the distribution as it is.
        prompt: (B, n), the tokens that the model has read, which count as repeated; None: no tokens.
        first_row: number of the batch's first row, if the batch is part of a larger one.
        stop_token: ends its row, which then repeats it until all rows have ended.
        forbidden: ids that are never chosen, such as special tokens; removed before the filters.
        settings: those of `sampling` to change, by name, such as temperature=0.
    Yields: (B,) int64 token ids.
    Raises: DecodingError if a setting is out of its range (at once), or when a row has no possible token.

    >>> def step(tokens, state):  # a model that counts: 0, 1, 2, 0, 1, ...
    ...     return np.log(np.eye(3)[(tokens + 1) % 3] + 1e-9), state
    >>> [tokens.tolist() for tokens in generate(step, *step(np.array([0, 1]), None), max_new_tokens=3)]
    [[1, 2], [2, 0], [0, 1]]
    """
    sampling = replace(sampling, **settings)
    rules = [(first_row >= 0, f"first_row is {first_row}, but must be 0 or more")]
    check_settings(rules, max_new_tokens, log_probs.shape[-1], {stop_token} - {None}, forbidden)

    penalty, size = sampling.repetition_penalty, sampling.no_repeat_ngram_size
    repetition = Repetition(*log_probs.shape, penalty, size, prompt) if penalty != 1 or size else None
    is_plain = sampling.temperature == 0 and not repetition and not forbidden

    def check_possible(best: np.ndarray, rows: np.ndarray) -> None:
        if -math.inf in (largest := best.tolist()):
            reason = "all are forbidden or of probability 0"
            reason += ", or would repeat an n-gram (no_repeat_ngram_size)" if repetition else ""
            raise DecodingError(f"row {rows[largest.index(-math.inf)]}: no token can follow, {reason}")

    def choose(log_probs: Array, rows: np.ndarray, position: int) -> np.ndarray:
        """A token for each of these rows."""
        if is_plain:
            tokens, best = most_probable(log_probs)
            check_possible(best[rows], rows)
            return tokens[rows]
        values = permitted(log_probs, forbidden)[rows]
        if repetition:
            values = repetition.discourage(values, rows)
        check_possible(np.maximum.reduce(values, axis=-1), rows)
        if sampling.temperature == 0:
            return values.argmax(axis=-1)
        uniform = [keyed_rng(sampling.seed, "sample", int(row), position).random() for row in first_row + rows]
        return draw(filter_tokens(values, sampling), np.array(uniform))

    def token_by_token(log_probs: Array, state: State) -> Iterator[np.ndarray]:
        open_rows = np.arange(len(log_probs))
        for position in range(max_new_tokens):
            tokens = chosen = choose(log_probs, open_rows, position)
            if repetition:
                repetition.note(chosen, open_rows)
            if len(open_rows) < len(log_probs):
                tokens = np.full(len(log_probs), stop_token)
                tokens[open_rows] = chosen
            yield tokens
            if stop_token is not None:
                open_rows = open_rows[chosen != stop_token]
                if len(open_rows) == 0:
                    return
            if position + 1 < max_new_tokens:
                log_probs, state = step(tokens, state)

    # The body of a generator runs only when its first value is requested; the settings have been checked before.
    return token_by_token(log_probs, state)


def most_probable(log_probs: Array) -> tuple[np.ndarray, np.ndarray]:
    """The most probable token of each row, among equals the lowest id, and its log-probability: (B,) and (B,).

    Raises: DecodingError as `permitted` does.
    """
    tokens, best = on_host(log_probs.argmax(axis=-1)), on_host(log_probs.max(axis=-1))
    check_no_nan(best.max(initial=-math.inf))
    return tokens, best


def permitted(log_probs: Array, forbidden: Collection[int]) -> np.ndarray:
    """The log-probabilities as a float64 copy in which forbidden tokens are -inf.

    Raises: DecodingError if one of them is NaN, as in a model that diverged.
    """
    values = np.array(on_host(log_probs), np.float64)
    check_no_nan(np.maximum.reduce(values, axis=None, initial=-math.inf))
    if forbidden:
        values[:, list(forbidden)] = -np.inf
    return values


def check_no_nan(largest: float) -> None:
    """Raises: DecodingError if the largest of all log-probabilities is NaN, which it is if one of them is."""
    if math.isnan(largest):
        raise DecodingError("the model's log-probabilities are not numbers (NaN): its training diverged")


def draw(values: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Draw one token per row with probability ∝ e^value, by inverting the cumulative distribution.

    The probabilities divide [0, 1) into one interval per token; the token whose interval contains the uniform number is
    drawn. A token of probability 0 has an empty interval and is never drawn.

    Args:
        values: (B, V), the largest of a row about 0, to avoid overflow.
        uniform: (B,) numbers in [0, 1).
    Returns: (B,) token ids.

    >>> draw(np.log([[0.5, 0.25, 0.25]]).repeat(3, axis=0), np.array([0.0, 0.6, 0.9])).tolist()
    [0, 1, 2]
    """
    ends = np.cumsum(np.exp(values), axis=-1)  # the end of each token's interval, before normalising
    target = uniform[:, None] * ends[:, -1:]
    return np.count_nonzero(ends <= target, axis=-1)
