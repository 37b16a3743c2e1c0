"""Reported of other programs: how a token is chosen, and which hypotheses a search returns. Ids name public threads."""

from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest

from gpt.score import token_log_probs
from tests.gpt.small_gpts import gpt_with_large_weights
from text.decoding.batches import search_in_batches
from text.decoding.processors import Repetition
from text.decoding.sampling import PLAIN, filter_tokens
from tinygrad_lite import Tensor

rng = np.random.default_rng(5)


def kept(p, **settings):
    """The tokens that the filters keep of a row of probabilities."""
    with np.errstate(divide="ignore"):
        return np.flatnonzero(filter_tokens(np.log([p]), replace(PLAIN, **settings))[0] > -np.inf).tolist()


FEW = {  # probabilities, settings, and the tokens that stay
    "rasbt/reasoning-from-scratch#164: the token that crosses p stays": ([0.5, 0.41, 0.09], {"top_p": 0.9}, [0, 1]),
    "fishaudio/fish-speech#1171: one token always stays": ([0.41, 0.5, 0.09], {"top_p": 1e-9}, [1]),
    "BlinkDL/ChatRWKV#170: p = 1 is no filter": ([0.7, 1e-12, 0.3], {"top_p": 1.0}, [0, 1, 2]),
    "BlinkDL/ChatRWKV#170: nearly 1": ([0.7, 1e-3, 0.299], {"top_p": 0.999999}, [0, 1, 2]),
    "BlinkDL/ChatRWKV#170: a certain token": ([0.0, 1.0, 0.0], {"top_p": 1.0}, [1]),
    "ml-explore/mlx-lm#388: cold": ([0.4, 0.35, 0.25], {"top_k": 1, "top_p": 0.8, "temperature": 0.01}, [0]),
    "ml-explore/mlx-lm#388: min-p of 1": ([0.2, 0.5, 0.3], {"top_k": 3, "min_p": 1.0}, [1]),
    "kingoflolz/mesh-transformer-jax#164: ties": ([0.1, 0.3, 0.3, 0.3], {"top_k": 2}, [1, 2]),
    "kingoflolz/mesh-transformer-jax#164: k above what is possible": ([0.0, 0.5, 0.0, 0.5], {"top_k": 3}, [1, 3]),
}


@pytest.mark.parametrize(("p", "settings", "tokens"), FEW.values(), ids=FEW)
def test_the_filters_keep_exactly_these_tokens(p, settings, tokens):
    assert kept(p, **settings) == tokens


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


def test_each_filter_sees_what_the_one_before_it_left_renormalised():
    """ml-explore/mlx-lm#388, Biohub/esm#360, thu-nics/C2C#21: for all combinations, by sorting everything."""
    rows = rng.dirichlet(np.full(50, 0.3), 100)
    for top_k, top_p, min_p in product((0, 1, 7, 60), (0.3, 0.8, 1.0), (0.0, 0.1, 1.0)):
        found = filter_tokens(np.log(rows), replace(PLAIN, top_k=top_k, top_p=top_p, min_p=min_p)) > -np.inf
        for p, tokens in zip(rows, found, strict=True):
            order = np.argsort(-p)[: top_k or None]
            mass = np.cumsum(p[order]) / p[order].sum()
            order = order[: 1 + np.count_nonzero(mass < top_p)] if top_p < 1 else order
            assert set(np.flatnonzero(tokens)) == {i for i in order if p[i] >= min_p * p[order[0]]}


@pytest.mark.parametrize("penalty", [0.8, 1.5])
def test_a_penalty_depends_on_no_constant_that_is_added_to_all_logits(penalty):
    """huggingface/transformers#2302, NVIDIA-NeMo/Speech#8194: scores of either sign are pushed in one direction."""
    logits, seen, found = rng.standard_normal((1, 11)), [1, 2, 3], []
    for constant in (-60.0, 0.0, 60.0):
        log_probs = Tensor(logits + constant).log_softmax().numpy()
        rules = Repetition(1, 11, penalty, 0, np.array([seen]))
        found.append(np.exp(rules.discourage(log_probs, np.array([0]))))
        gains = (found[-1] / np.exp(log_probs))[0]
        assert (gains[seen] < 1).all() == (penalty > 1) != (gains[seen] > 1).all()
        np.testing.assert_array_equal(np.delete(gains, seen), 1)
    np.testing.assert_allclose(found, found[:1] * 3, rtol=1e-12)


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
