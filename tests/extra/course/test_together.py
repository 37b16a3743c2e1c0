"""Means, mixtures with counts, and learning while reading, each against its definition."""

import re
from pathlib import Path

import numpy as np
import pytest

from docs.course import check
from extra.gpt.trained import load_trained
from extra.studies.baselines import KneserNey, token_text
from gpt.data import bits_per_character
from gpt.score import token_log_probs
from tests.extra.studies.test_baselines import TEXT, make_checkpoint, rows

together = check.load(check.chapters()[19] / "together.py")
NAMES = ["one.safetensors", "two.safetensors"]
COUNTED = ["--text", "faust.txt", "--orders", "1-2"]


@pytest.fixture
def data(request, workplace):
    """The data of a text, and two GPTs with random weights, as if trained on it."""
    Path("faust.txt").write_text(TEXT, encoding="utf-8")
    kind = getattr(request, "param", "char")
    _, data = (make_checkpoint(Path(name), "faust.txt", kind, step=step)[1] for step, name in enumerate(NAMES))
    return data


def model(name=NAMES[0]):
    return load_trained(Path(name)).make_model()


def p_of(data, name):
    return np.exp(token_log_probs(model(name), data.held_out))


@pytest.mark.parametrize("data", ["char", "bpe"], indirect=True)
def test_every_distribution_of_a_mixture_sums_to_one(data):
    ngrams = KneserNey(token_text(data.train), 3, data.tokenizer.vocab_size)
    gpts, sums = [model(name) for name in NAMES], []
    for token in range(data.tokenizer.vocab_size):  # the probability of every possible token
        ids = np.array([*data.held_out[:5], token])
        p_gpt = np.mean([np.exp(token_log_probs(gpt, ids))[-1] for gpt in gpts])
        sums.append((p_gpt, together.mixed(0.3, p_gpt, ngrams.probabilities(token_text(ids))[-1])))
    np.testing.assert_allclose(np.sum(sums, axis=0), 1, rtol=2e-6)  # the GPTs compute in float32


def test_each_window_is_predicted_before_it_is_learned(data):
    """The second window's probabilities are those of the weights after one step of gradient descent on the first."""
    tokens, gpt, rate = data.held_out[:17], model(), 0.5
    found = together.log_probs_while_learning(model(), tokens, rate)
    loss = gpt.loss(tuple(next(data.validation_batches(1, 0))))
    np.testing.assert_allclose(found[:8], token_log_probs(gpt, tokens)[:8], rtol=1e-5)
    loss.backward()
    for parameter in gpt.parameters():
        parameter.data[...] -= rate * parameter.grad.data
        parameter.mark_written()
    np.testing.assert_allclose(found[8:], token_log_probs(gpt, tokens)[8:], rtol=1e-4)


def test_no_half_has_a_say_in_its_own_choice():
    p = {1: np.array([0.9, 0.9, 0.1, 0.2]), 2: np.array([0.5, 0.5, 0.5, 0.5])}
    found, chosen = together.best_for_other_half([1, 2], p.get)
    assert (chosen, found.tolist()) == ([2, 1], [0.5, 0.5, 0.1, 0.2])
    p[2][2:] = 0.01  # changes the first half's choice alone
    assert together.best_for_other_half([1, 2], p.get)[1] == [1, 1]


def test_the_command_prints_what_the_functions_compute(data, ran):
    out, err = ran(together.main, *NAMES, *COUNTED, "--rates", "0,0.5", "--stride", 3)
    found = rows(out)
    names = ["1-gram", "2-gram", "GPT 1", "GPT 2", "mean", "with counts", "strided", "learning", "all together"]
    assert list(found) == names
    mean = np.mean([p_of(data, name) for name in NAMES], axis=0)
    ngrams = [KneserNey(token_text(data.train), order, data.tokenizer.vocab_size) for order in (1, 2)]
    counts = [one.probabilities(token_text(data.held_out)) for one in ngrams]
    expected = dict(zip(names, (*counts, *(p_of(data, name) for name in NAMES), mean), strict=False))
    expected["strided"] = np.mean([np.exp(token_log_probs(model(n), data.held_out, 3)) for n in NAMES], axis=0)

    def halves(first, second):
        return np.concatenate([first[: len(mean) // 2], second[len(mean) // 2 :]])

    (line,) = [line for line in err.splitlines() if line.startswith("with counts")]
    chosen = re.findall(r"(\d)-grams with w = (\d.\d\d)", line)
    expected["with counts"] = halves(*(together.mixed(float(w), mean, counts[int(n) - 1]) for n, w in chosen))
    learning = [
        [np.exp(together.log_probs_while_learning(model(n), data.held_out, float(rate))) for n in NAMES]
        for rate in re.search(r"rate (\S+), (\S+)", out).groups()
    ]
    expected["learning"] = halves(*np.mean(learning, axis=1))
    for name, p in expected.items():
        assert found[name] == pytest.approx(bits_per_character(-np.log(p).mean(), data.chars_per_token), abs=6e-4), name
    assert found["all together"] <= found["learning"] + 0.02
