"""Estimates of a run's memory and time: before it starts (--dry_run), and in the error when memory runs out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tinygrad_lite.cli.console import say
from tinygrad_lite.cli.errors import TooLittleMemory
from tinygrad_lite.device import get_device
from tinygrad_lite.training.model_spec import Task, Trained
from tinygrad_lite.training.run_folder import matmul_rate
from tinygrad_lite.training.setup import RunSetup
from tinygrad_lite.training.workers import Program, start_processes

FULL = re.compile("ALLOC_FAILED|OUT_OF_MEMORY|cudaErrorMemoryAllocation")  # messages of CUDA's libraries
# Messages of CuPy and NumPy: "allocating 2,000,000,000 bytes", "allocate 4.0 GiB".
ASKED_FOR = re.compile(r"allocating ([\d,]+) bytes|allocate ([\d.]+) (bytes|[KMGTPE]iB)")
TOO_LONG = 20.0  # seconds; a step that takes longer is not measured


@dataclass(frozen=True)
class Size:
    """The size of a training run.

    Attributes:
        about: a caveat about the number of parameters, or empty.
        parameters: number of parameters.
        kept: bytes that are in use from beginning to end, and their purpose.
        activations: estimate of the bytes that a micro-step keeps for its backward pass.
        tokens: number of tokens of a training step, and its factors.
        products: floating-point operations of a step's matrix products.
    """

    about: str
    parameters: int
    kept: tuple[int, str]
    activations: int
    tokens: tuple[int, str]
    products: int


def size_of(setup: RunSetup) -> Size:
    """The size of a run according to its settings, and to its text once that has been read."""
    options, about = setup.options, ""
    vocab_size = options.vocab_size
    if setup.vocab_size:
        vocab_size = setup.vocab_size
    elif setup.tokenizer:
        vocab_size = setup.tokenizer.vocab_size
    elif options.tokenizer == "char":
        vocab_size, about = 100, " with 100 different characters; the actual number depends on the text"
    elif options.tokenizer == "byte":
        vocab_size = 256
    config = options.model_config(vocab_size)
    model = setup.family.model.blueprint(config)
    parameters, bytes_each = model.num_parameters(), options.weight_dtype.itemsize
    moments, workers = (1, "one moment") if options.optimizer == "sgd" else (2, "two moments"), options.workers
    gradients = "gradients" if workers == 1 else f"gradients of {workers} workers"
    kept = (1 + workers + moments[0]) * parameters * bytes_each, f"weights, {gradients} and {moments[1]}"
    numbers, tokens, factors = options.sizes(config)
    activations = numbers * (2 if options.dtype == "bfloat16" else bytes_each)
    return Size(about, parameters, kept, activations, (tokens, factors), tokens * model.flops_per_token())


def dry_run(setup: RunSetup, measure: Program) -> int:
    """Print a run's parameters, memory, tokens per step, schedule and time. Fetches nothing and writes nothing."""
    task = setup.make_task() if setup.options.is_at_hand() else None
    options, size = setup.options, size_of(setup)
    (kept, what), (tokens, factors), mib = size.kept, size.tokens, 1 / 2**20
    say(f"parameters       {size.parameters:,}{size.about}")
    say(f"memory           {kept * mib:,.0f} MiB {what}")
    say(f"                 {size.activations * mib:,.0f} MiB activations of one micro-step, about")
    say(f"tokens per step  {tokens:,} = {factors}")
    say(f"matrix products  {size.products / 1e9:,.1f} GFLOP per step")
    say(f"steps            {options.max_iters:,}, evaluation every {options.eval_interval:,}")
    say("learning rate    step: rate")
    for step in sorted({0, options.warmup_iters, *(options.max_iters * i // 4 for i in range(5))}):
        say(f"{step:>19,}: {options.learning_rate_at(step):.3g}")
    say(f"time             {time_of(setup, task, size, measure)}")
    return 0


def time_of(setup: RunSetup, task: Task | None, size: Size, measure: Program) -> str:
    """The time of a run in words: measured in a few steps, or else a lower bound.

    Args:
        task: None if the text is not on this computer.
        measure: a program that makes a few steps and returns the seconds of a step and of an evaluation.
    """
    options = setup.options
    steps = options.max_iters - (setup.checkpoint.step if setup.checkpoint else 0)
    products = size.products / matmul_rate(options.device, options.dtype)
    free, reason = free_memory(options.device), ""
    if task is None:
        reason = f"{options.dataset} is not in the cache yet"
    elif products > TOO_LONG:
        reason = f"a step takes {duration(products)} or more"
    elif free and size.kept[0] + size.activations > free:
        reason = f"only {amount(free)} of memory is free"
    if reason:
        return f"at least {duration(steps * products)} for the matrix products alone; not measured, because {reason}"
    model = setup.make_model(task.tokenizer)
    optimizer = options.make_optimizer(model)
    with start_processes(measure, options, task, model, optimizer) as comm:
        step, evaluation = measure(options, task, model, optimizer, comm)
    evaluations = 1 + -(-steps // options.eval_interval)
    return (
        f"about {duration(steps * step + evaluations * evaluation)}: {steps:,} steps of {step * 1e3:,.0f} ms and "
        f"{evaluations:,} evaluations of {duration(evaluation)}, plus samples and checkpoints"
    )


def duration(seconds: float) -> str:
    """A time in a suitable unit.

    >>> duration(0.4), duration(99), duration(9000), duration(1e6)
    ('0.4 s', '99 s', '2.5 h', '11.6 days')
    """
    for unit, length in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


def free_memory(device: str) -> int | None:
    """The free memory of a device in bytes; None if unknown."""
    if room := get_device(device).memory():
        return room[0]
    try:  # Linux
        facts = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        return None
    found = re.search(r"^MemAvailable: +(\d+) kB$", facts, re.MULTILINE)
    return int(found[1]) * 1024 if found else None


# --- when memory runs out ---------------------------------------------------------------------------------------


def is_shortage(error: Exception) -> bool:
    """Whether an error means that memory ran out: a MemoryError, or an error of cuBLAS or the driver."""
    return isinstance(error, MemoryError) or bool(FULL.search(str(error)))


def too_little_to_train(setup: RunSetup, error: Exception) -> TooLittleMemory:
    """The error for a training run: the memory that it needs, and the options that reduce it."""
    options, size = setup.options, size_of(setup)
    advice = [f"a smaller --{options.BATCH} (with more --gradient_accumulation_steps an update stays the same)"]
    if setup.checkpoint is None and setup.trained is None:
        advice += ["a shorter --block_size", "a smaller model (--n_layer, --n_embd)"]
    if options.device == "cuda" and options.dtype != "bfloat16":
        advice.append("--dtype bfloat16")
    if options.workers > 1:
        advice.append("--workers 1")
    if options.composed:
        advice.append("the fused operations (without --composed)")
    kept, what = size.kept
    saved = not options.profile and setup.folder.last.exists()
    return TooLittleMemory(
        f"{shortage(error, options.device)}; {what} take {amount(kept)}, the activations of a micro-step about "
        f"{amount(size.activations)}: use {' or '.join(advice)}"
        + (f"; {setup.folder.last} is intact: --resume continues from there" if saved else "")
    )


def too_little_to_sample(trained: Trained, device: str, beam: int, error: Exception) -> TooLittleMemory:
    """The error for sampling: the memory that it needs, and the options of sample.py that reduce it."""
    config, arrays = trained.config, list(trained.weights.values())
    weights = sum(array.nbytes for array in arrays)
    cache = 2 * config.n_layer * config.block_size * config.cached_width * arrays[0].itemsize
    advice = ["a smaller --beam"] if beam else []
    advice += ["a shorter prompt", "--use_cache=False, which is slow"]
    advice += ["--device cpu"] if device == "cuda" else ["a smaller model"]
    return TooLittleMemory(
        f"{shortage(error, device)}; the weights take {amount(weights)}, keys and values up to {amount(cache)}"
        f"{' for each hypothesis' if beam else ''}: use {' or '.join(advice)}"
    )


def shortage(error: Exception, device: str) -> str:
    """The amount of memory that could not be allocated, and what the device has."""
    asked, room = ASKED_FOR.search(str(error)), get_device(device).memory()
    more = "more"
    if asked:
        more = amount(int(asked[1].replace(",", ""))) if asked[1] else f"{asked[2]} {asked[3]}"
    said = f"there is not enough memory on the {'GPU' if device == 'cuda' else 'computer'}: {more} was requested"
    return said + (f", {amount(room[0])} of its {amount(room[1])} is free" if room else "")


def amount(count: int) -> str:
    """A number of bytes in a suitable unit.

    >>> amount(300 << 20), amount(5 << 29)
    ('300 MiB', '2.5 GiB')
    """
    return f"{count / 2**20:,.0f} MiB" if count < 2**30 else f"{count / 2**30:,.1f} GiB"
