import math
from dataclasses import replace
from fractions import Fraction
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from text.decoding.sampling import PLAIN, draw, filter_tokens, generate
from tinygrad_lite import Tensor
from tinygrad_lite.errors import DecodingError


class Markov:
    """A model whose next token depends only on the last one, so it needs no state."""

    def __init__(self, table: np.ndarray) -> None:
        self.table = table  # (V, V) log-probabilities
        self.calls = 0

    def step(self, tokens: np.ndarray, state: None) -> tuple[np.ndarray, None]:
        self.calls += 1
        return self.table[tokens], state


def random_table(vocab_size: int, seed: int = 0) -> np.ndarray:
    """Rows of log-probabilities without ties."""
    logits = 2 * np.random.default_rng(seed).normal(size=(vocab_size, vocab_size))
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def tokens_of(table: np.ndarray, first: list[int], **settings) -> np.ndarray:
    """(B, n) tokens generated after a first token per row."""
    model = Markov(table)
    log_probs, state = model.step(np.array(first), None)
    columns = list(generate(model.step, log_probs, state, **settings))
    assert all(column.shape == (len(first),) and column.dtype == np.int64 for column in columns)
    return np.array(columns).T


def kept(values: np.ndarray) -> list[set[int]]:
    return [set(np.flatnonzero(row > -np.inf).tolist()) for row in values]


# --- filters ---

WEIGHTS = st.lists(st.integers(0, 6), min_size=1, max_size=12).filter(any)


def logs(weights: list[int]) -> np.ndarray:
    """(1, V) the logarithms of probabilities that are proportional to the weights."""
    with np.errstate(divide="ignore"):
        return np.log(np.array([weights]) / sum(weights))


@given(WEIGHTS, st.integers(1, 14))
def test_top_k_keeps_the_k_most_probable_and_of_equals_the_lower_ids(weights, k):
    ranked = sorted(range(len(weights)), key=lambda i: (-weights[i], i))
    assert kept(filter_tokens(logs(weights), replace(PLAIN, top_k=k))) == [{i for i in ranked[:k] if weights[i]}]


@given(WEIGHTS, st.sampled_from([*range(1, 41), 39.99996]))
@example([5, 3, 2], 32)  # 0.5 + 0.3 reaches 0.8, but not in floats computed from logarithms
def test_top_p_keeps_the_smallest_set_that_reaches_p(weights, fortieths):
    top_p = Fraction(fortieths) / 40
    ranked = sorted(range(len(weights)), key=lambda i: (-weights[i], i))
    smallest, probability = set(), Fraction(0)
    for i in ranked:
        if probability >= top_p:
            break
        smallest.add(i)
        probability += Fraction(weights[i], sum(weights))
    assert kept(filter_tokens(logs(weights), replace(PLAIN, top_p=float(top_p)))) == [smallest]


@given(WEIGHTS, st.integers(0, 40))
@example([6, 3, 0], 20)  # 3 is half of 6, but not in floats computed from logarithms
def test_min_p_keeps_tokens_above_a_share_of_the_largest_probability(weights, fortieths):
    smallest = Fraction(fortieths, 40) * max(weights)
    expected = {i for i, weight in enumerate(weights) if weight and weight >= smallest}
    assert kept(filter_tokens(logs(weights), replace(PLAIN, min_p=fortieths / 40))) == [expected]


def test_each_filter_sees_what_the_one_before_it_left_renormalised():
    """All combinations, by sorting everything. ml-explore/mlx-lm#388, Biohub/esm#360, thu-nics/C2C#21."""
    rows = np.random.default_rng(5).dirichlet(np.full(50, 0.3), 100)
    for values in product((0.5, 1.0, 10.0), (0, 1, 7, 60), (0.3, 0.8, 1.0), (0.0, 0.1, 1.0)):
        temperature, top_k, top_p, min_p = values
        sampling = replace(PLAIN, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
        for p, tokens in zip(rows ** (1 / temperature), kept(filter_tokens(np.log(rows), sampling)), strict=True):
            order = np.argsort(-p)[: top_k or None]
            mass = np.cumsum(p[order]) / p[order].sum()
            order = order[: 1 + np.count_nonzero(mass < top_p)] if top_p < 1 else order
            assert tokens == {i for i in order if p[i] >= min_p * p[order[0]]}


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_a_sum_that_is_exactly_p_needs_no_further_token(kind):
    """huggingface/transformers#18976: not even where the logits of a model hide it by rounding, in any order."""
    tables = [(permutations((0.5, 0.3, 0.1, 0.1)), {0.8: 2, 0.9: 3, 0.5: 1}), ([(1e-5,) * 10**5], {0.5: 50_000})]
    tables += [(permutations((0.55, 0.25, 0.2)), {0.55: 1, 0.8: 2}), ([(1e-3,) * 1000], {0.1: 100, 0.7: 700})]
    for rows, sizes in tables:
        for p, constant in product(rows, (-9.3, 0.0, 7.7)):
            log_probs = Tensor(np.log([p]) + constant, dtype=kind).log_softmax().numpy().astype(np.float64)
            for top_p, size in sizes.items():
                assert np.isfinite(filter_tokens(log_probs, replace(PLAIN, top_p=top_p))).sum() == size
            least = filter_tokens(log_probs, replace(PLAIN, min_p=min(p) / max(p)))
            assert np.isfinite(least).all()


@pytest.mark.parametrize("temperature", [5e-324, 1e-6, 1.0, 1e6, 1e308])
def test_no_temperature_overflows(temperature):
    log_probs = np.array([[-1e4, -3.0, -np.inf, 0.0, -1e-3]])
    values = filter_tokens(log_probs, replace(PLAIN, temperature=temperature, top_k=4, top_p=0.999))
    assert values.max() == 0.0
    assert not np.isnan(values).any()
    assert 2 not in kept(values)[0]
    if temperature <= 1e-6:
        assert draw(values, np.array([0.999])).tolist() == [3]


# --- sampling ---


@given(WEIGHTS, st.floats(0, 1, exclude_max=True))
def test_a_token_of_probability_zero_is_never_drawn(weights, uniform):
    for u in (0.0, uniform, np.nextafter(1.0, 0.0)):
        assert weights[draw(logs(weights), np.array([u]))[0]] > 0


FILTERS = [(0.5, 0, 1.0), (2.0, 5, 1.0), (1.3, 7, 0.8)]


@pytest.mark.parametrize(("temperature", "top_k", "top_p"), FILTERS)
def test_frequencies_follow_the_filtered_softmax(temperature, top_k, top_p):
    n, log_probs = 20_000, random_table(8, seed=3)[:1]
    settings = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": 5}
    drawn = tokens_of(log_probs, [0] * n, max_new_tokens=1, **settings)[:, 0]
    # The definition, by hand: softmax(l / T), the k largest, then the shortest prefix of these that reaches p.
    p = np.exp(log_probs[0] / temperature)
    p[np.argsort(-p)[top_k or len(p) :]] = 0
    order = np.argsort(-p)
    p[order[np.searchsorted(np.cumsum(p[order] / p.sum()), top_p) + 1 :]] = 0
    p /= p.sum()
    counts = np.bincount(drawn, minlength=8)
    assert (counts[p == 0] == 0).all()
    expected = n * p[p > 0]
    chi_square = ((counts[p > 0] - expected) ** 2 / expected).sum()
    assert chi_square < 26  # with at most 7 degrees of freedom exceeded once in 2,000 seeds


def test_draws_are_independent_of_their_position_and_of_the_token_before():
    """In a long text of one row, each pair of tokens occurs as often as the Markov chain says."""
    table = np.log(np.array([[0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.3, 0.3, 0.4]]))
    n = 8_000
    text = tokens_of(table, [0], max_new_tokens=n, seed=2)[0]
    for token in range(3):
        after = np.bincount(text[1:][text[:-1] == token], minlength=3)
        expected = after.sum() * np.exp(table[token])
        assert ((after - expected) ** 2 / expected).sum() < 15.2  # 2 degrees of freedom, once in 2,000


# --- generate ---


def test_temperature_near_zero_equals_greedy_equals_argmax():
    table, first = random_table(20, seed=4).astype(np.float32), list(range(20))
    greedy = tokens_of(table, first, max_new_tokens=12, temperature=0)
    for settings in ({"temperature": 1e-6}, {"top_k": 1, "seed": 9}, {"top_p": 1e-9, "seed": 9}):
        np.testing.assert_array_equal(greedy, tokens_of(table, first, max_new_tokens=12, **settings))
    previous = np.concatenate([np.array(first)[:, None], greedy[:, :-1]], axis=1)
    np.testing.assert_array_equal(greedy, table.argmax(axis=-1)[previous])


@pytest.mark.parametrize("rules", [{}, {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2}])
def test_a_row_does_not_depend_on_its_neighbours(rules):
    table = random_table(12, seed=6)
    first = [3, 1, 4, 1, 5]
    settings = {"max_new_tokens": 20, "temperature": 1.1, "top_k": 9, "top_p": 0.9, "seed": 7, "stop_token": 2} | rules
    together = tokens_of(table, first, prompt=np.array([first]).T, **settings)
    for row, token in enumerate(first):
        alone = tokens_of(table, [token], first_row=row, prompt=np.array([[token]]), **settings)[0]
        np.testing.assert_array_equal(together[row, : len(alone)], alone)
        assert (together[row, len(alone) :] == 2).all()
    later = tokens_of(table, first[2:], first_row=2, prompt=np.array([first[2:]]).T, **settings)
    np.testing.assert_array_equal(later, together[2:])
    assert not np.array_equal(together[1], together[3])  # same first token, but each row has its own draws
    other = tokens_of(table, first, prompt=np.array([first]).T, **settings | {"seed": 8})
    assert not np.array_equal(together, other)


def test_a_stopped_row_repeats_the_stop_token_until_all_rows_have_stopped():
    # 1 -> 0 (stop); 3 -> 2 -> 1 -> 0: greedily one row takes 1 step, the other 3. After a stop the table says 4.
    table = np.log(np.eye(5)[[4, 0, 1, 2, 4]] + 1e-9)
    model = Markov(table)
    columns = list(generate(model.step, table[[1, 3]], None, max_new_tokens=10, temperature=0, stop_token=0))
    assert (np.array(columns).T.tolist(), model.calls) == ([[0, 0, 0], [2, 1, 0]], 2)


def test_a_stopped_row_may_have_no_possible_token():
    table = np.full((3, 3), -np.inf)
    table[1, 0] = table[2, 1] = 0.0
    assert tokens_of(table, [1, 2], max_new_tokens=5, stop_token=0).tolist() == [[0, 0], [1, 0]]


def test_the_model_is_not_called_after_the_last_token_nor_in_advance():
    model = Markov(random_table(6, seed=8))
    tokens = generate(model.step, model.table[:2], None, max_new_tokens=3)
    assert [model.calls for _ in tokens] == [0, 1, 2]
    assert model.calls == 2


@pytest.mark.parametrize("temperature", [0, 50.0])
def test_forbidden_tokens_are_never_chosen(temperature):
    table = random_table(8, seed=9)
    forbidden = (0, 3, int(table[1].argmax()))
    text = tokens_of(table, [1] * 50, max_new_tokens=20, temperature=temperature, forbidden=forbidden)
    assert not np.isin(text, forbidden).any()
    allowed = sorted(set(range(8)) - set(forbidden))
    if temperature:
        assert set(text.ravel().tolist()) == set(allowed)
    # They are removed before top-k, which then still keeps two others.
    two = tokens_of(table, [1] * 50, max_new_tokens=1, temperature=50.0, top_k=2, forbidden=forbidden)
    assert set(two.ravel().tolist()) == set(sorted(allowed, key=lambda i: -table[1, i])[:2])


# --- errors ---


OUT_OF_RANGE = {"max_new_tokens": [-1], "temperature": [-0.1, math.inf, math.nan], "top_k": [-1], "seed": [-1]}
OUT_OF_RANGE |= {"top_p": [0.0, 1.01, math.nan], "min_p": [-0.1, 1.1, math.nan], "first_row": [-1]}
OUT_OF_RANGE |= {"repetition_penalty": [0.0, 100.5, math.nan], "no_repeat_ngram_size": [-1]}


@pytest.mark.parametrize(("setting", "value"), [(name, value) for name in OUT_OF_RANGE for value in OUT_OF_RANGE[name]])
def test_a_setting_out_of_range_is_refused_at_once(setting, value):
    settings, table = {"max_new_tokens": 3, setting: value}, random_table(4)
    with pytest.raises(DecodingError, match=f"^{setting} is {value}, but must be"):
        generate(Markov(table).step, table, None, **settings)
    with pytest.raises(DecodingError, match="token 4 is not in the vocabulary of 4 tokens"):
        generate(Markov(table).step, table, None, max_new_tokens=3, stop_token=4)


@pytest.mark.parametrize("temperature", [0, 1.0])
def test_no_possible_token_and_nan_are_errors(temperature):
    settings = {"max_new_tokens": 2, "temperature": temperature}
    table = random_table(3)
    with pytest.raises(DecodingError, match="row 0: no token can follow"):
        tokens_of(table, [0, 1], forbidden=(0, 1, 2), **settings)
    table[1] = -np.inf
    with pytest.raises(DecodingError, match="row 1: no token can follow"):
        tokens_of(table, [0, 1], **settings)
    table[1, 2] = np.nan
    with pytest.raises(DecodingError, match="not numbers"):
        tokens_of(table, [0, 1], **settings)
