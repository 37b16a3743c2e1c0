"""The same command gives the same bytes for every user and in every folder; another NumPy gives nearly the same."""

import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests import test_translation_scripts as translation
from tests.tiny_runs import ROOT, apart, arguments, finish, made_up_text, run_training, same, sampled
from tinygrad_lite import manual_seed
from training.checkpoint import load_checkpoint
from training.folder import RunFolder

pytestmark = pytest.mark.usefixtures("workplace")
ALL = {"dropout": 0.2, "gradient_accumulation_steps": 2, "sample_tokens": 20, "keep": 1, "out_dir": None}
KINDS = {
    "merges": arguments(**ALL, tokenizer="bpe", vocab_size=300),
    "characters": arguments(**ALL),
    "words": arguments(**ALL, tokenizer="word", vocab_size=30, optimizer="sgd"),
    "fewer merges": arguments(**ALL, tokenizer="bpe", vocab_size=270, bias=True, positions="sinusoidal"),
    "bytes": arguments(**ALL, tokenizer="byte", dtype="float64"),
    "pairs": [word for word in translation.arguments(dropout=0.2, keep=1, out_dir=None) if "None" not in word],
}
# Two users, whose hash seeds, locales, time zones and sizes of the environment differ.
ANNA = {"PYTHONHASHSEED": "1", "LC_ALL": "C", "TZ": "UTC"}
BERT = {"PYTHONHASHSEED": "2", "LC_ALL": "C.UTF-8", "TZ": "Asia/Tokyo", "FILLER": "x" * 3333, "PYTHONOPTIMIZE": "1"}


def train_elsewhere(words, folder, workers, settings, python=None):
    """Train in another process, with its own names for the working folder and the output folder."""
    Path(folder).mkdir()
    Path(folder, "text.txt").write_text(made_up_text(), encoding="utf-8", newline="\n")
    command = [python or sys.executable, str(ROOT / "train.py"), *words, f"--workers={workers}"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **settings}
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen([*command, f"--out_dir=run-{folder}"], cwd=folder, env=environment, **pipes)
    status, out, err = finish(process)
    assert status == 0, err
    return RunFolder(Path(folder, f"run-{folder}")), out


@pytest.mark.parametrize(
    ("kind", "workers"),
    [("merges", 1), *(pytest.param(kind, n, marks=pytest.mark.slow) for kind in KINDS for n in (1, 2))],
)
def test_the_same_command_gives_the_same_bytes_in_every_environment(kind, workers):
    (one, said), (two, said_too) = (
        train_elsewhere(KINDS[kind], name, workers, settings) for name, settings in (("anna", ANNA), ("bert", BERT))
    )
    same(one, two)
    assert said == said_too
    names = sorted(path.name for path in one.path.glob("*.safetensors"))
    assert [(one.path / name).read_bytes() for name in names] == [(two.path / name).read_bytes() for name in names]


# --- the seed ---------------------------------------------------------------------------------------------------


def test_the_seed_alone_determines_every_random_number(capsys):
    """The same seed repeats all of it; another changes initial weights, batches with dropout, and sampling."""

    def initial(seed):
        return run_training(max_iters=0, seed=seed, overwrite=True).last.read_bytes()

    def trained(seed):
        return run_training(max_iters=4, dropout=0.3, seed=seed, overwrite=True).last.read_bytes()

    def written(seed):
        return sampled(capsys, "run", f"--seed={seed}", "--max_new_tokens=50").out

    for draw in (initial, trained, written):
        found = []
        for seed in (5, 6, 5):
            random.seed(len(found))  # other random states must not matter
            np.random.seed(len(found))
            manual_seed(len(found))
            found.append(draw(seed))
        assert found[0] == found[2], draw.__name__
        assert found[0] != found[1], draw.__name__


def largest_difference(one, two):
    """The largest absolute difference between the weights of two runs."""
    a, b = (load_checkpoint(run.last).weights for run in (one, two))
    assert a.keys() == b.keys()
    return max(float(np.abs(a[name] - b[name]).max()) for name in a)


# --- what the bytes depend on -----------------------------------------------------------------------------------

LARGER = {"n_layer": 2, "n_head": 4, "n_embd": 128, "block_size": 64, "batch_size": 12, "out_dir": None}


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_threads_and_kernels_change_only_the_last_digits(workers, report):
    """The number of threads and the kernels of the matrix products change at most the last digits."""
    words = arguments(**LARGER, text="../long.txt")
    Path("long.txt").write_text(made_up_text(20000), encoding="utf-8", newline="\n")
    cases = {
        "2 threads again": {"OPENBLAS_NUM_THREADS": "2"},
        "1 thread": {"OPENBLAS_NUM_THREADS": "1"},
        "other matrix kernels": {"OPENBLAS_NUM_THREADS": "2", "OPENBLAS_CORETYPE": "Prescott"},
    }
    first, _ = train_elsewhere(words, "first", workers, {"OPENBLAS_NUM_THREADS": "2"})
    found = {}
    for number, (name, settings) in enumerate(cases.items()):
        run, _ = train_elsewhere(words, f"other-{number}", workers, settings)
        equal = run.last.read_bytes() == first.last.read_bytes()
        found[name] = "the same bytes" if equal else f"weights differ by up to {largest_difference(first, run):.1e}"
        assert largest_difference(first, run) < 1e-4
    assert found["2 threads again"] == "the same bytes"
    if workers > 1:  # then each uses one thread, whatever the environment says
        assert found["1 thread"] == "the same bytes"
    report(f"environment, {workers} worker(s), against 2 threads: " + "; ".join(f"{k}: {v}" for k, v in found.items()))


# --- another version of NumPy -----------------------------------------------------------------------------------

OTHER = os.environ.get("TINYGRAD_LITE_OTHER_PYTHON", "")
TOLERANCE = {"float32": 1e-4, "float64": 1e-10}  # of each weight after 40 steps, and of each loss


@pytest.mark.slow
@pytest.mark.skipif(not OTHER, reason="TINYGRAD_LITE_OTHER_PYTHON names no Python with another NumPy")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_two_versions_of_numpy_agree(dtype, report):
    """Exactly on tokens, batches and dropped elements, and on weights up to rounding over 40 steps."""
    ask = [OTHER, "-c", "import numpy; print(numpy.__version__)"]
    version = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()
    assert version != np.__version__, "the other Python has the same NumPy"
    words = arguments(**ALL | LARGER, dtype=dtype, max_iters=40, eval_interval=20, learning_rate=1e-3)
    ours, said = train_elsewhere(words, "ours", 1, {})
    theirs, said_there = train_elsewhere(words, "theirs", 1, {}, python=OTHER)
    assert version.encode() in theirs.last.read_bytes()
    assert said == said_there  # the sampled texts
    difference = largest_difference(ours, theirs)
    assert difference < TOLERANCE[dtype]
    distance = max(apart(ours, theirs, column) for column in ("loss", "val_loss"))
    assert distance < max(TOLERANCE[dtype], 2e-5)  # metrics.csv has six digits
    versions = f"NumPy {np.__version__} and {version}, {dtype}"
    report(f"{versions}, 40 steps: weights differ by at most {difference:.1e}, logged losses by {distance:.1e}")
