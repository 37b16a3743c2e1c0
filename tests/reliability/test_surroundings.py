"""Changes around a run: a renamed working folder, a deleted cache, a clock set back."""

import os
import shutil
import stat
import sys
import time
from pathlib import Path

import pytest

import train
from tests.reliability.disturbed import at_steps
from tests.tiny_runs import arguments, losses, made_up_text, rows, run_training, same
from tinygrad_lite.errors import CheckpointError, CorpusError, OptionError
from training import log
from training.checkpoint import load_checkpoint
from training.corpora import fetch
from training.corpora import texts as corpora
from training.folder import RunFolder, find_checkpoint

SETTINGS = {"dropout": 0.2, "keep": 2, "workers": 1}
HOUR = 3600.0


def stop():
    raise MemoryError


# --- the folder -------------------------------------------------------------------------------------------------


def test_a_run_survives_renaming_its_working_folder(workplace, monkeypatch, report):
    """The working folder is renamed during the run, which is then resumed from a third folder."""
    whole = run_training(out_dir=workplace.parent / "whole", **SETTINGS)
    (workplace / "home").mkdir()
    shutil.copy("text.txt", workplace / "home")
    monkeypatch.chdir(workplace / "home")
    move = lambda: os.rename(workplace / "home", workplace / "new home")  # noqa: E731
    with at_steps({3: move, 6: stop}), pytest.raises(MemoryError):
        train.main(arguments(**SETTINGS))
    monkeypatch.chdir("/")
    run = RunFolder(workplace / "new home" / "run")
    assert load_checkpoint(run.last).step == 4
    with pytest.raises(CorpusError, match=r"text\.txt: there is no such file"):  # it was in the folder that moved
        train.main(["--resume", f"--out_dir={run.path}"])
    assert train.main(["--resume", f"--out_dir={run.path}", f"--text={workplace / 'new home' / 'text.txt'}"]) == 0
    same(run, whole)
    report("working folder renamed during a run, resumed from another one: the bytes of an undisturbed run")


@pytest.mark.parametrize("last", [8, 10])
def test_a_run_whose_folder_is_removed_says_so(last, workplace, capsys):
    """In the middle as a warning, at the last checkpoint as an error: nothing of it is intact."""
    reason = r"^cannot write run.\S+: the folder run was removed or renamed; nothing"
    with at_steps({3: lambda: shutil.rmtree("run")}), pytest.raises(CheckpointError, match=reason):
        train.main(arguments(**SETTINGS | {"max_iters": last}))
    said = capsys.readouterr().err
    assert said.count("warning: cannot write run") >= 1
    assert "intact" not in said
    assert "free some space" not in said


# --- the cache --------------------------------------------------------------------------------------------------


@pytest.fixture
def source(monkeypatch):
    """A text in place of the package with the named corpus; None means it is unavailable."""
    here = {"text": made_up_text()}

    def make():
        if here["text"] is None:
            raise CorpusError("there is no network")
        return here["text"]

    recipe = corpora.Recipe(source="this test", licence="none", make=make, signed=True)
    monkeypatch.setitem(corpora.RECIPES, "goethe", recipe)
    return here


def test_a_run_survives_deleting_the_cache(workplace, source, capsys, report):
    """During a run and before it is resumed: with a network, without one, and with a different text."""
    settings = SETTINGS | {"text": None}
    whole = run_training(out_dir="whole", **settings)
    with at_steps({2: lambda: shutil.rmtree(fetch.cache_folder()), 6: stop}), pytest.raises(MemoryError):
        train.main(arguments(**settings))
    before = {path.name: path.read_bytes() for path in Path("run").iterdir()}
    source["text"] = None
    with pytest.raises(CorpusError, match=r"unavailable \(there is no network\)"):
        train.main(["--resume", "--out_dir=run"])
    assert {path.name: path.read_bytes() for path in Path("run").iterdir()} == before
    source["text"] = made_up_text()
    capsys.readouterr()
    assert train.main(["--resume", "--out_dir=run"]) == 0
    assert "this is not the text on which the run" not in capsys.readouterr().err
    same(RunFolder("run"), whole)
    shutil.rmtree(fetch.cache_folder())
    source["text"] = made_up_text(seed=2)
    with pytest.raises(OptionError, match=r"this is not the text on which the run .* name this one with --dataset"):
        train.main(["--resume", "--out_dir=run", "--max_iters=12"])
    assert train.main(["--resume", "--out_dir=run", "--max_iters=12", "--dataset=goethe"]) == 0
    assert "warning: this is not the text on which the run" in capsys.readouterr().err
    report("cache deleted during a run and before --resume: fetched again, same bytes; without a source one sentence")


# --- the clock --------------------------------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch):
    """A system clock that can be set; it also gives new files their times."""
    real, fsync, offset = time.time, os.fsync, [0.0]

    def fsync_with_clock(descriptor):
        """Give a file just written the time of this clock."""
        fsync(descriptor)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.utime(descriptor, (time.time(), time.time()))

    monkeypatch.setattr(time, "time", lambda: real() + offset[0])
    monkeypatch.setattr(os, "fsync", fsync_with_clock)
    return offset


def test_the_newest_checkpoint_is_found_although_the_clock_is_set_back(workplace, clock, monkeypatch, report):
    """By an hour after every step: later files must not count as older, and no duration may be negative."""
    whole = run_training(out_dir="whole", **SETTINGS)
    seen = []

    def back():
        clock[0] -= HOUR
        found = find_checkpoint(Path("run"))
        seen.append((load_checkpoint(found).step, found.name))

    monkeypatch.setattr(log, "Bar", visible(log.Bar))
    with at_steps(dict.fromkeys(range(13), back)):
        run = run_training(**SETTINGS)
    same(run, whole)
    assert [step for step, _ in seen] == [0, 0, 0, 0, 4, 4, 4, 4, 8, 8]
    assert load_checkpoint(find_checkpoint(run.path)).step == 10
    assert all(float(row["tokens_per_second"]) > 0 for row in rows(run) if row["loss"])
    assert len(losses(run)) == 10
    with at_steps(dict.fromkeys(range(13), back)):
        assert train.main(["--resume", "--out_dir=run", "--max_iters=12"]) == 0
    assert load_checkpoint(find_checkpoint(run.path)).step == 12
    report("clock set back by an hour at each of 12 steps: the newest checkpoint was always the one written last")


def visible(bar):
    """The progress bar as in a terminal, where it reads the clock."""

    class Visible(bar):
        def __init__(self, **settings):
            super().__init__(**settings | {"disable": False, "file": sys.stderr})

    return Visible
