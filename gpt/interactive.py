"""A conversation with the model, line by line: the text so far remains its context.

A GPT only continues a text, so a conversation is one text that user and model write in turns. Each line that is typed
is appended to it, with its line break, and then the model continues it for max_new_tokens, or up to a stop string.
When the text is longer than the model's context, the oldest part is dropped.

A line that begins with / is a command and not part of the text: it changes a setting for the following turns.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from gpt.model import GPT
from gpt.speaking import encode, ends_of, write_continuation
from tinygrad_lite.errors import OptionError, UserError
from workshop.cli.command_line import parse_command_line
from workshop.cli.console import say, typed_lines, write
from workshop.cli.prompt import warn_of_unknown
from workshop.decoding.sample_options import SampleOptions
from workshop.decoding.sampling import RANDOM, REPETITION
from workshop.run.family import Trained

SETTINGS = (*RANDOM, "greedy", *REPETITION, "max_new_tokens", "seed", "stop")
COMMANDS = f"""/NAME VALUE  change a setting: {", ".join(SETTINGS)}
/stop        without a value: remove all stop strings
/settings    show them all
/reset       start again; the settings stay
/quit        end, like Ctrl-D (on Windows Ctrl-Z and Enter); Ctrl-C ends a reply
a line with a space before its / is text"""

Reply = Callable[[Any, Any, int], Iterator[str]]


class Conversation:
    """The text so far, and the settings for the next turns.

    Args:
        options: a dataclass of options that has at least SETTINGS.
        start: the text with which the conversation begins.
        reply: reply(options, text, turn) writes the model's continuation of the text and yields it in pieces; the turn,
            counted from 0, selects its random numbers.
        check: check(line) may warn about a line of text; None: nothing does.
    """

    about_lines = "a line is appended to the text, and the model continues it, after an empty line the text so far"

    def __init__(self, options: Any, start: str, reply: Reply, check: Callable[[str], None] | None = None) -> None:
        self.options = options
        self.text = self._start = start
        self.turn = 0
        self._reply, self._check = reply, check

    def take(self, line: str) -> bool:
        """Run a command, or reply to a line of text; returns whether the conversation continues."""
        if line.startswith("/"):
            return self._run(line.strip()[1:])
        if not self._listen(line):
            return False
        pieces = []
        try:
            for piece in self._reply(self.options, self.text, self.turn):
                pieces.append(piece)
        except KeyboardInterrupt:
            say("")
        finally:  # an interrupted reply stays in the text
            self._remember("".join(pieces))
            self.turn += 1
        return True

    def _listen(self, line: str) -> bool:
        """Append a line that was typed; returns whether there is something to reply to."""
        if line.strip():
            if self._check is not None:
                self._check(line)
            self.text += ("" if self.text.endswith("\n") or not self.text else "\n") + line + "\n"
        return True

    def _remember(self, reply: str) -> None:
        self.text += reply

    def _run(self, command: str) -> bool:
        name, _, value = command.partition(" ")
        name = name.replace("-", "_")
        if name == "quit":
            return False
        if name == "help":
            say(f"{self.about_lines}\n{COMMANDS}")
        elif name == "settings":
            say("  ".join(f"{name} {getattr(self.options, name)}" for name in SETTINGS))
        elif name == "reset":
            self.text, self.turn = self._start, 0
            say("the conversation starts again")
        elif name in SETTINGS:
            self._change(name, value)
        else:
            raise OptionError(f"there is no command /{name}: /help lists all")
        return True

    def _change(self, name: str, value: str) -> None:
        """Set one option, with the same checks as on the command line."""
        try:
            words = shlex.split(value)
        except ValueError:
            raise OptionError(f"/{name} {value}: a quotation mark is missing") from None
        if name == "stop":
            self.options = dataclasses.replace(self.options, stop=words)
        else:
            # One word, so that no part of it is taken for another option.
            word = f"--{name}={' '.join(words)}" if words else f"--{name}"
            parsed = parse_command_line(type(self.options), [word], prog="/help", description="")
            self.options = dataclasses.replace(self.options, **parsed.values)
        say(f"{name} is {getattr(self.options, name)}")


def converse(
    conversation: Conversation,
    prepare: Callable[[str], str],
    hint: str = "type a line; /help explains more, /quit ends",
) -> None:
    """Read lines from stdin and reply to each until the end of the input or /quit; errors are only printed.

    Args:
        prepare: brings a line into the form that the model reads, as `Tokenizer.prepare` does.
    """
    say(hint)
    for line in typed_lines():
        try:
            if not conversation.take(prepare(line.rstrip("\r\n"))):
                return
        except UserError as error:
            say(str(error))


def show_conversation(
    options: SampleOptions, given: Mapping[str, Any], trained: Trained, model: GPT, prompt: str
) -> None:
    """Continue the lines that the user types, in turns."""
    tokenizer, ends, start = trained.tokenizer, ends_of(trained), prompt if "start" in given else ""

    def reply(settings: SampleOptions, text: str, turn: int) -> Iterator[str]:
        return write_continuation(settings, model, tokenizer, encode(tokenizer, text), turn, ends)

    if start:
        warn_of_unknown(tokenizer, start)
        write(start.removesuffix("\n") + "\n")
    converse(Conversation(options, start, reply, check=partial(warn_of_unknown, tokenizer)), tokenizer.prepare)
