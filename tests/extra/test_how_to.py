"""docs/how-to.md: its recipes are carried out on a copy of the project.

Every edit is applied: what an edit replaces, or is added to, must be in the file exactly once. Then the training
commands and the `>>>` lines run on the copy; with `-m slow` also the tests that the page names.
"""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.extra.test_readme import commands
from tests.tiny_runs import ROOT, arguments, losses, made_up_text
from training.checkpoint import load_checkpoint
from training.folder import RunFolder

PAGE = (ROOT / "docs" / "how-to.md").read_text(encoding="utf-8")
RECIPES = {part.splitlines()[0]: part for part in PAGE.split("\n## ")[1:]}
CODE = r"\n\n```[\w+]*\n(.*?)^```\n\n"
EDIT = re.compile(
    rf"In \[`(?P<file>[^`]+)`\]\([^)]*\), (?P<how>below|replace){CODE}(?:add|by)\n\n```[\w+]*\n(.*?)^```"
    rf"|A new file \*\*(?P<new>[^*]+)\*\*:\n\n```[\w+]*\n(.*?)^```",
    re.MULTILINE | re.DOTALL,
)
# What a program in the copy does: the sessions of all recipes, then the training commands, and sampling.
PROGRAM = """
import doctest, json, sys
import sample, train
sessions, commands = json.load(sys.stdin)
for name, session in sessions.items():
    test = doctest.DocTestParser().get_doctest(session, {}, name, "how-to.md", 0)
    assert doctest.DocTestRunner().run(test).failed == 0
for command in commands:
    assert train.main(command) == 0
assert sample.main(["out/parallel", "--epsilon", "0.001", "--max_new_tokens", "5"]) == 0
assert sample.main(["out/sigmoid", "--explain", "page.html"]) == 0
for way in (["--greedy"], ["--greedy", "--use_cache=False"], ["--beam", "2"]):
    for run in ("out/sigmoid", "out/average"):
        assert sample.main([run, *way, "--max_new_tokens", "20"]) == 0
"""


def edited(recipe: str, files: dict[str, str]) -> dict[str, str]:
    """The files that a recipe edits, after it; `files` are those that others have edited before."""
    files = dict(files)
    for edit in EDIT.finditer(recipe):
        _, how, old, code, new, content = edit.groups()
        if new:
            assert not (ROOT / new).exists(), new
            files[new] = content
            continue
        name = edit["file"]
        text = files.get(name) or (ROOT / name).read_text(encoding="utf-8")
        old, code = old.removesuffix("\n"), code.removesuffix("\n")
        assert text.count(old) == 1, f"{name}: not once but {text.count(old)} times:\n{old}"
        if how == "below":
            assert f"\n{old}\n" in text, f"{name}: not whole lines:\n{old}"
        files[name] = text.replace(old, f"{old}\n{code}" if how == "below" else code)
    return files


def test_every_recipe_can_be_followed_alone():
    assert len(RECIPES) == 13
    for recipe in RECIPES.values():
        files = edited(recipe, {})
        assert files
        for name, text in files.items():
            if name.endswith(".py"):
                ast.parse(text, name)
    # No edit is written in a form that is not recognised.
    assert len(re.findall(r"^In \[`.*, \w+$|^A new file .*", PAGE, re.MULTILINE)) == len(EDIT.findall(PAGE))


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of the project after all recipes, one after the other."""
    root, files = tmp_path_factory.mktemp("how-to") / "copy", {}
    for recipe in RECIPES.values():
        files = edited(recipe, files)
    ignored = shutil.ignore_patterns(".*", "out", "build", "__pycache__", "*.egg-info")
    shutil.copytree(ROOT, root, ignore=ignored)
    for name, text in files.items():
        (root / name).write_text(text, encoding="utf-8", newline="\n")
    return root


def run(copy: Path, *words: str, given: str = "") -> str:
    """Run Python in the copy: what it wrote, if it ended well."""
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONIOENCODING": "utf-8"}
    how = {"cwd": copy, "env": environment, "capture_output": True, "encoding": "utf-8"}
    done = subprocess.run([sys.executable, *words], input=given, **how)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_commands_and_sessions_work_on_a_copy(copy):
    (copy / "text.txt").write_text(made_up_text(), encoding="utf-8")
    found = [re.findall(r"^```pycon\n(.*?)^```", recipe, re.MULTILINE | re.DOTALL) for recipe in RECIPES.values()]
    sessions = {name: "\n".join(blocks) for name, blocks in zip(RECIPES, found, strict=True) if blocks}
    assert len(sessions) == 10
    # Later options win. The names would be downloaded.
    tiny = {"out_dir": None, "max_iters": 2, "eval_interval": 2, "learning_rate": 0.01, "warmup_iters": 0}
    cut = [word for word in arguments(**tiny) if word.startswith("--")]
    words = [command.split()[2:] for command in commands(PAGE) if command.startswith("python train.py")]
    given = {command[command.index("--out_dir") + 1]: command + cut for command in words}
    given.pop("out/us-names")
    given["out/average"] = [word for word in given["out/average"] if not word.startswith("--n_head")]
    run(copy, "-c", PROGRAM, given=json.dumps([sessions, list(given.values())]))

    runs = {folder: RunFolder(copy / folder) for folder in given}
    saved = {folder: load_checkpoint(run.last) for folder, run in runs.items()}
    assert [folder for folder, checkpoint in saved.items() if checkpoint.model["parallel"]] == ["out/parallel"]
    assert losses(runs["out/linear"], "learning_rate") == {1: 0.01, 2: 0.005}
    assert saved["out/linear"].training["schedule"] == "linear"
    assert saved["out/digram"].tokenizer["kind"] == "digram"
    assert 0 < losses(runs["out/accuracy"], "accuracy")[2] < 1
    assert {folder: run.training["adam_eps"] for folder, run in saved.items()}["out/eps"] == 1e-6


@pytest.mark.slow
def test_the_tests_that_the_page_names_pass_on_a_copy(copy):
    for command in ("pytest tests/test_imports.py", *commands(PAGE)):
        if command.startswith("pytest tests"):
            run(copy, "-m", *command.split(), "-q", "-n", "0", "-p", "no:cacheprovider")
