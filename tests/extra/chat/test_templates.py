"""A template is filled in by another process, which runs nothing of the current folder."""

import pytest

from extra.chat.chat import render
from tests.training.cli import test_console as core
from tests.training.cli.test_console import trap  # noqa: F401


@pytest.mark.skipif(core.os.name != "posix", reason="programs of POSIX")
def test_what_is_started_runs_nothing_of_the_current_folder(trap, monkeypatch):  # noqa: F811
    pytest.importorskip("jinja2")

    def fill_in():
        assert render("{{ a | tojson }}", {"a": [1]}) == "[1]"

    core.test_what_is_started_runs_nothing_of_the_current_folder(fill_in, trap, monkeypatch)
