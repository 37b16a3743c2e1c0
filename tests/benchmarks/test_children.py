"""The protocol between the parent and its sides, with synthetic sides."""

import subprocess
import sys

import pytest

from benchmarks import children
from benchmarks.children import ask, limits, start, take_turns

LOGGING = """
import json, sys
name, log = sys.argv[1:]
for line in sys.stdin:
    question = json.loads(line)
    with open(log, "a", encoding="utf-8") as file:
        file.write(f"{name}{question['begin']}+{question['repeats']} ")
    print(json.dumps({"values": [question["begin"] + i for i in range(question["repeats"])]}), flush=True)
"""


def program(text: str, *arguments: str) -> subprocess.Popen:
    return start([sys.executable, "-c", text, *arguments], limits(2))


def test_sides_take_turns_and_each_turn_gives_its_median(tmp_path, monkeypatch):
    monkeypatch.setattr(children, "PAUSE", 0)
    log = str(tmp_path / "log")
    with program(LOGGING, "a", log) as a, program(LOGGING, "b", log) as b:
        medians = take_turns({"a": a, "b": b}, turns=3, repeats=3, begin=1)
    # Each goes first by turns, and the numbers go on from turn to turn.
    assert (tmp_path / "log").read_text(encoding="utf-8").split() == ["a1+3", "b1+3", "b4+3", "a4+3", "a7+3", "b7+3"]
    assert medians == {"a": [2, 5, 8], "b": [2, 5, 8]}
    assert (a.returncode, b.returncode) == (0, 0)  # the end of its stdin is the end of a side


def test_a_side_that_fails_ends_the_command_with_its_status():
    failing = "import os, sys; sys.exit(int(os.environ['OMP_NUM_THREADS']))"
    with program(failing) as child, pytest.raises(SystemExit) as ended:
        ask(child, {})
    assert ended.value.code == 2
