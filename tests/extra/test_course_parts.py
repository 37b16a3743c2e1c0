"""docs/course/14-today/parts.py: what the settings of its table are, what is trained, which differences are marked."""

import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

from docs.course import check
from tests.gpt.configs import GPTConfig

ROOT = Path(__file__).parents[2]


@pytest.fixture
def parts(monkeypatch):
    """The program, with a smaller model, and a smaller evaluation."""
    module = check.load(ROOT / "docs" / "course" / "14-today" / "parts.py")
    monkeypatch.setattr(module, "SIZES", {"block_size": 8, "n_layer": 1, "n_head": 2, "n_embd": 8})
    for name, value in {"LENGTH": 9, "ROWS": 2, "EVALUATED": 2, "WARMUP": 0}.items():
        monkeypatch.setattr(module, name, value)
    return module


def test_the_first_row_is_the_default_and_the_last_is_gpt_2(parts):
    preset = tomllib.loads((ROOT / "presets" / "goethe.toml").read_text(encoding="utf-8"))
    optimizer, schedule = preset["optimizer"] == "muon", preset["schedule"] == "trapezoid"
    ours = preset | {"muon": optimizer, "falls_to_0": schedule and preset["min_lr"] == 0}
    assert {name: ours[name] for name in parts.PARTS} == parts.PARTS
    gpt2 = parts.PARTS | parts.SETTINGS["GPT-2"]
    assert not gpt2.pop("muon")
    assert not gpt2.pop("falls_to_0")
    assert GPTConfig(9, **parts.SIZES, **gpt2) == GPTConfig(9, **parts.SIZES)  # whose defaults are GPT-2's


def test_every_setting_trains_another_model(parts):
    ids = np.arange(80) ** 2 % 7
    found = {name: tuple(parts.bits(change, ids, 3, seed=1)) for name, change in parts.SETTINGS.items()}
    assert len(set(found.values())) == len(found)
    assert tuple(parts.bits({}, ids, 3, seed=1)) == found["all parts"]
    assert tuple(parts.bits({}, ids, 3, seed=2)) != found["all parts"]


def test_a_model_learns_the_first_three_quarters_only(parts):
    learned, held_out = parts.bits({}, np.array([0, 1, 2] * 30 + [2, 1, 0] * 10), 60, seed=1)
    assert learned < np.log2(3) / 2  # that of equal probabilities is log2(3)
    assert held_out > np.log2(3)


def test_a_difference_within_two_standard_errors_is_marked(parts, monkeypatch, tmp_path, capsys):
    """The deviation of 1.0 and 1.2 is 0.141, and two standard errors of the difference of two such means are 0.28."""
    means = {"all parts": (1.1, 1.1), "GELU": (1.37, 1.39), "AdamW": (0.81, 0.83)}
    monkeypatch.setattr(parts, "SETTINGS", {name: {"mean": mean} for name, mean in means.items()} | {"all parts": {}})
    calls = []

    def bits(change, ids, max_iters, seed):
        calls.append((ids.tolist(), max_iters, seed))
        return [mean + 0.2 * seed - 0.3 for mean in change.get("mean", means["all parts"])]

    monkeypatch.setattr(parts, "bits", bits)
    files = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for file, text in zip(files, ("ab", "cb\n"), strict=True):
        file.write_text(text, encoding="utf-8")
    command = ["--seeds", "2", "--max_iters", "9", *map(str, files)]
    with pytest.raises(parts.UserError, match="the text has 7 characters, and 40 are needed"):
        parts.main(command)
    monkeypatch.setattr(parts, "LENGTH", 0)
    assert parts.main(command) == 0
    assert calls[:2] == [([1, 2, 0, 0, 3, 2, 0], 9, 1), ([1, 2, 0, 0, 3, 2, 0], 9, 2)]  # joined by an empty line
    lines = [re.split(r"  +", line) for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        ["7 characters, 9 updates: bits per character"],
        ["", "learned", "held out"],
        ["all parts", "1.100 ± 0.141", "1.100 ± 0.141"],
        ["GELU", "1.370 ± 0.141 ≈", "1.390 ± 0.141"],
        ["AdamW", "0.810 ± 0.141", "0.830 ± 0.141 ≈"],
    ]
