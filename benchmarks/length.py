"""Measure how time and memory grow with the length of a text, with the key-value cache and without, and plot it.

    python -m benchmarks.length                           64 to 8,192 tokens: a table on stdout, a few minutes
    python -m benchmarks.length --out docs/length.svg     also a plot
    python -m benchmarks.length --mixers attention,lstm,hyena,mamba2 --csv docs/experiments/length-mixers.csv

The model is that of the preset goethe with random weights, its context as long as the text, one text at a time. Three
tasks are measured for each length T (`WORKS`). Their exponents a, of time ~ T^a and memory ~ T^a, are fitted to the
longer texts: there the matrix T x T of attention dominates, while for short texts the linear maps do, which take
time ~ T. The numbers of all lengths are written to the file --csv.

Other mixers have models with as many parameters (those of the experiment `mixers`), measured one after the other.

Time is the median of --turns, in which tasks and lengths take turns; bars in the plot are quartiles. Memory is the peak
of what a task allocates, as counted by Python's tracemalloc, with the cache; the weights are left out.
"""

from __future__ import annotations

import csv
import io
import math
import statistics
import time
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from benchmarks.machine import cpu_model, load, numpy_blas
from benchmarks.scaling import line
from benchmarks.shapes import GOETHE, made_up_ids
from benchmarks.table import quartiles
from extra.plots.figure import COLOURS, check_plot, new_figure, own_style, plain_axes, save, write_out
from extra.studies.trials import free_memory, quantity
from gpt.fast import step as fast_step  # noqa: F401 (which registers itself as a fast version of a GPT)
from gpt.model import GPT
from tinygrad_lite.config import option
from tinygrad_lite.errors import OptionError
from tinygrad_lite.random import keyed_rng, random_key
from tinygrad_lite.tensor import Tensor
from tinygrad_lite.transformer import KVCache
from training.checkpoint import write_atomically
from training.cli.command_line import read_command
from training.cli.console import run_command, say
from training.cli.options import not_among
from training.estimate import cache_bytes
from training.folder import tune_memory

WORKS = {
    "training": "forward pass in training, which keeps all that the backward pass needs",
    "without cache": "a generated token without cache: the whole text is read again",
    "with cache": "a generated token with cache: one position is computed, the keys and values of the others are read",
}
PLAIN = {"positions": "none", "qk_norm": False, "attention_scale": None}
MIXERS = {  # and the settings with which they have as many parameters as attention
    "attention": {},
    "window": {"window": 32},
    "rnn": {"mixer": "rnn", "n_state": 158, **PLAIN},
    "lstm": {"mixer": "lstm", "n_state": 71, **PLAIN},
    "hyena": {"mixer": "hyena", "n_inner": 488, **PLAIN},
    "mamba2": {"mixer": "mamba2", "n_inner": 440, **PLAIN},
}
FITTED = 8  # the exponent is fitted to the lengths from the longest down to an eighth of it
GROUP = 0.1  # seconds for which a task is repeated in a turn
COLUMNS = ("mixer", "tokens", "work", "milliseconds", "lower_quartile", "upper_quartile", "bytes")


@dataclass
class LengthOptions:
    """The options of `python -m benchmarks.length`."""

    shortest: int = option(64, "shortest text", unit="tokens", low=16, high=2**20)
    longest: int = option(8192, "longest text; the lengths between double", unit="tokens", low=32, high=2**20)
    mixers: str = option("attention", f"of {', '.join(MIXERS)}")
    turns: int = option(5, "turns of each measurement", unit="turns", low=1, high=1000)
    csv: str = option("docs/experiments/length.csv", "file for the numbers", is_path=True)
    out: str = option("", "plot to write: .svg, .png or .pdf", is_path=True)


@dataclass
class Measured:
    """One task at one length: the seconds of each turn, and the peak memory in bytes."""

    seconds: list[float] = field(default_factory=list)
    bytes: int = 0


Findings = dict[str, dict[int, Measured]]  # by task and length; for all mixers, a dictionary of these


def main(argv: list[str]) -> int:
    """Measure, print the table, write the numbers, plot."""
    options, _ = read_command(LengthOptions, argv, "python -m benchmarks.length", __doc__.split("\n")[0])
    if options.longest < 2 * options.shortest:
        raise OptionError(f"--longest {options.longest}: must be at least twice --shortest {options.shortest}")
    mixers = [name.strip() for name in options.mixers.split(",")]
    for name in mixers:
        if name not in MIXERS:
            raise OptionError(f"--mixers: there is no {not_among(name, MIXERS)}")
    if options.out:
        check_plot(options.out, "--out")
    tune_memory()
    about = f"{cpu_model()}, {numpy_blas()}, load {load() or 'unknown'} at the start"
    found = {name: measure(name, lengths_of(options), options.turns) for name in mixers}
    print("\n".join(table(findings, f"{name}; {about}") for name, findings in found.items()), end="")
    write_csv(found, Path(options.csv))
    if options.out:
        with own_style():
            save(plot(found), Path(options.out))
    return 0


def lengths_of(options: LengthOptions) -> list[int]:
    """The lengths: each twice the one before.

    >>> lengths_of(LengthOptions(shortest=64, longest=600))
    [64, 128, 256, 512]
    """
    return [options.shortest << i for i in range(int(math.log2(options.longest // options.shortest)) + 1)]


# --- measuring ------------------------------------------------------------------------------------------------


def measure(mixer: str, lengths: Sequence[int], turns: int) -> Findings:
    """Time and memory of each task of a model with this mixer at each length."""
    works: dict[tuple[str, int], Callable[[], object]] = {}
    findings: Findings = {name: {} for name in WORKS}
    for length in lengths:
        say(f"{mixer}, {length:,} tokens: memory")
        for name, (work, held) in prepare(mixer, length).items():
            works[name, length] = work
            findings[name][length] = Measured(bytes=held + peak_of(work))
    for turn in range(turns):
        say(f"turn {turn + 1} of {turns}")
        for (name, length), work in works.items():
            findings[name][length].seconds.append(seconds_of(work))
    return findings


def seconds_of(work: Callable[[], object]) -> float:
    """The time of a task: the median of as many calls as fit into `GROUP` seconds, at least one."""
    times, until = [], time.perf_counter() + GROUP
    while not times or time.perf_counter() < until:
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def prepare(mixer: str, length: int) -> dict[str, tuple[Callable[[], object], int]]:
    """The tasks for a text of this length, each with the bytes that it needs besides what it allocates."""
    config = replace(GOETHE.model_config(GOETHE.vocab_size), block_size=length, dropout=0.0, **MIXERS[mixer])
    with random_key(GOETHE.seed):
        learning, writing = GPT(config), GPT(config)
    writing.eval()
    ids = made_up_ids(keyed_rng(GOETHE.seed, "length", length), 0, config.vocab_size, (1, length))
    batch = Tensor(ids), Tensor(ids)
    _, before = writing.start(ids[:, :-1])
    kept = [copy(cache) for cache in before.caches]
    _, after = writing.step(ids[:, -1], before)  # which lays out the weights for single tokens

    def last_token() -> None:
        """Forget the last token, and read it again."""
        caches = after.caches
        if isinstance(caches[0], KVCache):
            for cache in caches:
                cache.length = length - 1
        else:
            caches = [copy(cache) for cache in kept]
        writing.step(ids[:, -1], replace(after, window=ids[:, :-1], caches=caches))

    works = {
        "training": (lambda: learning.loss(batch), 0),
        "without cache": (lambda: writing.start(ids, use_cache=False), 0),
        "with cache": (last_token, cache_bytes(config, 4)),
    }
    needed, free = 4 * config.activations(1), free_memory("cpu")
    if free and needed > free / 2:
        say(f"{length:,} tokens: no training, which would keep {quantity(needed, 'B')}")
        del works["training"]
    return works


def peak_of(work: Callable[[], object]) -> int:
    """The peak of the memory that a task allocates, in bytes."""
    tracemalloc.start()
    work()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


# --- results --------------------------------------------------------------------------------------------------


def exponent(values: Mapping[int, float]) -> float:
    """The a of value ~ length^a: the slope of a line through the logarithms, by least squares, over the longer texts.

    NaN if they have fewer than two lengths.

    >>> round(exponent({64: 1.0, 512: 3.0, 1024: 12.0, 2048: 48.0, 4096: 192.0}), 6)
    2.0
    """
    longer = {length: value for length, value in values.items() if length * FITTED >= max(values)}
    if len(longer) < 2:
        return math.nan
    slope, _ = np.polyfit(np.log(list(longer)), np.log(list(longer.values())), 1)
    return float(slope)


def exponents(found: Mapping[int, Measured]) -> tuple[float, float]:
    """The exponents of a task's time and memory."""
    times = {length: quartiles(one.seconds)[1] for length, one in found.items()}
    return exponent(times), exponent({length: one.bytes for length, one in found.items()})


def table(findings: Findings, about: str) -> str:
    """The page: a line for each length, and the exponents."""
    lines = ["# Time and memory against length", "", f"- {about}"]
    lines += [f"- {name}: {what}" for name, what in WORKS.items()]
    lines += ["", f"| tokens |{''.join(f' {name} | |' for name in WORKS)}", "|---|" + "---|---|" * len(WORKS)]
    for length in findings["with cache"]:
        found = [findings[name].get(length) for name in WORKS]
        shown = [
            f"{quartiles(one.seconds)[1] * 1e3:,.2f} ms | {quantity(one.bytes, 'B')}" if one else " | " for one in found
        ]
        lines.append(f"| {length:,} | {' | '.join(shown)} |")
    fitted = [f"time ~ T^{a:.2f} | memory ~ T^{b:.2f}" for a, b in map(exponents, findings.values())]
    return "\n".join([*lines, f"| **fitted** | {' | '.join(fitted)} |"]) + "\n"


def write_csv(found: dict[str, Findings], file: Path) -> None:
    """All numbers, a row for each mixer, task and length."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for mixer, findings in found.items():
        for name, works in findings.items():
            for length, one in works.items():
                low, median, high = (f"{seconds * 1e3:.4f}" for seconds in quartiles(one.seconds))
                writer.writerow([mixer, length, name, median, low, high, one.bytes])
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, out.getvalue().encode("utf-8"))
    say(f"wrote {file}")


def plot(found: dict[str, Findings]):
    """Both axes logarithmic, so that a power of the length is a straight line.

    For one mixer: left the time, right the memory of each task. For several: left a pass in training, right a generated
    token with cache.
    """
    figure = new_figure(9.6, 4)
    if len(found) == 1:
        curves = next(iter(found.values()))
        sides = [("milliseconds", curves), ("megabytes", curves)]
    else:
        works = ("training", "with cache")
        sides = [(f"milliseconds {work}", {name: one[work] for name, one in found.items()}) for work in works]
    for axes, (title, curves) in zip(figure.subplots(1, 2), sides, strict=True):
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        write_out(axes.yaxis, (1,))
        is_memory = title == "megabytes"
        for colour, (name, works) in zip(COLOURS, curves.items(), strict=False):
            values = [[one.bytes * 1e-6] if is_memory else [s * 1e3 for s in one.seconds] for one in works.values()]
            line(axes, list(works), values, colour, f"{name}: length$^{{{exponents(works)[is_memory]:.2f}}}$")
        lengths = list(next(iter(found.values()))["with cache"])
        axes.set_xticks(lengths, [f"{length:,}" for length in lengths], rotation=30)
        axes.minorticks_off()
        axes.set_xlabel("length of the text, tokens")
        axes.set_ylabel(title)
        plain_axes(axes)
        axes.legend(frameon=False)
    return figure


if __name__ == "__main__":
    run_command("benchmarks", main)
