"""A conversation keeps its text, runs commands, and survives errors."""

import io
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from extra.chat.interactive import SETTINGS as COMMANDS
from extra.chat.interactive import Conversation, converse, latest_ids, show_conversation
from gpt.sample import encode
from tests.gpt.small_gpts import small_gpt
from text.decoding.sample_options import SampleOptions
from text.tokenizers import learn
from text.tokenizers.byte import ByteTokenizer
from tinygrad_lite.errors import DecodingError, OptionError
from training.corpora.cleaning import normalise


class Parrot:
    """Replies with the number of the turn, in two pieces, and records its arguments."""

    def __init__(self) -> None:
        self.asked, self.options, self.lines, self.error = [], [], [], None

    def __call__(self, options: SampleOptions, text: str, turn: int) -> Iterator[str]:
        self.asked.append((text, turn))
        self.options.append(options)
        yield "Ara"
        if self.error:
            raise self.error
        yield str(turn)


def conversation(start: str = "") -> tuple[Conversation, Parrot]:
    parrot = Parrot()
    return Conversation(SampleOptions(), start, parrot, parrot.lines.append), parrot


# What it starts with, the lines that are typed, and the text before each turn.
TALKS = [
    ("", ["Guten Tag", "Und?"], ["Guten Tag\n", "Guten Tag\nAra0\nUnd?\n"]),
    ("", ["Tag", "", "  "], ["Tag\n", "Tag\nAra0", "Tag\nAra0Ara1"]),  # after an empty line it continues its text
    ("Faust:", ["Tag", "/reset", "Tag"], ["Faust:\nTag\n", "Faust:\nTag\n"]),
    ("", [" /quit"], [" /quit\n"]),
]


@pytest.mark.parametrize(("start", "lines", "asked"), TALKS)
def test_the_earlier_text_remains_the_context(start, lines, asked):
    talk, parrot = conversation(start)
    assert all(talk.take(line) for line in lines)
    turns = [0, 0] if "/reset" in lines else [*range(len(asked))]
    assert (parrot.asked, talk.text) == ([*zip(asked, turns, strict=True)], f"{asked[-1]}Ara{turns[-1]}")
    assert parrot.lines == [line for line in lines if line.strip() and line != "/reset"]


@pytest.mark.parametrize("kind", ["char", "byte", "bpe", "bpe-w", "word"])
def test_the_end_of_a_text_has_the_tokens_that_it_has_in_the_whole(kind):
    text = "".join(f"{'x' * (n % 50)} Wort {n},\n" + "\n  \n" * (n % 3) for n in range(300))
    tokenizer = learn(kind, text[:2000], 300)
    for end in range(len(text) - 40, len(text)):
        found, whole = latest_ids(tokenizer, text[:end], 20), encode(tokenizer, text[:end])
        assert found[-20:] == whole[-20:]
    assert len(found) < len(whole) / 2
    assert latest_ids(tokenizer, text, len(text)) == encode(tokenizer, text)


def test_a_conversation_reads_only_what_is_new(monkeypatch, capsys):
    model = small_gpt("float32", vocab_size=256, block_size=64, positions="rotary").eval()
    read, whole = [], model.predict
    model.predict = lambda ids, state: read.append(ids.shape[1]) or whole(ids, state)
    trained = SimpleNamespace(tokenizer=ByteTokenizer(), path=Path("none"), adapter=None)
    lines = [b"ab", b"cde", b"f", b"gh"]
    said = []
    for remembers in (True, False):
        if not remembers:
            monkeypatch.setattr("extra.chat.interactive.RememberingModel", lambda model: model)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\n".join(lines) + b"\n")))
        show_conversation(SampleOptions(greedy=True, max_new_tokens=3), {}, trained, model, "")
        said.append(capsys.readouterr().out)
        if remembers:
            assert max(read[1:]) < 12
    assert said[0] == said[1]


SETTING_COMMANDS = [
    ("/temperature 0.5", "temperature", 0.5),
    ("/top-k  20 ", "top_k", 20),
    ("/greedy", "greedy", True),
    ("/greedy off", "greedy", False),
    ("/stop 'a b' c", "stop", ["a b", "c"]),
    ("/stop", "stop", []),
    ("/stop --help -h", "stop", ["--help", "-h"]),
]


@pytest.mark.parametrize(("command", "name", "value"), SETTING_COMMANDS)
def test_settings_change_for_the_next_turns(command, name, value, capsys):
    talk, parrot = conversation()
    talk.take("Tag")
    assert talk.take(command)
    talk.take("Tag")
    assert (getattr(parrot.options[1], name), parrot.options[0]) == (value, SampleOptions())
    assert "/" not in talk.text
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"{name} is {value}\n")


WRONG_COMMANDS = [
    ("/temperature -1", "--temperature -1: must be at least 0"),
    ("/temperature", "--temperature needs a value"),
    ("/temperature 1 --help", "--temperature 1 --help: must be a finite number"),
    ("/seed 1 --start=x", "--seed 1 --start=x: must be a whole number"),
    ("/stop 'a", "quotation mark"),
    ("/beam 4", "there is no command /beam: /help"),
]


@pytest.mark.parametrize(("command", "message"), WRONG_COMMANDS)
def test_a_wrong_command_changes_nothing(command, message):
    talk, parrot = conversation()
    with pytest.raises(OptionError, match=message):
        talk.take(command)
    assert (talk.options, talk.text, parrot.asked) == (SampleOptions(), "", [])


@pytest.mark.parametrize("error", [KeyboardInterrupt(), DecodingError("no token can follow")])
def test_an_interrupted_reply_stays_in_the_text(error):
    talk, parrot = conversation()
    parrot.error = error
    if isinstance(error, KeyboardInterrupt):
        assert talk.take("Tag")
    else:
        with pytest.raises(DecodingError):
            talk.take("Tag")
    assert (talk.text, talk.turn) == ("Tag\nAra", 1)


def test_help_and_settings_name_every_setting(capsys):
    talk, _ = conversation()
    for command in ("/help", "/settings"):
        assert talk.take(command)
        err = capsys.readouterr().err
        assert all(name in err for name in COMMANDS)


@pytest.mark.parametrize("end", ["", "/quit\nnever read\n"])
def test_lines_are_read_to_the_end_and_errors_are_printed(monkeypatch, capsys, end):
    parrot = Parrot()
    lines = f"Gru\u0308n\r\n/foo\n/temperature 2\nTag\n{end}"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
    converse(Conversation(SampleOptions(), "", parrot, parrot.lines.append), normalise)
    assert parrot.lines == ["Grün", "Tag"]
    assert [options.temperature for options in parrot.options] == [0.8, 2.0]
    out, err = capsys.readouterr()
    assert out == ""
    assert "there is no command /foo" in err
