"""The surroundings of a run: its folder and log, the lock, the signals."""

import os
import re
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
from safetensors.numpy import save as to_bytes

from tests.tiny_runs import ROOT, rows
from tests.training.test_checkpoint import example
from tinygrad_lite.errors import CheckpointError, OptionError
from training.checkpoint import KEY, save_checkpoint
from training.folder import METRICS, STOPPING, RunFolder, StopRequest, find_checkpoint

pytestmark = pytest.mark.every_device


@pytest.fixture
def run(tmp_path) -> RunFolder:
    """The folder of a run that has begun."""
    run = RunFolder(tmp_path / "out" / "run")
    with run.locked():
        run.begin({"seed": 1, "text": ["größe.txt"]})
    return run


# --- the folder -----------------------------------------------------------------------------------------------


def test_a_new_run_replaces_the_old_one(run):
    for path in (run.last, run.best):
        path.write_bytes(b"old")
    (run.path / "notes.txt").write_text("mine", encoding="utf-8")
    run.log(step=1, loss=2.0)
    run.begin({"seed": 2})
    assert rows(run) == []
    assert sorted(path.name for path in run.path.iterdir()) == ["lock", "metrics.csv", "notes.txt", "options.json"]
    assert run.noted_options() == {"seed": 2}


def test_damaged_notes_count_as_none(run):
    for content in (b"", b"{", b"[1]", b"\xff"):
        run.options.write_bytes(content)
        assert run.noted_options() == {}


BEFORE = "after 100 steps; the best validation loss before was 2.5000 nats, at step 50: continue"


def test_an_occupied_folder_tells_the_best_loss_that_was_reached(run):
    """That in `best`; `last` knows only of an earlier one."""
    run.refuse_if_used()
    save_checkpoint(run.last, replace(example(), step=100, best_loss=2.5, best_step=50))
    with pytest.raises(OptionError, match=re.escape(BEFORE)):
        run.refuse_if_used()
    save_checkpoint(run.best, replace(example(), step=100, best_loss=1.5, best_step=100))
    with pytest.raises(OptionError, match=r"after 100 steps, validation loss 1\.5000 nats: continue it with --resume"):
        run.refuse_if_used()
    run.last.unlink()
    with pytest.raises(OptionError, match="already holds a run: continue it with --resume"):
        run.refuse_if_used()


# --- the lock -------------------------------------------------------------------------------------------------

TRY = "import sys; from training.folder import RunFolder\nwith RunFolder(sys.argv[1]).locked(): print('in')"


def try_to_lock(run: RunFolder) -> subprocess.CompletedProcess:
    """Enter the lock from another process."""
    command = [sys.executable, "-c", TRY, str(run.path)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, encoding="utf-8")


def test_only_one_run_can_use_a_folder(run):
    with run.locked():
        inside = try_to_lock(run)
        with pytest.raises(OptionError, match="another run is training in"), RunFolder(run.path).locked():
            pass
    assert "OptionError: another run is training in" in inside.stderr
    with pytest.raises(ZeroDivisionError), run.locked():
        1 / 0  # noqa: B018
    assert try_to_lock(run).stdout == "in\n"


# --- the table ------------------------------------------------------------------------------------------------


def test_resuming_drops_the_rows_that_will_be_written_again(run):
    for step in (0, 2, 4, 6):
        if step:
            run.log(step=step, loss=step / 2)
        run.log(step=step, val_loss=step)
    run.rewind(4)
    assert [(row["step"], row["loss"]) for row in rows(run)] == [("0", ""), ("2", "1"), ("2", ""), ("4", "2")]
    run.log(step=4, val_loss=4)  # rows can still be added
    assert len(rows(run)) == 5
    run.rewind(0)
    assert rows(run) == []


def test_a_truncated_or_deleted_table_is_repaired(run):
    run.log(step=1, loss=1.0)
    for damage in ("2,0.5", "rubbish\n,,\n\n"):  # half a row: later columns are missing
        with open(run.metrics, "a", encoding="utf-8") as file:
            file.write(damage)
        run.rewind(3)
        assert [row["step"] for row in rows(run)] == ["1", "2"]
    run.metrics.unlink()
    run.rewind(3)
    assert run.metrics.read_text(encoding="utf-8") == ",".join(METRICS) + "\n"


# --- samples and kept checkpoints -----------------------------------------------------------------------------


def test_resuming_drops_the_samples_that_will_be_written_again(run):
    for step in (0, 500, 1000, 1500):
        run.add(run.samples, f"=== step {step:,}: validation loss 2\nText {step}\nstep 0: not a heading\n\n\n")
    text = run.samples.read_text(encoding="utf-8")
    assert text.startswith("=== step 0: validation loss 2\nText 0\nstep 0: not a heading\n\n\n=== step 500: ")
    run.rewind(1000)
    assert run.samples.read_text(encoding="utf-8") == text[: text.index("=== step 1,000")]
    run.rewind(501)
    assert "Text 500" in run.samples.read_text(encoding="utf-8")
    run.rewind(0)
    assert run.samples.read_text(encoding="utf-8") == ""


# --- which checkpoint a folder means --------------------------------------------------------------------------


# With "=", the number of steps that a checkpoint has made.
FOLDERS = [
    ("a/last a/best b/c/last", "a/best"),
    ("a/last a/best=0 b/last b/best", "a/last"),
    ("a/last a/best=4", "a/best"),
    ("a/step-00000004 a/best=0", "a/best"),
    ("b/c/last a/best a/last", "b/c/last"),  # no evaluation has chosen a best one yet
    ("b/c/last.safetensors.tmp a/step-00000004 a/last a/best", "a/best"),
    ("mine a/best", "mine"),
]


@pytest.mark.parametrize(("newest_first", "chosen"), FOLDERS)
def test_a_folder_means_the_best_checkpoint_of_the_newest_run_under_it(tmp_path, newest_first, chosen):
    for age, name in enumerate(newest_first.split()):
        name, _, step = name.partition("=")
        path = tmp_path / (name if "." in name else f"{name}.safetensors")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(to_bytes({}, {KEY: f'{{"step": {step}}}'}) if step else b"")
        os.utime(path, ns=(0, 10**9 * (10 - age)))
    found = tmp_path / f"{chosen}.safetensors"
    assert find_checkpoint(tmp_path) == find_checkpoint(found) == found


def test_where_there_is_no_checkpoint_the_error_says_how_to_train_one(tmp_path):
    for name, command in {"": "", "goethe": " goethe", "reverse/last.safetensors": " reverse"}.items():
        with pytest.raises(CheckpointError, match=rf"no checkpoint .*; train one with: python train\.py{command}$"):
            find_checkpoint(tmp_path / name)


# --- signals --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_signal_ignored")
@pytest.mark.parametrize("number", STOPPING)
def test_the_first_signal_sets_a_flag_and_a_later_ctrl_c_stops(number):
    before = signal.getsignal(number)
    with StopRequest() as stop:
        assert stop.signal is None
        signal.raise_signal(number)
        assert stop.signal == number
        signal.raise_signal(signal.SIGTERM)  # which `timeout` sends twice
        assert stop.signal == number
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(number) is before
    with pytest.raises(ZeroDivisionError), StopRequest():
        1 / 0  # noqa: B018
    assert signal.getsignal(number) is before


@pytest.mark.skipif(os.name != "posix", reason="Windows has no SIGHUP")
def test_a_run_under_nohup_is_not_stopped_by_the_end_of_its_terminal():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with StopRequest() as stop:
        signal.raise_signal(signal.SIGHUP)
        assert stop.signal is None
    assert signal.signal(signal.SIGHUP, before) == signal.SIG_IGN
