"""How large a run is: on paper before it starts, and in one sentence when the memory is too small for it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from tinygrad_lite.console import say
from tinygrad_lite.device import get_device
from tinygrad_lite.errors import TooLittleMemory
from tinygrad_lite.family import Trained
from tinygrad_lite.start import Start

# What CuPy and NumPy say: "allocating 2,000,000,000 bytes", "allocate 4.0 GiB".
FULL = re.compile("ALLOC_FAILED|OUT_OF_MEMORY|cudaErrorMemoryAllocation")  # what libraries of CUDA say
ASKED_FOR = re.compile(r"allocating ([\d,]+) bytes|allocate ([\d.]+) (bytes|[KMGTPE]iB)")


@dataclass(frozen=True)
class Size:
    """What a training run takes.

    Attributes:
        config: the settings of its model.
        about: what is not known about it yet.
        parameters: the numbers to learn.
        kept: bytes that it takes from beginning to end, and what for.
        activations: bytes, about, that a micro-step keeps for its backward pass.
        tokens: of a training step, and how these come about.
    """

    config: Any
    about: str
    parameters: int
    kept: tuple[int, str]
    activations: int
    tokens: tuple[int, str]


def size_of(start: Start) -> Size:
    """What a run takes, as its settings say; and its text, once that has been read."""
    options, about = start.options, ""
    vocab_size = options.vocab_size
    if start.vocab_size:
        vocab_size = start.vocab_size
    elif start.tokenizer:
        vocab_size = start.tokenizer.vocab_size
    elif options.tokenizer == "char":
        vocab_size, about = 100, " with 100 different characters; the text decides"
    elif options.tokenizer == "byte":
        vocab_size = 256
    config = options.model_config(vocab_size)
    parameters, bytes_each = config.num_parameters(), options.weight_dtype.itemsize
    moments, workers = (1, "one moment") if options.optimizer == "sgd" else (2, "two moments"), options.workers
    gradients = "gradients" if workers == 1 else f"gradients of {workers} workers"
    kept = (1 + workers + moments[0]) * parameters * bytes_each, f"weights, {gradients} and {moments[1]}"
    numbers, tokens, factors = options.sizes(config)
    activations = numbers * (2 if options.dtype == "bfloat16" else bytes_each)
    return Size(config, about, parameters, kept, activations, (tokens, factors))


def dry_run(start: Start) -> int:
    """Print what a run would be: size, memory, tokens per step, schedule. Reads no text and writes nothing."""
    options, size = start.options, size_of(start)
    (kept, what), (tokens, factors), mib = size.kept, size.tokens, 1 / 2**20
    say(f"parameters       {size.parameters:,}{size.about}")
    say(f"memory           {kept * mib:,.0f} MiB {what}")
    say(f"                 {size.activations * mib:,.0f} MiB activations of one micro-step, about")
    say(f"tokens per step  {tokens:,} = {factors}")
    say(f"matrix products  {tokens * size.config.flops_per_token() / 1e9:,.1f} GFLOP per step")
    say(f"steps            {options.max_iters:,}, evaluation every {options.eval_interval:,}")
    say("learning rate    step: rate")
    for step in sorted({0, options.warmup_iters, *(options.max_iters * i // 4 for i in range(5))}):
        say(f"{step:>19,}: {options.learning_rate_at(step):.3g}")
    return 0


# --- when memory runs out ---------------------------------------------------------------------------------------


def is_shortage(error: Exception) -> bool:
    """Whether an error means that memory ran out: for arrays a MemoryError, for cuBLAS and the driver one of theirs."""
    return isinstance(error, MemoryError) or bool(FULL.search(str(error)))


def too_little_to_train(start: Start, error: Exception) -> TooLittleMemory:
    """What a training run would have needed, and which of its options make it need less."""
    options, size = start.options, size_of(start)
    advice = [f"a smaller --{options.BATCH} (with more --gradient_accumulation_steps an update stays the same)"]
    if start.checkpoint is None and start.trained is None:
        advice += ["a shorter --block_size", "a smaller model (--n_layer, --n_embd)"]
    if options.device == "cuda" and options.dtype != "bfloat16":
        advice.append("--dtype bfloat16")
    if options.workers > 1:
        advice.append("--workers 1")
    if options.composed:
        advice.append("the fused operations (without --composed)")
    kept, what = size.kept
    saved = not options.profile and start.folder.last.exists()
    return TooLittleMemory(
        f"{shortage(error, options.device)}; {what} take {amount(kept)}, the activations of a micro-step about "
        f"{amount(size.activations)}: take {' or '.join(advice)}"
        + (f"; {start.folder.last} is intact: --resume goes on from there" if saved else "")
    )


def too_little_to_sample(trained: Trained, device: str, beam: int, error: Exception) -> TooLittleMemory:
    """What writing with a model would have needed, and which options of sample.py make it need less."""
    config, arrays = trained.config, list(trained.weights.values())
    weights = sum(array.nbytes for array in arrays)
    cache = 2 * config.n_layer * config.block_size * config.n_embd * arrays[0].itemsize
    advice = ["a smaller --beam"] if beam else []
    advice += ["a shorter text to begin with", "--use_cache=False, which is slow"]
    advice += ["--device cpu"] if device == "cuda" else ["a smaller model"]
    return TooLittleMemory(
        f"{shortage(error, device)}; the weights take {amount(weights)}, keys and values up to {amount(cache)}"
        f"{' for each hypothesis' if beam else ''}: take {' or '.join(advice)}"
    )


def shortage(error: Exception, device: str) -> str:
    """How much was asked for when there was no more, and what the device has."""
    asked, room = ASKED_FOR.search(str(error)), get_device(device).memory()
    more = "more"
    if asked:
        more = amount(int(asked[1].replace(",", ""))) if asked[1] else f"{asked[2]} {asked[3]}"
    said = f"there is not enough memory on the {'GPU' if device == 'cuda' else 'computer'}: {more} was asked for"
    return said + (f", {amount(room[0])} of its {amount(room[1])} are free" if room else "")


def amount(count: int) -> str:
    """A number of bytes as people read it.

    >>> amount(300 << 20), amount(5 << 29)
    ('300 MiB', '2.5 GiB')
    """
    return f"{count / 2**20:,.0f} MiB" if count < 2**30 else f"{count / 2**30:,.1f} GiB"
