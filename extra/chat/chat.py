"""A conversation with a model that was trained on conversations: messages with roles instead of one text.

Such a model has a chat template, which writes messages as one text with special tokens around them, for SmolLM2

    <|im_start|>user
    What is a tensor?<|im_end|>
    <|im_start|>assistant

and the model continues it to its own <|im_end|>. Each turn adds two messages, and the model reads only the new ones:
the keys and values of the earlier ones are kept (`interactive.resume`).

What the user types is text, even where it looks like a special token: <|im_end|> typed by a user is ten characters of
text and does not end the message.
"""

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from extra.chat import chat_template
from extra.chat.interactive import Conversation, RememberingModel, converse
from extra.pairs.answering import END, is_answering, is_conversing, separator_of, turns_ids
from extra.pretrained.read import end_tokens, read_json
from gpt.model import GPT
from gpt.sample import write_continuation
from text.decoding.sample_options import SAMPLING, SampleOptions
from text.tokenizers.base import Tokenizer
from tinygrad_lite.errors import CheckpointError, OptionError, UserError
from training.cli.console import run_apart
from training.cli.files import MAX_SETTINGS, text_of
from training.cli.prompt import warn_of_cut
from training.family import Trained

Message = dict[str, str]  # "role" (system, user, assistant) and "content"


class ChatFormat:
    """How messages are written for a model.

    Args:
        template: the chat template.
        named: the special tokens that a template may name, such as bos_token.
        tokenizer: the model's.
        ends: ids of the tokens with which the model ends its message.
    """

    def __init__(self, template: str, named: Mapping[str, str], tokenizer: Tokenizer, ends: set[int]) -> None:
        self.template, self.named, self.tokenizer, self.ends = template, dict(named), tokenizer, ends
        longest_first = sorted(tokenizer.specials, key=len, reverse=True)
        self._specials = re.compile("(" + ("|".join(map(re.escape, longest_first)) or "(?!)") + ")")  # (?!): nothing

    @classmethod
    def from_folder(cls, folder: Path, tokenizer: Tokenizer) -> Self:
        """The format of a model in Hugging Face's layout.

        Its template is in chat_template.jinja or tokenizer_config.json; the tokens that end a message are the eos_token
        there, those that end a text, and the mark that the template writes after a message of the model.

        Raises: CheckpointError if there is no template, or no token that ends a message.
        """
        path = folder / "tokenizer_config.json"
        about = read_json(path) if path.is_file() else {}
        template = about.get("chat_template")
        if isinstance(template, list):  # several, by name
            entries = [entry for entry in template if isinstance(entry, dict)]
            template = next((entry.get("template") for entry in entries if entry.get("name") == "default"), None)
        if (folder / "chat_template.jinja").is_file():
            template = text_of(folder / "chat_template.jinja", MAX_SETTINGS, errors="replace")
        if not isinstance(template, str):
            raise CheckpointError(
                f"{folder} has no chat template, so the model was not trained on conversations: try python sample.py "
                "smollm2 --chat, or --interactive, which takes turns with any model"
            )
        given = {name: about.get(name) for name in ("bos_token", "eos_token", "pad_token", "unk_token")}
        texts = {name: token.get("content") if isinstance(token, dict) else token for name, token in given.items()}
        named = {name: text for name, text in texts.items() if isinstance(text, str)}
        ends = end_tokens(folder, tokenizer.vocab_size, every=True)
        ends |= {tokenizer.specials.get(named.get("eos_token"))} - {None}
        found = cls(template, named, tokenizer, ends)
        found.ends |= found._end_of_reply()
        if not found.ends:
            raise CheckpointError(f"{folder} does not say with which token the model ends its message (eos_token)")
        return found

    def _end_of_reply(self) -> set[int]:
        """The token of a mark that the template writes after a message of the model, if it does."""
        said = [{"role": role, "content": role} for role in ("user", "assistant")]
        try:
            text = render(self.template, self.named | {"messages": said, "add_generation_prompt": False})
        except UserError:  # which is said when a message is to be written
            return set()
        ids = self.tokenizer.encode(text.rpartition("assistant")[2].lstrip(), allow_special=True)
        return {*ids[:1]} & {*self.tokenizer.specials.values(), *self.tokenizer.added}

    def encode(self, messages: Sequence[Message]) -> list[int]:
        """The tokens of these messages and of the beginning of the model's next one.

        Raises: UserError if the template cannot be run, refuses these messages, or writes nothing.
        """
        # A character that occurs nowhere marks what looks like a special token in a message, and is removed afterwards.
        used = {character for message in messages for character in message["content"]}
        mark = next(chr(number) for number in range(0xE000, 0x110000) if chr(number) not in used)
        guard = partial(self._specials.sub, lambda found: found[0][0] + mark + found[0][1:])
        guarded = [message | {"content": guard(message["content"])} for message in messages]
        text = render(self.template, self.named | {"messages": guarded, "add_generation_prompt": True})
        specials, ids = self.tokenizer.specials, []
        for part in self._specials.split(text):
            if part in specials:
                ids.append(specials[part])
            elif part := part.replace(mark, ""):
                ids += self.tokenizer.encode_after(part) if ids else self.tokenizer.encode_text(part)
        if not ids:
            raise CheckpointError("the model's chat template writes nothing for these messages: try --interactive")
        return ids


def question_ids(tokenizer: Tokenizer, messages: Sequence[Message]) -> list[int]:
    """The tokens of messages, for a model that learned from this project's conversations, and the mark of an answer."""
    turns = [message["content"] for message in messages]
    return [*turns_ids(tokenizer, turns), tokenizer.specials[separator_of(tokenizer)]]


class Chat(Conversation):
    """A conversation whose `text` is a list of messages."""

    about_lines = "a line is a message, which the model replies to; an empty line ends"

    def _listen(self, line: str) -> bool:
        if line.strip():
            self.text = [*self.text, {"role": "user", "content": line.strip()}]
        return bool(line.strip())

    def _remember(self, reply: str) -> None:
        if reply:
            self.text = [*self.text, {"role": "assistant", "content": reply}]
        else:  # a message that got no reply is dropped: some templates refuse two in a row
            self.text = self.text[:-1]


def render(template: str, variables: Mapping[str, Any]) -> str:
    """The text that a template makes from these variables, which must be JSON values.

    Raises: UserError if jinja2 is not installed; CheckpointError if the template fails, or takes too much.
    """
    if (found := find_spec("jinja2")) is None or found.origin is None:
        raise UserError('--chat needs the package jinja2, which is not installed: pip install -e ".[chat]"')
    command = ["python", os.path.abspath(chat_template.__file__), str(Path(found.origin).parents[1])]
    request = json.dumps({"template": template, "variables": variables}).encode("ascii")
    with tempfile.TemporaryDirectory(prefix="tinygrad_lite-") as folder:
        try:
            done = run_apart(command, folder, input=request, timeout=chat_template.MAX_SECONDS)
        except subprocess.TimeoutExpired:
            raise CheckpointError(f"the model's chat template takes more than {chat_template.MAX_SECONDS} s") from None
    if not done.stdout:
        lines = done.stderr.decode("utf-8", "replace").splitlines() or ["it was ended"]
        raise CheckpointError(f"the model's chat template takes too much memory, or cannot be run ({lines[-1]})")
    is_refused, text = json.loads(done.stdout)
    if is_refused:
        raise CheckpointError(f"the model's chat template refuses these messages: {text}")
    return text


class Fitting:
    """The tokens of the latest messages of a conversation: the oldest turns are dropped until there is room.

    The last message is never left out. A conversation only grows, so what was dropped once is not tried again.

    Args:
        encode: the tokens of messages.
    """

    def __init__(self, encode: Callable[[Sequence[Message]], list[int]]) -> None:
        self._encode = encode
        self._earlier: list[tuple[Sequence[Message], int, int]] = []  # what was asked for, and the first message kept

    def __call__(self, messages: Sequence[Message], room: int) -> list[int]:
        """The tokens of the messages, at most `room` of them."""
        grown = [one for one in self._earlier if room <= one[1] and messages[: len(one[0])] == one[0]]
        first = grown[-1][2] if grown else 0
        while len(ids := self._encode(messages[first:])) > room and first + 2 < len(messages):
            first += 2
        self._earlier = [*grown[-1:], (messages, room, first)]  # two, since a message without a reply is forgotten
        return ids


def show_chat(options: SampleOptions, given: Mapping[str, Any], trained: Trained, model: GPT, question: str) -> None:
    """Answer one question, or talk with a user who types messages."""
    remembering, tokenizer = RememberingModel(model), trained.tokenizer
    if is_conversing(trained):
        encode, ends = partial(question_ids, tokenizer), {tokenizer.specials[END]}
        options = replace(options, greedy=options.greedy or not {*SAMPLING} & {*given})
    elif is_answering(trained):
        raise OptionError('--chat is for models that learned from conversations; this one answers: --start "a text"')
    else:
        form = ChatFormat.from_folder(trained.path, tokenizer)
        encode, ends = form.encode, form.ends
    fitting = Fitting(encode)

    def reply(settings: SampleOptions, messages: Sequence[Message], turn: int) -> Iterator[str]:
        room = model.config.block_size - min(settings.max_new_tokens, model.config.block_size // 2)
        ids = fitting(messages, room)
        warn_of_cut([len(ids)], model.config.block_size, "last", "message with its marks")
        return write_continuation(settings, remembering, tokenizer, ids, turn, ends)

    chat = Chat(options, [], reply)
    if "start" in given:
        chat.take(" " + question)  # with a space, so that a / is text
    else:
        converse(chat, tokenizer.prepare, "type a message; an empty one or /quit ends, /help explains more")
