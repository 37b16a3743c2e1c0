"""A conversation with the model, line by line: the text so far remains its context.

A GPT only continues a text, so a conversation is one text that user and model write in turns. Each line that is typed
is appended to it, with its line break, and then the model continues it for max_new_tokens, or up to a stop string.
When the text is longer than the model's context, the oldest part is dropped.

A line that begins with / is a command and not part of the text: it changes a setting for the following turns.
"""

import dataclasses
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from extra.pairs.answering import ends_of
from gpt.model import GPT
from gpt.sample import encode, write_continuation
from text.decoding.sample_options import SampleOptions
from text.decoding.sampling import RANDOM, REPETITION
from tinygrad_lite.errors import OptionError, UserError
from tinygrad_lite.generator import GenerationState
from training.cli.command_line import parse_command_line
from training.cli.console import say, write
from training.cli.prompt import warn_of_cut, warn_of_unknown
from training.family import Trained

SETTINGS = (*RANDOM, "greedy", *REPETITION, "max_new_tokens", "seed", "stop")
COMMANDS = f"""/NAME VALUE  change a setting: {", ".join(SETTINGS)}
/stop        without a value: remove all stop strings
/settings    show them all
/reset       start again; the settings stay
/quit        end, like Ctrl-D (on Windows Ctrl-Z and Enter); Ctrl-C ends a reply
a line with a space before its / is text"""
HINT = "type a line; /help explains more, /quit ends"

Reply = Callable[[Any, Any, int], Iterator[str]]


class Conversation:
    """The text so far, and the settings for the next turns.

    Args:
        options: a dataclass of options that has at least SETTINGS.
        start: the text with which the conversation begins.
        reply: reply(options, text, turn) writes the model's continuation of the text and yields it in pieces; the turn,
            counted from 0, selects its random numbers.
        check: check(line) may warn about a line of text.
    """

    about_lines = "a line is appended to the text, and the model continues it, after an empty line the text so far"

    def __init__(self, options: Any, start: str, reply: Reply, check: Callable[[str], None] = lambda _: None) -> None:
        self.options, self.turn = options, 0
        self.text = self._start = start
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
        values = {"stop": words}
        if name != "stop":  # one word, so that no part of it is taken for another option
            word = f"--{name}={' '.join(words)}" if words else f"--{name}"
            values, _ = parse_command_line(type(self.options), [word], prog="/help", description="")
        self.options = dataclasses.replace(self.options, **values)
        say(f"{name} is {getattr(self.options, name)}")


class RememberingModel:
    """A model that keeps what it has read: of each prompt it reads only what is not the beginning of the last text."""

    def __init__(self, model: GPT) -> None:
        self.config = model.config
        self._model, self._state = model, None

    def start(self, prompts: np.ndarray, use_cache: bool = True) -> tuple[np.ndarray, GenerationState]:
        """Read one prompt (1, T): see `Generator.start`."""
        if self._state is None or not use_cache:
            return self._keep(*self._model.start(prompts, use_cache))
        state, self._state = self._state, None  # until it is complete again
        return self._keep(*resume(self._model, prompts[0], state))

    def step(self, tokens: np.ndarray, state: GenerationState) -> tuple[np.ndarray, GenerationState]:
        """Append a token: see `Generator.step`."""
        return self._keep(*self._model.step(tokens, state))

    def _keep(self, log_probs: np.ndarray, state: GenerationState) -> tuple[np.ndarray, GenerationState]:
        self._state = state if state.caches else None
        return log_probs, state


def resume(model: GPT, prompt: Sequence[int], state: GenerationState) -> tuple[np.ndarray, GenerationState]:
    """Like `Generator.start` with one prompt, but whatever the state has already read of it is not read again.

    A conversation, for example, begins as it did before the last turn. The state cannot be used afterwards, since the
    new one takes over its caches.
    """
    window = np.asarray(prompt)[None if model.is_endless else -model.config.block_size :]
    read = state.window[0, : len(window) - 1]  # the last token is read in any case: the prediction is its result
    same = int(np.append(window[: len(read)] != read, True).argmax())
    for cache in state.caches:
        cache.cut(same)
    same = state.caches[0].length  # 0 for a recurrent state that would have to go back
    state = GenerationState(window[None], state.caches)
    return model.log_probs(window[None, same:], state), state


def converse(conversation: Conversation, prepare: Callable[[str], str], hint: str = HINT) -> None:
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


def typed_lines() -> Iterator[str]:
    """Each line that the user types after a prompt, with its line end, until the end of the input."""
    sys.stdin.reconfigure(encoding="utf-8", errors="replace")
    print("> ", end="", file=sys.stderr, flush=True)
    for line in iter(sys.stdin.readline, ""):
        yield line
        print("> ", end="", file=sys.stderr, flush=True)
    say("")


def show_conversation(
    options: SampleOptions, given: Mapping[str, Any], trained: Trained, model: GPT, prompt: str
) -> None:
    """Continue the lines that the user types, in turns."""
    tokenizer, ends, start = trained.tokenizer, ends_of(trained), prompt if "start" in given else ""
    remembering, size, told = RememberingModel(model), model.config.block_size, []

    def reply(settings: SampleOptions, text: str, turn: int) -> Iterator[str]:
        ids = encode(tokenizer, text)
        if len(ids) > size and not told and not model.is_endless:
            told.append(warn_of_cut([len(ids)], size, "last", "text"))
        return write_continuation(settings, remembering, tokenizer, ids, turn, ends)

    if start:
        warn_of_unknown(tokenizer, start)
        write(start.removesuffix("\n") + "\n")
    converse(Conversation(options, start, reply, check=partial(warn_of_unknown, tokenizer)), tokenizer.prepare)
