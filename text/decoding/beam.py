"""Beam search: keep the few best partial sequences instead of only the best one.

Greedy decoding takes the most probable token and can never take it back, though a less probable one may begin a
more probable sentence. Exhaustive search would find the best sequence, but there are V^n of them. Beam search is in
between: it extends `beam` hypotheses in parallel, and after each step keeps the `beam` best of all continuations.

A probability is a product of numbers below 1, so longer sequences have lower ones. The length penalty of Wu et al.
2016 (arXiv:1609.08144, eq. 14, without its coverage term) compensates for that: with n generated tokens

    score = log_prob / lp(n),    lp(n) = ((5 + n) / 6) ** length_penalty.

When may a search stop? The log-probability l <= 0 of a hypothesis that is still open after n tokens can only
decrease, and it can end at any length m with n < m <= max_new_tokens. Its score is then at most l / lp(m), because
lp(m) > 0; and lp increases with m (length_penalty >= 0), so

    score <= l / lp(max_new_tokens).

As soon as n_best hypotheses are finished and this bound for the best open one is not above the worst of them, no open
hypothesis can still win, and not before. (Stopping when the best hypothesis ends would be wrong: a longer one may still
overtake it. With a negative length penalty lp would decrease and the bound would be false, so it is not allowed.)
"""

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np

from text.decoding.sampling import State, Step, check_settings, largest, permitted
from tinygrad_lite.errors import DecodingError, counted


@dataclass(frozen=True)
class Hypothesis:
    """One continuation found by beam search, with its scores."""

    tokens: list[int]  # the generated ones, without the prompt, with the stop token if it is finished
    log_prob: float  # in nats: the sum of the tokens' log-probabilities
    length: int  # number of tokens
    score: float  # log_prob / lp(length); the higher the better
    finished: bool  # whether it ends with the stop token

    def describe(self, length_penalty: float) -> str:
        """The score in words, with its formula."""
        return (
            f"log-prob {self.log_prob:.4f} nats, length {counted(self.length, 'token')}, score {self.score:.4f} "
            f"(log-prob / ((5 + length) / 6)^{length_penalty:g})"
        )


def length_factor(length: int, length_penalty: float) -> float:
    """lp(n), the divisor of a log-probability: 1 for one token, growing with the length.

    >>> length_factor(1, 0.6), length_factor(7, 1.0)
    (1.0, 2.0)
    """
    return ((5 + length) / 6) ** length_penalty


def beam_search(
    step: Step,
    log_probs: np.ndarray,
    state: State,
    *,
    beam: int,
    max_new_tokens: int,
    length_penalty: float = 0.0,
    n_best: int = 1,
    stop_token: int | Collection[int] | None = None,
    forbidden: Collection[int] = (),
) -> list[list[Hypothesis]]:
    """Find the continuations of each row with the highest scores, within a beam of this width.

    score = log_prob / lp(length), see the top of this file. Hypotheses that have not stopped after max_new_tokens
    count as they are. With beam 1 the tokens are exactly those of greedy decoding: if the stop token is the best
    continuation, no other is tried, whatever the length penalty. The rows of a batch are searched
    independently, and a row that is done no longer takes part in the steps.

    Args:
        step: the model, see `sampling.py`; it gets up to B * beam rows, and is not called once the search is over.
        log_probs, state: (B, V) and the model's state after the prompt.
        beam: number of open hypotheses that each row keeps.
        max_new_tokens: maximum length in tokens; 0 gives one empty hypothesis.
        length_penalty: 0 (plain log-probability) to 10; Vaswani et al. 2017, section 6.1, take 0.6.
        n_best: number of hypotheses to return per row, at most `beam`.
        stop_token: ends a hypothesis and is its last token, or several that do; None: all run to max_new_tokens.
        forbidden: ids that are never generated; the log-probabilities of the others are not renormalised.
    Returns: for each row its hypotheses, best first; fewer than n_best if no more are possible.
    Raises: DecodingError if a setting is out of its range, or if nothing can follow a row's prompt.
    """
    rules = [
        (beam >= 1, f"beam is {beam}, but must be 1 or more (1 is greedy decoding)"),
        (n_best >= 1, f"n_best is {n_best}, but must be 1 or more"),
        (n_best <= beam, f"n_best is {n_best}, but a beam of {beam} keeps only {beam}: make beam larger"),
        # Above 10, lp(n) of a long text could overflow; common values are 0 to 1.
        (0 <= length_penalty <= 10, f"length_penalty is {length_penalty}, but must be from 0 to 10"),
    ]
    stops = () if stop_token is None else tuple(np.atleast_1d(stop_token).tolist())
    check_settings(rules, max_new_tokens, log_probs.shape[-1], stops, forbidden)
    searches = [_Search(beam, max_new_tokens, length_penalty, n_best, stops) for _ in range(len(log_probs))]
    active = searches
    for length in range(1, max_new_tokens + 1):
        tokens, values = _best_continuations(permitted(log_probs, forbidden), (1 + len(stops)) * beam)
        parents, first = [], 0
        for search in active:
            last = first + len(search.log_probs)
            parents.append(first + search.grow(tokens[first:last], values[first:last]))
            first = last
        active = [search for search in active if len(search.log_probs)]
        if not active or length == max_new_tokens:
            break
        newest = np.concatenate([search.tokens[:, -1] for search in active])
        log_probs, state = step(newest, state.select(np.concatenate(parents)))
    return [search.result(f"row {row}") for row, search in enumerate(searches)]


def _best_continuations(log_probs: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The `count` most probable tokens of each row (all, if there are fewer), best first, and their log-probs.

    Equally probable ones are in the order of their ids. Both results are (N, count).
    """
    count = min(count, log_probs.shape[-1])
    tokens = np.nonzero(largest(log_probs, count))[1].reshape(-1, count)
    values = np.take_along_axis(log_probs, tokens, axis=-1)
    order = np.argsort(-values, axis=-1, kind="stable")
    return np.take_along_axis(tokens, order, axis=-1), np.take_along_axis(values, order, axis=-1)


@dataclass
class _Search:
    """The search for the continuation of one row: its K open hypotheses, best first, and its finished ones."""

    beam: int
    max_new_tokens: int
    length_penalty: float
    n_best: int
    stop_tokens: Collection[int]
    tokens: np.ndarray = field(default_factory=lambda: np.zeros((1, 0), np.int64))  # (K, n)
    log_probs: np.ndarray = field(default_factory=lambda: np.zeros(1))  # (K,)
    finished: list[Hypothesis] = field(default_factory=list)  # the n_best best of them, best first

    def grow(self, tokens: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Extend the open hypotheses by one token; returns which old hypothesis each new one continues.

        With s stop tokens, (1 + s) * beam candidates are enough: at most s of each open hypothesis stop, so that
        `beam` others remain to be continued. Of the candidates that stop, only those among the best `beam` count: the
        others would not have been kept if they had continued.

        Args:
            tokens, values: (K, C) the C best continuations of each open hypothesis and their log-probabilities.
        Returns: (new K,) numbers of the old hypotheses; none if the search is over.
        """
        totals = (self.log_probs[:, None] + values).ravel()
        # Stable: of equal totals the one from the better hypothesis is first, then the lower token.
        best = np.argsort(-totals, kind="stable")[: (1 + len(self.stop_tokens)) * self.beam]
        best = best[totals[best] > -np.inf]
        parents = best // tokens.shape[1]
        grown = np.concatenate([self.tokens[parents], tokens.ravel()[best, None]], axis=1)
        totals = totals[best]

        stops = np.isin(grown[:, -1], self.stop_tokens)
        for i in np.flatnonzero(stops[: self.beam]):
            self.finished.append(self._hypothesis(grown[i], totals[i], finished=True))
        self.finished = sorted(self.finished, key=lambda h: -h.score)[: self.n_best]

        open_ones = np.flatnonzero(~stops)[: self.beam]
        if len(open_ones) and self._is_decided(totals[open_ones[0]], best_stops=stops[0]):
            open_ones = open_ones[:0]
        self.tokens, self.log_probs = grown[open_ones], totals[open_ones]
        return parents[open_ones]

    def _is_decided(self, open_log_prob: float, best_stops: bool) -> bool:
        """Whether the best open hypothesis, and therefore any, can no longer be among the n_best.

        This is the bound at the top of the file. With a beam of one, the search ends when the stop token is the best
        continuation, like greedy decoding.
        """
        if self.beam == 1 and best_stops:
            return True
        bound = open_log_prob / length_factor(self.max_new_tokens, self.length_penalty)
        return len(self.finished) == self.n_best and bound <= self.finished[-1].score

    def _hypothesis(self, tokens: np.ndarray, log_prob: float, finished: bool) -> Hypothesis:
        """A continuation with its score."""
        score = float(log_prob) / length_factor(len(tokens), self.length_penalty)
        return Hypothesis(tokens.tolist(), float(log_prob), len(tokens), score, finished)

    def result(self, where: str) -> list[Hypothesis]:
        """The n_best hypotheses, finished or cut off at max_new_tokens."""
        cut_off = [self._hypothesis(*pair, finished=False) for pair in zip(self.tokens, self.log_probs, strict=True)]
        if not self.finished and not cut_off:
            raise DecodingError(f"{where}: no token can follow, all are forbidden or of probability 0")
        return sorted(self.finished + cut_off, key=lambda h: -h.score)[: self.n_best]
