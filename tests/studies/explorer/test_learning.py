"""The page in which a GPT learns is written: one closed file with its texts. tests/e2e runs its scripts."""

import json
import re
from pathlib import Path

import pytest

from studies import learn
from studies.explorer.learning import FOLDER, LIMITS, SCRIPTS, SHAPE
from tests.studies.explorer.test_gpt import check_closed, text_of
from tests.tiny_runs import ROOT, made_up_text
from tinygrad_lite.errors import CorpusError, OptionError

LONGEST = 300  # lines of a script


@pytest.fixture
def written(workplace):
    """Writes the page; returns its HTML and its data."""

    def write(*arguments):
        assert learn.main([*arguments]) == 0
        html = Path("learn.html").read_text(encoding="utf-8")
        return html, json.loads(text_of(html, "data"))

    return write


def test_the_file_is_closed_and_may_start_a_worker_from_its_own_text_alone(written):
    policy = check_closed(written()[0], SCRIPTS)
    assert "worker-src blob:;" in policy
    assert policy.count("blob:") == 1


def test_it_has_the_poem_of_the_course_and_hamlet_and_first_the_reader_s_text(written):
    _, data = written()
    poem, hamlet = (text["text"] for text in data["texts"])
    letters = (ROOT / "docs" / "course" / "04-letters" / "letters.py").read_text(encoding="utf-8")
    assert poem.startswith("Wer reitet so spät durch Nacht und Wind?\n")
    assert all(line in letters for line in poem.splitlines())
    assert hamlet.startswith("To be, or not to be")
    _, data = written("--text", "text.txt")
    assert data["texts"][0] == {"name": "text.txt", "text": made_up_text()}
    for text in data["texts"]:
        assert LIMITS["shortest"] <= len(text["text"]) <= LIMITS["longest"]
    assert SHAPE["n_embd"] % (2 * SHAPE["n_head"]) == 0


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"Zu kurz.", "own.txt is too short: 8, and the limit of this page is 660"),
        (b"ab" * 500_001, "own.txt is too long: 1,000,002, and the limit of this page is 1,000,000"),
        ("".join(map(chr, range(0x4E00, 0x4E00 + 700))).encode(), "too many different characters: 700, and"),
        (b"\xff\xfe\x00 no text" * 99, "own.txt"),
        (None, "own.txt"),
    ],
)
def test_a_text_that_a_page_cannot_learn_is_refused(workplace, content, sentence):
    if content is not None:
        Path("own.txt").write_bytes(content)
    with pytest.raises(CorpusError, match=re.escape(sentence)):
        learn.main(["--text", "own.txt"])
    assert not Path("learn.html").exists()


def test_a_page_that_cannot_be_written_is_named(workplace):
    with pytest.raises(OptionError, match=r"^no/folder/page\.html cannot be written"):
        learn.main(["no/folder/page.html"])


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_can_be_read_in_one_go(name):
    lines = (FOLDER / f"{name}.js").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= LONGEST
    assert max(map(len, lines)) <= 120
    assert lines[0] == '"use strict";'


def luminance(colour):
    """How bright a colour is, from 0 to 1 (WCAG 2.2, relative luminance)."""
    parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    parts = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def test_colours_have_enough_contrast_in_light_and_dark():
    style = (FOLDER / "style.css").read_text(encoding="utf-8")
    schemes = [dict(re.findall(r"--(\w+): (#\w{6})", block)) for block in re.findall(r":root \{(.*?)\}", style, re.S)]
    assert len(schemes) == 2
    for colours in schemes:
        for text in ("ink", "soft", "accent", "second", "bad"):
            for ground in ("paper", "card"):
                dark, bright = sorted(luminance(colours[name]) for name in (text, ground))
                assert (bright + 0.05) / (dark + 0.05) >= 4.5, (text, ground)
