"""`python -m benchmarks.entered`: what a run enters up to its first loss."""

import subprocess
import sys

from tests.tiny_runs import ROOT


def test_files_are_listed_in_the_order_in_which_they_are_entered():
    command = [sys.executable, "-m", "benchmarks.entered", "--list"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, encoding="utf-8", timeout=300, check=True)
    *files, whole, early = done.stdout.splitlines()
    loop = files.index("--- the first round of the loop")
    order = [files.index(name) for name in ("train.py", "gpt/task.py", "gpt/model.py")]
    assert order == sorted(order)
    assert order[-1] < loop < files.index("tinygrad_lite/functional/cross_entropy.py")
    assert "tinygrad_lite/version.py" not in files  # it is only imported
    assert (int(whole.split()[0]), int(early.split()[0])) == (len({*files}) - 1, loop)
