"""Modules that have moved are answered with their new names, which exist."""

import importlib
import subprocess
import sys

import pytest

from tests.test_imports import FILES, ROOT
from tinygrad_lite.version import MOVED


def test_every_new_name_is_a_module_or_folder_and_no_old_one_is():
    assert [new for new in MOVED.values() if new not in FILES and not new.startswith("removed (commit ")] == []
    assert [old for old in MOVED if old in FILES] == []


OLD_NAMES = [
    ("tinygrad_lite.training", "workshop.run"),
    ("tinygrad_lite.cli.errors", "workshop.cli; tinygrad_lite.cli.errors is tinygrad_lite.errors"),
    ("gpt.llama_layout", "gpt.formats.llama"),
    ("tinygrad_lite.tokenizers", r"workshop.tokenizers;.*; tinygrad_lite.tokenizers.coverage is removed \(commit"),
]


@pytest.mark.parametrize(("old", "new"), OLD_NAMES)
def test_an_old_name_is_answered_with_the_new_one(old, new):
    with pytest.raises(ModuleNotFoundError, match=f"is now {new}"):
        importlib.import_module(old)


def test_a_command_that_has_moved_is_answered_in_one_sentence():
    done = subprocess.run([sys.executable, "-m", "gpt.draw"], cwd=ROOT, capture_output=True, encoding="utf-8")
    assert done.returncode == 1
    assert "gpt.draw is now studies.draw" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_module_that_never_was_is_not_found():
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'gpt\.nothing'"):
        importlib.import_module("gpt.nothing")
