"""`python -m benchmarks.experiments`: what is run, what a row says, and that only finished runs have one."""

import csv
import re

import pytest

import train
from benchmarks import experiments
from benchmarks.experiments import training_seconds
from benchmarks.results import COLUMNS, read_rows
from gpt import data
from gpt.model import GPT
from tests.tiny_runs import arguments, made_up_text, rows, run_training
from tinygrad_lite.errors import OptionError, UserError
from workshop.corpora import texts
from workshop.run.run_folder import RunFolder
from workshop.run.setup import read_setup

OURS = experiments.EXPERIMENTS  # the fixture `place` below is also conftest's, so all tests of this file have another
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


@pytest.fixture
def in_this_process(monkeypatch):
    """Run the training here, which saves the start of a process; gives the runs that were made."""
    made = []

    def train_one(run):
        made.append((run.name, run.seed))
        changes = {"learning_rate": run.setup.options.learning_rate, "seed": run.seed, "out_dir": run.setup.folder.path}
        return train.main(arguments(max_iters=2, **changes))

    monkeypatch.setattr(experiments, "train_one", train_one)
    return made


def test_a_real_run_becomes_a_row(place, capfd):
    assert experiments.main(["tiny", "--only", "fast"]) == 0
    (row,) = read_rows(place / "results" / "tiny.csv")
    assert (row["name"], row["seed"], row["commit"], row["steps"]) == ("fast", "7", "abc", "2")
    folder = run_training(max_iters=2, learning_rate=0.1, seed=7, eval_iters=0, eval_interval=1)
    found = rows(folder)
    assert float(row["last_bits_per_char"]) == pytest.approx(float(found[-1]["bits_per_char"]), abs=1e-4)
    assert float(row["train_loss"]) == pytest.approx(float(found[-2]["loss"]), abs=1e-4)  # that of the last step
    best = min(float(found[0]["val_loss"]), float(found[-1]["val_loss"]))  # at steps 0 and 2 only
    assert float(row["val_loss"]) == pytest.approx(best, abs=1e-4)
    assert row["best_step"] in ("0", "2")
    assert row["checkpoint"] == "best"
    assert float(row["seconds"]) > 0
    assert sorted(path.name for path in place.iterdir()) == ["results", "run", "text.txt", "tiny.toml"]
    out, err = capfd.readouterr()
    assert out == ""
    assert "run 1 of 1: fast, seed 7" in err


def test_a_row_of_an_adapter_tells_what_learned_and_what_was_forgotten(place, monkeypatch):
    run_training(max_iters=2, out_dir="base")
    monkeypatch.setattr(
        experiments, "train_one", lambda run: train.main([*other, f"--out_dir={run.setup.folder.path}"])
    )
    (place / "other.txt").write_text(made_up_text(seed=2)[::-1], encoding="utf-8")
    other = arguments(
        max_iters=2, text="other.txt", init_from="base/best.safetensors", lora_rank=2, seed=1, out_dir=None
    )
    other = [word for word in other if not word.startswith(("--n_", "--block_size"))]
    options = " ".join(word for word in other if not word.startswith("--seed"))
    (place / "tiny.toml").write_text(f'# adapted\n[[setting]]\nname = "lora"\noptions = "{options}"\n', "utf-8")
    monkeypatch.setattr(texts, "load_corpus", lambda name: texts.load_files(["text.txt"]))
    monkeypatch.setattr(data, "load_corpus", texts.load_corpus)
    assert experiments.main(["tiny"]) == 0
    (row,) = read_rows(place / "results" / "tiny.csv")
    assert 0 < int(row["trained"]) < int(row["parameters"])
    before = float(rows(RunFolder("base"))[-1]["bits_per_char"])
    assert float(row["base_bits_per_char"]) == pytest.approx(before, rel=0.1)
    assert row["base_bits_per_char"] != row["bits_per_char"]


def test_only_what_is_missing_is_run(place, in_this_process, capsys):
    experiments.main(["tiny", "--seeds", "1", "--out_dir", "kept"])
    assert in_this_process == [("one", 1), ("fast", 1)]
    assert {path.name for path in (place / "kept").iterdir()} == {"one-1", "fast-1"}
    assert (place / "kept" / "one-1" / "best.safetensors").exists()
    experiments.main(["tiny"])  # the settings in turn, seed by seed
    assert in_this_process[2:] == [("fast", 7), ("one", 2)]
    experiments.main(["tiny"])
    assert len(in_this_process) == 4
    assert "3 runs at commit abc: 3 done, 0 to do" in capsys.readouterr().err
    experiments.main(["tiny", "--dry_run", "--seeds", "2,3", "--only", "one"])
    out = capsys.readouterr().out
    assert re.findall(r"^(done|missing) +one, seed (\d): python train.py .*--seed \2$", out, re.MULTILINE) == [
        ("done", "2"),
        ("missing", "3"),
    ]
    with open(place / "results" / "tiny.csv", encoding="utf-8", newline="") as file:
        assert tuple(next(csv.reader(file))) == COLUMNS


def test_a_setting_of_an_older_commit_is_shown_and_not_trained(place, in_this_process, capsys):
    experiments.main(["tiny", "--only", "fast"])
    removed = FILE.replace("--learning_rate 0.1", "--removed 0.1").replace('seeds = "7"', 'commit = "abc"')
    (place / "tiny.toml").write_text(removed, encoding="utf-8")
    experiments.main(["tiny"])
    assert in_this_process == [("fast", 7), ("one", 1), ("one", 2)]
    capsys.readouterr()
    experiments.main(["tiny", "--table"])
    assert re.findall(r"^\| (\w+) \|", capsys.readouterr().out, re.MULTILINE) == ["setting", "one", "fast"]


def test_a_run_that_fails_or_is_stopped_has_no_row_and_leaves_nothing(place, monkeypatch):
    monkeypatch.setattr(experiments, "train_one", lambda run: run.seed)
    with pytest.raises(UserError, match=r"^2 of 2 runs failed: one, seed 1 \(status 1\); one, seed 2 \(status 2\)$"):
        experiments.main(["tiny", "--only", "one", "--out_dir", "kept"])

    def stopped(run):
        run.setup.folder.path.mkdir()
        raise KeyboardInterrupt

    monkeypatch.setattr(experiments, "train_one", stopped)
    with pytest.raises(KeyboardInterrupt):
        experiments.main(["tiny", "--out_dir", "kept"])
    assert list((place / "kept").iterdir()) == []
    assert not (place / "results").exists()


def test_code_that_changes_during_a_run_gives_no_row(place, in_this_process, monkeypatch):
    commits = iter(["abc", "abc", "def"])
    monkeypatch.setattr(experiments, "code_commit", lambda: next(commits))
    with pytest.raises(UserError, match="the code was changed while it trained"):
        experiments.main(["tiny", "--only", "fast"])
    assert read_rows(place / "results" / "tiny.csv") == []


def test_seconds_are_those_of_the_steps():
    class Task:
        def target_tokens(self, step):
            return 100 * (step + 1)

    logged = [{"step": "2", "tokens_per_second": "100"}, {"step": "3", "tokens_per_second": "50"}]
    assert training_seconds(logged, Task()) == (100 + 200) / 100 + 300 / 50


def results(place, *rows):
    """Write a file of results."""
    row = dict.fromkeys(COLUMNS, "") | {"options": "a --b", "commit": "abc", "workers": "2"}
    experiments.write_rows(place / "results" / "tiny.csv", [row | each for each in rows])


def test_the_table_has_mean_and_spread_over_the_seeds(place, capsys):
    one = [{"name": "one", "bits_per_char": text, "seconds": "60.0"} for text in ("2.10", "2.20", "2.30")]
    results(place, {"name": "fast", "bits_per_char": "3"}, {"name": "gone", "bits_per_char": "4"}, *one)
    assert experiments.main(["tiny", "--table"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].startswith("| one | 3 | 2.200 ± 0.100 |  |")  # in the order of the experiment's file
    assert "| 60 |" in lines[2]
    assert lines[3].startswith("| fast | 1 | 3.000 |")
    assert lines[4] == ""
    assert experiments.main(["tiny", "--table", "--only", "fast"]) == 0
    assert "| one |" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (('seeds = "7"', "colour = 1"), r"unknown option colour \(.*tiny.toml\)"),
        (('name = "fast"', 'name = "one"'), r"every setting needs a name of its own, but one is called 'one'"),
        (("--learning_rate 0.1", "--learning_rate -1"), "setting fast: --learning_rate -1"),
        (("--learning_rate 0.1", "--lr 1"), "setting fast: unknown option --lr"),
    ],
)
def test_a_wrong_file_is_refused_before_anything_is_run(place, in_this_process, change, sentence):
    (place / "tiny.toml").write_text(FILE.replace(*change), encoding="utf-8")
    with pytest.raises(OptionError, match=sentence):
        experiments.main(["tiny"])
    assert in_this_process == []


def test_results_with_other_columns_are_refused(place):
    (place / "results").mkdir()
    (place / "results" / "tiny.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(UserError, match="has other columns"):
        experiments.main(["tiny", "--table"])


def test_the_experiments_here_can_be_planned(monkeypatch):
    monkeypatch.setattr(experiments, "EXPERIMENTS", OURS)
    assert "tokenizers" in experiments.list_presets(OURS)
    for name in experiments.list_presets(experiments.EXPERIMENTS):
        if name not in ("labels", "adapting"):
            assert experiments.main([name, "--dry_run"]) == 0
    assert experiments.main(["labels", "--dry_run", "--only", "from scratch"]) == 0
    with pytest.raises(OptionError, match="from bert-reviews: --init_from out/bert-reviews: there is no such file"):
        experiments.main(["labels", "--dry_run"])  # which must be trained first
    with pytest.raises(OptionError, match="Jean Paul: base: --init_from out/goethe-works: there is no such file"):
        experiments.main(["adapting", "--dry_run"])


def test_the_tokenizers_are_compared_at_equal_compute():
    """The operations of all matrix products of each training agree within 1 %, and with the formula in the file."""
    file, products = OURS / "tokenizers.toml", {}
    for setting in experiments.read_settings(file, experiments.ExperimentOptions()):
        options = read_setup([*setting.options.split(), "--overwrite"]).options
        vocab_size = {"char": 84, "byte": 256}.get(options.tokenizer, options.vocab_size)  # the 83 of goethe and <unk>
        per_token = GPT.blueprint(options.model_config(vocab_size)).flops_per_token()
        assert per_token == 4_718_592 + 768 * vocab_size + 6144 * options.block_size
        assert (options.batch_size * options.block_size, options.workers) == (1024, 1)
        products[setting.name] = options.max_iters * 1024 * per_token
    assert len(products) == 13
    for name, count in products.items():
        assert count == pytest.approx(products["BPE of 1024"], rel=0.01), name
