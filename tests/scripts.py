"""What the tests of train.py and sample.py share: a made-up text, and a model small enough to train in a blink."""

import csv
from pathlib import Path

import pytest

import train

TEXT = (
    "Es irrt der Mensch, solang er strebt.\nGrau, teurer Freund, ist alle Theorie,\n"
    "und grün des Lebens goldner Baum.\nWas du ererbt von deinen Vätern hast, erwirb es, um es zu besitzen.\n"
) * 12
TINY = "--n_layer 1 --n_head 2 --n_embd 16 --block_size 8 --batch_size 4 --sample_tokens 5 --warmup_iters 2".split()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty working folder with a text in it, and no way to any other text."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TINYGRAD_LITE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8", newline="\n")
    return tmp_path


def run_train(*arguments: object, out: str = "out/goethe-char") -> int:
    """Train the tiny model on the made-up text."""
    given = [str(argument) for argument in arguments]
    return train.main(["--text", "text.txt", *TINY, "--out_dir", out, *given])


def metrics(out: str | Path = "out/goethe-char") -> list[dict[str, str]]:
    """The rows of a run's metrics.csv, without the times."""
    with open(Path(out) / "metrics.csv", encoding="utf-8", newline="") as file:
        return [{k: v for k, v in row.items() if k != "tokens_per_second"} for row in csv.DictReader(file)]
