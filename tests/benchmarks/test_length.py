"""`python -m benchmarks.length`: what it measures, fits and writes; times themselves are not tested."""

import csv

import pytest

from benchmarks import length
from benchmarks.length import WORKS, Measured, exponents, peak_of, prepare, table
from benchmarks.shapes import GOETHE

SMALL = ["--shortest", "16", "--longest", "32", "--turns", "1"]


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(length, "GROUP", 0.0)


def test_the_exponent_is_that_of_the_longer_texts():
    """Linear up to 512 tokens, quadratic from there on: only the latter counts."""
    times = {t: max(t / 512, (t / 512) ** 2) for t in (64, 128, 256, 512, 1024, 2048, 4096)}
    found = {t: Measured([9 * seconds, 2 * seconds, seconds], 10 * t) for t, seconds in times.items()}
    assert exponents(found) == pytest.approx((2, 1))
    assert "| 512 | 2,000.00 ms | 5.12 kB |" in table(dict.fromkeys(WORKS, found), "a machine")


def test_keys_and_values_grow_with_the_text_and_weights_kept_for_learning_faster():
    """The memory of three works at 64 and 256 tokens: what a step with a cache holds, and what the others allocate."""
    peaks = {}
    for tokens in (64, 256):
        for name, (work, held) in prepare(tokens).items():
            peaks[name, tokens] = held, peak_of(work)
    layers, width = GOETHE.n_layer, GOETHE.n_embd
    for tokens in (64, 256):
        assert peaks["with cache", tokens][0] == 2 * layers * tokens * width * 4
        # A step with the cache computes one position: a small part of what reading the text again allocates.
        assert peaks["with cache", tokens][1] < peaks["without cache", tokens][1] / 5
        assert peaks["without cache", tokens][1] < peaks["training", tokens][1] / 2
    assert peaks["training", 256][1] > 4 * peaks["training", 64][1]  # 4 T, and weights T x T


def test_the_table_and_the_numbers_are_written(quick, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert length.main(SMALL) == 0
    out = capsys.readouterr().out
    assert [line.split()[1] for line in out.splitlines() if line.startswith("| ")] == [
        "tokens",
        "16",
        "32",
        "**fitted**",
    ]
    with open("docs/experiments/length.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["tokens"], row["work"]) for row in rows] == [(t, work) for work in WORKS for t in ("16", "32")]
    assert all(float(row["lower_quartile"]) == float(row["milliseconds"]) > 0 for row in rows)
    assert all(int(row["bytes"]) > 0 for row in rows)
