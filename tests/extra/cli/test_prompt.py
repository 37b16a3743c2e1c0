"""Whatever is longer than what a model reads is cut with one sentence that has the lengths."""

import io
import sys

import pytest

import sample
from extra.chat import chat
from extra.encoders.reading import show_similar, show_words
from extra.pairs.answering import END, warn_of_long
from tests.extra.chat.test_chat import chat_folder, plain_render
from tests.extra.pretrained.gpt2_folders import byte_folder
from tests.extra.pretrained.test_encoders import made
from tests.training.cli.test_prompt import assert_said_once
from text.tokenizers.byte import ByteTokenizer

ANSWERING = ByteTokenizer(("<to-en>", END))


def talked(folder, lines, *words):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines)))
        patch.setattr(chat, "render", plain_render)
        assert sample.main([str(folder), "--greedy", "--max_new_tokens=2", *words]) == 0


def bert(show, architecture, *texts):
    trained = made(architecture)
    show(trained.make_model(), trained.tokenizer, *texts)


LONG = "w1 " * 30
DOORS = {  # an input too long for what it meets, and what is said
    "turns": (
        lambda path: talked(byte_folder(path), b"a\n" + b"b" * 30 + b"\n" + b"c" * 30 + b"\n", "--interactive"),
        "of a text, only the last 16 tokens can be read; longer texts: 1, of up to",
    ),
    "a message": (
        lambda path: talked(chat_folder(path), b"a" * 40 + b"\n", "--chat"),
        "of a message with its marks, only the last 16 tokens can be read",
    ),
    "held-out sources": (
        lambda path: warn_of_long(ANSWERING, ["a", "a" * 8, "b" * 50], 16),
        "of a source, only the first 7 tokens can be read; longer sources: 2, of up to 50",
    ),
    "a hidden word": (
        lambda path: bert(show_words, "BertForMaskedLM", ["w1 [MASK]", LONG + "[MASK]"], 1),
        "of a line, only the first 20 tokens can be read; longer lines: 1, of up to 33",
    ),
    "lines to compare": (
        lambda path: bert(show_similar, "BertModel", ["w1"], ["w2", LONG, LONG], 1),
        "of a line, only the first 20 tokens can be read; longer lines: 2, of up to 32",
    ),
}


@pytest.mark.parametrize("door", DOORS)
def test_an_input_that_is_cut_is_said_once_with_the_lengths(door, tmp_path, capsys):
    assert_said_once(*DOORS[door], tmp_path, capsys)
