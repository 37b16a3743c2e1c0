"""Two runs in one folder: the second is refused in one sentence, and the first is not affected."""

import os
import random
import shutil
import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.reliability.disturbed import wait_until
from tests.tiny_runs import arguments, finish, run_training, same, script
from training.folder import RunFolder

pytestmark = pytest.mark.usefixtures("workplace")
SEED = 20262
SETTINGS = {"dropout": 0.2, "workers": 1, "keep": 2}


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
