import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.text.decoding.test_sampling import random_table, tokens_of
from text.decoding.processors import Repetition
from tinygrad_lite.errors import DecodingError

ROW_0 = np.array([0])


def one_row(prompt: list[int], vocab_size: int = 4, penalty: float = 1.0, ngram_size: int = 0) -> Repetition:
    return Repetition(1, vocab_size, penalty, ngram_size, np.array([prompt], np.int64))


def forbidden_after(text: list[int], n: int, vocab_size: int) -> set[int]:
    """The definition: a token is forbidden if it would complete an n-gram that the text already contains."""
    grams = {tuple(text[i : i + n]) for i in range(len(text) - n + 1)}
    return {token for token in range(vocab_size) if tuple([*text, token][-n:]) in grams}


# --- repetition penalty ---


@pytest.mark.parametrize("penalty", [0.5, 1.2, 3.0])
def test_a_penalty_raises_the_probability_of_earlier_tokens_to_its_power(penalty):
    p = np.array([[0.1, 0.2, 0.3, 0.4]])
    q = np.exp(one_row([3, 1, 3], penalty=penalty).discourage(np.log(p), ROW_0))
    np.testing.assert_allclose(q, [[0.1, 0.2**penalty, 0.3, 0.4**penalty]], rtol=1e-12)


def test_generated_tokens_count_too_and_rows_are_independent():
    repetition = Repetition(2, 3, penalty=2.0, ngram_size=0, prompt=None)
    repetition.note(np.array([2]), np.array([1]))
    log_probs = np.full((2, 3), -1.0)
    assert repetition.discourage(log_probs, np.arange(2)).tolist() == [[-1, -1, -1], [-1, -1, -2]]
    assert repetition.discourage(log_probs[1:], np.array([1])).tolist() == [[-1, -1, -2]]
    assert (log_probs == -1.0).all()  # the model's array is not changed


# --- no n-gram twice ---


@given(st.lists(st.integers(0, 2), max_size=12), st.integers(1, 4))
def test_exactly_the_n_grams_of_the_text_are_forbidden(text, n):
    values = one_row(text, vocab_size=3, ngram_size=n).discourage(np.zeros((1, 3)), ROW_0)
    assert set(np.flatnonzero(np.isneginf(values[0])).tolist()) == forbidden_after(text, n, 3)


def test_when_every_token_is_forbidden_there_is_an_error():
    with pytest.raises(DecodingError, match=r"row 0: no token can follow, .* would repeat an n-gram"):
        tokens_of(random_table(3), [0], prompt=np.array([[0]]), max_new_tokens=5, no_repeat_ngram_size=1)


def test_prompts_that_do_not_fit_are_refused():
    for prompt, message in (([[0], [1]], "2, 1.* but the text has 1 row"), ([[4]], "outside"), ([[-1]], "outside")):
        with pytest.raises(ValueError, match=message):
            Repetition(1, 4, penalty=1.5, ngram_size=2, prompt=np.array(prompt))
