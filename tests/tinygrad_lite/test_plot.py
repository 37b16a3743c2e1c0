"""Loss curves: what is read from metrics.csv, and what is drawn."""

import sys

import numpy as np
import pytest

from tinygrad_lite.errors import OptionError, UserError
from tinygrad_lite.plot import Curve, main, read_run, smoothed
from tinygrad_lite.run import METRICS, RunFolder


@pytest.fixture
def folders(tmp_path):
    """Two runs, the second of which has not been evaluated yet."""
    one, two = RunFolder(tmp_path / "one"), RunFolder(tmp_path / "two")
    for run in (one, two):
        with run.locked():
            run.begin({})
        for step in range(1, 31):
            run.log(step=step, loss=4 / step + 1, learning_rate=1e-3, grad_norm=1.0, tokens_per_second=10.0)
    for step in (0, 10, 20, 30):
        one.log(step=step, val_loss=2 - step / 40, bits_per_char=3 - step * 3 / 80)
    return one.path, two.path


# --- reading ---------------------------------------------------------------------------------------------------


def test_a_run_is_read_from_its_folder_or_its_table(folders):
    for path in (folders[0], folders[0] / "metrics.csv"):
        run = read_run(path)
        assert run.name == "one"
        assert (run.training.steps[0], run.training.losses[0], len(run.training.steps)) == (1, 5, 30)
        assert run.validation.losses.tolist() == [2, 1.75, 1.5, 1.25]
        assert run.bits_per_nat == pytest.approx(1.5)
    assert read_run(folders[1]).bits_per_nat is None


def test_a_run_that_is_still_at_work_ends_in_half_a_row(folders):
    with open(folders[0] / "metrics.csv", "a", encoding="utf-8") as file:
        file.write("31,1.1")
    assert read_run(folders[0]).training.steps[-1] == 31
    with open(folders[0] / "metrics.csv", "a", encoding="utf-8") as file:
        file.write("x\n,,,\nrubbish")
    assert len(read_run(folders[0]).training.steps) == 30


def test_what_cannot_be_read(tmp_path):
    with pytest.raises(OptionError, match=r"there is no .*name the folder of a run"):
        read_run(tmp_path / "gone")
    (tmp_path / "metrics.csv").write_text(",".join(METRICS) + "\n", encoding="utf-8")
    with pytest.raises(OptionError, match="has no losses, in columns called step, loss and val_loss"):
        read_run(tmp_path)
    (tmp_path / "metrics.csv").write_bytes(b"\xff\xfe\x00step")
    with pytest.raises(OptionError, match="cannot be read as a table"):
        read_run(tmp_path)


def test_smoothing_is_a_mean_over_neighbours():
    losses = np.array([5.0, 3.0, 4.0, 2.0, 1.0])
    curve = Curve(np.arange(5), losses)
    assert smoothed(curve, 1).losses.tolist() == losses.tolist()
    assert smoothed(curve, 3).losses.tolist() == [4, 4, 3, 7 / 3, 1.5]
    assert smoothed(curve, 99).losses[2] == pytest.approx(3)
    assert smoothed(Curve(np.zeros(0), np.zeros(0)), 10).losses.size == 0


# --- drawing ---------------------------------------------------------------------------------------------------


def texts(svg: str) -> str:
    return " ".join(part.split("<")[0] for part in svg.split(">"))


def test_one_run_is_drawn_beside_its_table(folders, capsys):
    pytest.importorskip("matplotlib")
    assert main([str(folders[0])]) == 0
    shown = texts((folders[0] / "curves.svg").read_text(encoding="utf-8"))
    for text in ("loss, nats per token", "training, mean of 10 rows", "validation, best 1.250 at step 30"):
        assert text in shown
    assert "wrote" in capsys.readouterr().err


def test_several_runs_are_compared_in_bits_per_character(folders, tmp_path):
    pytest.importorskip("matplotlib")
    pictures = [tmp_path / "all.svg", tmp_path / "all.png"]
    command = [str(folders[0]), str(folders[0] / "metrics.csv"), "--out", *map(str, pictures), "--smooth", "1"]
    assert main(command) == 0
    shown = texts(pictures[0].read_text(encoding="utf-8"))
    assert "loss, bits per character" in shown
    assert "one, best 1.875 at step 30" in shown
    assert pictures[1].read_bytes().startswith(b"\x89PNG")
    before = [picture.read_bytes() for picture in pictures]
    assert main(command) == 0
    assert [picture.read_bytes() for picture in pictures] == before  # nothing but the numbers is in it


@pytest.mark.parametrize("more", [["--log"], ["--unit", "bits"], ["--log", "--unit", "nats", "--smooth", "100"]])
def test_every_way_to_draw_works(folders, tmp_path, more):
    pytest.importorskip("matplotlib")
    assert main([str(folders[0]), "--out", str(tmp_path / "x.svg"), *more]) == 0


def test_a_run_without_an_evaluation_can_be_drawn_in_nats_only(folders):
    pytest.importorskip("matplotlib")
    assert main([str(folders[1])]) == 0
    with pytest.raises(OptionError, match="two was not evaluated yet"):
        main([*map(str, folders)])


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "name the folder of a run"),
        (["one", "--out", "x.bmp"], r"must end with one of \.svg, \.png, \.pdf"),
        (["gone"], "there is no gone"),
        (["one", "--smooth", "0"], "--smooth 0"),
    ],
)
def test_mistakes_are_one_sentence(folders, monkeypatch, words, reason):
    monkeypatch.chdir(folders[0].parent)
    with pytest.raises(OptionError, match=reason):
        main(words)


def test_a_picture_that_cannot_be_written(folders, tmp_path):
    pytest.importorskip("matplotlib")
    with pytest.raises(OptionError, match=r"--out .* cannot be written"):
        main([str(folders[0]), "--out", str(tmp_path / "no folder" / "x.svg")])


def test_without_matplotlib_there_is_a_sentence(folders, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UserError, match=r'needs matplotlib, .*: pip install -e "\.\[viz\]"'):
        main([str(folders[0])])
