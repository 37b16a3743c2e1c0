"""Disks that refuse writes: saved files stay, the user is told, and training continues or stops, as requested."""

import errno
import functools
import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from itertools import product

import numpy as np
import pytest

import train
from tests.reliability.disturbed import at_steps, whole_checkpoints
from tests.reliability.moments import Moments
from tests.tiny_runs import LEFT_OUT, ROOT, arguments, finish, run_training, same, script, table_of
from tinygrad_lite.errors import UserError
from training.checkpoint import load_checkpoint
from training.folder import RunFolder

pytestmark = pytest.mark.usefixtures("workplace")
SEED = 20261
REFUSALS = (errno.ENOSPC, errno.EROFS, errno.EIO, errno.EDQUOT)
SETTINGS = {"dropout": 0.2, "sample_tokens": 5, "keep": 2, "workers": 1}


def same_weights(one, two):
    """The same weights, bit for bit, and the same optimizer; a best loss that could not be saved may be missing."""
    ours, theirs = load_checkpoint(one.last), load_checkpoint(two.last)
    for part in ("weights", "optimizer"):
        a, b = getattr(ours, part), getattr(theirs, part)
        assert a.keys() == b.keys()
        assert all(np.array_equal(a[name], b[name]) for name in a)


# --- a disk that is really full, or really read-only --------------------------------------------------------------


@functools.cache
def unshare():
    """The command that gives a process its own mounts, or None where that is not allowed."""
    for words in (["unshare", "--mount"], ["unshare", "--mount", "--map-root-user"]):
        test = [*words, "sh", "-c", "mount -t tmpfs none /mnt"]
        if shutil.which("unshare") and subprocess.run(test, capture_output=True).returncode == 0:
            return words
    return None


# Whether a run is to stop; without the shelf it goes on.
STOPS = (False,) if "stop_on_disk_error" in LEFT_OUT else (False, True)
ALL = [pytest.param(*case, marks=pytest.mark.slow) for case in product(("full", "read-only"), (7, 1000), STOPS)]


@pytest.mark.parametrize(("kind", "relent", "stop"), [("full", 7, False), *ALL])
def test_a_full_or_read_only_disk_leaves_the_old_checkpoints(kind, relent, stop, report):
    """From the third update on, before the evaluation at step 4, for a while or to the end."""
    if unshare() is None:
        pytest.skip("this system does not allow mounting a disk in memory")
    driver = [sys.executable, str(ROOT / "tests/reliability/refusing_disk.py"), kind, "3", str(relent), "copy"]
    words = [*unshare(), *driver, *arguments(**SETTINGS, out_dir=None, stop_on_disk_error=stop)]
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    status, err = done.returncode, done.stderr
    reason = {"full": "No space left on device", "read-only": "Read-only file system"}[kind]
    continues = relent == 7 and not stop
    assert status == (0 if continues else 1)
    assert "Traceback" not in err
    assert f"cannot write disk/run/last.safetensors ({reason}): the previous file is intact" in err
    assert ("warning: cannot write" in err) == (not stop)
    copy, whole = RunFolder("copy"), RunFolder("whole")
    assert finish(script("train.py", *arguments(**SETTINGS, out_dir="whole")))[0] == 0
    whole_checkpoints(copy)
    if continues:
        assert table_of(copy) == table_of(whole)
        assert copy.samples.read_bytes() == whole.samples.read_bytes()
    else:
        assert load_checkpoint(copy.last).step == 0
        assert finish(script("train.py", "--resume", "--out_dir=copy"))[0] == 0
        same(copy, whole)
    same_weights(copy, whole)
    report(
        f"disk {kind} from step 3 {'to 7' if relent == 7 else 'on'}{', --stop_on_disk_error' if stop else ''}: "
        f"status {status}, {err.count('warning: cannot write')} warnings, old checkpoints intact, "
        f"the undisturbed result {'at the end' if continues else 'after --resume'}"
    )


# --- a disk that refuses at any single moment -------------------------------------------------------------------


@pytest.mark.parametrize("runs", [6, pytest.param(200, marks=pytest.mark.slow)])
def test_a_write_error_at_any_moment_does_not_change_the_result(runs, report, capsys):
    """One error, or several in a row, at any operation on a file or in the middle of any write."""
    rng, counts = random.Random(SEED), Counter()
    whole = run_training(out_dir="whole", **SETTINGS)
    counted = Moments(lambda number, saving: None, at_work=False)
    with counted.happening():
        run_training(out_dir="counted", **SETTINGS)
    for number in range(runs):
        first = rng.randint(1, counted.number)
        last = first + rng.choice((0, 0, rng.randint(1, 40)))
        reason, stop = rng.choice(REFUSALS), rng.random() < 0.3 and True in STOPS
        context = f"seed {SEED}, run {number}: moments {first} to {last}, {errno.errorcode[reason]}, stop {stop}"

        def refuse(moment, saving, first=first, last=last, reason=reason):
            if first <= moment <= last:
                raise OSError(reason, os.strerror(reason))

        run = RunFolder(f"run-{number}")
        error = None
        with Moments(refuse, at_work=False).happening():
            try:
                status = train.main(arguments(**SETTINGS, out_dir=run.path, stop_on_disk_error=stop))
                assert status == 0, context
            except (UserError, OSError) as stopped:  # the script turns both into one sentence and status 1
                error = stopped
        said = capsys.readouterr().err
        counts["checkpoints loaded"] += whole_checkpoints(run)
        if error:
            assert os.strerror(reason) in str(error), context
            counts["stopped with an error"] += 1
            words = ["--resume"] if run.last.exists() else arguments(**SETTINGS, out_dir=None)
            assert train.main([*words, f"--out_dir={run.path}"]) == 0, context
        else:
            assert not stop or "warning" not in said, context
            counts["continued with a warning" if "warning" in said else "unaffected"] += 1
        same_weights(run, whole)
        assert table_of(run) == table_of(whole), context
        assert run.samples.read_bytes() == whole.samples.read_bytes(), context
        shutil.rmtree(run.path)
    details = ", ".join(f"{number} {what}" for what, number in sorted(counts.items()))
    report(f"disk refusing at one of {counted.number} moments, seed {SEED}: {runs} runs with one result ({details})")


@pytest.mark.slow
def test_a_limit_on_file_sizes_that_is_lifted_later_does_not_change_the_result(capsys, report):
    """The operating system itself cuts writes off in the middle, at 20 places."""
    resource = pytest.importorskip("resource")
    whole = run_training(out_dir="whole", **SETTINGS)
    size, limits = whole.last.stat().st_size, resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit(most):
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, limits[1]))

    for number in range(20):
        changes = {3: size * number // 20, 6: limits[0]}
        with at_steps({step: functools.partial(limit, most) for step, most in changes.items()}):
            try:
                run = run_training(out_dir=f"run-{number}", **SETTINGS)
            finally:
                limit(limits[0])
        assert "last.safetensors (File too large)" in capsys.readouterr().err
        same_weights(run, whole)
        assert table_of(run) == table_of(whole)
    report(f"files limited to 20 sizes from 0 to {size * 19 // 20:,} bytes at step 4: all 20 runs warned and continued")
