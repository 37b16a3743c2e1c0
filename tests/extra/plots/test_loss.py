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


def plotted(*paths, **settings):
    """The axes of the figure."""
    with own_style():
        return compose(curves.draw_loss(paths, curves.LossOptions(**settings))).axes[0]


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


@pytest.mark.parametrize("half", ["3", "31", "31,", "31,1", "31,1.129", "31,1.129,0.001,1,10,,,", '"31'])
def test_half_a_row_at_the_end_is_ignored(folders, half):
    """Even one that looks complete, since 1.1 may be the start of 1.129."""
    with open(folders[0] / "metrics.csv", "a", encoding="utf-8") as file:
        file.write(half)
    assert curves.read_run(folders[0]).training[:, -1].tolist() == [30, pytest.approx(4 / 30 + 1, rel=1e-5)]


@pytest.mark.parametrize("damage", ["x,1,,,,,,", ",1,,,,,,", "6,rubbish,,,,,,", "6,,,,,,", "6,1.2,,,,,,,", "rubbish"])
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
        file.write(f"40,inf{',' * (len(curves.MEASURES) - 1)}\n40,,,,,nan,nan{',' * (len(curves.MEASURES) - 6)}\n")
    run = curves.read_run(folders[0])
    assert (run.training[0, -1], run.validation[0, -1]) == (30, 30)
    assert run.bits_per_nat == pytest.approx(1.5)
    said = capsys.readouterr().err
    assert "line 36: loss is inf, which cannot be plotted" in said
    assert "line 37: val_loss is nan, which cannot be plotted" in said


EMPTY = (b"", b"step,lo", ",".join(("step", *curves.MEASURES)).encode() + b"\n")
NO_TABLES = [
    *((start, r"metrics\.csv has no losses yet: plot it after") for start in EMPTY),
    *((data, "is not a table of numbers: name the") for data in (b"\xff\xfe\x00step\n", b"x" * 200_000 + b"\n")),
    (b"epoch,train/loss\n1,2.5\n", "has no column step or loss or val_loss"),
    ("\ufeffval_loss,new,step\r\n,?,0\r\n".encode(), "not the table of a run, it has no column loss: name the folder"),
]


def test_unreadable_tables_are_refused(tmp_path):
    file = tmp_path / "metrics.csv"
    for path in (tmp_path, tmp_path / "gone"):
        with pytest.raises(OptionError, match=r"there is no .*: name the folder of a run"):
            curves.read_run(path)
    for data, reason in NO_TABLES:
        file.write_bytes(data)
        with pytest.raises(OptionError, match=reason):
            curves.read_run(tmp_path)
    file.unlink()
    file.mkdir()
    with pytest.raises(OptionError, match=r"cannot be read \(.+\): name the folder of a run"):
        curves.read_run(tmp_path)


def test_runs_get_names_that_distinguish_them():
    assert curves.names([Path("out/char/metrics.csv"), Path("out/bpe/metrics.csv")]) == ["char", "bpe"]
    assert curves.names([Path("tables/first.csv"), Path("tables/second.csv")]) == ["first", "second"]
    assert curves.names([Path("a/run/metrics.csv")] * 2) == ["run", "run"]


def test_smoothing_is_a_mean_over_neighbours():
    losses = np.array([5.0, 3.0, 4.0, 2.0, 1.0])
    three = [5, 4, 3, 7 / 3, 1.5]
    for width, right in {1: losses, 2: losses, 3: three, 4: three, 99: [5, 4, 3, 3, 3]}.items():
        assert curves.smoothed(losses, width).tolist() == [*right]
    assert curves.smoothed(np.zeros(0), 10).size == 0
    line = np.arange(20.0)[::-1]  # whose start does not move
    assert curves.smoothed(line, 9)[:16].tolist() == line[:16].tolist()


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
    pictures = [tmp_path / "all.svg", tmp_path / "all.png", tmp_path / "all.PDF"]
    command = ["loss", *map(str, (folders[0], folders[0] / "metrics.csv", "--out", *pictures)), "--smooth", "1"]
    assert main(command) == 0
    shown = texts(pictures[0])
    assert ("loss, bits per character" in shown, "one, best 1.875 at step 30" in shown) == (True, True)
    assert pictures[1].read_bytes().startswith(b"\x89PNG")
    before = [picture.read_bytes() for picture in pictures]
    assert not any(matplotlib.__version__.encode() in data for data in before)  # nor the version of matplotlib
    monkeypatch.setitem(matplotlib.rcParams, "font.size", 20)  # the user's own style is for the user's own pictures
    monkeypatch.setitem(matplotlib.rcParams, "savefig.facecolor", "red")
    assert main(command) == 0
    assert matplotlib.rcParams["font.size"] == 20
    assert [picture.read_bytes() for picture in pictures] == before  # they depend on the numbers only


def test_names_are_shown_unchanged(folders, drawn):
    """matplotlib hides labels that begin with _, and sets what is between two $ as mathematics."""
    named = folders[0].rename(folders[0].with_name("_$x^2$"))
    assert "_$x^2$, best 1.250 at step 30" in drawn(named, folders[1], "--unit", "nats")
    assert "_$x^2$" in drawn(named)


# What the options.json of a run notes; the columns with bits and without; the unit on the axis, alone and of two runs.
UNIT_CASES = (
    ({}, {"bits_per_char": 3.0}, "nats per token", "bits per character"),
    ({"loss_per": "token", "bits_per": "character"}, {"bits_per_char": 3.0}, "nats per token", "bits per character"),
    ({"loss_per": "token", "bits_per": "pixel"}, {"bits_per_char": 3.0}, "nats per token", "bits per pixel"),
    ({"loss_per": "picture", "bits_per": ""}, {"accuracy": 0.5}, "nats per picture", "nats per picture"),
    ({"loss_per": "text", "bits_per": ""}, {"accuracy": 0.5}, "nats per text", "nats per text"),
    ({"loss_per": "token", "bits_per": ""}, {"chrf": 50.0}, "nats per token", "nats per token"),
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


def test_the_training_loss_is_plotted_in_bits_per_character_too(folders, matplotlib):
    thin, thick = plotted(folders[0], smooth=1, unit="bits").get_lines()
    assert thin.get_ydata()[0] == pytest.approx(5 * 1.5)
    assert thick.get_ydata().tolist() == pytest.approx([3, 2.625, 2.25, 1.875])
    assert thin.get_color() == thick.get_color()


def test_the_numbers_are_written_without_matplotlib(folders, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    tables = [str(tmp_path / name) for name in ("x.csv", "y.csv")]
    assert main(["loss", *map(str, folders), "--unit", "nats", "--out", *tables]) == 0
    assert (tmp_path / "y.csv").read_bytes() == (tmp_path / "x.csv").read_bytes()
    lines = (tmp_path / "x.csv").read_text(encoding="utf-8").splitlines()
    assert lines[:2] == ["run,part,step,nats_per_token", "one,training,1,5.0"]
    assert "one,validation,30,1.25" in lines
    assert len(lines) == 1 + 30 + 4 + 30


def test_many_runs_look_different(folders, matplotlib):
    lines = plotted(*[folders[0]] * 35).get_lines()
    assert len({(line.get_color(), line.get_marker()) for line in lines[1::2]}) == 35


def test_logarithmic_axes_have_no_step_0(drawn, tmp_path):
    new = run_in(tmp_path / "new")
    new.log(step=0, val_loss=1.0, bits_per_char=2.0)
    with pytest.raises(OptionError, match="has nothing after step 0 yet: omit --log"):
        drawn(new.path, "--log")
    drawn(new.path)
    new.log(step=10, loss=3.0, learning_rate=1e-3, grad_norm=1.0, tokens_per_second=1.0)
    assert "best 1.000 at step 0" in drawn(new.path, "--log")  # although it is not plotted


def test_a_plot_that_cannot_be_written_is_reported(folders, matplotlib):
    with pytest.raises(OptionError, match=r"x.svg cannot be written"):
        main(["loss", str(folders[0]), "--out", str(folders[0] / "no folder" / "x.svg")])


# What evaluations have measured, the columns asked for, and those drawn, each with its unit.
MEASURED = (
    ({"bits_per_char": 2.5}, [], {"val_loss": "nats per token", "bits_per_char": "bits per character"}),
    ({"exact": 1.0, "bleu": 9.0}, [], {"val_loss": "nats per token", "bleu": "0 to 100", "exact": "share, 0 to 1"}),
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


def test_every_measure_has_a_unit():
    shares = {name for name in curves.MEASURES if name not in curves.UNITS}
    assert shares == {"exact", "accuracy", "next_accuracy", "drawn_right", "group_right", "calls", "needless_calls"}
    assert not curves.UNITS.keys() - {*curves.MEASURES}
