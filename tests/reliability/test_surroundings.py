"""What happens around a run: another in its folder, a renamed working folder, a deleted cache, a clock set back."""

import os
import random
import shutil
import signal
import stat
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

import train
from tests.reliability.disturbed import at_steps, wait_until
from tests.tiny_runs import arguments, finish, losses, made_up_text, rows, run_training, same, script
from tinygrad_lite.errors import CheckpointError, CorpusError, OptionError
from training import log
from training.checkpoint import load_checkpoint
from training.corpora import fetch
from training.corpora import texts as corpora
from training.folder import RunFolder, find_checkpoint

pytestmark = pytest.mark.usefixtures("workplace")
SEED = 20262
SETTINGS = {"dropout": 0.2, "workers": 1, "keep": 2}
HOUR = 3600.0


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
def test_a_second_run_is_refused_and_the_first_continues(times, report, workplace):
    """The first stops itself at some moment after its first evaluation; others then try its folder's several names."""
    rng, refused = random.Random(SEED), Counter()
    whole = RunFolder("whole")
    assert finish(start_one(whole.path, ""))[0] == 0
    for number in range(times):
        run = RunFolder(f"run-{number}")
        stops = {"DEATH_AT": str(rng.randint(40, 150)), "SIGNAL": "SIGSTOP", "PAUSE": "0", "JOURNAL": os.devnull}
        first = start_one(run.path, "", "tests/reliability/killed_train.py", **stops)
        wait_until(lambda first=first: state(first) in "TZ")
        assert state(first) == "T"
        before = {path: path.read_bytes() for path in run.path.iterdir()}
        link = Path(f"link-{number}")
        link.symlink_to(run.path, target_is_directory=True)
        for how, name in (("--overwrite", run.path), ("--resume", link), ("", run.path.resolve()))[: 2 + times // 2]:
            status, out, err = finish(start_one(name, how))
            assert (status, out) == (2, ""), err
            assert ("another run is training in" in err) or (not how and "already holds" in err)
            assert "Traceback" not in err
            refused[how or "new run"] += 1
        assert {path: path.read_bytes() for path in run.path.iterdir()} == before
        first.send_signal(signal.SIGCONT)
        status, _, err = finish(first)
        assert status == 0, err
        same(run, whole)
    report(f"second runs in a folder in use, seed {SEED}: refused {dict(refused)}; the first was never affected")


@pytest.mark.slow
def test_of_four_simultaneous_runs_one_gets_the_folder(report):
    """The others are refused: the folder is in use, or already holds the finished run."""
    whole, counts = RunFolder("whole"), Counter()
    assert finish(start_one(whole.path, ""))[0] == 0
    for number in range(10):
        run = RunFolder(f"run-{number}")
        for process in [start_one(run.path, "") for _ in range(4)]:
            status, _, err = finish(process)
            assert status in (0, 2), err
            counts["trained" if status == 0 else "refused"] += 1
            assert status == 0 or "another run is training" in err or "already holds" in err
        same(run, whole)
    assert counts["trained"] == 10
    report(f"four runs at the same moment in one folder, 10 times: {dict(counts)}")


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="kills a process")
def test_the_folder_of_a_killed_run_is_free_at_once(report):
    """With workers too, which may outlive it for a moment."""
    settings = SETTINGS | {"workers": 2}
    whole = run_training(out_dir="whole", **settings)
    for number in range(10):
        run = RunFolder(f"run-{number}")
        process = script("train.py", *arguments(**settings | {"eval_interval": 1}, out_dir=run.path))
        wait_until(run.last.exists, pause=0.001)
        process.kill()
        process.wait()
        status, _, err = finish(script("train.py", *arguments(**settings, out_dir=run.path), "--overwrite"))
        assert status == 0, err
        finish(process)
        same(run, whole)
        shutil.rmtree(run.path)
    report("a new run right after a kill, with two workers, 10 times: all 10 got the folder")


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
