"""The output of a training run: checkpoints, rows of metrics.csv, samples, the progress bar, the curve.

Only process 0 has a `RunLog`. It does not affect the training.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from threading import RLock
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm import tqdm

from tinygrad_lite.autograd import no_grad
from tinygrad_lite.debug.anomaly import NonFiniteError, detect_anomaly
from tinygrad_lite.errors import CheckpointError
from tinygrad_lite.nn import Module
from tinygrad_lite.optim import Optimizer
from tinygrad_lite.random import random_key
from training.checkpoint import Checkpoint, save_checkpoint
from training.cli.console import reader_has_gone, say, shown, visible
from training.processes.processes import Numbers
from training.task import Task

if TYPE_CHECKING:
    from training.setup import RunSetup

PAUSE = 10  # seconds without a line, after which a row of metrics.csv is printed too, if there is no progress bar
BLOCKS, LEVELS = " ▁▂▃▄▅▆▇█", 8
NOISE = 70  # characters of a sample by an untrained model: a line
tqdm.set_lock(RLock())  # only one process writes; for tqdm's own lock of all processes, Python 3.14 starts a process


def curve(losses: Mapping[int, float], steps: int, rows: int = 1, columns: int = 60) -> list[str]:
    """Training losses by step, as a curve of block characters, with its highest and its lowest value.

    Each column is the mean of a part of the run, or lies between its neighbours. What is above the highest column after
    the first tenth is cut off: the first steps fall so far that nothing else would be seen.

    >>> curve({step: 8 - step for step in range(1, 8)}, steps=10, columns=10)
    ['█▇▆▅▃▂▁  7.00 to 1.00']
    """
    parts: dict[int, list[float]] = {}
    for step, loss in losses.items():
        parts.setdefault((step - 1) * columns // steps, []).append(loss)
    known = [sum(part) / len(part) for part in parts.values()]
    low, high = min(known), max(known[len(known) // 10 :])
    means = np.interp(range(max(parts) + 1), [*parts], known)
    heights = 1 + np.round(np.minimum(1, (means - low) / (high - low or 1)) * (rows * LEVELS - 1)).astype(int)
    blocks = BLOCKS if "utf" in (sys.stderr.encoding or "").lower() else " 12345678"
    levels = (np.clip(heights - LEVELS * row, 0, LEVELS) for row in reversed(range(rows)))
    *upper, lowest = ("".join(blocks[level] for level in row).rstrip() for row in levels)
    return [*upper, f"{lowest}  {high:.2f} to {low:.2f}"]


class Bar(tqdm):
    """The progress bar: the loss in front, and behind it as many facts as leave ten columns for the bar itself."""

    loss, facts = "", ()

    @property
    def format_dict(self) -> dict[str, Any]:
        """What tqdm shows, in a layout that fits the width of the terminal."""
        shown, layout = super().format_dict, self.loss + "{percentage:3.0f}%|{bar}|"
        for fact in (" {n_fmt}/{total_fmt}", " [{elapsed}<{remaining}]", *self.facts):
            # Without a width, tqdm draws a bar of ten columns.
            line = self.format_meter(**shown | {"bar_format": layout + fact, "ncols": None})
            layout += fact if len(line) <= (shown["ncols"] or 80) else ""
        return shown | {"bar_format": layout}


class RunLog(AbstractContextManager):
    """The files and the progress bar of a run; used in a `with` statement, which closes the bar."""

    def __init__(self, setup: RunSetup, task: Task, model: Module, optimizer: Optimizer) -> None:
        self.setup, self.task, self.model, self.optimizer = setup, task, model, optimizer
        self.options, self.folder = setup.options, setup.folder
        before = setup.checkpoint
        is_known = before is not None and before.corpus_sha256 == task.corpus_sha256
        # The lowest validation loss on this text, and its step.
        self.best = (before.best_loss, before.best_step) if is_known else (None, None)
        self.losses: dict[int, float] = {}  # training losses by step; before the latest evaluation, means of several
        self.write_errors: list[Exception] = []  # at the latest evaluation
        # On a GPU a checkpoint is a copy of its weights, so another thread can write it while training goes on.
        self.writer = ThreadPoolExecutor(1) if self.options.device != "cpu" else None
        # Step, what writes or waits until it is written, and the best known before it.
        self.writing: list[tuple[int, Callable[[], None], tuple]] = []
        self.first = optimizer.steps
        self.tokens, self.paused = 0, 0.0  # since the last row
        self.began = self.started = self.said = time.perf_counter()  # the last row, the run, the last line
        total = self.options.max_iters
        self.bar = Bar(total=total, initial=self.first, dynamic_ncols=True, file=sys.stderr, disable=None)

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.bar.close()
        if self.writer:
            self.writer.shutdown()  # after what it has to write

    # --- in the loop --------------------------------------------------------------------------------------------

    def updated(self, step: int, numbers: Numbers | None) -> None:
        """Record that update number `step` was made; with its numbers, if given, as a row of metrics.csv."""
        self.bar.update()
        self.tokens += self.task.target_tokens(step)
        if numbers:
            speed, rate = self.tokens / (time.perf_counter() - self.began), self.optimizer.lr
            row = {"loss": numbers.loss, "learning_rate": rate, "grad_norm": numbers.norm, "tokens_per_second": speed}
            self.folder.log(step=step + 1, **row)
            self.tokens, self.began, self.losses[step + 1] = 0, time.perf_counter(), numbers.loss
            self.bar.loss = f"loss {numbers.loss:.3f} "
            self.bar.facts = (f" {speed:,.0f} {self.task.predicted}s/s", f" lr {rate:.1e}")
            self.bar.refresh()
            # Without a terminal a line now and then, the rarer the longer the run takes.
            taken = self.began - self.started
            if self.bar.disable and self.began - self.said > PAUSE + taken / 20:
                left = tqdm.format_interval(taken / (step + 1 - self.first) * (self.options.max_iters - step - 1))
                say(f"step {step + 1:,}: training {self.bar.loss.strip()},{self.bar.facts[0]}, {left} left")
                self.said = self.began

    def save(self, step: int) -> None:
        """Write `last`."""
        self.finish_writing()
        self.write_errors.clear()
        self.paused = time.perf_counter()
        self.write(step, partial(self.write_last, step, self.checkpoint()), self.best)

    def write_last(self, step: int, checkpoint: Checkpoint) -> None:
        """Write the checkpoint of this step, in the other thread if there is one."""
        save_checkpoint(self.folder.last, checkpoint)

    def evaluated(self, step: int, val_loss: float) -> bool:
        """Write `best` if the task says that this is the best so far, and show a sample.

        Returns: whether the run is to end, because the loss has not improved for `patience` evaluations.
        """
        self.val_loss, before = val_loss, self.best
        if before[0] is None or self.task.improves(val_loss, before[0]):
            self.best = val_loss, step
            self.write(step, partial(save_checkpoint, self.folder.best, self.checkpoint()), before)
        with self.disk_errors(step, self.best):
            self.report(step, val_loss)
            self.folder.write_waiting()
        self.bar.refresh()
        self.began += time.perf_counter() - self.paused  # the speed in a row is that of training alone
        ends = 0 < self.options.patience * self.options.eval_interval <= step - self.best[1]
        if ends:
            tqdm.write(f"stopped early: no better validation loss since step {self.best[1]:,}", file=sys.stderr)
        return ends

    def report(self, step: int, val_loss: float) -> None:
        """Log an evaluation, and show a sample."""
        with no_grad(), self.model.evaluating():
            found = self.task.report(self.model, val_loss)
        heading = f"step {step:,}: validation loss {val_loss:.4f} nats per {self.task.predicted}, {found.words}"
        text = found.text
        if text and step == 0 and self.setup.trained is None:
            heading, text = f"{heading}\nuntrained, so this is noise:", text[:NOISE]
        self.folder.log(step=step, val_loss=val_loss, **found.measures)
        tqdm.write(visible("\n".join([heading + self.so_far(step), *self.curve()])), file=sys.stderr)
        if len(self.losses) > 512:  # enough for a curve, however long the run: two neighbours become their mean
            steps, losses = [*self.losses][len(self.losses) % 2 :], self.losses
            self.losses = {b: (losses[a] + losses[b]) / 2 for a, b in zip(steps[::2], steps[1::2], strict=True)}
        if text:
            self.folder.add(self.folder.samples, f"=== {heading}\n{text}\n\n")
            tqdm.write(shown(text) + "\n", file=sys.stdout)
            sys.stdout.flush()
        self.said = time.perf_counter()

    def so_far(self, step: int) -> str:
        """The mean training loss since the last evaluation, the best step, speed and time, behind an evaluation."""
        recent = [loss for at, loss in self.losses.items() if at > step - self.options.eval_interval]
        if not recent:
            return ""
        best = "the best so far" if self.best[1] == step else f"best {self.best[0]:.4f} at step {self.best[1]:,}"
        taken = time.perf_counter() - self.started
        return f"; training {sum(recent) / len(recent):.3f}, {best},{self.bar.facts[0]}, {taken:,.0f} s"

    def curve(self, rows: int = 1) -> list[str]:
        """The training loss since the start of this command, as lines of block characters; none before there is one."""
        return curve(self.losses, self.options.max_iters, rows) if self.losses else []

    def summary(self) -> str:
        """At the end: the curve, the time, and the best step."""
        best = "" if self.best[1] is None else f"; best validation loss {self.best[0]:.4f} at step {self.best[1]:,}"
        return "\n".join([*self.curve(rows=8), f"{time.perf_counter() - self.started:,.0f} s{best}"])

    def write(self, step: int, job: Callable[[], None], before: tuple) -> None:
        """Do this, in the other thread if there is one; if it fails, what was best `before` is the best again."""
        self.writing.append((step, self.writer.submit(job).result if self.writer else job, before))
        if not self.writer or not self.may_continue(step):
            self.finish_writing()

    def finish_writing(self) -> None:
        """Write everything, or wait until the other thread has, and take note of errors."""
        while self.writing:
            step, finish, before = self.writing.pop(0)
            with self.disk_errors(step, before):
                finish()

    def may_continue(self, step: int) -> bool:
        """Whether training continues if a write of this step fails."""
        return self.first < step < self.options.max_iters

    @contextmanager
    def disk_errors(self, step: int, before: tuple) -> Iterator[None]:
        """Within this context a failed write does not end the training, except at its first and last step.

        Args:
            before: best loss and step if the write fails.
        """
        try:
            yield
        except (CheckpointError, OSError) as error:
            self.best = before
            if not self.may_continue(step) or (isinstance(error, OSError) and reader_has_gone(error)):
                raise
            self.write_errors.append(error)
            with suppress(OSError):  # the message may go to a file on the same disk
                note = "training continues; the next evaluation tries again"
                tqdm.write(visible(f"warning: {error} ({note})"), file=sys.stderr)

    # --- at its end ---------------------------------------------------------------------------------------------

    def finish(self, stopped: bool) -> None:
        """Save the weights of a run that was stopped; raise a write error of the last evaluation."""
        self.finish_writing()
        if stopped:
            save_checkpoint(self.folder.last, self.checkpoint())
        elif self.write_errors:
            raise self.write_errors[0]
        else:
            self.warn_of_overfitting()

    def warn_of_overfitting(self) -> None:
        """Say it if the validation loss was best well before the end and rose since, while the training loss fell.

        The training loss is the mean over a tenth of the run, before the best evaluation and before the end.
        """
        end, (lowest, best) = self.optimizer.steps, self.best
        before, after = ([x for step, x in self.losses.items() if to - end / 10 < step <= to] for to in (best, end))
        fell = sum(after) * len(before) < sum(before) * len(after)
        if fell and 0 < best <= 0.8 * end and self.val_loss - lowest > 0.01 * max(1, lowest):
            found = f"from {lowest:.3f} at step {best:,} to {self.val_loss:.3f}, while the training loss fell"
            advice = "fewer steps, more dropout or more data help"
            tqdm.write(f"\nthe model overfits: the validation loss rose {found}; {advice}", file=sys.stderr)

    def checkpoint(self) -> Checkpoint:
        """Everything needed to resume the run, and to generate with sample.py."""
        return Checkpoint(
            family=self.setup.family.name,
            model=self.model.config.to_json(),
            training=self.options.saved(),
            step=self.optimizer.steps,
            best_loss=self.best[0],
            best_step=self.best[1],
            corpus_sha256=self.task.corpus_sha256,
            optimizer=self.optimizer.state_dict(),
            **self.setup.saved(self.task, self.model),
        )

    def explain(self, numbers: Numbers, processes: int) -> str:
        """Where the NaN or infinity of a step arose, as an error message; runs the step again with `detect_anomaly`."""
        step = numbers.step
        reason, folder = "no operation produced it when the step was run again", self.folder
        if broken := [name for name, p in self.model.named_parameters() if not np.isfinite(p.numpy()).all()]:
            reason = f"the update before this step had already broken the parameter {broken[0]}"
        else:
            self.optimizer.zero_grad()
            try:
                with detect_anomaly():
                    for rank in range(processes):
                        for micro_step, (batch, share) in enumerate(self.task.batches(step, rank, processes)):
                            with random_key(self.options.seed, step, micro_step, rank):
                                loss = self.model.loss(batch) * share
                            loss.backward()
            except NonFiniteError as error:
                reason = str(error)
        advice = "with a smaller --learning_rate or --grad_clip"
        if self.writing or folder.last.exists():
            advice = f"--resume {advice}: the checkpoints in {folder.path} are from before"
        shown = f"the loss is {numbers.loss:g} and the gradient's norm {numbers.norm:g}"
        return f"step {step}: {shown}; {reason}; try {advice}"
