"""Checkpoints of several steps are kept; the curve in eight lines, and the page at the end."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

import train
from extra.log import ShelfLog
from tests.tiny_runs import run_training
from tinygrad_lite.errors import OptionError
from training import log
from training.folder import RunFolder


def test_the_latest_checkpoints_are_kept(tmp_path, monkeypatch):
    run = RunFolder(tmp_path)
    monkeypatch.setattr(log, "save_checkpoint", lambda path, checkpoint: path.write_bytes(checkpoint))
    for step, number in ((0, 2), (50, 2), (100, 2), (150, 2), (200, 0)):
        output = ShelfLog.__new__(ShelfLog)  # without a model
        output.folder, output.options = run, SimpleNamespace(keep=number)
        output.write_last(step, b"%d" % step)
    assert [path.name for path in run.kept()] == ["step-00000100.safetensors", "step-00000150.safetensors"]
    assert [path.read_bytes() for path in run.kept()] == [b"100", b"150"]
    run.begin({})
    assert run.kept() == []


def test_a_run_shows_its_curve_in_eight_lines_and_ends_with_its_page(workplace, capsys):
    run_training(max_iters=20, eval_interval=10, curve=True, explain="page.html")
    said = capsys.readouterr().err
    assert len(re.findall(r"^[ ▁▂▃▄▅▆▇█]*█$", said, re.MULTILINE)) >= 3  # a column that is higher than a line
    assert said.endswith("open it in a browser\n")
    assert Path("page.html").stat().st_size > 100_000
    with pytest.raises(OptionError, match=r"--explain no/page\.html: there is no folder no"):
        train.main(["--explain=no/page.html"])
