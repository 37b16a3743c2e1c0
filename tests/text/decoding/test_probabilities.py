import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from text.decoding.probabilities import COLOURS, Probabilities, entropy, legend
from text.decoding.sampling import generate
from text.tokenizers.byte import ByteTokenizer
from text.tokenizers.char import CharTokenizer

PLAIN, GREY, BROWN, ORANGE = COLOURS.values()
RESET = "\x1b[0m"
TOKENIZER = CharTokenizer.train("ab\n ")  # ids: \n 0, blank 1, a 2, b 3, <unk> 4


def noted(probabilities: list[float], text: str, colour: bool = True) -> Probabilities:
    """A text whose tokens had these probabilities."""
    watched = Probabilities(TOKENIZER, np.zeros((1, 5)), colour)
    answers = iter(np.log(probabilities))
    step = watched.watch(lambda tokens, state: (np.full((1, 5), next(answers)), state))
    for character in text:
        step(np.array([0]), None)
        watched.note(TOKENIZER.encode(character)[0], character)
    return watched


@given(st.lists(st.integers(0, 9), min_size=1, max_size=9).filter(any))
def test_entropy_follows_its_definition(weights):
    p = np.array(weights) / sum(weights)
    with np.errstate(divide="ignore"):
        bits = entropy(np.log(p)[None])
    assert bits.shape == (1,)
    assert bits[0] == pytest.approx(-sum(x * np.log2(x) for x in p if x), abs=1e-12)


def test_colours_show_the_probability():
    painted = noted([0.9, 0.5, 0.1, 0.01, 0.001], "abaab").paint("abaab")
    assert painted == "ab" + "".join(f"{colour}{c}{RESET}" for colour, c in ((GREY, "a"), (BROWN, "a"), (ORANGE, "b")))


def test_the_legend_has_the_colours_and_each_is_readable_on_any_terminal():
    assert all(f"{colour} {words} {RESET}" in legend(True) for words, colour in (("from 0.1", GREY), ("below", ORANGE)))
    assert re.sub(r"\x1b\[[0-9;]*m", "", legend(True)) == legend(False)

    def brightness(number):  # of a colour of the cube of 6 x 6 x 6 in the palette of 256
        steps = np.array([0, 95, 135, 175, 215, 255]) / 255
        rgb = steps[[(number - 16) // 36, (number - 16) // 6 % 6, (number - 16) % 6]]
        return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722] + 0.05

    assert PLAIN == ""
    for colour in (GREY, BROWN, ORANGE):
        text, ground = (brightness(int(number)) for number in re.findall(r"8;5;(\d+)", colour))
        assert ground / text > 4.5
        assert min(ground / 0.05, 1.05 / ground) > 2.2  # against a black and a white terminal


def test_text_may_be_coloured_later_and_in_other_pieces():
    probabilities, text = [0.9, 0.2, 0.05, 0.001], "ab\na"
    whole = noted(probabilities, text).paint(text)
    watched = noted(probabilities, text)
    assert watched.paint("") + watched.paint("ab") + watched.paint("\na") == whole
    assert "\n" in re.split(r"\x1b\[[0-9;]*m", whole)  # a line break has no colour
    assert re.sub(r"\x1b\[[0-9;]*m", "", whole) == text


def test_unrecorded_text_is_not_coloured_nor_any_without_colour():
    assert noted([], "").paint("ab") == "ab"
    assert noted([0.001, 0.9], "ab", colour=False).paint("ab") == "ab"


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


def test_a_table_has_a_line_for_each_position():
    lines = noted([0.2, 0.2, 0.2], "a\n ").table().splitlines()
    assert lines[1].split() == ["1", "a", "0.2000", "2.322", "#" * 9]
    assert lines[2].split()[:4] == ["2", "\\n", "0.2000", "2.322"]
    assert lines[3].split()[:2] == ["3", "·"]  # a blank
    assert (lines[4], len(noted([], "").table().splitlines())) == ("mean entropy 2.322 bits", 1)


def test_a_character_of_several_tokens_has_the_colour_of_the_last():
    watched = Probabilities(ByteTokenizer(), np.log(np.full((1, 300), 0.2)), colour=True)
    watched.note(195, "")
    watched.note(164, "ä")
    assert watched.paint("ä") == GREY + "ä" + RESET
    assert "\\xc3" in watched.table()
