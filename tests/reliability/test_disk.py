"""Disks that refuse writes: saved files stay, the user is told, and training continues or stops, as requested."""

import errno
import os
import random
import shutil
from collections import Counter

import numpy as np
import pytest

import train
from tests.reliability.disturbed import whole_checkpoints
from tests.reliability.moments import Moments
from tests.tiny_runs import LEFT_OUT, arguments, run_training, table_of
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


# Whether a run is to stop; without the shelf it goes on.
STOPS = (False,) if "stop_on_disk_error" in LEFT_OUT else (False, True)


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
    report(f"disk refusing at one of {counted.number} moments, seed {SEED}: {runs} runs, {dict(counts)}")
