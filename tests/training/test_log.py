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


def test_an_evaluation_says_how_the_run_goes_and_the_end_what_came_of_it(workplace, capsys, monkeypatch):
    """Without a terminal too; where block characters cannot be printed, digits take their place."""
    run = run_training(max_iters=20, eval_interval=10)
    said = capsys.readouterr().err
    (first, second, third), found = [*losses(run, "val_loss").values()], [*losses(run).values()]
    best = f"best {min(first, second):.4f} at step {10 * (second < first)}"
    facts = re.findall(
        r"character; training ([\d.]+), (.+), [\d,]+ tokens/s, \d+ s\n[▁▂▃▄▅▆▇█]+ +([\d.]+) to ([\d.]+)\n", said
    )
    assert [fact[1] for fact in facts] == [
        "the best so far" if second < first else best,
        "the best so far" if third < min(first, second) else best,
    ]
    assert float(facts[-1][2]) >= max(found[2:]) - 0.01 > min(found) - 0.02 <= float(facts[-1][3])
    lowest = min(first, second, third)
    assert re.search(rf"\n\d+ s; best validation loss {lowest:.4f} at step \d+\nTry it with:\n", said)
    assert len(re.findall(r"^[ ▁▂▃▄▅▆▇█]+( |$)", said, re.MULTILINE)) >= 2 + 8 - 1
    monkeypatch.setattr(log.sys, "stderr", io.TextIOWrapper(io.BytesIO(), "ascii"))
    assert log.curve({1: 9.0, 2: 5.0, 3: 1.0}, steps=4, columns=4) == ["851  9.00 to 1.00"]


def test_the_curve_fills_as_the_run_goes_on_and_cuts_off_its_beginning():
    falling = {step: 5 + 95 * (step < 4) - step / 100 for step in range(1, 101)}
    (line,) = log.curve(falling, steps=200, columns=40)
    assert (len(line.split()[0]), line.split(maxsplit=1)[1]) == (20, "4.87 to 4.02")
    assert line[:3] == "█" * 3 > line[10] > line[19] == "▁"
    tall = log.curve(falling, steps=200, rows=8, columns=40)
    assert [len(row.split("  ")[0]) for row in tall] == sorted(len(row.split("  ")[0]) for row in tall)
    assert len(tall) == 8
    assert log.curve({1: 2.0}, steps=100) == ["▁  2.00 to 2.00"]
