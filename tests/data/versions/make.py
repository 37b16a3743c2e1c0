"""Make the stored runs in this folder with an older version of the project, and print what that version gives.

    git worktree add ../older b535597         # this is 0.1.0; 7e3a538 is 0.2.0
    PYTHONPATH=../older python tests/data/versions/make.py 0.1.0

A run is stored after step STORED. The version that made it then generates a text from it, and resumes it up to step
RESUMED; tests/test_versions.py expects the same from today's code. All that is learned from is made by a rule. Of a
run's files two are stored, `last.safetensors` with the weights and the optimizer's state, and `options.json` with the
names of texts. The files of a version are one archive, in which they take a third of the space.
"""

import csv
import io
import os
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np

import sample
import train

HERE = Path(__file__).parent
STORED, RESUMED = 500, 510  # the steps of a run when it is stored, and when it has been resumed
NUMBERS = "null eins zwei drei vier fünf sechs sieben acht neun zehn".split()

TINY = f"--n_layer=1 --n_head=2 --n_embd=4 --learning_rate=1e-2 --warmup_iters=10 --max_iters={STORED} --workers=1"
TINY += " --lr_decay_iters=1000 --eval_interval=100 --log_interval=100 --out_dir=run"
GPT = f"{TINY} --text=text.txt --block_size=8 --batch_size=8 --sample_tokens=0"
REVERSE = f"reverse {TINY} --n_inner=4 --block_size=12 --toy_size=200 --held_out=20 --batch_tokens=200 --eval_pairs=2"
BERT = f"bert-goethe {TINY} --text=text.txt --tokenizer=wordpiece --vocab_size=40"
BERT += " --n_inner=4 --block_size=16 --batch_size=8"
SGD = "--optimizer=sgd --learning_rate=0.1"
WRITE = ["--greedy", "--max_new_tokens=40", "--start", "zwei"]
# Name of a run: the words after train.py, and those after sample.py with the checkpoint.
RUNS = {
    "0.1.0-gpt": (f"goethe-char {GPT}", WRITE),
    "0.1.0-gpt-bpe": (f"goethe-bpe {GPT} --vocab_size=265 --n_head=1 --n_embd=3 {SGD}", WRITE),
    "0.1.0-seq2seq": (REVERSE, ["--start", "abcdefghij"]),
    "0.2.0-gpt": (f"goethe-char {GPT}", WRITE),
    "0.2.0-gpt-muon": (f"goethe {GPT} --tokenizer=char", WRITE),
    "0.2.0-seq2seq": (f"{REVERSE} --bias=false", ["--start", "abcdefghij"]),
    "0.2.0-bert": (BERT, ["--start", "zwei und [MASK] ist sieben"]),
    "0.2.0-vit": (f"vit-digits {TINY} --batch_size=8 --shift=0", ["--image", "test:3"]),
}


def sums() -> str:
    """A text: the sums of small numbers, in words."""
    return "".join(f"{NUMBERS[a]} und {NUMBERS[b]} ist {NUMBERS[a + b]}\n" for a in range(6) for b in range(6))


@contextmanager
def bars() -> Iterator[None]:
    """Inside, the pictures called digits have 4 x 4 pixels, and one row or column is bright."""
    from extra.corpora import pictures  # version 0.1.0 has none

    pixels = (np.arange(96)[:, None] * 7 + np.arange(16) * 5) % 5
    pixels = pixels.reshape(96, 4, 4).astype(np.uint8)
    labels = np.arange(96, dtype=np.uint8) % 8
    for picture, label in zip(pixels, labels.tolist(), strict=True):
        (picture if label < 4 else picture.T)[label % 4] += 10
    parts = [pictures.Pictures(pixels[part], labels[part]) for part in (slice(64), slice(64, 80), slice(80, 96))]
    names = tuple(f"{kind} {number}" for kind in ("row", "column") for number in range(1, 5))
    recipe = replace(pictures.RECIPES["digits"], make=lambda: parts, labels=names)
    with patch.dict(pictures.RECIPES, digits=recipe):
        yield


@contextmanager
def data_of(name: str) -> Iterator[None]:
    """Inside, what this run learns from can be found from the current folder."""
    Path("text.txt").write_text(sums(), encoding="utf-8", newline="\n")
    with bars() if "digits" in RUNS[name][0] else nullcontext():
        yield


def generated(name: str) -> str:
    """The output of sample.py on stdout, with the run in the folder `run`."""
    with redirect_stdout(io.StringIO()) as written:
        assert sample.main(["run/last.safetensors", *RUNS[name][1]]) == 0
    return written.getvalue()


def resumed() -> tuple[int, float]:
    """The last step of the run in the folder `run` after it has been resumed, and the validation loss there."""
    with redirect_stdout(io.StringIO()):
        assert train.main(["--resume", "--out_dir=run", f"--max_iters={RESUMED}"]) == 0
    with open("run/metrics.csv", encoding="utf-8", newline="") as file:
        last = list(csv.DictReader(file))[-1]
    return int(last["step"]), float(last["val_loss"])


def store(archive: tarfile.TarFile, name: str) -> None:
    """Add the files of the run in the folder `run` to an archive. The text is named relative to the current folder."""
    options = Path("run/options.json").read_text(encoding="utf-8").replace(f"{Path.cwd()}/", "")
    for file, data in (
        ("last.safetensors", Path("run/last.safetensors").read_bytes()),
        ("options.json", options.encode("utf-8")),
    ):
        entry = tarfile.TarInfo(f"{name}/{file}")
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))


def extract(name: str) -> None:
    """Write the files of a stored run to the folder `run`."""
    Path("run").mkdir()
    with tarfile.open(HERE / f"{name.partition('-')[0]}.tar.xz") as archive:
        for file in ("last.safetensors", "options.json"):
            Path("run", file).write_bytes(archive.extractfile(f"{name}/{file}").read())


def main(version: str) -> None:
    """Make the archive of a version, and print the rows of the table in tests/test_versions.py."""
    with tarfile.open(HERE / f"{version}.tar.xz", "w:xz", preset=9) as archive:
        for name, (words, _) in RUNS.items():
            if name.startswith(version):
                with tempfile.TemporaryDirectory() as folder:
                    os.chdir(folder)
                    with data_of(name):
                        with redirect_stdout(io.StringIO()):
                            assert train.main(words.split()) == 0
                        store(archive, name)
                        print(f"    {name!r}: ({generated(name)!r}, {resumed()[1]}),")
                    os.chdir(HERE)


if __name__ == "__main__":
    main(sys.argv[1])
