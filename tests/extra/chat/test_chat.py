"""Conversations: a template turns messages into tokens, the model reads only new ones, and answers end."""

import io
import json
import sys

import numpy as np
import pytest

import sample
from extra.chat import chat, chat_template
from extra.chat.chat import Chat, ChatFormat, Fitting, render
from extra.chat.interactive import RememberingModel
from gpt.model import GPT
from tests.extra.pretrained.gpt2_folders import SETTINGS, random_weights, write_folder
from tests.gpt.small_gpts import small_gpt
from text.decoding.sample_options import SampleOptions
from text.tokenizers.byte import ByteTokenizer
from tinygrad_lite.errors import CheckpointError, UserError

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
def form(monkeypatch):
    monkeypatch.setattr(chat, "render", plain_render)
    return ChatFormat(TEMPLATE, {"eos_token": "<end>"}, TOKENIZER, {257})


def user(text):
    return {"role": "user", "content": text}


@pytest.mark.parametrize("text", ["Tag", "a<end>b", "<start>", "<<end>>", "\ue000<end>\ue001", "<end><end>"])
def test_messages_become_tokens_and_names_of_special_tokens_in_them_are_text(form, text):
    ids = form.encode([user(text)])
    assert ids == [256, *f"user: {text}".encode(), 257, *b"\n", 256, *b"assistant: "]


def test_the_oldest_turns_are_left_out_of_a_long_conversation(form):
    messages = [user("eins"), {"role": "assistant", "content": "zwei"}, user("drei")]
    whole = form.encode(messages)
    fitting = Fitting(form)
    assert fitting(messages, len(whole)) == whole
    assert fitting(messages, len(whole) - 1) == form.encode(messages[2:])
    assert fitting(messages[2:], 1) == form.encode(messages[2:])


def test_a_long_conversation_reads_and_writes_as_little_in_each_turn(form, monkeypatch):
    """The tokens are those of the messages that remain if the oldest pairs are dropped one by one."""
    fitting, messages, rendered = Fitting(form), [], []
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


def test_templates_share_a_process_that_is_replaced_when_it_ends():
    pytest.importorskip("jinja2")
    template = "{% for m in messages %}{% generation %}{{ m }}\n{% endgeneration %}{% endfor %}"
    first = chat.template_process()
    assert [render(template, {"messages": [word, "ä"]}) for word in "ab"] == ["a\nä\n", "b\nä\n"]
    assert chat.template_process() is first
    with pytest.raises(CheckpointError):  # too much memory, or on a machine that is very busy, too much time
        render("{{ 'a' * 10 ** 10 }}", {})
    assert chat.template_process() is not first
    assert render(template, {"messages": []}) == ""


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
    other, _ = remembering.start(np.array([[5, 4, 3]]))
    np.testing.assert_allclose(other, model.start(np.array([[5, 4, 3]]))[0], rtol=0, atol=1e-6)


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


@pytest.fixture
def folder(tmp_path):
    """A folder in GPT-2's layout with a chat template, of random weights."""
    settings = SETTINGS | {"vocab_size": 258, "n_positions": 64}
    write_folder(tmp_path, random_weights(settings, "float32"), **settings | {"eos_token_id": 257})
    (tmp_path / "tinygrad_lite_tokenizer.json").write_text(json.dumps(TOKENIZER.to_json()), encoding="utf-8")
    about = {"chat_template": TEMPLATE, "eos_token": {"content": "<end>"}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(about), encoding="utf-8")
    return tmp_path


def test_the_format_is_read_from_a_folder(folder):
    form = ChatFormat.from_folder(folder, TOKENIZER)
    assert (form.template, form.named, form.ends) == (TEMPLATE, {"eos_token": "<end>"}, {257})
    (folder / "chat_template.jinja").write_text("newer", encoding="utf-8")
    (folder / "generation_config.json").write_text('{"eos_token_id": [256, 999, "x"]}', encoding="utf-8")
    form = ChatFormat.from_folder(folder, TOKENIZER)
    assert (form.template, form.ends) == ("newer", {256, 257})


@pytest.mark.parametrize("named", [{}, {"eos_token_id": 5}, {"generation_config": [6, 7]}])
def test_the_mark_that_a_template_writes_after_an_answer_ends_one(named, folder, monkeypatch):
    monkeypatch.setattr(chat, "render", plain_render)
    (folder / "config.json").write_text(json.dumps({"eos_token_id": named.get("eos_token_id")}), encoding="utf-8")
    about = {"eos_token_id": named.get("generation_config")}
    (folder / "generation_config.json").write_text(json.dumps(about), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}), encoding="utf-8")
    assert ChatFormat.from_folder(folder, TOKENIZER).ends == {257, *named.get("generation_config", [])} | (
        {5} if "eos_token_id" in named else set()
    )


ODD_SETTINGS = [
    ({"chat_template": [{"name": "rag"}]}, 257, r"has no chat template, so .*: try python sample.py smollm2 --chat"),
    ({"chat_template": ["a"]}, 257, "has no chat template"),
    ({"chat_template": [["default"], {"name": "default", "template": {}}]}, 257, "has no chat template"),
]
ENDLESS = [None, [[1]], {}, [{}, None, "x", -1, 10**30]]
ENDS_WITH = "does not say with which token the model ends its message"
ODD_SETTINGS += [({"chat_template": "{{ messages }}"}, ending, ENDS_WITH) for ending in ENDLESS]


@pytest.mark.parametrize(("about", "ending", "reason"), ODD_SETTINGS)
def test_odd_settings_of_a_chat_are_refused(folder, about, ending, reason):
    (folder / "config.json").write_text(json.dumps({"eos_token_id": ending}), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(about), encoding="utf-8")
    with pytest.raises(CheckpointError, match=reason):
        ChatFormat.from_folder(folder, TOKENIZER)


def test_a_template_that_writes_nothing_is_refused(form, monkeypatch):
    monkeypatch.setattr(chat, "render", lambda template, variables: "")
    with pytest.raises(CheckpointError, match="chat template writes nothing"):
        form.encode([user("Tag")])


def test_a_tokenizer_without_special_tokens_is_enough(monkeypatch):
    monkeypatch.setattr(chat, "render", plain_render)
    ids = ChatFormat(TEMPLATE, {}, ByteTokenizer(), {10}).encode([user("Tag")])
    assert bytes(ids) == b"<start>user: Tag<end>\n<start>assistant: "


def test_a_single_question_and_a_conversation_are_answered(folder, monkeypatch, capsys):
    monkeypatch.setattr(chat, "render", plain_render)
    common = [str(folder), "--chat", "--greedy", "--max_new_tokens", "6"]
    assert sample.main([*common, "--start", "Tag"]) == 0
    once = capsys.readouterr().out
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"Tag\n/foo\nTag\n\nnie\n")))
    assert sample.main(common) == 0
    out, err = capsys.readouterr()
    assert out.startswith(once)
    assert len(once) > 1
    assert "there is no command /foo" in err
    assert err.count("> ") == 4


def test_an_answer_ends_at_the_models_end_token(folder, monkeypatch, capsys):
    monkeypatch.setattr(chat, "render", plain_render)
    monkeypatch.setattr(GPT, "start", lambda self, prompts, use_cache=True: (certain(ord("J")), None))
    steps = iter([certain(ord("a")), certain(257)])
    monkeypatch.setattr(GPT, "step", lambda self, tokens, state: (next(steps), None))
    monkeypatch.setattr(RememberingModel, "_keep", lambda self, *result: result)
    assert sample.main([str(folder), "--chat", "--start", "Tag"]) == 0
    assert capsys.readouterr().out == "Ja\n"


def certain(token):
    return np.log(np.eye(258)[[token]] + 1e-9)


# --- templates, which are untrusted programs -------------------------------------------------------------------------


def test_without_jinja2_an_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(chat, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r'jinja2, which is not installed: pip install -e "\.\[chat\]"'):
        render(TEMPLATE, {"messages": []})


def test_a_template_is_rendered():
    pytest.importorskip("jinja2")
    variables = {"messages": [user("ä\n{{ 7 }}")], "add_generation_prompt": True}
    assert render(TEMPLATE, variables) == plain_render(TEMPLATE, variables)
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
def test_a_hostile_template_is_refused_with_the_reason(monkeypatch, template, reason):
    pytest.importorskip("jinja2")
    if "takes more" in reason:
        monkeypatch.setattr(chat_template, "MAX_SECONDS", 1)
    with pytest.raises(CheckpointError, match=reason):
        render(template, {"messages": []})
