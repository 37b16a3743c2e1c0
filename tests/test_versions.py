"""Models of runs that older versions made generate the same text; weights keep their names.

tests/data/versions/make.py has made the runs, and has printed what the same version then gave. That they resume as they
did is tested with the shelf, since their settings contain its options (tests/extra/test_versions.py).
"""

import hashlib
from pathlib import Path

import pytest

from families import FAMILIES
from tests.data.versions.make import data_of, extract, generated
from training.cli.options import PRESETS, build, list_presets, read_preset
from training.start import family_of

# By run: what sample.py writes.
WRITTEN = {
    "0.1.0-gpt": "zweiiiiiieieiieiieieiieieiieieiieieiieieiiei\n",
    "0.1.0-gpt-bpe": "zwei" + 40 * "ei" + "\n",
    "0.1.0-seq2seq": "rrsmhhersm\n",
    "0.2.0-gpt": "zweiiiiiieieiieiieieiieieiieieiieieiieieiiei\n",
    "0.2.0-gpt-muon": "zweiei iei iei ieiei iei ieiei iei ieiei iei\n",
    "0.2.0-seq2seq": "ammmxhsmkk\n",
}
# How many weights a preset's model has and the beginning of a hash of their names, in version 0.2.0: the presets.
WEIGHTS = {
    (51, "ae3d7d3dc0e8"): "baby-gpt",
    (25, "5d76e71a8cbb"): "goethe goethe-char-modern python-docs shakespeare",
    (35, "38019afc7fe4"): "goethe-bpe goethe-char",
    (131, "d538cdfda9e1"): "translate-en-de",
    (47, "5182c3f1fd07"): "reverse",
    (49, "de2664c0f6a0"): "translate-de-en",
}


@pytest.mark.parametrize("name", WRITTEN)
def test_an_old_run_generates_the_same_text(name, workplace):
    extract(name)
    with data_of(name):
        assert generated(name) == WRITTEN[name]


def weights_of(preset: Path) -> tuple[int, str]:
    """How many weights the model of a preset has, and the beginning of a hash of their names."""
    settings = read_preset(preset)
    family = family_of(settings, FAMILIES)
    settings.pop("family", None)
    config = build(family.options, (preset.stem, settings)).model_config(1000)
    names = sorted(name for name, _ in family.model_of(config).blueprint(config).named_parameters())
    return len(names), hashlib.sha256("\n".join(names).encode()).hexdigest()[:12]


def assert_the_weights_keep_their_names(folder: Path, weights: dict[tuple[int, str], str]) -> None:
    """Compare the presets of a folder with a table, but for those that begin with the weights of another run."""
    expected = {preset: found for found, presets in weights.items() for preset in presets.split()}
    files = [folder / f"{name}.toml" for name in list_presets(folder)]
    assert {file.stem: weights_of(file) for file in files if "init_from" not in read_preset(file)} == expected


def test_the_weights_of_every_preset_keep_their_names():
    """Otherwise a checkpoint of version 0.2.0 would no longer load.

    A preset that is given other parts gets another row: a run is resumed with its own settings, not the preset's.
    """
    assert_the_weights_keep_their_names(PRESETS, WEIGHTS)
