"""Train a model: options -> data -> model -> optimizer -> loop, readable from top to bottom.

    python train.py                       the default preset, goethe-char: two minutes on two cores
    python train.py baby-gpt --device cuda
    python train.py --text my.txt         any UTF-8 text
    python train.py --resume              go on where the last run stopped
    python train.py --help                all options

What a model wrote goes to stdout, everything else to stderr.
"""

import math
import sys
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
from tqdm import tqdm

from gpt.config import GPTConfig, GPTOptions
from gpt.data import TextData, prepare
from gpt.model import GPT
from tinygrad_lite.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from tinygrad_lite.console import run_command, say
from tinygrad_lite.device import get_device, random_key, why_no_cuda
from tinygrad_lite.errors import CheckpointError, OptionError, UserError
from tinygrad_lite.functional.registry import set_composed
from tinygrad_lite.optim import Optimizer
from tinygrad_lite.options import build, difference, find_preset, list_presets, parse_command_line, read_preset
from tinygrad_lite.run import RunFolder, StopRequest, tune_memory
from tinygrad_lite.tensor import NonFiniteError, detect_anomaly, no_grad
from tinygrad_lite.text.decoding import generate
from tinygrad_lite.text.tokenizer import StreamDecoder, Tokenizer

PRESETS = Path(__file__).parent / "presets"
DEFAULT_PRESET = "goethe-char"
# These say where a run reads and writes and how it starts, not what it computes: no checkpoint holds them.
NOT_SAVED = {"out_dir", "init_from", "overwrite", "dry_run", "text"}
# These decide which weights there are: a run that goes on cannot change them.
FIXED = {"n_layer", "n_head", "n_embd", "block_size", "bias", "positions", "tokenizer", "vocab_size", "dtype"}


def main(argv: list[str]) -> int:
    """Run the command line and return the exit status."""
    tune_memory()
    np.seterr(all="ignore")  # the loop looks for NaN and infinity itself, and says where they came from
    # Whatever a model writes can be printed, on every terminal and into every pipe.
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")
    options, checkpoint, folder = read_options(argv)
    set_composed(options.composed)
    if options.dry_run:
        return dry_run(options, checkpoint)

    data = prepare(options, Tokenizer.from_json(checkpoint.tokenizer) if checkpoint else None)
    say(describe_data(data))
    with folder.locked():
        model = make_model(options, data, checkpoint)
        optimizer = options.make_optimizer(model)
        say(f"{model.num_parameters():,} parameters on {options.device}, {options.max_iters:,} steps in {folder.path}/")
        if checkpoint:
            restore(optimizer, checkpoint, data, folder)
            folder.note_options(to_note(options))
        else:
            folder.begin(to_note(options))
        with StopRequest() as stop:
            train(options, data, model, optimizer, folder, stop, checkpoint.best_loss if checkpoint else None)

    if optimizer.steps == options.max_iters:
        say(f'\nNow let it write:\n  python sample.py {folder.best} --start "Habe nun, ach!"')
        return 0
    say(f"\nstopped by {stop.signal.name} after {optimizer.steps:,} steps; saved {folder.last}; go on with --resume")
    return stop.exit_status


def train(
    options: GPTOptions,
    data: TextData,
    model: GPT,
    optimizer: Optimizer,
    folder: RunFolder,
    stop: StopRequest,
    best_loss: float | None,
) -> None:
    """The training loop. An update is called step n if n updates were made before it; each happens exactly once."""
    first, last, micro_steps = optimizer.steps, options.max_iters, options.gradient_accumulation_steps
    tokens_per_step = options.batch_size * micro_steps * options.block_size
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
            save_checkpoint(folder.last, to_checkpoint(options, data, model, optimizer, best_loss))
            val_loss = evaluate(options, data, model)
            if best_loss is None or val_loss < best_loss:
                best_loss = val_loss
                save_checkpoint(folder.best, to_checkpoint(options, data, model, optimizer, best_loss))
            report(options, data, model, folder, step, val_loss, bar)
        if step == last:
            break
        if stop.signal:
            save_checkpoint(folder.last, to_checkpoint(options, data, model, optimizer, best_loss))
            break

        began = time.perf_counter()
        optimizer.lr = options.learning_rate_at(step)
        optimizer.step()
        busy += time.perf_counter() - began

        bar.update()
        if (step + 1) % options.log_interval == 0 or step + 1 == last:
            speed = tokens_per_step * (step + 1 - logged) / busy
            row = {"loss": loss, "learning_rate": optimizer.lr, "grad_norm": grad_norm, "tokens_per_second": speed}
            folder.log(step=step + 1, **row)
            bar.set_postfix_str(f"loss {loss:.3f}, lr {optimizer.lr:.2e}, {speed:,.0f} tokens/s")
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
    tqdm.write(
        f"step {step:,}: validation loss {val_loss:.4f} nats per token, {bits:.3f} bits per character", file=sys.stderr
    )
    if options.sample_tokens:
        tqdm.write(sample(options, data, model) + "\n", file=sys.stdout)
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


# --- before the loop ------------------------------------------------------------------------------------------


def read_options(argv: list[str]) -> tuple[GPTOptions, Checkpoint | None, RunFolder]:
    """What to do: defaults, then the preset (or, to resume, the checkpoint's settings), then the command line."""
    presets = list_presets(PRESETS)
    parsed = parse_command_line(
        GPTOptions,
        argv,
        prog="train.py",
        description="Train a GPT on text. Without options: the preset goethe-char.",
        epilog="Presets:\n" + "\n".join(f"  {name:<12} {about}" for name, about in presets.items()),
        positional="preset",
        aliases={"resume": ["--init_from", "resume"]},
        ignored=dict.fromkeys(
            ("compile", "wandb_log", "wandb_project", "wandb_run_name", "backend"), "this project has no such thing"
        ),
    )
    for note in parsed.notes:
        say(f"note: {note}")
    preset = parsed.positional or DEFAULT_PRESET
    base = (f"preset {preset}", read_preset(find_preset(PRESETS, preset)))
    given = ("command line", parsed.values)
    options = build(GPTOptions, base, given)
    folder = RunFolder(options.out_dir or Path("out") / preset)
    checkpoint = None
    if options.init_from == "resume":
        checkpoint = load_checkpoint(folder.last)
        options = resumed_options(checkpoint, parsed.values, folder)
    elif options.init_from != "scratch":
        raise OptionError(f"--init_from {options.init_from}: use 'scratch' or 'resume'")
    elif not options.overwrite and not options.dry_run:
        folder.refuse_if_used()
    if options.device == "auto":
        options.device = get_device("auto").name
        say(f"--device auto takes {options.device}" + (f" ({why_no_cuda()})" if options.device == "cpu" else ""))
    get_device(options.device)
    if checkpoint is None:
        options.model_config(2)  # refuse impossible sizes before any data is fetched
    return options, checkpoint, folder


def resumed_options(checkpoint: Checkpoint, given: dict, folder: RunFolder) -> GPTOptions:
    """The settings of the run that goes on, with what the command line changes; prints the changes."""
    before = build(GPTOptions, (f"checkpoint {folder.last}", checkpoint.training))
    # The checkpoint holds no path; which files the text was in, options.json says.
    text = {} if {"text", "dataset"} & given.keys() else {"text": folder.noted_options().get("text", [])}
    options = build(
        GPTOptions,
        (f"checkpoint {folder.last}", checkpoint.training),
        (str(folder.options), text),
        ("command line", given),
    )
    for name in sorted(FIXED & given.keys()):
        old, new = getattr(before, name), getattr(options, name)
        if old != new:
            raise OptionError(
                f"cannot resume with --{name} {new}: the run in {folder.path} has {old}, and its weights fit nothing "
                "else; start another run with another --out_dir"
            )
    for line in difference(checkpoint.training, saved_options(options)):
        say(f"changed: {line}")
    if options.max_iters < checkpoint.step:
        raise OptionError(
            f"--max_iters {options.max_iters}: the run in {folder.path} has already made {checkpoint.step} steps"
        )
    return options


def make_model(options: GPTOptions, data: TextData, checkpoint: Checkpoint | None) -> GPT:
    """A new model whose weights depend on the seed only, or the one that the checkpoint holds."""
    if checkpoint:
        model = GPT.from_checkpoint(checkpoint, options.device, options.dropout)
        if model.config != options.model_config(data.tokenizer.vocab_size):
            raise CheckpointError("the checkpoint's model is not the one that its tokenizer and settings describe")
        return model
    with random_key(options.seed):
        model = GPT(options.model_config(data.tokenizer.vocab_size))
    model.to(options.device, np.dtype(options.dtype))
    return model


def restore(optimizer: Optimizer, checkpoint: Checkpoint, data: TextData, folder: RunFolder) -> None:
    """Make the optimizer what it was, and say what is not as it was."""
    try:
        optimizer.load_state_dict(checkpoint.optimizer, checkpoint.step)
    except ValueError as error:
        raise OptionError(f"cannot resume from {folder.last}: {error}; was --optimizer changed?") from None
    if data.corpus.sha256 != checkpoint.corpus_sha256:
        say("warning: the text is not the one that this run learned from so far")
    folder.rewind_metrics(checkpoint.step)
    say(f"resuming after {checkpoint.step:,} steps")


def saved_options(options: GPTOptions) -> dict:
    """The settings that a checkpoint holds."""
    return {name: value for name, value in asdict(options).items() if name not in NOT_SAVED}


def to_note(options: GPTOptions) -> dict:
    """The settings for options.json, with whole paths, so that --resume finds the text from any folder."""
    return {**asdict(options), "text": [str(Path(path).resolve()) for path in options.text]}


def to_checkpoint(
    options: GPTOptions, data: TextData, model: GPT, optimizer: Optimizer, best_loss: float | None
) -> Checkpoint:
    """Everything that the run needs to go on, and sample.py to write."""
    return Checkpoint(
        family="gpt",
        model=model.config.to_json(),
        training=saved_options(options),
        tokenizer=data.tokenizer.to_json(),
        step=optimizer.steps,
        best_loss=best_loss,
        corpus_sha256=data.corpus.sha256,
        weights=model.state_dict(),
        optimizer=optimizer.state_dict(),
    )


def describe_data(data: TextData) -> str:
    """One line on the tokens."""
    return (
        f"{data.tokenizer.kind} tokenizer with {data.tokenizer.vocab_size:,} tokens, "
        f"{data.chars_per_token:.2f} characters each; {len(data.train):,} tokens to learn from, "
        f"{len(data.held_out):,} held out"
    )


def dry_run(options: GPTOptions, checkpoint: Checkpoint | None) -> int:
    """Print what a run would be: size, memory, tokens per step, schedule. Reads no text and writes nothing."""
    vocab_size, about = options.vocab_size, ""
    if checkpoint:
        vocab_size = GPTConfig.from_json(checkpoint.model).vocab_size
    elif options.tokenizer == "char":
        vocab_size, about = 100, " with 100 different characters; the text decides"
    elif options.tokenizer == "byte":
        vocab_size = 256
    config = options.model_config(vocab_size)
    parameters, numbers = config.num_parameters(), config.activations(options.batch_size)
    bytes_each, mib = np.dtype(options.dtype).itemsize, 1 / 2**20
    factors = [f"{options.batch_size} sequences", f"{options.block_size} tokens"]
    if options.gradient_accumulation_steps > 1:
        factors.insert(0, f"{options.gradient_accumulation_steps} micro-steps")
    tokens = options.batch_size * options.gradient_accumulation_steps * options.block_size
    say(f"parameters       {parameters:,}{about}")
    say(f"memory           {4 * parameters * bytes_each * mib:,.0f} MiB weights, gradients and two moments")
    say(f"                 {numbers * bytes_each * mib:,.0f} MiB activations of one micro-step, about")
    say(f"tokens per step  {tokens:,} = {' x '.join(factors)}")
    say(f"steps            {options.max_iters:,}, evaluation every {options.eval_interval:,}")
    say("learning rate    step: rate")
    for step in sorted({0, options.warmup_iters, *(options.max_iters * i // 4 for i in range(5))}):
        say(f"{step:>19,}: {options.learning_rate_at(step):.3g}")
    return 0


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
    return (
        f"step {step}: the loss is {loss:g} and the gradient's norm {grad_norm:g}; {reason}. The checkpoints in "
        f"{folder.path} are from before; try --resume with a smaller --learning_rate or --grad_clip"
    )


if __name__ == "__main__":
    run_command("train.py", main)
