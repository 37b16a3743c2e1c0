"""The commands of the shelf where nothing is UTF-8 by default, and older checkpoints of a run on Windows."""

import os
import subprocess
import sys

import pytest

from tests import test_platforms as core
from tests.test_platforms import PROMPT, open_files_stay, trained, windows  # noqa: F401
from tests.tiny_runs import ROOT, finish, ignoring_no_signal, run_training

COMMANDS = [
    ("sample.py run --interactive --max_new_tokens 5", f"{PROMPT}\r\n", ""),
    pytest.param("-m extra.studies.baselines --text text.txt --orders 1-2", "", "2-gram", marks=pytest.mark.slow),
    ("-m extra.pretrained.export run exported", "", ""),
    ("docs/extra/compare_tokenizers.py text.txt --vocab_size 300", "", "ü"),
]


@pytest.mark.parametrize(("command", "typed", "written"), COMMANDS)
def test_commands_read_and_write_utf8_in_any_locale(trained, command, typed, written):  # noqa: F811
    core.test_commands_read_and_write_utf8_in_any_locale(trained, command, typed, written)


def test_on_windows_one_older_checkpoint_is_kept(workplace, windows, open_files_stay):  # noqa: F811
    assert len(run_training(max_iters=9, keep=1, sample_tokens=5).kept()) == 1


def test_ctrl_c_while_a_program_imports_gives_one_sentence(tmp_path):
    (tmp_path / "numpy.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)\n", encoding="utf-8")
    command, settings = [sys.executable, "-m", "extra.studies.learn"], {**os.environ, "PYTHONPATH": str(tmp_path)}
    with ignoring_no_signal():
        process = subprocess.Popen(command, cwd=ROOT, env=settings, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert finish(process) == (130, "", "\nextra.studies.learn: stopped\n")
