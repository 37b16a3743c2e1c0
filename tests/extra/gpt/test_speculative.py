"""A draft changes how fast a model writes, and nothing about what: greedy texts are equal, distributions unchanged."""

import functools
from collections import Counter
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import sample
from extra.gpt.speculative import Counts, Drafted, Reader, certain, distribution, lookup, smaller, verified
from extra.gpt.trained import load_trained
from extra.studies.baselines import token_text
from tests.gpt.saved_models import TEXT, saved_gpt
from text.decoding.sampling import PLAIN, Sampling, generate
from text.tokenizers.char import CharTokenizer
from tinygrad_lite.errors import UserError

CHARACTERS = CharTokenizer.train(TEXT, ("<unk>",))
V = 6
FILTERS = [PLAIN, Sampling(temperature=0.5, top_k=0), Sampling(temperature=1.0, top_k=3)]
FILTERS += [Sampling(temperature=1.3, top_k=0, top_p=0.7), Sampling(temperature=1.0, top_k=0, min_p=0.3)]


def surprise(found: Counter, expected: dict, draws: int) -> float:
    """Chi-square by its degrees of freedom, as a number of standard deviations (Wilson, Hilferty 1931)."""
    kept = {outcome: p * draws for outcome, p in expected.items() if p > 0}
    assert not found.keys() - kept.keys(), "an outcome of probability 0"
    square = sum((found[outcome] - mean) ** 2 / mean for outcome, mean in kept.items())
    freedom = len(kept) - 1
    return ((square / freedom) ** (1 / 3) - 1 + 2 / (9 * freedom)) / (2 / (9 * freedom)) ** 0.5


def table(seed):
    """A model of tokens that depend on the one before: log-probabilities (V, V)."""
    logits = np.random.default_rng(seed).normal(size=(V, V)) * 1.5
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def two_tokens(sampling, drawn_with, draws, is_certain=False):
    """How far two tokens after token 0, guessed by another table, are from the distribution of the first table."""
    p, q = distribution(sampling, (), table(1)), distribution(drawn_with, (), table(2))
    told = distribution(sampling, (), table(2))  # what `verified` is told
    rng, found = np.random.default_rng(3), Counter()
    for _ in range(draws):
        guess = [int(q[0].argmax())] if is_certain else [int(rng.choice(V, p=q[0]))]
        guess.append(int(rng.choice(V, p=q[guess[0]])))
        rows = certain(guess[:1], V)[0] if is_certain else told[0]
        text = verified(p[[0, *guess]], np.array([rows, told[guess[0]]]), guess, rng)
        if len(text) == 1:  # the next token comes from the next pass
            text.append(int(rng.choice(V, p=p[text[0]])))
        found[text[0], text[1]] += 1
    return surprise(found, {(a, b): p[0, a] * p[a, b] for a, b in product(range(V), repeat=2)}, draws)


@pytest.mark.parametrize("draws", [4000, pytest.param(100_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("is_certain", [False, True])
@pytest.mark.parametrize("sampling", FILTERS, ids=str)
def test_what_is_kept_and_drawn_has_the_model_s_distribution(sampling, is_certain, draws):
    assert abs(two_tokens(sampling, sampling, draws, is_certain)) < 4.5


def test_a_draft_drawn_at_another_temperature_than_the_ratio_is_noticed():
    """Four public projects had this fault."""
    assert two_tokens(PLAIN, Sampling(temperature=0.5, top_k=0), 4000) > 10


def test_one_token_by_hand():
    """p = (0.5, 0.3, 0.2), and the draft says 1 with q = (0.2, 0.6, 0.2): kept below 1/2, otherwise 0."""
    p, q = np.array([[0.5, 0.3, 0.2], [0.0, 0.0, 1.0]]), np.array([[0.2, 0.6, 0.2]])

    class Numbers:
        def __init__(self, *numbers):
            self.random = iter(numbers).__next__

    assert verified(p, q, [1], Numbers(0.49, 0.5)) == [1, 2]
    assert verified(p, q, [1], Numbers(0.51, 0.99)) == [0]  # only 0 has more in p than in q
    assert verified(p, q, [0], Numbers(0.99, 0.5)) == [0, 2]  # it has more in p: always kept


@pytest.fixture
def model():
    return load_trained(saved_gpt(Path("m.safetensors"), CHARACTERS)).make_model()


@pytest.mark.parametrize("draft", ["lookup", "counts", "smaller", "itself"])
def test_greedy_text_is_the_same_token_for_token(workplace, model, draft):
    prompt = CHARACTERS.encode("Es irrt der Mensch, so lang")  # longer than the context of 16 tokens
    drawn_from = functools.partial(distribution, Sampling(temperature=0.0), ())
    other = load_trained(saved_gpt(Path("s.safetensors"), CHARACTERS, 6, n_layer=1, block_size=12)).make_model()
    drafts = {"lookup": lookup, "smaller": functools.partial(smaller, Reader(other), drawn_from)}
    drafts["counts"] = Counts(token_text(CHARACTERS.encode(TEXT)))
    drafts["itself"] = functools.partial(smaller, Reader(model), drawn_from)
    settings = {"max_new_tokens": 60, "temperature": 0.0}
    plain = [int(token[0]) for token in generate(model.step, *model.start([prompt]), **settings)]
    for count in (11, 4):  # eleven guesses that are dropped leave a draft's window empty, and so does a new text
        writer = Drafted(model, drafts[draft], drawn_from, count, 0)
        for _ in range(2):
            found = [int(token[0]) for token in generate(writer.step, *writer.start([prompt]), **settings)]
            assert found == plain
        assert writer.kept <= writer.offered
    if draft == "itself":
        assert writer.kept > 0.9 * writer.offered > 30  # their windows move at different tokens


def test_draws_of_a_gpt_have_its_distribution(workplace):
    tokenizer = CharTokenizer.train("abcd")
    given = {"block_size": 8, "n_embd": 8, "n_layer": 1}
    gpt, other = (
        load_trained(saved_gpt(Path("g.safetensors"), tokenizer, step, **given)).make_model() for step in (1, 2)
    )
    drawn_from, draws, found = functools.partial(distribution, PLAIN, ()), 400, Counter()
    writer = Drafted(gpt, functools.partial(smaller, Reader(other), drawn_from), drawn_from, 2, 0)
    for row in range(draws):
        tokens = generate(writer.step, *writer.start([[0, 3]]), max_new_tokens=2, first_row=row)
        found[tuple(int(token[0]) for token in tokens)] += 1
    first = np.exp(gpt.start([[0, 3]])[0][0])
    second = [np.exp(gpt.start([[0, 3, token]])[0][0]) for token in range(5)]
    assert abs(surprise(found, {(a, b): first[a] * second[a][b] for a, b in product(range(5), repeat=2)}, draws)) < 4.5


def test_a_reader_forgets_from_the_end(workplace, model):
    reader, texts = Reader(model), ([1, 2, 3, 4], [1, 2, 3, 4, 5, 6], [1, 2, 9], [1, 2, 9, 9], [7])
    for ids in texts:
        np.testing.assert_allclose(reader.after(ids)[0], model.start([ids])[0][0], atol=1e-4)
    rows = reader.after([7, 8, 9], 2)
    np.testing.assert_allclose(rows[0], model.start([[7, 8]])[0][0], atol=1e-4)


def test_drafts_that_name_tokens():
    rng = np.random.default_rng(0)
    assert lookup([5, 1, 2, 3, 7, 1, 2], 3, rng)[0] == [3, 7, 1]
    assert lookup([1, 2, 3], 3, rng)[0] == [3]  # nothing was there before: again the last
    counts = Counts(token_text([1, 2, 3, 1, 2, 3, 1, 2, 4]))
    assert counts([8, 1], 3, rng)[0] == [2, 3, 1]
    assert counts([8], 1, rng)[0] in ([1], [2])  # never seen: one of the most frequent


def test_sample_writes_with_a_draft(workplace, capsys):
    saved_gpt(Path("m.safetensors"), CHARACTERS, 5, block_size=32)
    saved_gpt(Path("s.safetensors"), CHARACTERS, 6, n_layer=1)
    saved_gpt(Path("b.safetensors"), CharTokenizer.train("abc"))
    saved_gpt(Path("r.safetensors"), CHARACTERS, mixer="lstm", positions="none")
    Path("my.txt").write_text(20 * TEXT, encoding="utf-8")
    command = ["m.safetensors", "--start", "Es irrt", "--max_new_tokens", "40", "--temperature", "0.7"]
    texts = set()
    for draft in 2 * ["lookup", "my.txt", "s.safetensors"]:
        assert sample.main([*command, "--draft", draft, "--draft_tokens", "3"]) == 0
        texts.add(capsys.readouterr().out)
    assert len(texts) == 3  # the same seed and draft, the same text
    for words, sentence in (
        ("m.safetensors --draft b.safetensors", "has another one"),
        ("m.safetensors --draft gone.txt", "there is no file gone.txt"),
        ("r.safetensors --draft lookup", "forget tokens"),
        ("m.safetensors --draft_tokens 3", "--draft"),
        ("m.safetensors --draft lookup --beam 2", "--beam"),
    ):
        with pytest.raises(UserError, match=sentence):
            sample.main(words.split())
