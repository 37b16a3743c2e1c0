"""Ranks that mpirun starts compute what worker processes do, and all end when one fails.

Most tests start mpirun, so they need the extra `mpi`; .ci/run installs it.
"""

import importlib.util
import os
import random
import sys
from pathlib import Path

import numpy as np
import pytest

import train
from extra.gpt.options import GPTOptions
from extra.mpi import mpi, mpirun
from extra.setup import ShelfSetup
from tests.extra.reliability import mpi_trials
from tests.reliability.test_reproducible import largest_difference
from tests.tiny_runs import ROOT, apart, arguments, finish, losses, run_training, same, script
from tinygrad_lite.errors import OptionError
from training.cli.options import build
from training.folder import RunFolder

pytestmark = pytest.mark.usefixtures("workplace")
HAS_MPI = importlib.util.find_spec("mpi4py") and os.path.exists(mpi_trials.MPIRUN)
STARTS = pytest.mark.skipif(not HAS_MPI, reason="needs the extra mpi: mpi4py and mpich")
PAIRS = ["reverse", "--toy_size=60", "--batch_tokens=300", "--n_embd=16", "--max_iters=6", "--eval_interval=3"]


def start(ranks, *words, **settings):
    """Run train.py under mpirun: its exit status, and all that it wrote."""
    process = mpi_trials.under(mpi_trials.on(ranks), [ROOT / "train.py", *words], **settings)
    said, _ = process.communicate(timeout=300)
    return process.returncode, said


def run_ranks(ranks, *words, **settings):
    """Train to the end, and return the run's folder."""
    folder = f"ranks-{len(list(Path().glob('ranks-*')))}"
    status, said = start(ranks, *words, f"--out_dir={folder}", **settings)
    assert status == 0, said
    return RunFolder(folder)


# --- the same numbers ---------------------------------------------------------------------------------------------


SHAPE = dict.fromkeys(("n_layer", "n_head", "n_embd", "block_size"))
COMMANDS = {
    "dropout": arguments(dropout=0.2, gradient_accumulation_steps=2, keep=2, sample_tokens=5, out_dir=None),
    "muon": arguments(optimizer="muon", grad_clip=0.01, patience=1, learning_rate=0.5, out_dir=None),
    "adapter": arguments(init_from="base/best.safetensors", lora_rank=2, quantize="nf4", out_dir=None, **SHAPE),
    "translation": PAIRS,
}


@STARTS
@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_two_ranks_give_the_bytes_of_two_workers(words):
    """Of an adapter, both have the frozen weights of rank 0, floats and codes."""
    if words is COMMANDS["adapter"]:
        run_training(out_dir="base")
    ranks = run_ranks(2, *words)
    assert train.main([*words, "--workers=2", "--out_dir=workers"]) == 0
    same(ranks, RunFolder("workers"))


@STARTS
def test_four_ranks_give_the_same_bytes_again_and_learn_what_one_process_does():
    """In another number of processes, only rounding differs."""
    settings = {"max_iters": 200, "eval_interval": 50, "learning_rate": 1e-3, "out_dir": None}
    one, two = (run_ranks(4, *arguments(**settings)) for _ in range(2))
    same(one, two)
    single = run_training(**settings | {"out_dir": "run"})
    assert losses(single, "val_loss")[0] - losses(single, "val_loss")[200] > 0.3
    assert apart(one, single, "val_loss") < 1e-4


@STARTS
def test_sixteen_bits_change_the_loss_by_less_than_one_percent_and_resume_bit_for_bit():
    settings = {"max_iters": 60, "eval_interval": 20, "exchange": "bfloat16", "dropout": 0.1, "out_dir": None}
    short = run_ranks(2, *arguments(**settings))
    whole = run_training(**settings | {"workers": 2, "out_dir": "run"})
    assert largest_difference(short, whole) > 0
    assert apart(short, whole, "val_loss") < 0.01 * losses(whole, "val_loss")[60]
    part = run_ranks(2, *arguments(**settings | {"max_iters": 40, "lr_decay_iters": 60}))
    assert start(2, "--resume", "--max_iters=60", f"--out_dir={part.path}")[0] == 0
    assert largest_difference(part, run_ranks(2, *arguments(**settings | {"lr_decay_iters": 60}))) == 0


@STARTS
@pytest.mark.parametrize(("ranks", "tolerance"), [(2, 0), (3, 1e-5)])
def test_a_run_resumes_with_the_same_and_with_another_number_of_ranks(ranks, tolerance):
    """Without dropout, whose masks depend on the rank; `tolerance` in nats per token."""
    settings = {"lr_decay_iters": 30, "out_dir": None}
    whole = run_ranks(2, *arguments(**settings, max_iters=30))
    part = run_ranks(2, *arguments(**settings, max_iters=12))
    assert start(ranks, "--resume", "--max_iters=30", f"--out_dir={part.path}")[0] == 0
    one, two = (losses(run, "val_loss")[30] for run in (whole, part))
    assert abs(one - two) <= tolerance
    if ranks == 2:
        assert whole.best.read_bytes() == part.best.read_bytes()


# --- the parts ----------------------------------------------------------------------------------------------------


def test_bfloat16_rounds_to_the_nearest_of_eight_bits():
    x = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    rounded = mpi.from_bfloat16(mpi.to_bfloat16(x))
    np.testing.assert_array_equal(rounded.view(np.uint32) & 0xFFFF, 0)
    assert (abs(rounded - x) <= abs(x) / 256).all()
    assert abs((rounded - x).mean()) < 1e-4  # not towards 0, as truncation would
    special = np.float32([0, -0.0, np.inf, -np.inf])
    np.testing.assert_array_equal(mpi.from_bfloat16(mpi.to_bfloat16(special)), special)


LAUNCHERS = [
    ({}, (0, 1, "")),
    ({"PMI_RANK": "2", "PMI_SIZE": "3"}, (2, 3, "mpirun")),
    ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4"}, (1, 4, "mpirun")),
    ({"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "3"}, (3, 4, "srun")),
    ({"SLURM_NTASKS": "4", "SLURM_PROCID": "0"}, (0, 1, "")),  # of a batch script itself
]


@pytest.mark.parametrize(("variables", "expected"), LAUNCHERS)
def test_the_launcher_is_known_by_its_variables(variables, expected, monkeypatch):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert mpirun.launched() == expected


def test_ranks_replace_workers(monkeypatch, capsys):
    monkeypatch.setattr("extra.setup.launched", lambda: (0, 3, "mpirun"))
    assert ShelfSetup(None, build(GPTOptions, ("test", {"workers": 2})), None).number_of_workers() == 3
    assert "the 3 processes that mpirun started replace --workers 2" in capsys.readouterr().err
    with pytest.raises(OptionError, match="mpirun -n 3: each needs a part of the batch; use at most 2"):
        ShelfSetup(None, build(GPTOptions, ("test", {"batch_size": 2})), None).number_of_workers()


class Line:
    """Messages between rank 0 and rank 1, of which only some arrive: in these seconds."""

    rank, size = 0, 2

    def __init__(self, seconds):
        self.seconds, self.now, self.sent = seconds, 0, 0

    def wait(self, seconds):
        self.now += seconds
        return False

    def Isend(self, message, rank):
        self.sent += 1
        return self

    def Test(self):
        return True

    def Iprobe(self, rank):
        return self.now in self.seconds

    def Recv(self, message, rank):
        self.seconds.remove(self.now)


@pytest.mark.parametrize(("heard", "end"), [([], 5), ([1, 3, 7, 11, 12], 17)])
def test_a_rank_ends_when_it_has_heard_nothing_for_a_while(heard, end, monkeypatch, capsys):
    """Four seconds of silence are allowed here, five are not, whatever the main thread does meanwhile."""
    monkeypatch.setenv(mpirun.TIMEOUT, "5")
    monkeypatch.setattr(mpirun, "end_mpirun", lambda: None)
    monkeypatch.setattr(mpirun.os, "_exit", sys.exit)
    line = Line(heard)
    watchdog = mpirun.Watchdog(line, ["hostA", "hostB"])
    watchdog.has_ended = line
    with pytest.raises(SystemExit) as status:
        watchdog.run()
    assert (status.value.code, line.now, line.sent) == (1, end, end)
    said = capsys.readouterr().err
    assert said.startswith("stopped: rank 0 has not heard from rank 1 on hostB for 5 s, so the connection")
    assert said.count("\n") == 1


# --- ends and errors ----------------------------------------------------------------------------------------------


@STARTS
def test_a_launcher_that_python_does_not_know_is_refused():
    """As when mpirun belongs to another MPI: there are two processes, and each believes to be alone."""
    status, _, err = finish(script("train.py", OMPI_COMM_WORLD_SIZE="2", OMPI_COMM_WORLD_RANK="0"))
    assert status == 1
    assert err.startswith("train.py: mpirun started 2 processes, but Python's MPI (MPICH")


@STARTS
@pytest.mark.parametrize("option", ["--text=missing.txt", "--learning_rate=1e30"])
def test_an_error_gives_one_sentence(option):
    """On rank 0, or on all of them: a loss that is not finite."""
    status, said = start(3, *arguments(), option, "--grad_clip=0")
    assert status == 1
    assert said.count("train.py: ") == 1
    assert "Traceback" not in said


@STARTS
@pytest.mark.parametrize("kind", mpi_trials.KINDS)
def test_all_ranks_end_in_time_whatever_happens_to_one(kind, workplace):
    mpi_trials.trial(kind, random.Random(7), workplace / "run")
