"""The page in which a GPT learns is written: one closed file with its texts. tests/e2e runs its scripts."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

from studies import learn
from studies.explorer import gpt as build
from studies.explorer.learning import LIMITS, SCRIPTS, SHAPE
from tests.studies.pictures.test_pictures import contrast, shares
from tests.tiny_runs import ROOT, made_up_text


class Elements(HTMLParser):
    """The elements of a page, each with its attributes and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict, str]] = []
        self.ended = False
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes), ""))
        self.ended = False

    def handle_endtag(self, tag):
        self.ended = True

    def handle_data(self, data):
        if self.found and not self.ended:
            tag, attributes, text = self.found[-1]
            self.found[-1] = (tag, attributes, text + data)

    def named(self, tag):
        return [(attributes, text) for name, attributes, text in self.found if name == tag]


def text_of(html: str, name: str) -> str:
    """The text of the script element with this id."""
    (text,) = (text for attributes, text in Elements(html).named("script") if attributes.get("id") == name)
    return text


def check_closed(html, scripts):
    """No address in it is fetched; every script and style is one that the policy names; nothing else may run.

    Returns the policy.
    """
    elements = Elements(html)
    policy = next(a["content"] for a, _ in elements.named("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    programs = [text for attributes, text in elements.named("script") if not attributes]
    assert len(programs) == len(scripts) + 3
    for text in [*programs, *(text for _, text in elements.named("style"))]:
        assert base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() in policy
        opens = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|fetch\(|https?://(?!www\.w3)"
        assert not re.search(opens, text)
    for tag, attributes, _ in elements.found:
        assert tag not in ("link", "img", "iframe", "object", "base")
        assert not {name for name in attributes if name.startswith("on") or name in ("src", "style")}
        assert attributes.get("href", "#").startswith("#")
    return policy


# --- the page in which a GPT learns ------------------------------------------------------------------------------


def learning_page(*arguments):
    """Writes the page; returns its HTML and its data."""
    assert learn.main([*arguments]) == 0
    html = Path("learn.html").read_text(encoding="utf-8")
    return html, json.loads(text_of(html, "data"))


def test_the_file_is_closed_and_may_start_a_worker_from_its_own_text_alone(workplace):
    policy = check_closed(learning_page()[0], SCRIPTS)
    assert "worker-src blob:;" in policy
    assert policy.count("blob:") == 1


def test_it_has_the_poem_of_the_course_and_hamlet_and_first_the_reader_s_text(workplace):
    _, data = learning_page()
    poem, hamlet = (text["text"] for text in data["texts"])
    letters = (ROOT / "docs" / "course" / "04-letters" / "letters.py").read_text(encoding="utf-8")
    assert poem.startswith("Wer reitet so spät durch Nacht und Wind?\n")
    assert all(line in letters for line in poem.splitlines())
    assert hamlet.startswith("To be, or not to be")
    _, data = learning_page("--text", "text.txt")
    assert data["texts"][0] == {"name": "text.txt", "text": made_up_text()}
    for text in data["texts"]:
        assert LIMITS["shortest"] <= len(text["text"]) <= LIMITS["longest"]
    assert SHAPE["n_embd"] % (2 * SHAPE["n_head"]) == 0


def test_colours_have_enough_contrast_in_light_and_dark():
    style = (build.FOLDER / "style.css").read_text(encoding="utf-8")
    schemes = [dict(re.findall(r"--(\w+): (#\w{6})", block)) for block in re.findall(r":root \{(.*?)\}", style, re.S)]
    assert len(schemes) == 2
    for colours in schemes:
        for text in ("ink", "soft", "accent", "second", "bad"):
            for ground in ("paper", "card"):
                assert contrast(shares(colours[text]), shares(colours[ground])) >= 4.5, (text, ground)
