"""`python -m benchmarks.experiments`: what is run, and what a row and the table say."""

import re

import pytest

import train
from benchmarks import experiments
from benchmarks.results import COLUMNS, read_rows
from tests.tiny_runs import arguments, rows, run_training

TINY = " ".join(arguments(out_dir=None, max_iters=2, text="text.txt"))
FILE = f"""# tiny runs
seeds = "1,2"

[[setting]]
name = "one"
options = "{TINY}"

[[setting]]
name = "fast"
options = "{TINY} --learning_rate 0.1"
seeds = "7"
"""


@pytest.fixture
def place(workplace, monkeypatch):
    """Folders for an experiment `tiny` and its results; the code is at the commit "abc"."""
    monkeypatch.setattr(experiments, "EXPERIMENTS", workplace)
    monkeypatch.setattr(experiments, "RESULTS", workplace / "results")
    monkeypatch.setattr(experiments, "code_commit", lambda: "abc")
    (workplace / "tiny.toml").write_text(FILE, encoding="utf-8")
    return workplace


def test_a_real_run_becomes_a_row(place):
    assert experiments.main(["tiny", "--only", "fast"]) == 0
    (row,) = read_rows(place / "results" / "tiny.csv")
    assert (row["name"], row["seed"], row["commit"], row["steps"]) == ("fast", "7", "abc", "2")
    found = rows(run_training(max_iters=2, learning_rate=0.1, seed=7, eval_iters=0, eval_interval=1))
    assert float(row["last_bits_per_char"]) == pytest.approx(float(found[-1]["bits_per_char"]), abs=1e-4)
    assert float(row["train_loss"]) == pytest.approx(float(found[-2]["loss"]), abs=1e-4)  # that of the last step
    best = min(float(found[0]["val_loss"]), float(found[-1]["val_loss"]))  # at steps 0 and 2 only
    assert float(row["val_loss"]) == pytest.approx(best, abs=1e-4)
    assert float(row["seconds"]) > 0
    assert sorted(path.name for path in place.iterdir()) == ["results", "run", "text.txt", "tiny.toml"]


def test_only_what_is_missing_is_run(place, monkeypatch, capsys):
    made = []

    def train_here(run):
        made.append((run.name, run.seed))
        changes = {"learning_rate": run.setup.options.learning_rate, "seed": run.seed, "out_dir": run.setup.folder.path}
        return train.main(arguments(max_iters=2, **changes))

    monkeypatch.setattr(experiments, "train_one", train_here)
    experiments.main(["tiny", "--seeds", "1", "--out_dir", "kept"])
    assert made == [("one", 1), ("fast", 1)]
    assert (place / "kept" / "one-1" / "best.safetensors").exists()
    experiments.main(["tiny"])  # the settings in turn, seed by seed
    assert made[2:] == [("fast", 7), ("one", 2)]
    experiments.main(["tiny", "--dry_run", "--seeds", "2,3", "--only", "one"])
    found = re.findall(r"^(done|missing) +one, seed (\d): python train.py ", capsys.readouterr().out, re.MULTILINE)
    assert found == [("done", "2"), ("missing", "3")]


def test_the_table_has_mean_and_spread_over_the_seeds(place, ran):
    known = dict.fromkeys(COLUMNS, "") | {"options": "a --b", "commit": "abc", "workers": "2", "seconds": "60.0"}
    names = {"3": "fast", "4": "gone"} | dict.fromkeys(("2.10", "2.20", "2.30"), "one")
    made = [known | {"name": name, "bits_per_char": bits} for bits, name in names.items()]
    experiments.write_rows(place / "results" / "tiny.csv", made)
    lines = ran(experiments.main, "tiny", "--table").out.splitlines()
    assert lines[2].startswith("| one | 3 | 2.200 ± 0.100 |  |")  # in the order of the experiment's file
    assert lines[3].startswith("| fast | 1 | 3.000 |")
    assert lines[4] == ""
