"""`python -m benchmarks.power_law`: known laws are found again, within the interval that is stated."""

import numpy as np
import pytest

from benchmarks import power_law
from benchmarks.power_law import best_law, fit, main, non_embedding, size_of
from benchmarks.results import COLUMNS, write_rows
from gpt.config import GPTConfig
from gpt.model import GPT
from tinygrad_lite.errors import OptionError, UserError

N = np.array([25e3, 98e3, 332e3, 786e3, 2.2e6, 4.7e6])


def law(floor, b):
    return floor + 0.6 * (N / 4e5) ** -b


def rows_of(losses, **changes):
    """A row of results for each loss, of models that differ in their width."""
    made = []
    for width, loss in zip((8, 16, 32, 64, 128, 256), losses, strict=False):
        words = f"goethe --n_layer 1 --n_head 2 --n_embd {width} --vocab_size 300"
        known = {"name": f"{width}", "options": words, "seed": "1", "steps": "10", "bits_per_char": f"{loss:.4f}"}
        made.append(dict.fromkeys(COLUMNS, "") | known | changes)
    return made


@pytest.mark.parametrize(("floor", "b"), [(0.0, 0.08), (1.2, 0.3), (0.5, 1.0)])
def test_a_law_without_noise_is_found_exactly(floor, b):
    found = best_law(N, law(floor, b), with_floor=True)
    assert (found.floor, found.exponent) == pytest.approx((floor, b), abs=2e-3)
    np.testing.assert_allclose(found(N), law(floor, b), rtol=1e-4)
    if not floor:
        assert best_law(N, law(0, b), with_floor=False).exponent == pytest.approx(b)


def test_losses_that_do_not_fall_give_no_law_that_does():
    assert best_law(N, law(0, 0.1)[::-1].copy(), with_floor=False).exponent < 0
    rising = best_law(N, law(0, 0.1)[::-1].copy(), with_floor=True)
    assert rising.factor == 0
    assert rising.floor == pytest.approx(0.6, rel=0.3)


@pytest.mark.parametrize("floor", [0.0, 1.2])
def test_the_interval_holds_the_truth_as_often_as_it_says_and_noise_widens_it(floor):
    """About 95 of 100; with 20 repetitions at least 16 (fewer have a probability of 0.3 %)."""
    rng, hits, widths = np.random.default_rng(1), 0, {0.001: [], 0.01: []}
    for noise in widths:
        for _ in range(10):
            losses = law(floor, 0.3) * np.exp(noise * rng.standard_normal(len(N)))
            low, high = np.quantile(fit(N, losses, floor > 0, draws=60).exponents(), (0.025, 0.975))
            hits += low <= 0.3 <= high
            widths[noise].append(high - low)
    assert hits >= 16
    assert np.median(widths[0.01]) > 4 * np.median(widths[0.001])


def test_a_straight_line_has_the_interval_of_students_t():
    losses = law(0, 0.3) * np.exp(0.01 * np.random.default_rng(3).standard_normal(len(N)))
    found = fit(N, losses, with_floor=False, draws=2000)
    x = np.log(N)
    error = found.scatter / np.sqrt(((x - x.mean()) ** 2).sum())
    low, high = np.quantile(found.exponents(), (0.025, 0.975))
    assert (high - low) / 2 == pytest.approx(2.776 * error, rel=0.1)  # t of 4 degrees of freedom


def test_embeddings_and_the_output_matrix_are_not_counted():
    """12 L C^2 for the matrices of the blocks, whatever the positions and the output matrix are."""
    settings = {"n_layer": 3, "n_head": 2, "n_embd": 8, "norm": "rmsnorm", "norm_weight": False}
    for changes in ({}, {"tie_weights": False}, {"positions": "rotary"}):
        assert non_embedding(GPT(GPTConfig(50, **settings, **changes))) == 12 * 3 * 64
    assert size_of(rows_of([1.0])[0]) == (12 * 64, 8 * 128)


def test_the_command_reports_the_fit_and_the_prediction(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(power_law, "DRAWS", 50)
    file, losses = tmp_path / "scale.csv", 2 * np.array([8, 16, 32, 64, 128, 256.0]) ** -0.2
    write_rows(file, rows_of([*losses]) + rows_of([losses[0] + 0.01], seed="2"))
    assert main([str(file)]) == 0
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in capsys.readouterr().out.splitlines()]
    assert [row[:3] for row in cells if row[0] == "768"] == [["768", "2", f"{losses[0] + 0.005:.3f}"]]
    straight = next(row for row in cells if row[0] == "L = a N^-b" and len(row) == 6)
    assert float(straight[1].split()[0]) == pytest.approx(0.1, abs=0.002)  # N ~ C^2
    low, high = (float(straight[4].split()[place].strip("()")) for place in (1, 3))
    assert low <= losses[-1] <= high
    assert straight[5] == f"{losses[-1]:.3f}"


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (rows_of([3, 2, 1, 1]), "has 4 sizes, but a law is fitted to at least 5"),
        (rows_of([5, 4, 3, 2, 1])[:4] + rows_of([5, 4, 3, 2, 1], steps="20")[4:], "read 10,240, 20,480 tokens"),
        (rows_of([2], options="classify"), "is no GPT"),
        (rows_of([2], bits_per_char=""), "no bits per character"),
    ],
)
def test_runs_that_cannot_be_compared_are_refused(rows, sentence, tmp_path):
    write_rows(tmp_path / "scale.csv", rows)
    with pytest.raises(UserError, match=sentence):
        main([str(tmp_path / "scale.csv")])
    with pytest.raises(OptionError, match="the file is missing"):
        main([])
