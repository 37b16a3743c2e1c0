"""How the tests on a GPU are reported: what was skipped and why, and a GPU that is lost."""

import os
import re
import subprocess
import sys

import pytest

from tests.conftest import end_if_lost
from tests.tiny_runs import ROOT


def test_the_number_of_skipped_tests_and_the_reason_are_printed():
    test = "tests/tinygrad_lite/cuda/test_precision.py"
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-q", "-n", "0", test]
    hidden = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, cwd=ROOT, env=hidden, capture_output=True, encoding="utf-8")
    ran, skipped = re.search(r"(\d+) ran, (\d+) were skipped", done.stdout).groups()
    assert (int(ran), int(skipped) > 1) == (0, True), done.stdout
    assert f"{skipped} skipped: device cuda" in done.stdout


def test_a_process_whose_gpu_is_lost_ends(monkeypatch):
    def fail():
        raise RuntimeError("an illegal memory access was encountered")

    ended = []
    monkeypatch.setattr(os, "_exit", ended.append)
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    end_if_lost(lambda: None)
    assert ended == []
    with pytest.raises(pytest.exit.Exception):
        end_if_lost(fail)
    assert ended == [1]
    monkeypatch.delenv("PYTEST_XDIST_WORKER")
    with pytest.raises(pytest.exit.Exception, match="can no longer be used: an illegal memory access"):
        end_if_lost(fail)
