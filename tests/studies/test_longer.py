"""The loss in windows longer than those of training: the numbers of longer contexts, and what is refused."""

from pathlib import Path

import pytest

import sample
from studies.longer import main
from tests.tiny_runs import made_up_text, run_training
from tinygrad_lite.errors import CorpusError, OptionError

pytestmark = pytest.mark.usefixtures("workplace")
KINDS = ["none", "sinusoidal", "rotary", "index", "binary", "alibi", "shaw"]


def test_every_kind_of_positions_is_read_beyond_its_context_but_learned_ones(capsys):
    for kind in [*KINDS, "learned"]:
        run_training(positions=kind, max_iters=2, out_dir=kind)
    Path("other.txt").write_text(made_up_text(60, seed=2), encoding="utf-8")
    capsys.readouterr()
    assert main([*KINDS, "learned", "--text", "other.txt", "--times", "1,3"]) == 0
    out, err = capsys.readouterr()
    assert "learned has learned positions, and none beyond block_size: left out" in err
    rows = {line.split()[0]: [float(bits) for bits in line.split()[1:]] for line in out.splitlines()[1:]}
    assert list(rows) == KINDS
    assert all(0 < bits < 12 for row in rows.values() for bits in row)
    whole = Path("other.txt").read_text("utf-8")
    Path("windows.txt").write_text(whole[: (len(whole) - 1) // 8 * 8 + 1], encoding="utf-8")
    assert sample.main(["rotary", "--score", "windows.txt"]) == 0
    bits = float(capsys.readouterr().out.split()[0])
    assert rows["rotary"][0] == pytest.approx(bits, rel=0.02)  # which also divides by the first character


def test_the_plot_has_every_model():
    pytest.importorskip("matplotlib")
    run_training(positions="none", max_iters=2)
    assert main(["run", "run", "--times", "2", "--plot", "a.svg"]) == 0
    assert Path("a.svg").stat().st_size > 5000


def test_what_cannot_be_measured_is_refused():
    run_training(positions="none", max_iters=2)
    for times in ("0", "1.5", "x"):
        with pytest.raises(OptionError, match=f"--times {times}: write whole numbers from 1 on"):
            main(["run", "--times", times])
    with pytest.raises(CorpusError, match=r": \d+ tokens to predict, but a window of 9 T has 72"):
        main(["run", "--text", "text.txt", "--characters", "60", "--times", "9"])
