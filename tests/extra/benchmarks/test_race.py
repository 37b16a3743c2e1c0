"""`python -m benchmarks.race`: who takes part, what a recipe costs, and what makes a record."""

import multiprocessing.dummy
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import experiments, race
from benchmarks.results import COLUMNS, read_rows, write_rows
from tinygrad_lite.errors import OptionError, UserError

RECIPE = (
    'dataset = "goethe"\ntokenizer = "char"\nn_layer = 1\nn_head = 2\nn_embd = 16\nblock_size = 8\nbatch_size = 2\n'
)
COST_OF = race.cost_of
RECORD = [f"1.90{seed}" for seed in range(8)]


@pytest.fixture
def trained(workplace, monkeypatch):
    """A recipe `mine.toml` and a standing record; training is replaced by made-up results, a list of bits to fill."""
    Path("mine.toml").write_text(f"{RECIPE}max_iters = 500\n", encoding="utf-8")
    bits, known = [], dict.fromkeys(COLUMNS, "") | {"commit": "abc"}
    standing = {"name": "first", "seconds": "100.0"}
    first = [known | standing | {"seed": str(n), "last_bits_per_char": one} for n, one in enumerate(RECORD, start=1)]
    write_rows(workplace / "race-goethe.csv", first)

    def train_all(runs, results, out_dir, **more):
        asked.extend(run.seed for run in runs)
        made = [dict(zip(experiments.KEY, run.key("abc"), strict=True)) | more for run in runs]
        made = [known | row | {"last_bits_per_char": one} for row, one in zip(made, bits, strict=False)]
        write_rows(results, [*read_rows(results), *made])

    asked = []
    monkeypatch.setattr(race, "RESULTS", workplace)
    monkeypatch.setattr(race, "train_all", train_all)
    for module in (race, experiments):
        monkeypatch.setattr(module, "code_commit", lambda: "abc")
    monkeypatch.setattr(race, "cost_of", lambda run: 99.9)
    return bits, asked


def line_of(said: str) -> str:
    """The table's line of the recipe."""
    (line,) = (line for line in said.splitlines() if "mine" in line)
    return line


def test_eight_better_seeds_are_a_record_and_no_run_is_repeated(trained, ran):
    bits, asked = trained
    bits += [f"1.89{seed}" for seed in range(8)]
    said = ran(race.main, "mine.toml").out
    assert line_of(said) == "| **mine** | 8 | 1.8935 ± 0.0024 | 99.9 | 0.0001 | abc |"
    assert "| **first** | 8 | 1.9035 ± 0.0024 | 100.0 |  | abc |" in said
    assert ran(race.main, "mine.toml").out == said
    assert asked == [*range(1, 9)]
    assert ran(race.main).out.partition("\n\n")[2] == said  # the records, without a recipe


def test_a_file_that_has_changed_is_another_recipe_and_other_seeds_make_no_record(trained, ran):
    bits, asked = trained
    bits += ["1.89"] * 8
    ran(race.main, "mine.toml", "--seeds", "1")
    Path("mine.toml").write_text(f"{RECIPE}max_iters = 400\n", encoding="utf-8")
    lines = ran(race.main, "mine.toml", "--seeds", "1,2").out.splitlines()
    assert [line.split("|")[1:3] for line in lines if "mine" in line] == [[" mine ", " 1 "], [" mine ", " 2 "]]
    assert asked == [1, 1, 2]
    others = ran(race.main, "mine.toml", "--seeds", "101,102,103,104,105,106,107,108").out
    assert "| mine | 8 | 1.8900 | 99.9 | 0.0001 |" in others


NO_RECORDS = [  # bits of as many seeds, and what is said of p
    (["1.89"] * 4, "0.0020"),  # four seeds only: one of 495 ways
    (["1.89"] * 5 + ["1.904", "1.905", "1.920"], "0.0862"),  # a better mean may be chance
]


@pytest.mark.parametrize(("bits", "p"), NO_RECORDS)
def test_what_is_no_record(trained, ran, bits, p):
    trained[0].extend(bits)
    seeds = ",".join(str(seed + 1) for seed in range(len(bits)))
    line = line_of(ran(race.main, "mine.toml", "--seeds", seeds).out)
    assert line.startswith(f"| mine | {len(bits)} | ")
    assert line.split("|")[5].strip() == p


def test_what_costs_too_much_is_not_trained(trained, monkeypatch, ran):
    monkeypatch.setattr(race, "cost_of", lambda run: 125.0)
    with pytest.raises(UserError, match=r"^mine.toml costs too much: use at most 400 steps$"):
        race.main(["mine.toml"])
    monkeypatch.setattr(race, "cost_of", lambda run: 102.9)
    assert "500 steps cost 102.9 of 100 seconds" in ran(race.main, "mine.toml", "--cost").err
    assert trained[1] == []


@pytest.mark.parametrize("more", ["", 'teachers = ["text.txt"]\n'])
def test_what_learns_from_other_models_has_its_own_table(trained, more):
    Path("mine.toml").write_text(RECIPE + more, encoding="utf-8")
    assert race.entries("mine.toml", "1")[1].name == ("race-goethe-other-text.csv" if more else "race-goethe.csv")


@pytest.mark.parametrize("recipe", ["bert-goethe", "names"])
def test_who_does_not_take_part(workplace, recipe):
    with pytest.raises(OptionError, match="the race is for GPTs on a CPU that learn from one of goethe, plays"):
        race.main([recipe])


def test_the_cost_is_that_of_all_steps_in_calibrations(trained, monkeypatch):
    """A step takes 0.3 s, and a calibration 2 s: 0.15 calibrations for each of 500 steps."""
    clock = SimpleNamespace(now=0.0)

    def update(step):
        clock.now += 0.3

    monkeypatch.setattr(race, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    monkeypatch.setattr(race, "updates_of", lambda *parts: (update, None))
    monkeypatch.setattr(race, "calibration", lambda number: 2.0)
    monkeypatch.setattr(race, "multiprocessing", SimpleNamespace(get_context=lambda kind: multiprocessing.dummy))
    (run,) = race.entries("mine.toml", "1")[0]
    run.setup.options.text = ["text.txt"]
    assert COST_OF(run) == pytest.approx(0.15 * race.SECONDS * 500)
