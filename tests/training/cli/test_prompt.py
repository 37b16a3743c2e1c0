"""Whatever is longer than what a model reads is cut with one sentence that has the lengths."""

import sample
from tests.gpt.saved_models import saved_gpt
from text.tokenizers.byte import ByteTokenizer


def assert_said_once(give, words, tmp_path, capsys):
    """An input that is given in a folder is cut, and that is said in one sentence with these words."""
    give(tmp_path)
    said = [line for line in capsys.readouterr().err.splitlines() if "can be read" in line]
    assert len(said) == 1
    assert words in said[0]


def test_a_prompt_that_is_cut_is_said_once_with_the_lengths(tmp_path, capsys):
    """A long line of a translation: tests/test_translation_scripts.py."""

    def give(path):
        model = saved_gpt(path / "model.safetensors", ByteTokenizer())
        assert sample.main([str(model), "--greedy", "--max_new_tokens=2", "--start", "a" * 40]) == 0

    words = "of a prompt, only the last 16 tokens can be read; longer prompts: 1, of up to 40"
    assert_said_once(give, words, tmp_path, capsys)
