"""Runs that older versions made resume as they did there, and encoders answer the same; weights keep their names."""

from pathlib import Path

import pytest

from extra.options import OWN_PRESETS
from tests.data.versions.make import RESUMED, RUNS, STORED, data_of, extract, generated, resumed
from tests.test_versions import WRITTEN, assert_the_weights_keep_their_names
from training.checkpoint import load_checkpoint

LAST = Path("run/last.safetensors")
ANSWERED = {
    "0.2.0-bert": "zwei und [MASK] ist sieben\n  ##i 11.8%, ##e 11.0%, ##s 8.0%, ##d 6.7%, i 6.2%\n",
    "0.2.0-vit": " 60.1%  row 4\n 39.2%  row 2\n  0.4%  column 3\n  0.2%  column 4\n  0.1%  row 3\n",
}
# By run: the validation loss at step RESUMED, in nats. Those with Muon (gpt-muon, vit) continue with today's three
# rounds; 0.2.0 made five, and reached 2.03066 and 0.0782643.
LOSSES = {"0.1.0-gpt": 2.14685, "0.1.0-gpt-bpe": 3.19211, "0.1.0-seq2seq": 2.94269, "0.2.0-gpt": 2.14685}
LOSSES |= {"0.2.0-gpt-muon": 2.0469, "0.2.0-seq2seq": 2.86923, "0.2.0-bert": 3.18328, "0.2.0-vit": 0.0833703}
# As in tests/test_versions.py.
WEIGHTS = {(73, "1f8692f4db74"): "bert-goethe", (41, "3d897cb2eb76"): "bert-reviews", (73, "821e1e236f82"): "classify"}
WEIGHTS |= {(10, "d8e1e23d4db2"): "cnn-digits", (14, "99f02cdc9c85"): "cnn-fashion"}
WEIGHTS |= {(25, "5d76e71a8cbb"): "goethe-long plays sums werther-faust", (25, "b2939107b0ae"): "goethe-lstm"}
WEIGHTS |= {(13, "40fd8a73de96"): "names", (37, "76f650a238a0"): "goethe-works", (35, "38019afc7fe4"): "gpt-summarize"}
WEIGHTS |= {(59, "c074b076cc26"): "gpt-translate", (49, "de2664c0f6a0"): "multi30k-de-en tatoeba-de-en"}
WEIGHTS |= {
    (49, "fc6aa6322f3a"): "diffusion",
    (26, "4bf2d26c83a7"): "igpt-digits",
    (72, "11417f76a982"): "vit-digits vit-fashion",
}


@pytest.fixture
def stored(request, workplace):
    """The name of a run, whose files are in the folder `run`."""
    extract(request.param)
    with data_of(request.param):
        yield request.param


def test_every_stored_run_is_tested():
    assert LOSSES.keys() == RUNS.keys() == WRITTEN.keys() | ANSWERED.keys()


@pytest.mark.parametrize("stored", ANSWERED, indirect=True)
def test_an_old_encoder_gives_the_same_answer(stored):
    assert generated(stored) == ANSWERED[stored]


@pytest.mark.parametrize("stored", LOSSES, indirect=True)
def test_an_old_run_resumes_as_it_did(stored, capsys):
    assert load_checkpoint(LAST).step == STORED
    assert resumed() == (RESUMED, pytest.approx(LOSSES[stored], rel=1e-4))
    assert load_checkpoint(LAST).step == RESUMED
    said = capsys.readouterr().err
    assert f"resuming after {STORED} steps" in said
    assert "not the text" not in said


def test_the_weights_of_every_preset_keep_their_names():
    assert_the_weights_keep_their_names(OWN_PRESETS, WEIGHTS)
