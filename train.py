"""Train a model: options -> data -> model -> optimizer -> loop, readable from top to bottom.

    python train.py                       the default preset, goethe-char: two minutes on two cores
    python train.py baby-gpt --device cuda
    python train.py --text my.txt         any UTF-8 text; the run is in out/my
    python train.py --resume              continue where the last run stopped
    python train.py --init_from PATH      start from trained weights: a checkpoint of ours, or GPT-2's
    python train.py --help                all options

What a model wrote goes to stdout, everything else to stderr.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec

if missing := [name for name in ("numpy", "safetensors", "tqdm", "tinygrad_lite") if not find_spec(name)]:
    sys.exit(f"train.py: {missing[0]} is not installed: run pip install -e . in the folder of this file")

import numpy as np
from tqdm import tqdm

from gpt.task import FAMILY as GPT
from seq2seq.task import FAMILY as SEQ2SEQ
from tinygrad_lite.anomaly import NonFiniteError
from tinygrad_lite.checkpoint import Checkpoint, mean_weights, save_checkpoint
from tinygrad_lite.console import quoted, reader_has_gone, run_command, say, shown
from tinygrad_lite.cuda.precision import PRECISIONS, set_precision
from tinygrad_lite.errors import CheckpointError, UserError
from tinygrad_lite.family import Task
from tinygrad_lite.functional.registry import set_composed
from tinygrad_lite.nn import Module
from tinygrad_lite.optim import Optimizer
from tinygrad_lite.run import RunFolder, StopRequest, matmul_rate, tune_memory
from tinygrad_lite.size import dry_run, is_shortage, too_little_to_train
from tinygrad_lite.start import Start, read_start, saved_options
from tinygrad_lite.workers import OneProcess, start_workers

FAMILIES = (GPT, SEQ2SEQ)


def main(argv: list[str]) -> int:
    """Run the command line and return the exit status."""
    tune_memory()
    np.seterr(all="ignore")  # the loop looks for NaN and infinity itself, and says where they came from
    start = read_start(argv, FAMILIES)
    set_composed(start.options.composed)
    if start.options.dtype in PRECISIONS:
        set_precision(start.options.dtype)
    try:
        return dry_run(start) if start.options.dry_run else run(start)
    except (MemoryError, RuntimeError) as error:
        if not is_shortage(error):
            raise
        explained = too_little_to_train(start, error)
    raise explained  # here, where nothing holds the arrays and the progress bar of the loop any more


def run(start: Start) -> int:
    """Data, model, optimizer, loop; returns the exit status."""
    options, folder = start.options, start.folder
    task = start.make_task()
    if options.profile:
        return show_profile(start, task)
    with folder.locked():
        model = start.make_model(task.tokenizer)
        optimizer = options.make_optimizer(model)
        say(f"{model.num_parameters():,} parameters on {options.device}, {options.max_iters:,} steps in {folder.path}/")
        start.begin(optimizer, task)
        with StopRequest() as stop, start_workers(options, task, model, optimizer) as workers:
            train(start, task, model, optimizer, workers, stop)
    if stop.signal and optimizer.steps < options.max_iters:
        say(
            f"\nstopped by {stop.signal.name} after {optimizer.steps:,} steps; saved {folder.last}; continue with:\n"
            f"  python train.py --resume --out_dir {quoted(folder.path)}"
        )
        return stop.exit_status
    chosen = folder.average if options.average else folder.best
    prompt = f' --start "{task.example}"' if task.example else ""
    say(f"\nNow let it write:\n  python sample.py {quoted(chosen)}{prompt}")
    return 0


def train(
    start: Start, task: Task, model: Module, optimizer: Optimizer, workers: OneProcess, stop: StopRequest
) -> None:
    """The training loop. An update is called step n if n updates were made before it; each happens exactly once.

    What `workers` does is in tinygrad_lite/workers.py: forward and backward through the batches, and the update.
    """
    options, folder, before = start.options, start.folder, start.checkpoint
    first, last = optimizer.steps, options.max_iters
    best_loss, best_step = (before.best_loss, before.best_step) if before else (None, None)
    refused: list[Exception] = []  # what could not be written at the latest evaluation
    # Tokens per second if a step were nothing but matrix products at the rate that the machine can do.
    most = matmul_rate(options.device, options.dtype) / model.config.flops_per_token()
    bar = tqdm(total=last, initial=first, unit="step", file=sys.stderr, dynamic_ncols=True, disable=None)
    busy, learned = 0.0, 0  # seconds of training and tokens learned from since the last log
    for step in range(first, last + 1):
        began = time.perf_counter()
        tokens = workers.gradients(step)
        workers.clip(options.grad_clip)
        is_evaluated = step % options.eval_interval == 0 or step == last
        is_logged = (step + 1) % options.log_interval == 0 or step + 1 == last
        if workers.look_is_free or is_evaluated or is_logged or stop.signal:
            loss, grad_norm, broken = workers.look()
            # Before saving, and at the end too: a model that gives NaN must not replace the last good checkpoint.
            if broken is not None:
                bar.close()
                raise UserError(explain_non_finite(start, model, workers, broken, loss, grad_norm))
        busy += time.perf_counter() - began

        if is_evaluated:
            refused.clear()
            train_on = first < step < last and not options.stop_on_disk_error
            # Save before evaluating: if the evaluation fails, the work is not lost.
            with disk_errors(refused, train_on):
                save_checkpoint(folder.last, to_checkpoint(start, task, model, optimizer, best_loss, best_step))
                folder.keep(step, max(options.keep, options.average))
            val_loss = workers.evaluate()
            if best_loss is None or val_loss < best_loss:
                with disk_errors(refused, train_on):
                    save_checkpoint(folder.best, to_checkpoint(start, task, model, optimizer, val_loss, step))
                    best_loss, best_step = val_loss, step
            with disk_errors(refused, train_on):
                report(task, model, folder, step, val_loss)
                folder.write_waiting()
            bar.refresh()
            if options.patience and step - best_step >= options.patience * options.eval_interval:
                tqdm.write(f"stopped early: no better validation loss since step {best_step:,}", file=sys.stderr)
                break
        if step == last:
            break
        if stop.signal:
            save_checkpoint(folder.last, to_checkpoint(start, task, model, optimizer, best_loss, best_step))
            break

        began = time.perf_counter()
        workers.update(options.learning_rate_at(step))
        busy += time.perf_counter() - began
        learned += tokens

        bar.update()
        if is_logged:
            speed = learned / busy
            rate = options.learning_rate_at(step)
            row = {"loss": loss, "learning_rate": rate, "grad_norm": grad_norm}
            folder.log(step=step + 1, **row, tokens_per_second=speed, matmul_share=speed / most)
            bar.set_postfix_str(f"loss {loss:.3f}, lr {rate:.2e}, {speed:,.0f} tokens/s, {speed / most:.0%}")
            busy, learned = 0.0, 0
    bar.close()
    if refused and not stop.signal:
        raise refused[0]
    if options.average and not stop.signal:
        average(start, task, model, optimizer, workers)


@contextmanager
def disk_errors(refused: list[Exception], train_on: bool) -> Iterator[None]:
    """Inside, a disk that does not take what is written to it does not end the training, if this is to continue."""
    try:
        yield
    except (CheckpointError, OSError) as error:
        if not train_on or (isinstance(error, OSError) and reader_has_gone(error)):
            raise
        refused.append(error)
        with suppress(OSError):  # what is said may go to a file on the same disk
            tqdm.write(
                f"warning: {error} (training continues, and it is tried again at the next evaluation)", file=sys.stderr
            )


def report(task: Task, model: Module, folder: RunFolder, step: int, val_loss: float) -> None:
    """Log an evaluation, and show what the model would write now."""
    found = task.report(model, val_loss)
    heading = f"step {step:,}: validation loss {val_loss:.4f} nats per token, {found.words}"
    folder.log(step=step, val_loss=val_loss, **found.measures)
    if found.text:
        folder.add_sample(heading, found.text)
    tqdm.write(heading, file=sys.stderr)
    if found.text:
        tqdm.write(shown(found.text) + "\n", file=sys.stdout)
        sys.stdout.flush()


def average(start: Start, task: Task, model: Module, optimizer: Optimizer, workers: OneProcess) -> None:
    """Average the weights of the latest kept evaluations, element by element, and save the model they make.

    Late in training the weights move around a good place rather than towards it; their mean is nearer to it than the
    last of them (Vaswani et al. 2017, section 6.1, average 5 checkpoints; Izmailov et al. 2018, arXiv:1803.05407).
    """
    folder, paths = start.folder, start.folder.kept()[-start.options.average :]
    model.load_state_dict(mean_weights(paths))
    val_loss = workers.evaluate()
    save_checkpoint(folder.average, to_checkpoint(start, task, model, optimizer, val_loss, optimizer.steps))
    found = task.report(model, val_loss)
    heading = f"average of {len(paths)} checkpoints: validation loss {val_loss:.4f} nats per token, {found.words}"
    tqdm.write(f"{heading}; saved {folder.average}", file=sys.stderr)


# --- around the loop ------------------------------------------------------------------------------------------


def to_checkpoint(
    start: Start, task: Task, model: Module, optimizer: Optimizer, best_loss: float | None, best_step: int | None
) -> Checkpoint:
    """Everything that the run needs to continue, and sample.py to write."""
    return Checkpoint(
        family=start.family.name,
        model=model.config.to_json(),
        training=saved_options(start.options),
        tokenizer=task.tokenizer.to_json(),
        step=optimizer.steps,
        best_loss=best_loss,
        best_step=best_step,
        corpus_sha256=task.corpus_sha256,
        weights=model.state_dict(),
        optimizer=optimizer.state_dict(),
    )


def show_profile(start: Start, task: Task) -> int:
    """Print where the time and the memory of a training step go, and train nothing."""
    options, model = start.options, start.make_model(task.tokenizer)
    rate = matmul_rate(options.device, options.dtype)
    with start_workers(options, task, model, options.make_optimizer(model)) as workers:
        seconds, tokens, table = workers.profile()
    operations = model.config.flops_per_token() * tokens
    print(f"operations of one training step, as worker 1 of {workers.number} sees them:\n\n{table}\n")
    print(
        f"{seconds * 1e3:.1f} ms for {tokens:,} tokens; its matrix products, {operations / 1e9:.2f} GFLOP, would take "
        f"{operations / rate * 1e3:.1f} ms at the {rate / 1e9:.0f} GFLOP/s that one large product reaches here: "
        f"{operations / rate / seconds:.0%} of the step"
    )
    return 0


def explain_non_finite(
    start: Start, model: Module, workers: OneProcess, step: int, loss: float, grad_norm: float
) -> str:
    """Run the step again in the checking mode, and say where the first NaN or infinity arose."""
    reason, folder = "no operation made it when the step was run again", start.folder
    broken = [name for name, p in model.named_parameters() if not np.isfinite(p.numpy()).all()]
    if broken:
        reason = f"the update before this step had already broken the parameter {broken[0]}"
    else:
        try:
            workers.find_anomaly(step)
        except NonFiniteError as error:
            reason = str(error)
    advice = "with a smaller --learning_rate or --grad_clip"
    if folder.last.exists():
        advice = f"--resume {advice}: the checkpoints in {folder.path} are from before"
    return f"step {step}: the loss is {loss:g} and the gradient's norm {grad_norm:g}; {reason}; try {advice}"


if __name__ == "__main__":
    run_command("train.py", main)
