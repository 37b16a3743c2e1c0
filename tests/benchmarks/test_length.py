"""`python -m benchmarks.length`: what it measures, fits and writes; times themselves are not tested."""

from dataclasses import replace

import pytest

from benchmarks import length
from benchmarks.length import WORKS, Measured, exponents, peak_of, prepare
from benchmarks.shapes import GOETHE
from gpt.model import GPT
from tests.tiny_runs import csv_rows


def test_the_exponent_is_that_of_the_longer_texts():
    """Linear up to 512 tokens, quadratic from there on: only the latter counts."""
    times = {t: max(t / 512, (t / 512) ** 2) for t in (64, 128, 256, 512, 1024, 2048, 4096)}
    found = {t: Measured([9 * seconds, 2 * seconds, seconds], 10 * t) for t, seconds in times.items()}
    assert exponents(found) == pytest.approx((2, 1))


def test_a_step_with_a_cache_allocates_little_and_training_most():
    peaks = {name: (held, peak_of(work)) for name, (work, held) in prepare("attention", 64).items()}
    assert peaks["with cache"][0] == 2 * GOETHE.config.n_layer * 64 * GOETHE.config.n_embd * 4
    assert peaks["with cache"][1] < peaks["without cache"][1] / 5 < peaks["training"][1] / 10


def test_the_command_writes_the_table_and_the_numbers(workplace, monkeypatch, capsys):
    monkeypatch.setattr(length, "GROUP", 0.0)
    assert length.main(["--shortest", "16", "--longest", "32", "--turns", "1", "--mixers", "attention,lstm"]) == 0
    assert "\n| 32 |" in capsys.readouterr().out
    rows = csv_rows("docs/experiments/length.csv")
    expected = [(mixer, t, work) for mixer in ("attention", "lstm") for work in WORKS for t in ("16", "32")]
    assert [(row["mixer"], row["tokens"], row["work"]) for row in rows] == expected
    assert all(float(row["milliseconds"]) > 0 < int(row["bytes"]) for row in rows)


def test_the_models_of_all_mixers_have_as_many_parameters():
    config = GOETHE.model_config(GOETHE.vocab_size)
    sizes = [GPT(replace(config, **settings)).num_parameters() for settings in length.MIXERS.values()]
    assert max(sizes) < 1.005 * min(sizes), sizes
