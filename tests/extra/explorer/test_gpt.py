"""The page of a GPT: one closed file, whose data are those of the checkpoint. tests/extra/e2e runs its scripts."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import sample
from extra.chat.chat import Fitting, question_ids
from extra.explorer import gpt as build
from extra.explorer import page
from extra.explorer.page import assemble, panels_of
from extra.gpt.config import GPTConfig
from extra.gpt.trained import load_trained
from extra.inside.gpt import look_inside
from extra.pairs.answering import END
from tests.gpt.saved_models import TEXT, saved_gpt
from tests.tiny_runs import ROOT
from text.tokenizers.bpe import BPETokenizer
from text.tokenizers.byte import ByteTokenizer
from text.tokenizers.char import CharTokenizer
from tinygrad_lite.transformer import MultiHeadAttention

HOSTILE = "</script><script>alert(1)</script> <!-- \u202e\u2066 & \u2028 \"' ]]> " + "x" * 10_000
CHARACTERS = CharTokenizer.train(TEXT + HOSTILE)


class Elements(HTMLParser):
    """The elements of a page, each with its attributes and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found = [["", {}, ""]]
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.found.append([tag, dict(attributes), ""])

    def handle_endtag(self, tag):
        self.found.append([f"/{tag}", {}, ""])  # the text that follows is not that of the element

    def handle_data(self, data):
        self.found[-1][2] += data

    def named(self, tag):
        return [(attributes, text) for name, attributes, text in self.found if name == tag]


def text_of(html: str, name: str) -> str:
    """The text of the script element with this id."""
    (text,) = (text for attributes, text in Elements(html).named("script") if attributes.get("id") == name)
    return text


def blob(html: str, name: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text_of(html, name)), "<f2").astype(np.float32)


def explained(checkpoint, *arguments, start=TEXT[:20]):
    """Writes a page as sample.py does; returns its HTML and its data."""
    sample.main([str(checkpoint), "--explain", "page.html", "--start", start, *arguments])
    html = Path("page.html").read_text(encoding="utf-8")
    return html, json.loads(text_of(html, "data"))


@pytest.fixture
def path(workplace):
    """The checkpoint of a GPT on characters."""
    return saved_gpt(Path("m.safetensors"), CHARACTERS)


def test_no_prompt_and_no_tokenizer_breaks_out(workplace):
    path = saved_gpt(Path("m.safetensors"), CharTokenizer(sorted({*HOSTILE}), ("<unk>", "</script><b>", "<!--")))
    html, data = explained(path, start=HOSTILE)
    plain, _ = explained(path, start="x")
    assert (data["prompt"], data["specials"][1]) == (HOSTILE, "</script><b>")
    tags = [[tag for tag, *_ in Elements(text).found] for text in (html, plain)]
    assert tags[0] == tags[1]
    assert "".join(text for attributes, text in Elements(html).named("script") if attributes).isascii()
    with pytest.raises(ValueError, match="JSON compliant"):
        page.embedded({"x": float("nan")})


def test_a_page_names_no_folder(workplace):
    trained = SimpleNamespace(path=Path("my: a/b"), adapter=None, about=f"{Path('my: a/b')}: gpt with 3")
    assert page.described(trained) == "gpt with 3"
    trained.adapter = Path("my: c/d")
    trained.about += f"; with {Path('my: c/d')}: adapter"
    assert page.described(trained) == "gpt with 3; with d: adapter"


def check_closed(html, scripts):
    """No address in it is fetched; every script and style is one that the policy names; nothing else may run.

    Returns the policy.
    """
    elements = Elements(html)
    policy = next(a["content"] for a, _ in elements.named("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    programs = [text for attributes, text in elements.named("script") if not attributes]
    assert len(programs) == len(scripts) + 4
    for text in [*programs, *(text for _, text in elements.named("style"))]:
        assert base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() in policy
        opens = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|fetch\(|https?://(?!www\.w3)"
        assert not re.search(opens, text)
    for tag, attributes, _ in elements.found:
        assert tag not in ("link", "img", "iframe", "object", "base")
        assert not {name for name in attributes if name.startswith("on") or name in ("src", "style")}
        assert attributes.get("href", "#").startswith("#")
    return policy


def test_the_file_is_closed(path):
    assert "worker" not in check_closed(explained(path)[0], build.SCRIPTS)


def test_no_script_ends_its_own_element_and_no_words_of_a_panel_are_html():
    for path in (*page.FOLDER.glob("*.js"), *page.FOLDER.glob("*.css")):
        assert not re.search("</(script|style)|<!--", path.read_text(encoding="utf-8"), re.IGNORECASE), path
    panel = dict.fromkeys(("title", "lead", "formula"), "<b>") | {"sources": ["<b> <b>"]}
    assert "&lt;b&gt;" in assemble("<b>", ["<b>"], {"a": panel}, {}, {}, [])


def test_weights_are_those_of_the_checkpoint_as_float16(workplace):
    tokenizer = BPETokenizer.train(TEXT, 270)
    html, data = explained(saved_gpt(Path("m.safetensors"), tokenizer, tie_weights=False, bias=True))
    trained = load_trained(Path("m.safetensors"))
    numbers, begin = blob(html, "weights-0"), 0
    for name, shape in data["tensors"]:
        found = numbers[begin : begin + np.prod(shape)].reshape(shape)
        np.testing.assert_array_equal(found, trained.weights[name].astype(np.float16))
        begin += found.size
    assert (begin, len(data["tensors"])) == (numbers.size, len(trained.weights))
    assert (data["tokenizer"], data["checkpoints"]) == (tokenizer.to_json(), [5])


def test_a_run_that_kept_checkpoints_has_all_of_them_oldest_first(workplace, monkeypatch, capsys):
    for step in (10, 20, 30, 40):
        saved_gpt(Path(f"run/step-{step:08d}.safetensors"), CHARACTERS, step)
    saved_gpt(Path("run/step-00000050.safetensors"), CHARACTERS, 50, n_layer=1)  # of another model
    best = saved_gpt(Path("run/best.safetensors"), CHARACTERS, 30)
    html, data = explained(best)
    assert (data["checkpoints"], data["selected"], data["panels"][-1]) == ([10, 20, 30, 40], 2, "growing")
    later = load_trained(Path("run/step-00000040.safetensors")).weights[data["tensors"][0][0]]
    np.testing.assert_array_equal(blob(html, "weights-3")[: later.size], later.astype(np.float16).ravel())
    monkeypatch.setattr(build, "MAX_CHECKPOINTS", 3)
    assert explained(best)[1]["checkpoints"] == [10, 30, 40]
    assert "of 3 kept checkpoints, the page holds 2" in capsys.readouterr().err


def test_a_model_too_large_for_a_page_is_recorded(path, monkeypatch, capsys):
    monkeypatch.setattr(build, "MAX_LIVE", 100)
    html, data = explained(path)
    assert re.search(r"has [\d,]+ parameters, more than the 100 that a page computes with", capsys.readouterr().err)
    said = ("more than the 100", "Type anything", "Switch a head off")
    assert [words in html for words in said] == [True, False, False]
    recording, trained = data["recording"], load_trained(path)
    ids = trained.tokenizer.encode(TEXT)[:16]
    found = look_inside(trained.make_model(), ids)
    assert (recording["ids"], recording["pieces"][ids[0]].encode("latin-1")) == (ids, b"E")
    np.testing.assert_allclose(blob(html, "recorded-attention"), found.attention.ravel(), atol=1e-3)
    p = np.exp(found.logits) / np.exp(found.logits).sum(-1, keepdims=True)
    np.testing.assert_allclose(np.exp(blob(html, "recorded-logits")).reshape(16, -1), p[-1], atol=0.002)
    token, probability = recording["early"][1][3][0]
    assert (token, probability) == (p[1, 3].argmax(), pytest.approx(p[1, 3].max(), rel=1e-4))
    np.testing.assert_allclose(recording["added"][1][0], np.linalg.norm(found.added[1, 0], axis=-1), rtol=1e-4)


ANSWERING = [
    ("chat", 32, []),
    ("calculations", 0, ["answers each message by itself", "No calculator runs on the page"]),
]


@pytest.mark.parametrize(("dataset", "room", "notes"), ANSWERING)
def test_a_model_that_answers_gets_the_marks_of_its_turns(workplace, monkeypatch, dataset, room, notes):
    tokenizer = ByteTokenizer(("<answer>", END))
    path = saved_gpt(Path("m.safetensors"), tokenizer, dataset=dataset, block_size=64)
    html, data = explained(path, start=f" Wer\nist {END}?")
    asked = Fitting(partial(question_ids, tokenizer))([{"role": "user", "content": f"Wer ist {END}?"}], 32)
    assert data["talk"] == {"ids": asked, "marks": [256, 257], "room": room, "most": 500}
    assert (data["textless"], data["sampling"]["temperature"]) == ([256], 0)  # it may end its answer, and is greedy
    possible = ("answers each message by itself", "No calculator runs on the page")
    assert [note for note in possible if note in html] == notes
    assert explained(path, "--top_k", "5")[1]["sampling"]["temperature"] > 0
    monkeypatch.setattr(build, "MAX_LIVE", 100)
    _, data = explained(path, start=f"Wer ist {END}?")
    assert ("talk" in data, data["recording"]["ids"]) == (False, asked)


def test_what_the_page_cannot_compute_is_recorded_with_a_sentence(path, monkeypatch):
    trained = load_trained(path)
    model = trained.make_model()

    def why(**changes):
        return build.why_recorded(SimpleNamespace(**vars(trained) | {"composed": False} | changes), model, "a text")

    assert why() == why(config=replace(trained.config, residual=False)) == ""
    assert "a weight of 1e+06 is too large for float16" in why(weights={"a": np.array([1e6])})
    assert "lacks this model's tokenizer" in why(tokenizer=SimpleNamespace(kind="syllables"))
    assert "the page has its own formulas" in why(composed=True)
    for name, known in build.CHOICES.items():  # a choice of tomorrow, added as docs/how-to.md says
        first, *_ = GPTConfig.chosen()[name].metadata["choices"]
        monkeypatch.setitem(build.CHOICES, name, known.replace(first, ""))
        assert f"does not compute {name} {first}" in why(config=replace(trained.config, **{name: first}))
        monkeypatch.undo()
    monkeypatch.setattr(build, "COMPUTED", build.COMPUTED - {"residual"})  # as a setting of tomorrow would be
    assert "does not compute residual" in why(config=replace(trained.config, residual=False))
    model.blocks[0].mixer.__class__ = type("OtherAttention", (MultiHeadAttention,), {})
    assert "does not compute OtherAttention" in why()


PAGES = ["gpt", ("gpt", "recorded"), ("gpt", "conversation"), "encoder", "translation", "learning"]


@pytest.mark.parametrize("kind", PAGES)
def test_every_panel_names_functions_that_exist(kind):
    for panel in (panels_of(kind) if isinstance(kind, str) else panels_of(*kind)).values():
        for file, name in map(str.split, panel["sources"]):
            text = (ROOT / file).read_text(encoding="utf-8")
            assert re.search(rf"^ *(def |class |function )?{name.split('.')[-1]}\b", text, re.MULTILINE), (file, name)


def test_the_page_knows_what_python_says_it_knows():
    activations = ("model", "ACTIVATIONS", build.CHOICES["activation"].split())
    for file, name, known in (activations, ("tokenizer", "TOKENIZERS", build.TOKENIZERS)):
        table = (page.FOLDER / f"{file}.js").read_text(encoding="utf-8").split(f"const {name} = {{")[1].split("\n}")[0]
        assert re.findall(r'^  "?([\w-]+)"?:', table, re.MULTILINE) == sorted(known, key=table.index)


def test_the_text_to_count_is_the_part_to_learn_from(path):
    _, data = explained(path, "--compare", "text.txt")
    text = Path("text.txt").read_text(encoding="utf-8")
    compare = data["compare"]
    assert len(compare["text"]) > 1000
    assert text.startswith(compare["text"])
    assert (compare["order"], compare["vocabSize"], compare["isOwn"]) == (6, len({*text}), False)
    assert explained(path)[1]["compare"] is None
