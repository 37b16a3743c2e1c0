"""`python -m benchmarks.power_law`: known laws are found again, within the interval that is stated."""

import numpy as np
import pytest

from benchmarks import power_law
from benchmarks.power_law import best_law, fit, size_of
from benchmarks.results import COLUMNS, write_rows
from tinygrad_lite.errors import UserError

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


def test_a_straight_line_has_the_interval_of_students_t():
    losses = law(0, 0.3) * np.exp(0.01 * np.random.default_rng(3).standard_normal(len(N)))
    found = fit(N, losses, with_floor=False, draws=2000)
    x = np.log(N)
    error = found.scatter / np.sqrt(((x - x.mean()) ** 2).sum())
    low, high = np.quantile(found.exponents(), (0.025, 0.975))
    assert (high - low) / 2 == pytest.approx(2.776 * error, rel=0.1)  # t of 4 degrees of freedom


def test_the_command_reports_the_fit_and_the_prediction(tmp_path, monkeypatch, capsys):
    assert size_of(rows_of([1.0])[0]) == (12 * 64, 8 * 128)  # 12 L C^2, without embeddings; tokens of a step
    monkeypatch.setattr(power_law, "DRAWS", 50)
    file, losses = tmp_path / "scale.csv", 2 * np.array([8, 16, 32, 64, 128, 256.0]) ** -0.2
    write_rows(file, rows_of([*losses]) + rows_of([losses[0] + 0.01], seed="2"))
    assert power_law.main([str(file)]) == 0
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in capsys.readouterr().out.splitlines()]
    assert [row[:3] for row in cells if row[0] == "768"] == [["768", "2", f"{losses[0] + 0.005:.3f}"]]
    straight = next(row for row in cells if row[0] == "L = a N^-b" and len(row) == 6)
    assert float(straight[1].split()[0]) == pytest.approx(0.1, abs=0.002)  # N ~ C^2
    low, high = (float(straight[4].split()[place].strip("()")) for place in (1, 3))
    assert low <= losses[-1] <= high
    write_rows(file, rows_of([5, 4, 3, 2, 1])[:4] + rows_of([5, 4, 3, 2, 1], steps="20")[4:])
    with pytest.raises(UserError, match="read 10,240, 20,480 tokens"):
        power_law.main([str(file)])
