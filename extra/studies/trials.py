"""What train.py does instead of training: estimate what a run costs (--dry_run), or time its operations (--profile).

An estimate has parameters by part, memory, operations, time and energy. Only matrix products are counted as operations:
they are nearly all the work of a large model. docs/extra/costs.md explains the numbers.
"""

from __future__ import annotations

import functools
import math
import time
import timeit
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from extra.corpora import pictures, reviews
from extra.corpora.packages import are_pinned
from extra.studies.profiler import Profile
from extra.studies.sizes import Published, published_of
from tinygrad_lite.adapt import counts, sizes
from tinygrad_lite.device import device_of, get_device
from tinygrad_lite.errors import counted
from tinygrad_lite.nn import Module
from tinygrad_lite.precision import bfloat16
from tinygrad_lite.random import keyed_rng
from training.cli.console import say, show
from training.corpora import pairs, texts
from training.estimate import Size, cache_bytes, size_of
from training.options import TrainOptions
from training.processes.processes import Program
from training.task import Task

if TYPE_CHECKING:
    from extra.setup import ShelfSetup

PROFILED, MEASURED = 10, 5  # training steps, for --profile and for --dry_run
WARM_UP = {"cpu": 1, "cuda": 5}  # steps; on a GPU the third or fourth is recorded (cuda/graph.py), the fifth replayed
LONG = 2.0  # seconds: if a step takes longer, --dry_run measures only one
TOO_LONG = 20.0  # seconds; a step that takes longer is not measured
LARGE = {"cpu": 1024, "cuda": 8192}  # rows and columns of a matrix whose products run at full speed
JOULES = 3.6e6  # in a kilowatt-hour
# The part to which a parameter belongs: the first whose word is in its name, such as blocks.0.mixer.query.weight.
PARTS = {
    "lora_": "adapters",
    "norm": "norms",
    "mlp": "feed-forward",
    "cross": "attention to the source",
    "mixer": "attention",
    "token_embedding": "token embedding",
    "position": "position embedding",
    "lm_head": "output matrix",
}


def in_processes(setup: ShelfSetup, task: Task, program: Program) -> tuple[Any, int]:
    """What a program returns in process 0 of a run, and how many processes there are."""
    model = setup.make_model(task.tokenizer)
    optimizer = setup.options.make_optimizer(model)
    with setup.processes(program, task, model, optimizer) as comm:
        return program(setup.options, task, model, optimizer, comm), comm.size


# --- the operations of a step -------------------------------------------------------------------------------


def profile(options: TrainOptions, *run: Any) -> tuple[float, str]:
    """Time the operations of a training step; returns its seconds, and tables of the operations in process 0.

    Args:
        run: task, model, optimizer and communication, as for `only_updates`.
    """
    from train import only_updates  # which imports this module

    _, _, optimizer, comm = run
    with Profile() as first:  # this step warms up: only its shapes count
        only_updates(replace(options, max_iters=1), *run)
    with Profile(device_of(optimizer.memory.values.data).synchronize) as measured:
        for step in range(1, 1 + PROFILED):
            only_updates(replace(options, max_iters=1 + step), *run)
            measured.note("(sums, clipping, update)")
    return max(comm.gather(measured.seconds)) / PROFILED, f"{measured.table(PROFILED)}\n\n{first.shapes()}"


def show_profile(setup: ShelfSetup) -> int:
    """Print the time and memory of each operation of a training step, without training."""
    (seconds, table), processes = in_processes(setup, setup.make_task(), profile)
    options, size = setup.options, size_of(setup)
    rate = matmul_rate(options.device, options.dtype)
    operations = products_of(options, size.model)
    count = f"{tokens_per_step(options)[0]:,} {options.COUNTED[1].split()[-1]}s"
    show(f"operations of one training step in process 0 of {processes}:\n\n{table}\n")
    show(f"{seconds * 1e3:.1f} ms for {count}; its matrix products, {operations / 1e9:.2f} GFLOP,")
    show(f"would take {operations / rate * 1e3:.1f} ms at the {rate / 1e9:.0f} GFLOP/s that one large product reaches")
    show(f"here: {operations / rate / seconds:.0%} of the step")
    return 0


# --- the cost of a run ---------------------------------------------------------------------------------------


def dry_run(setup: ShelfSetup) -> int:
    """Print what a run would take. Fetches nothing and writes nothing."""
    task = setup.make_task() if setup.size is None and are_at_hand(setup.options) else None
    options, size = setup.options, size_of(setup)
    (kept, what), (learned, parameters), products = size.kept, counts(size.model), products_of(options, size.model)
    guessed = options.tokenizer == "char" and not setup.vocab_size and not setup.tokenizer
    about = " with 100 different characters; the actual number depends on the text" if guessed else ""
    say(f"parameters       {parameters:,}{about}")
    for part, count in parameters_by_part(size.model).items():
        say(f"{count:>32,} {count / parameters:>6.1%}  {part}")
    if learned < parameters:
        say(f"trained          {learned:,}, {100 * learned / parameters:.2g} % of them")
    config, load = size.model.config, [quantity(width * parameters, "B") for width in (2, 4)]
    cached = quantity(cache_bytes(config, options.weight_dtype.itemsize), "B")
    say(f"memory to load   {load[0]} in 16 bits, {load[1]} in 32 bits")
    say(f"memory to train  {quantity(kept, 'B')} {what}")
    say(f"                 {quantity(size.activations, 'B')} activations of one micro-step, about")
    sampled = f"{quantity(size.weights, 'B')} weights, and {cached} keys and values"
    say(f"memory to sample {sampled} of {counted(config.block_size, 'token')}")
    say("tokens per step  {:,} = {}".format(*tokens_per_step(options)))
    per_token, total = size.model.flops_per_token(), options.max_iters * products
    forward = ", a third of it forward" if learned == parameters else ""
    say(f"matrix products  {quantity(per_token, 'FLOP')} per {options.COUNTED[1]}{forward}")
    say(f"                 {quantity(products, 'FLOP')} per step, {total:.2g} FLOP in the whole training")
    say(f"steps            {options.max_iters:,}, evaluation every {options.eval_interval:,}")
    say("learning rate    step: rate")
    for step in sorted({0, options.warmup_iters, *(options.max_iters * i // 4 for i in range(5))}):
        say(f"{step:>19,}: {options.learning_rate_at(step):.3g}")
    seconds, words = time_of(setup, task, size)
    say(f"time             {words}")
    if options.watts:
        say(f"energy           {energy(seconds, options.watts)} at {options.watts:g} W")
    if setup.size and (published := published_of(setup.size)):
        say(f"published        {compared(published, total)}")
    return 0


def are_at_hand(options: TrainOptions) -> bool:
    """Whether the data of a run can be read, or be refused, without a network."""
    is_own = any(getattr(options, name, None) for name in ("text", "table", "pairs", "src"))
    needed = None if is_own else options.dataset, getattr(options, "replay", None)
    return all(is_at_hand(name) for name in needed if name)


def is_at_hand(name: str) -> bool:
    """The same for data with a name."""
    packed = {other: recipe.files for other, recipe in pictures.RECIPES.items()} | {"reviews": [reviews.FILE]}
    if name in packed:
        return are_pinned(packed[name])
    is_free = name == texts.PYTHON_DOCS or name not in texts.RECIPES | pairs.RECIPES or texts.local_file(name)
    source = pairs if name in pairs.RECIPES else texts
    return bool(is_free) or source.from_cache(name, lambda line: None) is not None


def tokens_per_step(options: TrainOptions) -> tuple[int, str]:
    """The number of tokens of a training step, and its factors in words."""
    steps = options.gradient_accumulation_steps
    factors = [(steps, "micro-steps")] * (steps > 1) + options.factors()
    return math.prod(n for n, _ in factors), " x ".join(f"{n} {unit}" for n, unit in factors)


def products_of(options: TrainOptions, model: Module) -> int:
    """The floating-point operations of the matrix products of a training step."""
    return tokens_per_step(options)[0] // options.COUNTED[0] * model.flops_per_token()


def compared(published: Published, counted: float) -> str:
    """The published operations of a training run next to those that are counted here."""
    lines = [
        f"{published.operations:.2g} FLOP = {published.how} x {published.capacity / 1e12:g} TFLOP/s",
        "which is time x capacity, what the hardware could have computed; the matrix products",
        f"counted above are {counted / published.operations:.0%} of it ({published.source})",
    ]
    if published.watts:
        lines.append(f"{energy(published.hours * 3600, published.watts)} at {published.watts:g} W each")
    return f"\n{'':17}".join(lines)


def parameters_by_part(model: Module) -> dict[str, int]:
    """The number of parameters in each part of a model, tied ones counted once; the largest part first."""
    counts: Counter[str] = Counter()
    for name, count in sizes(model).items():
        counts[next((part for word, part in PARTS.items() if word in name), "other")] += count
    return dict(counts.most_common())


def time_of(setup: ShelfSetup, task: Task | None, size: Size) -> tuple[float, str]:
    """The time of a run in seconds, and in words: measured in a few steps, or else a lower bound.

    Args:
        task: None if the text is not on this computer.
    """
    options = setup.options
    steps = options.max_iters - (setup.checkpoint.step if setup.checkpoint else 0)
    rate = options.flops_per_second or matmul_rate(options.device, options.dtype)
    products, speed = products_of(options, size.model) / rate, quantity(rate, "FLOP/s")
    least = f"{duration(steps * products)} for the matrix products"
    free = free_memory(options.device)
    if options.flops_per_second:
        return steps * products, f"{least} at {speed}"
    reasons = {
        "it is not trained here": setup.size,
        f"{options.dataset} is not in the cache yet": task is None,
        f"a step takes {duration(products)} or more": products > TOO_LONG,
        f"only {quantity(free or 0, 'B')} of memory is free": free and size.kept[0] + size.activations > free,
    }
    if reason := next((reason for reason, holds in reasons.items() if holds), ""):
        bound = f"at least {least} alone, at the {speed} that one large product reaches here"
        return steps * products, f"{bound}; not measured, because {reason}"
    (step, evaluation), _ = in_processes(setup, task, measure)
    evaluations = 1 + -(-steps // options.eval_interval)
    seconds = steps * step + evaluations * evaluation
    steps_made = f"{counted(steps, 'step')} of {step * 1e3:,.0f} ms"
    evaluated = f"{counted(evaluations, 'evaluation')} of {duration(evaluation)}"
    return seconds, f"about {duration(seconds)}: {steps_made} and {evaluated}, plus samples and checkpoints"


def measure(options: TrainOptions, *run: Any) -> tuple[float, float]:
    """Seconds per training step, averaged over a few steps, and seconds per evaluation, without its samples.

    Args:
        run: task, model, optimizer and communication, as for `only_updates`.
    """
    from train import evaluate, only_updates  # which imports this module

    (task, model, _, comm), first = run, WARM_UP[options.device]
    started = time.perf_counter()
    only_updates(replace(options, max_iters=first), *run)
    began = time.perf_counter()
    steps = 1 if max(comm.gather(began - started)) > first * LONG else MEASURED  # all processes make as many
    only_updates(replace(options, max_iters=first + steps), *run)
    evaluated = time.perf_counter()
    evaluate(task, model, comm)
    return (evaluated - began) / steps, time.perf_counter() - evaluated


def duration(seconds: float) -> str:
    """A time in a suitable unit.

    >>> duration(0.4), duration(99), duration(9000), duration(1e6), duration(1e14)
    ('0.4 s', '99 s', '2.5 h', '11.6 days', '3,168,809 years')
    """
    for unit, length in (("years", 365.25 * 86400), ("days", 86400), ("h", 3600), ("min", 60)):
        if (count := seconds / length) >= 2:
            return f"{count:,.0f} {unit}" if count >= 1000 else f"{count:.1f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


def quantity(number: float, unit: str) -> str:
    """A number of bytes or operations with a decimal prefix, as memory and rates are quoted: 1 GB is 10^9 bytes.

    >>> quantity(70e9 * 2, "B"), quantity(999.6e9, "FLOP"), quantity(12, "B")
    ('140 GB', '1 TFLOP', '12 B')
    """
    for prefix, factor in (("E", 1e18), ("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= 0.9995 * factor:
            return f"{number / factor:.3g} {prefix}{unit}"
    return f"{number:.3g} {unit}"


def energy(seconds: float, watts: float) -> str:
    """The energy that a power takes in a time, in kilowatt-hours; 1 Wh is 3,600 J.

    >>> energy(120, 65), energy(1.3e6 * 3600, 700)
    ('0.00217 kWh', '910,000 kWh')
    """
    kilowatt_hours = seconds * watts / JOULES
    return f"{kilowatt_hours:,.0f} kWh" if kilowatt_hours >= 1000 else f"{kilowatt_hours:.3g} kWh"


@functools.cache
def matmul_rate(device: str, dtype: str) -> float:
    """The peak rate of the machine: floating-point operations per second of a product of two large matrices.

    It bounds the rate of a training step, and `--profile` prints the share that a step reaches. It takes about a tenth
    of a second. On a GPU the products have the chosen precision (precision.py). The numbers are random, because a GPU
    multiplies equal numbers faster, with less power; one block of them is repeated, which costs no time.
    """
    place, size = get_device(device), LARGE[device]
    kind, block = "float64" if dtype == "float64" else "float32", min(size, 1024)
    a = place.from_host(keyed_rng(1, "matmul_rate").standard_normal((block, block), kind))
    a = place.xp.tile(a, (size // block, size // block))
    if dtype == "bfloat16":
        a = a.astype(bfloat16())
    multiply = place.module("gemm").gemm if device == "cuda" else place.xp.matmul

    def product() -> None:
        multiply(a, a)
        place.synchronize()

    return 2 * size**3 / min(timeit.repeat(product, number=1, repeat=6))


def free_memory(device: str) -> int | None:
    """The free memory of a device in bytes; None if unknown."""
    if room := get_device(device).memory():
        return room[0]
    with suppress(OSError, KeyError):  # Linux has it
        facts = dict(line.split(":") for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines())
        return int(facts["MemAvailable"].removesuffix("kB")) * 1024
    return None
