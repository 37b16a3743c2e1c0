"""Tiny training runs on a made-up text, for the tests of the two scripts."""

import csv
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import IO

import numpy as np
import pytest

import sample
import train
from families import FAMILIES
from tinygrad_lite.functional.registry import set_composed
from tinygrad_lite.optim import Optimizer
from tinygrad_lite.precision import set_precision
from training.cli.options import fields_of
from training.folder import STOPPING, RunFolder
from training.options import TrainOptions

ROOT = Path(__file__).parent.parent
WORDS = "Es irrt der Mensch, so lang er strebt.\n Grün ist nur des Lebens goldner Baum; süß ruht die Höh".split(" ")
SMALL = {"out_dir": "run", "n_layer": 1, "n_head": 2, "n_embd": 16, "max_iters": 10, "warmup_iters": 2}
SMALL |= {"learning_rate": 1e-2, "eval_interval": 4, "log_interval": 1}
PAIRS = SMALL | {"block_size": 64, "batch_tokens": 200, "toy_size": 300, "eval_pairs": 5, "translations": 2}
PAIRS |= {"tokenizer": "char"}
SMALL |= {"text": "text.txt", "block_size": 8, "batch_size": 4, "eval_iters": 3, "sample_tokens": 0}
# Options of the shelf, which these runs do without where it is missing.
LEFT_OUT = {"log_interval", "keep", "lr_decay_iters", "dry_run", "stop_on_disk_error"}
LEFT_OUT -= fields_of(FAMILIES["gpt"].options)[0].keys()
if LEFT_OUT:
    TrainOptions.log_interval = 1


def made_up_text(words: int = 500, seed: int = 1) -> str:
    """Words in random order, from which a model can learn a little."""
    return " ".join(np.random.default_rng(seed).choice(WORDS, words)) + "\n"


def arguments(preset: str = "goethe-char", **changes: object) -> list[str]:
    """The command line of a tiny run; a value of None leaves the option out.

    It trains GPT-2's parts on characters, unless it starts from other weights, which have their own shape; with the
    preset "reverse", a translation model.
    """
    named = [] if preset == "goethe-char" and "init_from" in changes else [preset]
    settings = (PAIRS if preset == "reverse" else SMALL) | changes | dict.fromkeys(LEFT_OUT)
    return named + [f"--{name}={value}" for name, value in settings.items() if value is not None]


def run_training(preset: str = "goethe-char", **changes: object) -> RunFolder:
    """Train to the end, and return the run's folder."""
    assert train.main(arguments(preset, **changes)) == 0
    return RunFolder((SMALL | changes)["out_dir"])


def stop_after(monkeypatch, steps: int, number: int = signal.SIGINT) -> None:
    """Send this process a signal after N updates, once."""
    update = Optimizer.step

    def update_and_stop(self):
        update(self)
        if self.steps == steps:
            signal.raise_signal(number)

    monkeypatch.setattr(Optimizer, "step", update_and_stop)


def sampled(capsys, *words: object) -> tuple[str, str]:
    """What sample.py writes to stdout and stderr: `out` and `err`."""
    capsys.readouterr()
    assert sample.main([str(word) for word in words]) == 0
    return capsys.readouterr()


def table(capsys, command: ModuleType, *words: object) -> dict[str, list[str]]:
    """The rows that a command prints below its first line, by their first cells."""
    capsys.readouterr()
    assert command.main([str(word) for word in words]) == 0
    return {row.split()[0]: row.split()[1:] for row in capsys.readouterr().out.splitlines()[1:]}


def csv_rows(path: Path | str) -> list[dict[str, str]]:
    """The rows of a CSV file, by the names of its columns."""
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def rows(folder: RunFolder) -> list[dict[str, str]]:
    """The rows of metrics.csv."""
    return csv_rows(folder.metrics)


def losses(folder: RunFolder, column: str = "loss") -> dict[int, float]:
    """The numbers in one column of metrics.csv, by step."""
    return {int(row["step"]): float(row[column]) for row in rows(folder) if row[column]}


def apart(one: RunFolder, two: RunFolder, column: str = "loss") -> float:
    """The largest difference between the numbers that two runs have in one column of metrics.csv, at the same steps."""
    a, b = (losses(run, column) for run in (one, two))
    assert a.keys() == b.keys()
    return max(abs(a[step] - b[step]) for step in a)


def table_of(folder: RunFolder) -> list[dict[str, str]]:
    """The rows of metrics.csv without the speed."""
    return [{**row, "tokens_per_second": ""} for row in rows(folder)]


def same(one: RunFolder, two: RunFolder) -> None:
    """Assert the same bytes in the checkpoints, and the same table except for the speed."""
    assert one.last.read_bytes() == two.last.read_bytes()
    assert one.best.read_bytes() == two.best.read_bytes()
    assert (table_of(one), one.samples.exists()) == (table_of(two), two.samples.exists())
    if one.samples.exists():
        assert one.samples.read_bytes() == two.samples.read_bytes()
    assert {path.name: path.read_bytes() for path in one.kept()} == {p.name: p.read_bytes() for p in two.kept()}


def assert_resumes(*words: str, stop: int = 3) -> RunFolder:
    """A run that is stopped after N updates and resumed has the bytes of one to the end, which is returned."""
    runs = [RunFolder(name) for name in ("whole", "run")]
    assert train.main([*words, "--out_dir=whole"]) == 0
    with pytest.MonkeyPatch.context() as patch:
        stop_after(patch, stop)
        assert train.main([*words, "--out_dir=run"]) == 130
    assert train.main(["--resume", "--out_dir=run"]) == 0
    same(*runs)
    return runs[0]


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a folder, with their contents."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def script(name: str, *words: str | bytes, stdout: int | IO = subprocess.PIPE, **settings: str) -> subprocess.Popen:
    """Start a script in another process, with these environment variables besides our own."""
    with ignoring_no_signal():
        return subprocess.Popen(
            [sys.executable, str(ROOT / name), *words],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT), **settings},
        )


def finish(process: subprocess.Popen) -> tuple[int, str, str]:
    """Wait for a process: its exit status, and what it wrote to stdout and stderr."""
    out, err = process.communicate(timeout=300)  # a busy machine may be slow
    # Windows has other line endings in a pipe, too.
    return process.returncode, *(said.decode("utf-8").replace(os.linesep, "\n") for said in (out or b"", err))


@contextmanager
def ignoring_no_signal() -> Iterator[None]:
    """Inside, neither this process nor one that it starts ignores a signal, as under nohup or in the background."""
    usual = dict.fromkeys(STOPPING, signal.SIG_DFL) | {signal.SIGINT: signal.default_int_handler}
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def undone() -> Iterator[None]:
    """Undo at the end what the scripts set for the whole process."""
    with np.errstate():
        try:
            yield
        finally:
            set_composed(False)
            set_precision("float32")
