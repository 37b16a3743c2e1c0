"""Conversations: a template turns messages into tokens, the model reads only new ones, and answers end."""

from collections.abc import Iterator
from contextlib import nullcontext

import numpy as np
import pytest

import sample
from extra.chat import chat, chat_template
from extra.chat.chat import Chat, ChatFormat, Fitting, render
from extra.chat.interactive import Conversation, RememberingModel, resume
from gpt.fast.step_cuda import FastStepCuda
from gpt.model import GPT
from tests.extra.pretrained.gpt2_folders import byte_folder, write_json
from tests.gpt.combined_settings import COMBINED
from tests.gpt.fast.test_step import make_model
from tests.gpt.fast.test_step_cuda import TOKENS
from tests.gpt.small_gpts import small_gpt
from tests.training.cli import test_console as core
from tests.training.cli.test_console import trap  # noqa: F401
from text.decoding.sample_options import SampleOptions
from text.tokenizers.byte import ByteTokenizer
from tinygrad_lite.device import on_host
from tinygrad_lite.errors import CheckpointError, DecodingError, OptionError
from tinygrad_lite.functional.registry import composed

TOKENIZER = ByteTokenizer(["<start>", "<end>"])  # ids 256 and 257
TEMPLATE = (
    "{% for message in messages %}<start>{{ message.role }}: {{ message.content }}<end>\n{% endfor %}"
    "{% if add_generation_prompt %}<start>assistant: {% endif %}"
)


def plain_render(template, variables):
    """TEMPLATE in Python."""
    assert template == TEMPLATE
    said = "".join(f"<start>{m['role']}: {m['content']}<end>\n" for m in variables["messages"])
    return said + "<start>assistant: " * variables["add_generation_prompt"]


@pytest.fixture
def plain(monkeypatch):
    """TEMPLATE is rendered without jinja2."""
    monkeypatch.setattr(chat, "render", plain_render)


@pytest.fixture
def form(plain):
    return ChatFormat(TEMPLATE, {"eos_token": "<end>"}, TOKENIZER, {257})


def user(text):
    return {"role": "user", "content": text}


@pytest.mark.parametrize("text", ["a<end>b", "<<end>>", "\ue000<end>\ue001"])
def test_messages_become_tokens_and_names_of_special_tokens_in_them_are_text(form, text):
    assert form.encode([user(text)]) == [256, *f"user: {text}".encode(), 257, *b"\n", 256, *b"assistant: "]


def test_a_long_conversation_reads_and_writes_as_little_in_each_turn(form, monkeypatch):
    """The tokens are those of the messages that remain if the oldest pairs are dropped one by one."""
    fitting, messages, rendered = Fitting(form.encode), [], []
    monkeypatch.setattr(chat, "render", lambda *what: rendered.append(len(what[1]["messages"])) or plain_render(*what))
    for turn in range(60):
        room = 500 if turn == 40 else 300 - 20 * (turn == 30)
        messages = [*messages, user(f"{turn}" * (1 + 40 * (turn == 20)))]
        del rendered[:]
        found = fitting(messages, room)
        if turn not in (40, 41):  # where the room is another
            assert sum(rendered) < 150
        rest = messages
        while len(expected := form.encode(rest)) > room and len(rest) > 2:
            rest = rest[2:]
        assert found == expected
        if turn % 7:  # the others get no reply and are forgotten
            messages = [*messages, {"role": "assistant", "content": "so"}]
        else:
            messages = messages[:-1]


def test_a_message_without_a_reply_is_forgotten(capsys):
    def reply(options, messages, turn):
        yield from replies.pop(0)

    replies = [["Gu", "ten"], [], ["Tag"]]
    talk = Chat(SampleOptions(), [], reply)
    assert all(talk.take(line) for line in ("Hallo ", "und?", "Ja"))
    roles = [("user", "Hallo"), ("assistant", "Guten"), ("user", "Ja"), ("assistant", "Tag")]
    assert talk.text == [{"role": role, "content": text} for role, text in roles]
    assert talk.take("/reset")
    assert talk.text == []
    assert not talk.take("")


@pytest.mark.parametrize("block_size", [64, 12])
def test_only_new_tokens_are_read(block_size):
    model = small_gpt("float32", vocab_size=23, block_size=block_size, n_embd=8, positions="rotary").eval()
    read = []
    whole = model.predict
    model.predict = lambda ids, state: read.append(ids.shape[1]) or whole(ids, state)
    remembering, text = RememberingModel(model), [1, 2, 3, 4, 5]
    for new in ([6, 7], [8, 9, 10], [], [11, 12]):
        text = text + new
        del read[:]
        log_probs, state = remembering.start(np.array([text]))
        if block_size == 64:  # a single token is read by the fast step
            assert read == ([7] if new == [6, 7] else [len(new)] if new else [])
        expected, _ = model.start(np.array([text]))
        np.testing.assert_allclose(log_probs, expected, rtol=0, atol=1e-6)
        for _ in range(2):  # the model's message, of which the last token is not read
            text = [*text, int(log_probs.argmax())]
            log_probs, state = remembering.step(np.array(text[-1:]), state)
        text = text[:-1]


def test_an_interrupted_answer_leaves_no_partial_cache():
    model = small_gpt("float32").eval()
    remembering = RememberingModel(model)
    remembering.start(np.array([[1, 2, 3]]))
    second = model.blocks[1].forward
    model.blocks[1].forward = None  # then the layers' caches have different lengths
    with pytest.raises(TypeError):
        remembering.start(np.array([[1, 2, 3, 4, 5]]))
    model.blocks[1].forward = second
    log_probs, _ = remembering.start(np.array([[1, 2, 3, 4, 5]]))
    np.testing.assert_allclose(log_probs, model.start(np.array([[1, 2, 3, 4, 5]]))[0], rtol=0, atol=1e-6)


# --- a whole model ------------------------------------------------------------------------------------------------


def chat_folder(path, **changes):
    """A folder in GPT-2's layout with a chat template, of random weights."""
    folder = byte_folder(path, vocab_size=258, eos_token_id=257, **changes)
    about = {"chat_template": TEMPLATE, "eos_token": {"content": "<end>"}}
    return write_json(folder, tinygrad_lite_tokenizer=TOKENIZER.to_json(), tokenizer_config=about)


@pytest.fixture
def folder(tmp_path):
    return chat_folder(tmp_path, n_positions=64)


def test_the_format_is_read_from_a_folder(folder):
    form = ChatFormat.from_folder(folder, TOKENIZER)
    assert (form.template, form.named, form.ends) == (TEMPLATE, {"eos_token": "<end>"}, {257})
    (folder / "chat_template.jinja").write_text("newer", encoding="utf-8")
    write_json(folder, generation_config={"eos_token_id": [256, 999, "x"]})
    form = ChatFormat.from_folder(folder, TOKENIZER)
    assert (form.template, form.ends) == ("newer", {256, 257})


@pytest.mark.parametrize(("config", "generation_config"), [(None, None), (None, [6, 7])])
def test_the_mark_that_a_template_writes_after_an_answer_ends_one(config, generation_config, folder, plain):
    write_json(folder, config={"eos_token_id": config}, generation_config={"eos_token_id": generation_config})
    write_json(folder, tokenizer_config={"chat_template": TEMPLATE})
    assert ChatFormat.from_folder(folder, TOKENIZER).ends == {257, *(generation_config or [])}


ENDS_WITH = "does not say with which token the model ends its message"
ODD_SETTINGS = [({"chat_template": "{{ messages }}"}, ending, ENDS_WITH) for ending in (None, [{}, "x", -1, 10**30])]
ODD_SETTINGS += [({"chat_template": [{"name": "rag"}]}, 257, r"has no chat template, so .*: try python sample.py smol")]


@pytest.mark.parametrize(("about", "ending", "reason"), ODD_SETTINGS)
def test_odd_settings_of_a_chat_are_refused(folder, about, ending, reason):
    write_json(folder, config={"eos_token_id": ending}, tokenizer_config=about)
    with pytest.raises(CheckpointError, match=reason):
        ChatFormat.from_folder(folder, TOKENIZER)


def test_a_single_question_and_a_conversation_are_answered(folder, plain, ran, typed):
    common = (sample.main, folder, "--chat", "--greedy", "--max_new_tokens", 6)
    once = ran(*common, "--start", "Tag").out
    typed("Tag\n/foo\nTag\n\nnie\n")
    out, err = ran(*common)
    assert out.startswith(once)
    assert len(once) > 1
    assert "there is no command /foo" in err
    assert err.count("> ") == 4


def test_an_answer_ends_at_the_models_end_token(folder, plain, monkeypatch, ran):
    first, *rest = np.log(np.eye(258)[[[ord("J")], [ord("a")], [257]]] + 1e-9)
    monkeypatch.setattr(GPT, "start", lambda self, prompts, use_cache=True: (first, None))
    monkeypatch.setattr(GPT, "step", lambda self, tokens, state: (rest.pop(0), None))
    monkeypatch.setattr(RememberingModel, "_keep", lambda self, *result: result)
    assert ran(sample.main, folder, "--chat", "--start", "Tag").out == "Ja\n"


# --- templates, which are untrusted programs -------------------------------------------------------------------------


def test_a_template_is_rendered(jinja2):
    variables = {"messages": [user("ä\n{{ 7 }}")], "add_generation_prompt": True}
    assert render(TEMPLATE, variables) == plain_render(TEMPLATE, variables)
    marked = "{% for m in messages %}{% generation %}{{ m }}\n{% endgeneration %}{% endfor %}"  # only for training
    assert render(marked, {"messages": ["a", "ä"]}) == "a\nä\n"
    template = "{%- if tools is defined %}x{% endif %}\n  {%- for i in [1, 2] %}{% if i == 2 %}{% break %}{% endif %}\n"
    assert render(template + "{{ messages | tojson }}{% endfor %}", {"messages": ["<ß>"]}) == '["<ß>"]'


HOSTILE = [
    ("{{ raise_exception('roles must alternate') }}", "refuses these messages: roles must alternate"),
    ("{% for %}", "refuses these messages"),
    ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "refuses these messages: .*unsafe"),
    ("{{ messages.append(1) }}", "refuses these messages: .*unsafe"),
    ("{% for i in range(100000) %}{{ 'a' * 1000 }}{% endfor %}", "writes more than 4,000,000 characters"),
    ("{{ 'a' * 10 ** 10 }}", "too much memory"),
    ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "takes more than 1 s"),
]


@pytest.mark.parametrize(("template", "reason"), HOSTILE)
def test_a_hostile_template_is_refused_with_the_reason(monkeypatch, template, reason, jinja2):
    if "takes more" in reason:
        monkeypatch.setattr(chat_template, "MAX_SECONDS", 1)
    with pytest.raises(CheckpointError, match=reason):
        render(template, {"messages": []})


@pytest.mark.skipif(core.os.name != "posix", reason="programs of POSIX")
def test_what_is_started_runs_nothing_of_the_current_folder(trap, monkeypatch, jinja2):  # noqa: F811

    def fill_in():
        assert render("{{ a | tojson }}", {"a": [1]}) == "[1]"

    core.test_what_is_started_runs_nothing_of_the_current_folder(fill_in, trap, monkeypatch)


# --- a conversation with any model: it keeps its text, runs commands, and survives errors -----------------------------


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
    ("", ["Tag", ""], ["Tag\n", "Tag\nAra0"]),  # after an empty line it continues its text
    ("Faust:", ["Tag", "/reset", "Tag"], ["Faust:\nTag\n", "Faust:\nTag\n"]),
]


@pytest.mark.parametrize(("start", "lines", "asked"), TALKS)
def test_the_earlier_text_remains_the_context(start, lines, asked):
    talk, parrot = conversation(start)
    assert all(talk.take(line) for line in lines)
    turns = [0, 0] if "/reset" in lines else [*range(len(asked))]
    assert (parrot.asked, talk.text) == ([*zip(asked, turns, strict=True)], f"{asked[-1]}Ara{turns[-1]}")
    assert parrot.lines == [line for line in lines if line.strip() and line != "/reset"]


SETTING_COMMANDS = [
    *[("/temperature 0.5", "temperature", 0.5), ("/top-k  20 ", "top_k", 20), ("/greedy off", "greedy", False)],
    *[("/stop 'a b' c", "stop", ["a b", "c"]), ("/stop --help -h", "stop", ["--help", "-h"])],
]


@pytest.mark.parametrize(("command", "name", "value"), SETTING_COMMANDS)
def test_settings_change_for_the_next_turns(command, name, value, capsys):
    talk, parrot = conversation()
    talk.take("Tag")
    assert talk.take(command)
    talk.take("Tag")
    assert (getattr(parrot.options[1], name), parrot.options[0]) == (value, SampleOptions())
    assert "/" not in talk.text
    assert capsys.readouterr() == ("", f"{name} is {value}\n")


WRONG_COMMANDS = [
    ("/temperature -1", "--temperature -1: must be at least 0"),
    ("/seed 1 --start=x", "--seed 1 --start=x: must be a whole number"),
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
    with nullcontext() if isinstance(error, KeyboardInterrupt) else pytest.raises(DecodingError):
        assert talk.take("Tag")
    assert (talk.text, talk.turn) == ("Tag\nAra", 1)


# --- what has been read is not read again -----------------------------------------------------------------------------


def test_a_conversation_is_resumed(cuda):
    """The general step reads more tokens after those of the fast one, from the same caches."""
    model, text = make_model("float32", **COMBINED["qwen"]).to(cuda), TOKENS[0]
    _, state = model.start(text[None, :3])
    for token in text[3:6]:
        _, state = model.step(np.array([token]), state)
    assert type(state.fast) is FastStepCuda
    found, state = resume(model, text[:9], state)
    following, _ = model.step(text[9:10], state)
    for log_probs, length in ((found, 9), (following, 10)):
        with composed():
            expected, _ = model.start(text[None, :length])
        np.testing.assert_allclose(on_host(log_probs), expected, rtol=0, atol=2e-5)
