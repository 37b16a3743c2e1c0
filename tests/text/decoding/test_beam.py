import math
from itertools import product

import numpy as np
import pytest

from gpt.score import token_log_probs
from tests.gpt.small_gpts import gpt_with_large_weights
from text.decoding.batches import search_in_batches
from text.decoding.beam import Hypothesis, beam_search
from text.decoding.sampling import generate
from tinygrad_lite.errors import DecodingError


class Histories:
    """A model's state: all tokens that each row has read."""

    def __init__(self, rows: list[tuple[int, ...]]) -> None:
        self.rows = rows

    def select(self, rows: np.ndarray) -> "Histories":
        return Histories([self.rows[row] for row in rows])


class ToyModel:
    """Log-probabilities drawn separately for each history, so a row with a wrong state is detected."""

    def __init__(self, vocab_size: int, seed: int = 0, sharpness: float = 2.0) -> None:
        self.vocab_size, self.seed, self.sharpness = vocab_size, seed, sharpness
        self.known: dict[tuple[int, ...], np.ndarray] = {}
        self.batches: list[int] = []  # the number of rows of each step

    def next(self, history: tuple[int, ...]) -> np.ndarray:
        if history not in self.known:
            rng = np.random.default_rng([self.seed, *history])
            logits = self.sharpness * rng.normal(size=self.vocab_size)
            self.known[history] = logits - np.log(np.exp(logits).sum())
        return self.known[history]

    def step(self, tokens: np.ndarray, state: Histories) -> tuple[np.ndarray, Histories]:
        assert len(tokens) == len(state.rows) > 0
        self.batches.append(len(tokens))
        return self.read([(*history, int(token)) for history, token in zip(state.rows, tokens, strict=True)])

    def read(self, rows: list[tuple[int, ...]]) -> tuple[np.ndarray, Histories]:
        return np.array([self.next(history) for history in rows]), Histories(rows)

    def prefill(self, prompts: list[int]) -> tuple[np.ndarray, Histories]:
        return self.read([(prompt,) for prompt in prompts])

    def log_prob(self, prompt: int, tokens: list[int]) -> float:
        return sum(self.next((prompt, *tokens[:i]))[token] for i, token in enumerate(tokens))


class TableModel(ToyModel):
    """A model with the probabilities of a table; those not given are 0."""

    def __init__(self, vocab_size: int, table: dict[tuple[int, ...], dict[int, float]]) -> None:
        super().__init__(vocab_size)
        self.table = table

    def next(self, history: tuple[int, ...]) -> np.ndarray:
        log_probs = np.full(self.vocab_size, -np.inf)
        for token, probability in self.table[history[1:]].items():
            log_probs[token] = math.log(probability)
        return log_probs


def search(model: ToyModel, prompts: list[int], **settings) -> list[list[Hypothesis]]:
    return beam_search(model.step, *model.prefill(prompts), **settings)


def exhaustive(model: ToyModel, prompt: int, penalty: float, stops: tuple, forbidden: tuple) -> list:
    """(score, tokens) of all possible sequences of up to 4 tokens, best first, by the definition."""
    found = []
    for length in range(1, 5):
        for tokens in product([t for t in range(model.vocab_size) if t not in forbidden], repeat=length):
            if (tokens[-1] in stops or length == 4) and not {*stops} & {*tokens[:-1]}:
                score = model.log_prob(prompt, list(tokens)) / ((5 + length) ** penalty / 6**penalty)
                found.append((score, list(tokens)))
    return sorted(found, reverse=True)


@pytest.mark.parametrize("penalty", [0.0, 0.6, 3.0])
@pytest.mark.parametrize(("stops", "forbidden"), [((), ()), ((2,), ()), ((4,), (0, 3)), ((1, 4), (0,))])
def test_a_wide_beam_equals_exhaustive_search(stops, forbidden, penalty):
    model = ToyModel(5 if forbidden else 4)
    settings = {"max_new_tokens": 4, "length_penalty": penalty, "stop_token": stops, "forbidden": forbidden}
    log_probs, state = model.prefill([1])
    (found,) = beam_search(model.step, log_probs, state, beam=4**4, n_best=20, **settings)
    np.testing.assert_array_equal(log_probs[0], model.next((1,)))  # the model's arrays are not changed
    best = exhaustive(model, 1, penalty, stops, forbidden)[:20]
    assert [h.tokens for h in found] == [tokens for _, tokens in best]
    for hypothesis, (score, tokens) in zip(found, best, strict=True):
        assert hypothesis.score == pytest.approx(score, rel=1e-12)
        assert hypothesis.log_prob == pytest.approx(model.log_prob(1, tokens), rel=1e-12)
        assert (hypothesis.length, hypothesis.finished) == (len(tokens), tokens[-1] in stops)


def reference_beam(model: ToyModel, prompt: int, beam: int, max_new_tokens: int, penalty: float, stop: int):
    """Beam search written naively, without stopping early: all candidates in one sorted list."""
    live, done = [((), 0.0)], []
    for length in range(1, max_new_tokens + 1):
        lp = ((5 + length) / 6) ** penalty
        known = [(tokens, log_prob, model.next((prompt, *tokens))) for tokens, log_prob in live]
        candidates = [((*tokens, token), old + new) for tokens, old, row in known for token, new in enumerate(row)]
        candidates.sort(key=lambda c: -c[1])
        done += [(c[1] / lp, c[0]) for c in candidates[:beam] if c[0][-1] == stop]
        live = [c for c in candidates if c[0][-1] != stop][:beam]
    return sorted(done + [(log_prob / lp, tokens) for tokens, log_prob in live], reverse=True)


@pytest.mark.parametrize("penalty", [0.0, 0.6, 2.0])
@pytest.mark.parametrize("beam", [2, 3, 7])
def test_stopping_early_does_not_change_the_result(beam, penalty):
    """The search stops before max_new_tokens and returns the n best of a search that does not."""
    steps = 0
    for seed in range(15):
        model = ToyModel(6, seed, sharpness=3.0)
        settings = {"max_new_tokens": 9, "length_penalty": penalty, "stop_token": 0}
        for n_best in {1, beam}:
            model.batches.clear()
            (found,) = search(model, [3], beam=beam, n_best=n_best, **settings)
            best = reference_beam(model, 3, beam, 9, penalty, 0)[:n_best]
            assert [tuple(h.tokens) for h in found] == [tokens for _, tokens in best]
            steps += len(model.batches)
    assert steps < 2 * 15 * 8


@pytest.mark.parametrize("penalty", [0.0, 10.0])
@pytest.mark.parametrize("stop", [None, 1])
def test_beam_one_is_greedy(stop, penalty):
    for seed in range(20):
        model = ToyModel(5, seed, sharpness=0.5)
        settings = {"max_new_tokens": 8, "stop_token": stop}
        greedy = np.array([*generate(model.step, *model.prefill([0, 2]), temperature=0, **settings)]).T.tolist()
        steps = len(model.batches)
        found = search(model, [0, 2], beam=1, length_penalty=penalty, **settings)
        for (hypothesis,), expected in zip(found, greedy, strict=True):
            if stop in expected:
                expected = expected[: expected.index(stop) + 1]
            assert (hypothesis.tokens, hypothesis.finished) == (expected, expected[-1] == stop)
        assert len(model.batches) == 2 * steps


LONGER_WINS = {(): {0: 0.5, 1: 0.4, 2: 0.1}, (1,): {1: 1.0}, (1, 1): {1: 1.0}, (1, 1, 1): {0: 1.0}}
LONGER_WINS |= {(2,): {0: 1.0}, (2, 1): {0: 1.0}}


def test_the_search_continues_while_a_longer_hypothesis_can_still_win():
    """The stop token 0 is the best first token, but [1, 1, 1, 0] is better per lp: log 0.4 / 1.5 > log 0.5."""
    model = TableModel(3, LONGER_WINS)
    ((found,),) = search(model, [0], beam=2, max_new_tokens=8, stop_token=0, length_penalty=1.0)
    assert found == Hypothesis([1, 1, 1, 0], math.log(0.4), 4, math.log(0.4) / 1.5, True)
    assert len(model.batches) == 3  # and then it stops


def test_several_stop_tokens_leave_room_for_what_continues():
    """Four of the five best first tokens stop; after the fifth, a text comes that is better per length."""
    first = np.log([[0.24, 0.23, 0.22, 0.21, 0.10]])
    later = np.log([[0.96, 0.01, 0.01, 0.01, 0.01]])
    settings = {"beam": 2, "max_new_tokens": 2, "length_penalty": 10.0, "stop_token": [0, 1, 2, 3]}
    ((found,),) = beam_search(lambda tokens, state: (later, state), first, Histories([()]), **settings)
    assert (found.tokens, found.finished) == ([4, 0], True)


def test_of_equal_scores_the_lower_beam_row_and_the_lower_token_come_first():
    half = {1: 0.5, 2: 0.5}
    model = TableModel(3, {(): half, (1,): half, (2,): half})
    (found,) = search(model, [0], beam=2, n_best=2, max_new_tokens=2)
    assert [h.tokens for h in found] == [[1, 1], [1, 2]]


@pytest.mark.parametrize("penalty", [0.0, 0.7, 2.0])
def test_prompts_of_a_batch_have_their_own_lengths_limits_and_scores(penalty):
    """awslabs/sockeye#483, huggingface/transformers#20901: a score is that of the tokens that are returned."""
    model = gpt_with_large_weights(block_size=32)
    prompts, limits = [[3], [1, 4, 1, 5, 9, 2, 6], [5, 3], [7, 8, 9]], [9, 4, 1, 9]
    settings = {"beam": 3, "n_best": 3, "length_penalty": penalty, "stop_token": 8}
    together = search_in_batches(model, prompts, limits, **settings)
    ends = set()
    for prompt, limit, found in zip(prompts, limits, together, strict=True):
        (alone,) = search_in_batches(model, [prompt], [limit], **settings)
        assert [one.tokens for one in found] == [one.tokens for one in alone]
        for one in found:
            total = token_log_probs(model, np.array([*prompt, *one.tokens]))[len(prompt) - 1 :].sum()
            assert one.length == len(one.tokens) <= limit
            assert one.finished == (one.tokens[-1] == 8) or one.length == limit
            assert one.log_prob == pytest.approx(total, rel=1e-9)
            assert one.score == pytest.approx(total / ((5 + one.length) / 6) ** penalty, rel=1e-9)
            ends.add(one.finished)
    assert ends == {True, False}


TOO_LOW_OR_HIGH = {"beam": [0], "n_best": [0], "max_new_tokens": [-1], "length_penalty": [-1.0, 10.5, math.nan]}
OUT_OF_RANGE = [({name: value}, f"{name} is {value}") for name, values in TOO_LOW_OR_HIGH.items() for value in values]
OUT_OF_RANGE += [
    ({"n_best": 3}, "n_best is 3, but a beam of 2"),
    ({"forbidden": (-1,)}, "token -1 is not in the vocabulary of 4 tokens"),
    ({"stop_token": 1, "forbidden": (1,)}, "stop_token 1 is also in forbidden"),
]


@pytest.mark.parametrize(("bad", "message"), OUT_OF_RANGE)
def test_settings_out_of_range_are_refused(bad, message):
    model = ToyModel(4)
    with pytest.raises(DecodingError, match=message):
        search(model, [0], **{"beam": 2, "max_new_tokens": 3} | bad)
    assert model.batches == []
    search(model, [0], beam=4, n_best=4, max_new_tokens=0, length_penalty=10)  # the ends of the ranges are allowed


def test_no_possible_token_and_nan_are_errors():
    model = ToyModel(2)
    settings = {"state": Histories([(), ()]), "beam": 2, "max_new_tokens": 1}
    with pytest.raises(DecodingError, match="row 1: no token can follow"):
        beam_search(model.step, np.array([[0.0, -np.inf], [-np.inf, -np.inf]]), **settings)
    with pytest.raises(DecodingError, match="not numbers"):
        beam_search(model.step, np.array([[0.0, -np.inf], [0.0, np.nan]]), **settings)
