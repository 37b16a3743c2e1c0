"""What happens around a run: another in its folder, a renamed working folder, a deleted cache, a clock set back."""

import os
import random
import shutil
import signal
import stat
import time
from pathlib import Path

import pytest

import train
from tests.reliability.disturbed import at_steps, wait_until
from tests.tiny_runs import arguments, finish, made_up_text, rows, run_training, same, script
from tinygrad_lite.errors import CorpusError
from training.checkpoint import load_checkpoint
from training.corpora import fetch
from training.corpora import texts as corpora
from training.folder import RunFolder, find_checkpoint

pytestmark = pytest.mark.usefixtures("workplace")
SEED = 20262
SETTINGS = {"dropout": 0.2, "workers": 1, "keep": 2}


def stop():
    raise MemoryError


# --- two runs in one folder --------------------------------------------------------------------------------------


def start_one(run, how, name="train.py", **variables):
    words = ["--resume"] if how == "--resume" else [*arguments(**SETTINGS, out_dir=None), *([how] if how else [])]
    return script(name, *words, f"--out_dir={run}", **variables)


def state(process):
    """The state of a process: T if it is stopped, Z if it has ended."""
    return Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="needs /proc")
@pytest.mark.parametrize("times", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_a_second_run_is_refused_and_the_first_continues(times, workplace):
    """The first stops itself at some moment after its first evaluation; others then try its folder."""
    rng = random.Random(SEED)
    whole = RunFolder("whole")
    assert finish(start_one(whole.path, ""))[0] == 0
    for number in range(times):
        run = RunFolder(f"run-{number}")
        stops = {"DEATH_AT": str(rng.randint(40, 150)), "SIGNAL": "SIGSTOP", "PAUSE": "0", "JOURNAL": os.devnull}
        first = start_one(run.path, "", "tests/reliability/killed_train.py", **stops)
        wait_until(lambda first=first: state(first) in "TZ")
        assert state(first) == "T"
        before = {path: path.read_bytes() for path in run.path.iterdir()}
        for how in ("--overwrite", "--resume", ""):
            status, out, err = finish(start_one(run.path.resolve(), how))
            assert (status, out) == (2, ""), err
            assert ("another run is training in" in err) or (not how and "already holds" in err)
            assert "Traceback" not in err
        assert {path: path.read_bytes() for path in run.path.iterdir()} == before
        first.send_signal(signal.SIGCONT)
        status, _, err = finish(first)
        assert status == 0, err
        same(run, whole)


# --- the folder -------------------------------------------------------------------------------------------------


def test_a_run_survives_renaming_its_working_folder(workplace, monkeypatch):
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


# --- the cache --------------------------------------------------------------------------------------------------


def test_a_run_survives_deleting_the_cache(workplace, monkeypatch):
    """During a run and before it is resumed, which makes the named corpus again."""
    recipe = corpora.Recipe(source="this test", licence="none", make=made_up_text, signed=True)
    monkeypatch.setitem(corpora.RECIPES, "goethe", recipe)
    settings = SETTINGS | {"text": None}
    whole = run_training(out_dir="whole", **settings)
    with at_steps({2: lambda: shutil.rmtree(fetch.cache_folder()), 6: stop}), pytest.raises(MemoryError):
        train.main(arguments(**settings))
    assert train.main(["--resume", "--out_dir=run"]) == 0
    same(RunFolder("run"), whole)


# --- the clock --------------------------------------------------------------------------------------------------


def test_the_newest_checkpoint_is_found_although_the_clock_is_set_back(workplace, monkeypatch):
    """By an hour after every step: later files must not count as older, and no duration may be negative."""
    whole = run_training(out_dir="whole", **SETTINGS)
    real, fsync, seen = time.time, os.fsync, []

    def fsync_with_clock(descriptor):
        """Give a file just written the time of the clock that is set back."""
        fsync(descriptor)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.utime(descriptor, (time.time(), time.time()))

    def back():
        seen.append(load_checkpoint(find_checkpoint(Path("run"))).step)

    monkeypatch.setattr(time, "time", lambda: real() - 3600 * len(seen))
    monkeypatch.setattr(os, "fsync", fsync_with_clock)
    with at_steps(dict.fromkeys(range(13), back)):
        run = run_training(**SETTINGS)
    same(run, whole)
    assert seen == [0, 0, 0, 0, 4, 4, 4, 4, 8, 8]
    assert load_checkpoint(find_checkpoint(run.path)).step == 10
    assert all(float(row["tokens_per_second"]) > 0 for row in rows(run) if row["loss"])
