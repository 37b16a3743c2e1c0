"""Runs that older versions made load, generate the same text and resume as they did there; weights keep their names.

tests/data/versions/make.py has made the runs, and has printed what the same version then gave.
"""

import hashlib
from pathlib import Path

import pytest

from families import FAMILIES
from tests.data.versions.make import RESUMED, RUNS, STORED, data_of, extract, generated, resumed
from tinygrad_lite.nn import Module
from training.checkpoint import load_checkpoint
from training.cli.options import PRESETS, list_presets
from training.estimate import size_of
from training.start import read_setup

LAST = Path("run/last.safetensors")
# By run: what sample.py writes, and the validation loss at step RESUMED, in nats. Those with Muon (gpt-muon, vit) go
# on with today's three rounds; 0.2.0 made five, and reached 2.03066 and 0.0782643.
EXPECTED = {
    "0.1.0-gpt": ("zweiiiiiieieiieiieieiieieiieieiieieiieieiiei\n", 2.14685),
    "0.1.0-gpt-bpe": ("zwei" + 40 * "ei" + "\n", 3.19211),
    "0.1.0-seq2seq": ("rrsmhhersm\n", 2.94269),
    "0.2.0-gpt": ("zweiiiiiieieiieiieieiieieiieieiieieiieieiiei\n", 2.14685),
    "0.2.0-gpt-muon": ("zweiei iei iei ieiei iei ieiei iei ieiei iei\n", 2.0469),
    "0.2.0-seq2seq": ("ammmxhsmkk\n", 2.86923),
    "0.2.0-bert": ("zwei und [MASK] ist sieben\n  ##i 11.8%, ##e 11.0%, ##s 8.0%, ##d 6.7%, i 6.2%\n", 3.18328),
    "0.2.0-vit": (" 60.1%  row 4\n 39.2%  row 2\n  0.4%  column 3\n  0.2%  column 4\n  0.1%  row 3\n", 0.0833703),
}
# How many weights a preset's model has and the beginning of a hash of their names, in version 0.2.0: the presets.
WEIGHTS = {
    (51, "ae3d7d3dc0e8"): "baby-gpt",
    (73, "1f8692f4db74"): "bert-goethe",
    (41, "3d897cb2eb76"): "bert-reviews",
    (73, "821e1e236f82"): "classify",
    (10, "d8e1e23d4db2"): "cnn-digits",
    (14, "99f02cdc9c85"): "cnn-fashion",
    (25, "5d76e71a8cbb"): "goethe goethe-char-modern goethe-long plays python-docs shakespeare sums werther-faust",
    (35, "38019afc7fe4"): "goethe-bpe goethe-char gpt-summarize",
    (25, "b2939107b0ae"): "goethe-lstm",
    (37, "76f650a238a0"): "goethe-works",
    (59, "c074b076cc26"): "gpt-translate",
    (26, "4bf2d26c83a7"): "igpt-digits",
    (131, "d538cdfda9e1"): "translate-en-de",
    (47, "5182c3f1fd07"): "reverse",
    (49, "de2664c0f6a0"): "multi30k-de-en tatoeba-de-en translate-de-en",
    (72, "11417f76a982"): "vit-digits vit-fashion",
}


@pytest.fixture(params=EXPECTED)
def stored(request, workplace):
    """The name of each run in turn; its files are in the folder `run`."""
    extract(request.param)
    with data_of(request.param):
        yield request.param


def test_every_stored_run_is_tested():
    assert EXPECTED.keys() == RUNS.keys()


def test_an_old_run_generates_the_same_text(stored):
    assert generated(stored) == EXPECTED[stored][0]


def test_an_old_run_resumes_as_it_did(stored, capsys):
    assert load_checkpoint(LAST).step == STORED
    assert resumed() == (RESUMED, pytest.approx(EXPECTED[stored][1], rel=1e-4))
    assert load_checkpoint(LAST).step == RESUMED
    said = capsys.readouterr().err
    assert f"resuming after {STORED} steps" in said
    assert "not the text" not in said


def names_in_short(model: Module) -> tuple[int, str]:
    """How many weights a model has, and the beginning of a hash of their names."""
    names = sorted(name for name, _ in model.named_parameters())
    return len(names), hashlib.sha256("\n".join(names).encode()).hexdigest()[:12]


def test_the_weights_of_every_preset_keep_their_names():
    """Otherwise a checkpoint of version 0.2.0 would no longer load.

    A preset that is given other parts gets another row: a run is resumed with its own settings, not the preset's.
    """
    begin_with_others = ("chat", "rewards")
    presets = [name for name in list_presets(PRESETS, PRESETS / "extra") if name not in begin_with_others]
    models = {name: size_of(read_setup([name, "--dry_run"], FAMILIES)).model for name in presets}
    expected = {preset: weights for weights, presets in WEIGHTS.items() for preset in presets.split()}
    assert {name: names_in_short(model) for name, model in models.items()} == expected
