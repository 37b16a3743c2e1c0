"""Train a model: options -> data -> model -> optimizer -> loop, readable from top to bottom.

    python train.py                       the default preset, goethe: two minutes on two cores
    python train.py baby-gpt --device cuda
    python train.py --text my.txt         any UTF-8 text; the run is in out/my
    python train.py --resume              continue where the last run stopped
    python train.py --init_from PATH      start from trained weights: a checkpoint of this project, or GPT-2
    mpirun -n 4 python train.py           four processes, on one or many machines (docs/machines.md)
    python train.py --help                the most used options; --help all: every one

Generated text goes to stdout, everything else to stderr.
"""

import sys
from importlib.util import find_spec

if not find_spec("training"):
    sys.exit("train.py: tinygrad_lite is not installed: run pip install -e . in the root of the project")

from training.cli import doorstep

if __name__ == "__main__":
    doorstep.enter("train.py")


import numpy as np

from families import FAMILIES, around
from tinygrad_lite.autograd import no_grad
from tinygrad_lite.errors import UserError, counted
from tinygrad_lite.functional.registry import set_composed
from tinygrad_lite.nn import Module
from tinygrad_lite.optim import Optimizer
from tinygrad_lite.precision import PRECISIONS, set_precision
from tinygrad_lite.random import random_key
from training.cli.console import quoted, run_command, say
from training.estimate import is_shortage, too_little_to_train
from training.folder import StopRequest, tune_memory
from training.log import RunLog
from training.options import TrainOptions
from training.processes.processes import Numbers, OneProcess
from training.setup import RunSetup
from training.start import read_setup
from training.task import Task


def main(argv: list[str]) -> int:
    """Run the command line and return the exit status."""
    tune_memory()
    np.seterr(all="ignore")  # the loop itself checks for NaN and infinity, and reports where they arose
    setup = read_setup(argv, FAMILIES)
    set_composed(setup.options.composed)
    if setup.options.dtype in PRECISIONS:
        set_precision(setup.options.dtype)
    try:
        return setup.carry_out(run)
    except (MemoryError, RuntimeError, OSError) as error:
        if not is_shortage(error):
            raise
        explained = too_little_to_train(setup, error)
    raise explained  # outside the except clause, when the loop's arrays and progress bar have been released


def run(setup: RunSetup) -> int:
    """Make the data, model and optimizer, then train; returns the exit status."""
    options, folder = setup.options, setup.folder
    task = setup.make_task()  # the data, as tokens in batches: task.py in the folder of the family
    resume = f"  python train.py --resume --out_dir {quoted(folder.path)}"
    with folder.locked():
        model = setup.make_model(task.tokenizer)
        optimizer = options.make_optimizer(model)
        where = f"on {options.device}, {counted(options.workers, 'process', 'processes')}"
        say(f"{setup.describe(model)} {where}, {counted(options.max_iters, 'step')} in {folder.path}/")
        setup.begin(optimizer, task)
        stopping = StopRequest(lambda: folder.lost(optimizer.steps, resume))
        with stopping as stop, setup.processes(train, task, model, optimizer, stop) as comm:
            log = setup.log(task, model, optimizer)
            with log:
                train(options, task, model, optimizer, comm, log)
    next_steps = "\n  ".join(setup.next_steps(task))
    if comm.should_stop and optimizer.steps < options.max_iters:
        done = f"stopped by {stop.signal.name} after {counted(optimizer.steps, 'step')}; saved {folder.last}"
        say(f"\n{done}; continue with:\n{resume}\ntry it with:\n  {next_steps}")
        return 128 + stop.signal  # as a shell expects
    learned = f"It learned from {setup.stand_in}.\n" if setup.stand_in else ""
    say(f"\n{log.summary()}\n{learned}Try it with:\n  {next_steps}")
    return 0


def train(
    options: TrainOptions, task: Task, model: Module, optimizer: Optimizer, comm: OneProcess, log: RunLog | None = None
) -> None:
    """The training loop. Several processes run it at the same time, each on its part of every batch.

    A round finds the gradients for the next update, evaluates if it is time, and makes the update; when round `step`
    begins, `step` updates have been made. The last round, after max_iters updates, evaluates their result and makes no
    update. Gradients come first because loss and norm show whether the weights are sound: a model that returns NaN must
    not replace the last good checkpoint.

    Args:
        task: the data: batches to learn from, batches to evaluate on, and the tokenizer.
        comm: communication with the other processes; with one process it does almost nothing
            (training/processes/processes.py).
        log: the files and the progress bar of the run; None in all processes except process 0.
    """
    task.model = model  # some tasks learn from what the model itself writes
    for step in range(optimizer.steps, options.max_iters + 1):
        is_last = step == options.max_iters
        is_evaluated = is_last or step % options.eval_interval == 0

        find_gradients(options, task, model, optimizer, comm, step)
        # The loss and the norm of the gradients; None where they are not needed, because reading them makes a GPU wait.
        numbers = comm.numbers(wait=is_logged(options, step) or is_evaluated or comm.should_stop)
        check_finite(numbers, comm, log)

        if is_evaluated or comm.should_stop:
            comm.collect_states(optimizer)  # to be saved
        if is_evaluated:
            if log:
                log.save(step)  # before evaluating, so that nothing is lost if the evaluation fails
            val_loss = evaluate(task, model, comm)
            has_ended = log is not None and log.evaluated(step, val_loss)  # --patience evaluations without progress
            if any(comm.gather(has_ended)):
                break
        if is_last or comm.should_stop:
            break

        update(options, optimizer, comm, step)
        if log:
            log.updated(step, numbers if is_logged(options, step) else None)

    if log:
        log.finish(comm.should_stop)


def find_gradients(
    options: TrainOptions, task: Task, model: Module, optimizer: Optimizer, comm: OneProcess, step: int
) -> None:
    """Forward and backward pass for this step's batch, in micro-batches whose gradients add up; then clip them.

    Passes that a GPU has recorded are replayed: then none is left for this loop.
    """
    optimizer.zero_grad()
    for micro_step, (batch, share) in comm.passes(task.batches(step, comm.rank, comm.size), optimizer, step):
        with comm.recorded(), random_key(options.seed, step, micro_step, comm.rank):  # the key determines dropout
            loss = model.loss(batch) * share  # share: target tokens of this part / all target tokens of the update
            loss.backward()
            comm.losses.append(loss.detach())
    comm.sum_gradients(optimizer, step)
    comm.clip(optimizer, options.grad_clip)


def update(options: TrainOptions, optimizer: Optimizer, comm: OneProcess, step: int) -> None:
    """Change the weights by the gradients; with several processes, each updates its own slice."""
    optimizer.lr = options.learning_rate_at(step)
    optimizer.step()
    comm.share_weights(optimizer)


def only_updates(options: TrainOptions, task: Task, model: Module, optimizer: Optimizer, comm: OneProcess) -> None:
    """The rounds of `train` up to max_iters without evaluations and files: what is to be timed."""
    task.model = model
    for step in range(optimizer.steps, options.max_iters):
        find_gradients(options, task, model, optimizer, comm, step)
        check_finite(comm.numbers(wait=is_logged(options, step)), comm, None)
        update(options, optimizer, comm, step)


def is_logged(options: TrainOptions, step: int) -> bool:
    """Whether the update of this step gets a row in metrics.csv: every log_interval updates, and the last one."""
    return (step + 1) % options.log_interval == 0 or step + 1 == options.max_iters


def evaluate(task: Task, model: Module, comm: OneProcess) -> float:
    """Mean loss on the held-out data, in nats per target token, without dropout; the data are always the same."""
    nats, count = 0.0, 0
    with no_grad(), model.evaluating():
        for batch, tokens in task.validation_batches(comm.rank, comm.size):
            nats += model.loss(batch).item() * tokens
            count += tokens
    parts, counts = zip(*comm.gather((nats, count)), strict=True)
    return sum(parts) / sum(counts)


def check_finite(numbers: Numbers | None, comm: OneProcess, log: RunLog | None) -> None:
    """Raise a UserError that says where the first NaN or infinity arose, if the loss or the norm is not finite."""
    if numbers and not np.isfinite(numbers).all():
        raise UserError(log.explain(numbers, comm.size) if log else "see the message of process 0")


if __name__ == "__main__":
    run_command("train.py", around(main))
