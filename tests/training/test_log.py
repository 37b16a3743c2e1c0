"""What a run tells while it learns: the progress bar, lines where there is no terminal, advice at its end."""

import math
import re
from types import SimpleNamespace

import numpy as np
import pytest

from tests.tiny_runs import losses, run_training
from training import log
from training.log import RunLog


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
    said = f"rose from {lowest:.3f} at step {best} to {last:.3f}, while the training loss fell; fewer steps"
    assert (said in capsys.readouterr().err) == ((losses, best, lowest, last) in OVERFIT)


def test_an_evaluation_says_how_the_run_goes_and_the_end_what_came_of_it(workplace, capsys):
    run = run_training(max_iters=20, eval_interval=10)
    said, (first, second, third) = capsys.readouterr().err, [*losses(run, "val_loss").values()]
    lowest, best = min(first, second, third), f"best {min(first, second):.4f} at step {10 * (second < first)}"
    assert re.findall(r"character; training [\d.]+, (.+), [\d,]+ tokens/s, \d+ s\n[▁▂▃▄▅▆▇█]+ ", said) == [
        "the best so far" if second < first else best,
        "the best so far" if third < min(first, second) else best,
    ]
    assert re.search(rf"\n\d+ s; best validation loss {lowest:.4f} at step \d+\nTry it with:\n", said)


def test_the_curve_of_a_long_run_keeps_means(workplace, monkeypatch):
    known, run = [], {"block_size": 4, "batch_size": 2, "n_embd": 8, "eval_iters": 2}
    monkeypatch.setattr(log, "curve", lambda losses, *how: known.append([*losses.values()]) or [])
    first = [*losses(run_training(max_iters=1200, eval_interval=600, **run)).values()]
    assert [len(found) for found in known] == [600, 900, 450]
    assert np.mean(known[-1][:150]) == pytest.approx(np.mean(first[:600]), rel=1e-4)
    assert np.mean(known[-1][150:]) == pytest.approx(np.mean(first[600:]), rel=1e-4)
