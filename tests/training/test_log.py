"""What a run tells while it learns: the progress bar, lines where there is no terminal, advice at its end."""

import io
import math
import re
from types import SimpleNamespace

import pytest

from tests.tiny_runs import losses, run_training
from training import log
from training.log import Bar, RunLog


def test_the_bar_shows_the_loss_at_any_width_and_keeps_room_for_itself():
    for width, number in ((20, 0), (40, 1), (50, 2), (80, 4), (200, 4)):  # of how many facts there is room for
        bar = Bar(total=2000, initial=900, ncols=width, file=io.StringIO())
        bar.loss, bar.facts = "loss 2.123 ", (" 12,345 tokens/s", " lr 9.9e-04")
        line = str(bar)
        assert line.startswith("loss 2.123  45%|")
        assert len(line) <= width
        assert [fact in line for fact in ("900/2000", "[", *bar.facts)] == [place < number for place in range(4)]
        assert len(line.split("|")[1]) >= min(10, width - 17)


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize(("pause", "count"), [(-math.inf, 10), (math.inf, 0)])
def test_without_a_terminal_rows_are_printed_after_a_pause(pause, count, capsys, monkeypatch):
    monkeypatch.setattr(log, "PAUSE", pause)
    run = run_training()
    said = re.findall(r"\nstep (\d+): training loss ([\d.]+), [\d,]+ tokens/s, \d\d:\d\d left", capsys.readouterr().err)
    assert said == [(str(step), f"{loss:.3f}") for step, loss in losses(run).items()][:count]


FALLING = {10 * n: 3 - n / 100 for n in range(51)}
# Training losses, the best evaluation (step and loss), and the loss at the last one, after 500 steps.
OVERFIT = [(FALLING, 250, 2.0, 2.1), (FALLING, 400, 5.0, 5.2)]
FINE = [(FALLING, 450, 2.0, 2.1), (FALLING, 250, 2.0, 2.01), (FALLING, 250, 0.001, 0.002), (FALLING, 0, 2.0, 2.5)]
FINE += [({step: -loss for step, loss in FALLING.items()}, 250, 2.0, 2.5)]  # it diverges
FINE += [({500: 1.0}, 250, 2.0, 2.5)]  # resumed: how well it had learned is not known


@pytest.mark.parametrize(("losses", "best", "lowest", "last"), OVERFIT + FINE)
def test_a_run_that_overfits_says_so_at_its_end(losses, best, lowest, last, capsys):
    run = SimpleNamespace(losses=losses, best=(lowest, best), val_loss=last)
    run.optimizer = SimpleNamespace(steps=500)
    RunLog.warn_of_overfitting(run)
    said = (
        f"rose from {lowest:.3f} at step {best} to {last:.3f}, while the training loss fell; fewer steps, more dropout"
    )
    assert (said in capsys.readouterr().err) == ((losses, best, lowest, last) in OVERFIT)
