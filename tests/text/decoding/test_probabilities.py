import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from text.decoding.probabilities import COLOURS, Probabilities, entropy
from text.decoding.sampling import generate
from text.tokenizers.char import CharTokenizer

_, GREY, BROWN, ORANGE = COLOURS.values()
RESET = "\x1b[0m"
TOKENIZER = CharTokenizer.train("ab\n ")  # ids: \n 0, blank 1, a 2, b 3, <unk> 4


@given(st.lists(st.integers(0, 9), min_size=1, max_size=9).filter(any))
def test_entropy_follows_its_definition(weights):
    p = np.array(weights) / sum(weights)
    with np.errstate(divide="ignore"):
        bits = entropy(np.log(p)[None])
    assert bits.shape == (1,)
    assert bits[0] == pytest.approx(-sum(x * np.log2(x) for x in p if x), abs=1e-12)


def test_colours_show_the_probability():
    watched = Probabilities(TOKENIZER, np.zeros((1, 5)), colour=True)
    answers = iter(np.log([0.9, 0.5, 0.1, 0.01, 0.001]))
    step = watched.watch(lambda tokens, state: (np.full((1, 5), next(answers)), state))
    for character in "abaab":
        step(np.array([0]), None)
        watched.note(TOKENIZER.encode(character)[0], character)
    assert watched.paint("abaab") == f"ab{GREY}a{RESET}{BROWN}a{RESET}{ORANGE}b{RESET}"


def test_probabilities_are_the_models_own_at_any_temperature():
    table = np.log(np.random.default_rng(0).dirichlet(np.ones(5), 5))
    watched = Probabilities(TOKENIZER, table[[0]], colour=False)
    step = watched.watch(lambda t, state: (table[t], state))
    tokens = generate(step, table[[0]], None, max_new_tokens=9, temperature=3.0, top_k=4)
    for row in tokens:
        watched.note(int(row[0]), "a")
    tokens, probabilities, entropies = map(list, zip(*watched.rows, strict=True))
    before = [0, *tokens[:-1]]
    np.testing.assert_allclose(probabilities, np.exp(table[before, tokens]))
    np.testing.assert_allclose(entropies, entropy(table[before]))
