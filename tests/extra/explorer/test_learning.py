"""The page in which a GPT learns is written: one closed file with its texts. tests/extra/e2e runs its scripts."""

import json
from pathlib import Path

from extra.explorer.learning import LIMITS, SCRIPTS, SHAPE
from extra.studies import learn
from tests.extra.explorer.test_gpt import check_closed, text_of
from tests.tiny_runs import ROOT, made_up_text

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
    _, data = learning_page("--text", str(Path("text.txt").absolute()))  # the page does not name its folder
    assert data["texts"][0] == {"name": "text.txt", "text": made_up_text()}
    for text in data["texts"]:
        assert LIMITS["shortest"] <= len(text["text"]) <= LIMITS["longest"]
    assert SHAPE["n_embd"] % (2 * SHAPE["n_head"]) == 0
