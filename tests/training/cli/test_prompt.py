"""Whatever is longer than what a model reads is cut with one sentence that has the lengths."""

from types import SimpleNamespace

import pytest

import sample
from seq2seq.sample import sentences_in
from tests.gpt.saved_models import saved_gpt
from text.tokenizers.byte import ByteTokenizer

SMALL = SimpleNamespace(config=SimpleNamespace(block_size=16))


def sampled(path, prompt):
    model = saved_gpt(path / "model.safetensors", ByteTokenizer())
    assert sample.main([str(model), "--greedy", "--max_new_tokens=2", "--start", prompt]) == 0


DOORS = {  # an input too long for what it meets, and what is said
    "a prompt": (
        lambda path: sampled(path, "a" * 40),
        "of a prompt, only the last 16 tokens can be read; longer prompts: 1, of up to 40",
    ),
    "a translation": (
        lambda path: sentences_in(["a", "b" * 17], SMALL, ByteTokenizer()),
        "of a line, only the first 16 tokens can be read; longer lines: 1, of up to 17",
    ),
}


def assert_said_once(give, words, tmp_path, capsys):
    """An input that is given in a folder is cut, and that is said in one sentence with these words."""
    give(tmp_path)
    said = [line for line in capsys.readouterr().err.splitlines() if "can be read" in line]
    assert len(said) == 1
    assert words in said[0]


@pytest.mark.parametrize("door", DOORS)
def test_an_input_that_is_cut_is_said_once_with_the_lengths(door, tmp_path, capsys):
    assert_said_once(*DOORS[door], tmp_path, capsys)
