"""Loss curves: reading metrics.csv, and plotting."""

import sys
from pathlib import Path

import numpy as np
import pytest

from extra.plots import training as curves
from extra.plots.figure import compose, own_style
from extra.studies.draw import main
from tinygrad_lite.errors import OptionError
from training.folder import RunFolder


def run_in(path, **noted):
    """The folder of a run that has begun, whose table has every column, and whose options.json notes this."""
    folder = RunFolder(path)
    folder.columns = ("step", *curves.MEASURES)
    with folder.locked():
        folder.begin(noted)
    return folder


@pytest.fixture
def folders(tmp_path):
    """Two runs, the second of which has not been evaluated yet."""
    one, two = (run_in(tmp_path / name) for name in ("one", "two"))
    for folder in (one, two):
        for step in range(1, 31):
            folder.log(step=step, loss=4 / step + 1, learning_rate=1e-3, grad_norm=1.0, tokens_per_second=10.0)
    for step in (0, 10, 20, 30):
        one.log(step=step, val_loss=2 - step / 40, bits_per_char=3 - step * 3 / 80)
    return one.path, two.path


# --- reading ---------------------------------------------------------------------------------------------------


def test_a_run_is_read_from_its_folder_or_its_table(folders):
    for path in (folders[0], folders[0] / "metrics.csv"):
        run = curves.read_run(path)
        assert run.file == folders[0] / "metrics.csv"
        assert (run.training[:, 0].tolist(), run.training.shape) == ([1, 5], (2, 30))
        assert run.validation[1].tolist() == [2, 1.75, 1.5, 1.25]
        assert run.bits_per_nat == pytest.approx(1.5)
    assert curves.read_run(folders[1]).bits_per_nat is None


@pytest.mark.parametrize("half", ["31", "31,1.129", '"31'])
def test_half_a_row_at_the_end_is_ignored(folders, half):
    """Even one that looks complete, since 1.1 may be the start of 1.129."""
    with open(folders[0] / "metrics.csv", "a", encoding="utf-8") as file:
        file.write(half)
    assert curves.read_run(folders[0]).training[:, -1].tolist() == [30, pytest.approx(4 / 30 + 1, rel=1e-5)]


@pytest.mark.parametrize("damage", ["x,1,,,,,,", "6,rubbish,,,,,,", "6,,,,,,"])
def test_a_damaged_row_is_reported_with_its_line(folders, damage):
    file = folders[0] / "metrics.csv"
    lines = file.read_text(encoding="utf-8").splitlines()
    lines[6] = damage
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(OptionError, match=r"one.metrics\.csv, line 7 is damaged: correct it by hand, or remove"):
        curves.read_run(folders[0])


def test_columns_are_read_by_name(tmp_path):
    (tmp_path / "metrics.csv").write_text("\ufeffval_loss,new,loss,step\r\n,?,,0\r\n\r\n2.5,!,,1\r\n", encoding="utf-8")
    run = curves.read_run(tmp_path)
    assert run.validation.tolist() == [[1], [2.5]]
    assert (run.training.size, run.bits_per_nat) == (0, None)


def test_numbers_that_are_not_finite_are_left_out_with_a_note(folders, capsys):
    with open(folders[0] / "metrics.csv", "a", encoding="utf-8") as file:
        file.write(f"40,inf{',' * (len(curves.MEASURES) - 1)}\n")
    run = curves.read_run(folders[0])
    assert (run.training[0, -1], run.bits_per_nat) == (30, pytest.approx(1.5))
    assert "line 36: loss is inf, which cannot be plotted" in capsys.readouterr().err


NO_TABLES = [
    (b"step,lo", r"metrics\.csv has no losses yet: plot it after"),
    (b"\xff\xfe\x00step\n", "is not a table of numbers: name the"),
    (b"epoch,train/loss\n1,2.5\n", "has no column step or loss or val_loss"),
]


@pytest.mark.parametrize(("data", "reason"), NO_TABLES)
def test_unreadable_tables_are_refused(tmp_path, data, reason):
    (tmp_path / "metrics.csv").write_bytes(data)
    with pytest.raises(OptionError, match=reason):
        curves.read_run(tmp_path)


def test_smoothing_is_a_mean_over_neighbours():
    losses = np.array([5.0, 3.0, 4.0, 2.0, 1.0])
    three = [5, 4, 3, 7 / 3, 1.5]
    for width, right in {2: losses, 3: three, 4: three, 99: [5, 4, 3, 3, 3]}.items():
        assert curves.smoothed(losses, width).tolist() == [*right]


# --- plotting --------------------------------------------------------------------------------------------------


def texts(file: Path) -> str:
    return " ".join(part.split("<")[0] for part in file.read_text(encoding="utf-8").split(">"))


@pytest.fixture
def drawn(tmp_path, matplotlib):
    """A function: the texts in the picture that the command draws."""

    def draw(*words):
        assert main(["loss", *map(str, words), "--out", str(tmp_path / "x.svg")]) == 0
        return texts(tmp_path / "x.svg")

    return draw


def test_one_run_is_plotted_beside_its_table(folders, ran, matplotlib):
    assert "wrote" in ran(main, "loss", folders[0]).err
    shown = texts(folders[0] / "curves.svg")
    words = ("loss, nats per token", "Loss over training: one", "mean of 9 rows", "validation, best 1.250 at step 30")
    assert all(text in shown for text in words)


def test_several_runs_are_compared_in_bits_per_character(folders, tmp_path, monkeypatch, matplotlib):
    pictures = [tmp_path / "all.svg", tmp_path / "all.png"]
    command = ["loss", *map(str, (folders[0], folders[0] / "metrics.csv", "--out", *pictures)), "--smooth", "1"]
    assert main(command) == 0
    shown = texts(pictures[0])
    assert ("loss, bits per character" in shown, "one, best 1.875 at step 30" in shown) == (True, True)
    before = [picture.read_bytes() for picture in pictures]
    assert not any(matplotlib.__version__.encode() in data for data in before)  # nor the version of matplotlib
    monkeypatch.setitem(matplotlib.rcParams, "font.size", 20)  # the user's own style is for the user's own pictures
    assert main(command) == 0
    assert [picture.read_bytes() for picture in pictures] == before  # they depend on the numbers only


def test_names_are_shown_unchanged(folders, drawn):
    """matplotlib hides labels that begin with _, and sets what is between two $ as mathematics."""
    named = folders[0].rename(folders[0].with_name("_$x^2$"))
    assert "_$x^2$, best 1.250 at step 30" in drawn(named, folders[1], "--unit", "nats")
    assert "_$x^2$" in drawn(named)


# What the options.json of a run notes; the columns with bits and without; the unit on the axis, alone and of two runs.
UNIT_CASES = (
    ({"loss_per": "token", "bits_per": "character"}, {"bits_per_char": 3.0}, "nats per token", "bits per character"),
    ({"loss_per": "token", "bits_per": "pixel"}, {"bits_per_char": 3.0}, "nats per token", "bits per pixel"),
    ({"loss_per": "picture", "bits_per": ""}, {"accuracy": 0.5}, "nats per picture", "nats per picture"),
)


@pytest.mark.parametrize(("noted", "measures", "alone", "together"), UNIT_CASES)
def test_the_unit_is_that_of_the_task(tmp_path, noted, measures, alone, together):
    run = run_in(tmp_path / "run", **noted)
    run.log(step=1, loss=3.0, learning_rate=1e-3, grad_norm=1.0, tokens_per_second=1.0)
    run.log(step=1, val_loss=2.0, **measures)
    for paths, unit in (([run.path], alone), ([run.path] * 2, together)):
        picture = curves.draw_loss(paths, curves.LossOptions())
        assert picture.table[0][-1] == unit.replace(" ", "_")
        assert picture.table[1][-1] == pytest.approx(4.5 if unit.startswith("bits") else 3.0)
    bits = curves.draw_loss([run.path], curves.LossOptions(unit="bits")).table  # which every evaluated run has
    assert bits[0][-1] == (f"bits_per_{noted.get('bits_per') or noted.get('loss_per', 'character')}")
    assert bits[1][-1] == pytest.approx(4.5 if "bits_per_char" in measures else 3 / np.log(2))


def test_losses_of_different_units_are_not_in_one_picture(folders, tmp_path):
    (tmp_path / "one" / "options.json").write_text('{"loss_per": "picture", "bits_per": ""}', encoding="utf-8")
    with pytest.raises(OptionError, match="being nats per picture and nats per token: draw each kind apart"):
        curves.draw_loss(folders, curves.LossOptions(unit="nats"))


def test_the_numbers_are_written_without_matplotlib(folders, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["loss", *map(str, folders), "--unit", "nats", "--out", str(tmp_path / "x.csv")]) == 0
    lines = (tmp_path / "x.csv").read_text(encoding="utf-8").splitlines()
    assert lines[:2] == ["run,part,step,nats_per_token", "one,training,1,5.0"]
    assert "one,validation,30,1.25" in lines
    assert len(lines) == 1 + 30 + 4 + 30


# What evaluations have measured, the columns asked for, and those drawn, each with its unit.
MEASURED = (
    ({"bits_per_char": 2.5}, [], {"val_loss": "nats per token", "bits_per_char": "bits per character"}),
    ({"exact": 1.0, "entropy": 2.0}, ["entropy", "exact"], {"entropy": "nats per answer", "exact": "share, 0 to 1"}),
    ({}, ["loss"], {"loss": "nats per token"}),
)


@pytest.mark.parametrize(("measures", "asked", "drawn"), MEASURED)
def test_measures_of_any_run_are_drawn_with_their_units(tmp_path, measures, asked, drawn, matplotlib):
    folder = run_in(tmp_path / "one")
    folder.log(step=1, loss=2.0)
    with pytest.raises(OptionError, match=r"--columns val_loss: none of these runs has measured it; they have loss$"):
        curves.draw_measures([folder.path], curves.MeasuresOptions())
    for step in (1, 2):
        folder.log(step=step, val_loss=3.0, **measures)
    picture = curves.draw_measures([folder.path], curves.MeasuresOptions(columns=asked))
    with own_style():
        panels = compose(picture).axes
    assert {axes.get_title().replace(" ", "_"): axes.get_ylabel() for axes in panels} == drawn
    assert {row[1] for row in picture.table[1:]} == drawn.keys()
