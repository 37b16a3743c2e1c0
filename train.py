"""Train a model: options -> data -> model -> optimizer -> loop, readable from top to bottom.

    python train.py                       the default preset, goethe-char: two minutes on two cores
    python train.py baby-gpt --device cuda
    python train.py --text my.txt         any UTF-8 text
    python train.py --resume              go on where the last run stopped
    python train.py --init_from PATH      start from trained weights: a checkpoint of ours, or GPT-2's
    python train.py --help                all options

What a model wrote goes to stdout, everything else to stderr.
"""

import math
import sys
import time

import numpy as np
from tqdm import tqdm

from gpt.config import GPTOptions
from gpt.data import TextData, prepare
from gpt.model import GPT
from gpt.start import dry_run, read_start, saved_options, warn_of_unknown
from tinygrad_lite.anomaly import NonFiniteError, detect_anomaly
from tinygrad_lite.checkpoint import Checkpoint, save_checkpoint
from tinygrad_lite.console import quoted, run_command, say
from tinygrad_lite.device import random_key
from tinygrad_lite.errors import UserError
from tinygrad_lite.functional.registry import set_composed
from tinygrad_lite.optim import Optimizer
from tinygrad_lite.run import RunFolder, StopRequest, matmul_rate, tune_memory
from tinygrad_lite.tensor import no_grad
from tinygrad_lite.text.decoding import generate
from tinygrad_lite.text.tokenizer import StreamDecoder


def main(argv: list[str]) -> int:
    """Run the command line and return the exit status."""
    tune_memory()
    np.seterr(all="ignore")  # the loop looks for NaN and infinity itself, and says where they came from
    start = read_start(argv)
    options, folder = start.options, start.folder
    set_composed(options.composed)
    if options.dry_run:
        return dry_run(start)

    data = prepare(options, start.tokenizer)
    say(describe_data(data))
    if start.tokenizer:
        warn_of_unknown(data)
    with folder.locked():
        model = start.make_model(data)
        optimizer = options.make_optimizer(model)
        say(f"{model.num_parameters():,} parameters on {options.device}, {options.max_iters:,} steps in {folder.path}/")
        start.begin(optimizer, data)
        with StopRequest() as stop:
            train(options, data, model, optimizer, folder, stop, start.checkpoint)
    if stop.signal and optimizer.steps < options.max_iters:
        say(
            f"\nstopped by {stop.signal.name} after {optimizer.steps:,} steps; saved {folder.last}; go on with:\n"
            f"  python train.py --resume --out_dir {quoted(folder.path)}"
        )
        return stop.exit_status
    say(f'\nNow let it write:\n  python sample.py {quoted(folder.best)} --start "Habe nun, ach!"')
    return 0


def train(
    options: GPTOptions,
    data: TextData,
    model: GPT,
    optimizer: Optimizer,
    folder: RunFolder,
    stop: StopRequest,
    before: Checkpoint | None,
) -> None:
    """The training loop. An update is called step n if n updates were made before it; each happens exactly once."""
    first, last, micro_steps = optimizer.steps, options.max_iters, options.gradient_accumulation_steps
    best_loss, best_step = (before.best_loss, before.best_step) if before else (None, None)
    tokens_per_step = options.batch_size * micro_steps * options.block_size
    # Tokens per second if a step were nothing but matrix products at the rate that the machine can do.
    most = matmul_rate(options.device, options.dtype) / model.config.flops_per_token()
    bar = tqdm(total=last, initial=first, unit="step", file=sys.stderr, dynamic_ncols=True, disable=None)
    busy, logged = 0.0, first  # seconds of training since the last log, and the step of that log
    for step in range(first, last + 1):
        began = time.perf_counter()
        optimizer.zero_grad()
        loss = 0.0
        for micro_step, batch in enumerate(data.micro_batches(step, options.batch_size, micro_steps)):
            with random_key(options.seed, step, micro_step):
                share = model.loss(batch) / micro_steps  # the mean of the means of equal parts is the mean of all
            share.backward()
            loss += share.item()
        grad_norm = optimizer.clip_grad_norm(options.grad_clip)
        # Before saving, and at the end too: a model that gives NaN must not replace the last good checkpoint.
        if not math.isfinite(loss + grad_norm):
            bar.close()
            raise UserError(explain_non_finite(options, data, model, optimizer, step, loss, grad_norm, folder))
        busy += time.perf_counter() - began

        if step % options.eval_interval == 0 or step == last:
            # Save before evaluating: if the evaluation fails, the work is not lost.
            save_checkpoint(folder.last, to_checkpoint(options, data, model, optimizer, best_loss, best_step))
            folder.keep(step, options.keep)
            val_loss = evaluate(options, data, model)
            if best_loss is None or val_loss < best_loss:
                best_loss, best_step = val_loss, step
                save_checkpoint(folder.best, to_checkpoint(options, data, model, optimizer, best_loss, best_step))
            report(options, data, model, folder, step, val_loss, bar)
            if options.patience and step - best_step >= options.patience * options.eval_interval:
                tqdm.write(f"stopped early: no better validation loss since step {best_step:,}", file=sys.stderr)
                break
        if step == last:
            break
        if stop.signal:
            save_checkpoint(folder.last, to_checkpoint(options, data, model, optimizer, best_loss, best_step))
            break

        began = time.perf_counter()
        optimizer.lr = options.learning_rate_at(step)
        optimizer.step()
        busy += time.perf_counter() - began

        bar.update()
        if (step + 1) % options.log_interval == 0 or step + 1 == last:
            speed = tokens_per_step * (step + 1 - logged) / busy
            row = {"loss": loss, "learning_rate": optimizer.lr, "grad_norm": grad_norm}
            folder.log(step=step + 1, **row, tokens_per_second=speed, matmul_share=speed / most)
            bar.set_postfix_str(f"loss {loss:.3f}, lr {optimizer.lr:.2e}, {speed:,.0f} tokens/s, {speed / most:.0%}")
            busy, logged = 0.0, step + 1
    bar.close()


def evaluate(options: GPTOptions, data: TextData, model: GPT) -> float:
    """Mean loss on the held-out text, in nats per token; always the same windows, without dropout."""
    model.eval()
    total, count = 0.0, 0
    with no_grad():
        for ids, targets in data.validation_batches(options.batch_size, options.eval_iters):
            total += model.loss((ids, targets)).item() * targets.numel()
            count += targets.numel()
    model.train()
    return total / count


def report(
    options: GPTOptions, data: TextData, model: GPT, folder: RunFolder, step: int, val_loss: float, bar: tqdm
) -> None:
    """Log an evaluation, and show what the model would write now."""
    bits = data.bits_per_character(val_loss)
    folder.log(step=step, val_loss=val_loss, bits_per_char=bits)
    heading = f"step {step:,}: validation loss {val_loss:.4f} nats per token, {bits:.3f} bits per character"
    tqdm.write(heading, file=sys.stderr)
    if options.sample_tokens:
        text = sample(options, data, model)
        folder.add_sample(heading, text)
        tqdm.write(text + "\n", file=sys.stdout)
        sys.stdout.flush()
    bar.refresh()


def sample(options: GPTOptions, data: TextData, model: GPT) -> str:
    """A short text by the model as it is; the same random numbers each time, so samples can be compared."""
    prompt = data.tokenizer.encode("\n") or [0]
    model.eval()
    log_probs, state = model.start(np.array([prompt]))
    stream = StreamDecoder(data.tokenizer)
    tokens = generate(
        model.step,
        log_probs,
        state,
        max_new_tokens=options.sample_tokens,
        temperature=0.8,
        seed=options.seed,
        forbidden=tuple(data.tokenizer.specials.values()),
    )
    text = "".join(stream.push(int(row[0])) for row in tokens) + stream.finish()
    model.train()
    return text.encode("utf-8", "replace").decode("utf-8").strip()


# --- around the loop ------------------------------------------------------------------------------------------


def describe_data(data: TextData) -> str:
    """One line on the tokens."""
    return (
        f"{data.tokenizer.kind} tokenizer with {data.tokenizer.vocab_size:,} tokens, "
        f"{data.chars_per_token:.2f} characters each; {len(data.train):,} tokens to learn from, "
        f"{len(data.held_out):,} held out"
    )


def to_checkpoint(
    options: GPTOptions,
    data: TextData,
    model: GPT,
    optimizer: Optimizer,
    best_loss: float | None,
    best_step: int | None,
) -> Checkpoint:
    """Everything that the run needs to go on, and sample.py to write."""
    return Checkpoint(
        family="gpt",
        model=model.config.to_json(),
        training=saved_options(options),
        tokenizer=data.tokenizer.to_json(),
        step=optimizer.steps,
        best_loss=best_loss,
        best_step=best_step,
        corpus_sha256=data.corpus.sha256,
        weights=model.state_dict(),
        optimizer=optimizer.state_dict(),
    )


def explain_non_finite(
    options: GPTOptions,
    data: TextData,
    model: GPT,
    optimizer: Optimizer,
    step: int,
    loss: float,
    grad_norm: float,
    folder: RunFolder,
) -> str:
    """Run the step again in the checking mode, and say where the first NaN or infinity arose."""
    reason = "no operation made it when the step was run again"
    broken = [name for name, p in model.named_parameters() if not np.isfinite(p.numpy()).all()]
    if broken:
        reason = f"the update before this step had already broken the parameter {broken[0]}"
    else:
        optimizer.zero_grad()
        batches = data.micro_batches(step, options.batch_size, options.gradient_accumulation_steps)
        try:
            with detect_anomaly():
                for micro_step, batch in enumerate(batches):
                    with random_key(options.seed, step, micro_step):
                        share = model.loss(batch) / options.gradient_accumulation_steps
                    share.backward()
        except NonFiniteError as error:
            reason = str(error)
    advice = "with a smaller --learning_rate or --grad_clip"
    if folder.last.exists():
        advice = f"--resume {advice}: the checkpoints in {folder.path} are from before"
    return f"step {step}: the loss is {loss:g} and the gradient's norm {grad_norm:g}; {reason}; try {advice}"


if __name__ == "__main__":
    run_command("train.py", main)
