"""Train our GPT and its PyTorch twin from the same weights on the same batches, and compare losses and times.

    python -m benchmarks.compare_torch                      the default recipe, 2,000 steps
    python -m benchmarks.compare_torch --max_iters 200      the same with 200 steps

Each side runs in a process of its own, as its user would run it: ours with the memory settings that train.py makes,
PyTorch with the system's. They take turns, 50 steps each, and the one that waits sleeps; so a busy moment of the
machine hits both, and the ratio of the medians means something. In one process the idle threads of either library
would keep the cores from the other.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import numpy as np

from gpt.config import GPTOptions
from gpt.data import Batch, prepare
from gpt.model import GPT
from tinygrad_lite.console import run_command, say
from tinygrad_lite.device import random_key
from tinygrad_lite.errors import OptionError, UserError
from tinygrad_lite.options import build, option, parse_command_line
from tinygrad_lite.run import tune_memory
from tinygrad_lite.tensor import no_grad

TURN = 50  # steps
SIDES = ("ours", "torch")
THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)  # read by the libraries when they start
FIXED = {"optimizer": "adamw", "gradient_accumulation_steps": 1, "device": "cpu", "composed": False}

Update = Callable[[Batch, float], float]  # batch and learning rate -> loss before the update
Evaluate = Callable[[Batch], float]


@dataclass
class CompareOptions(GPTOptions):
    """The options of train.py, and which side a child process is."""

    threads: int | None = option(None, "of each side; none: as many as its library takes", low=1, group="comparison")
    side: str = option("", "for the child processes: ours or torch", group="comparison", hidden=True)


def main(argv: list[str]) -> int:
    """Run both sides in turns and print the comparison."""
    options = read_options(argv)
    if options.side:
        return serve(options)
    losses: dict[str, list[float]] = {name: [] for name in SIDES}
    seconds: dict[str, list[float]] = {name: [] for name in SIDES}
    with contextlib.ExitStack() as open_processes:  # at its end their stdin is closed, which ends them
        sides = {}
        for name in SIDES:
            sides[name] = open_processes.enter_context(start(name, argv, options.threads))
            ask(sides[name], {})  # ready: neither starts up while the other is being timed
        for begin in range(0, options.max_iters, TURN):
            for name, process in sides.items():
                answer = ask(process, {"from": begin, "to": min(begin + TURN, options.max_iters)})
                losses[name] += answer["losses"]
                seconds[name] += answer["seconds"]
            say(f"step {len(losses['ours']):,} of {options.max_iters:,}")
        final = {name: ask(process, {"evaluate": True})["loss"] for name, process in sides.items()}
    report(options, losses, seconds, final)
    return 0


def read_options(argv: list[str]) -> CompareOptions:
    """The options, if they ask for something that both sides can do.

    Raises: OptionError or UserError if not.
    """
    parsed = parse_command_line(
        CompareOptions, argv, prog="python -m benchmarks.compare_torch", description=__doc__.split("\n")[0]
    )
    options = build(CompareOptions, ("command line", parsed.values))
    for name, value in FIXED.items():
        if getattr(options, name) != value:
            raise OptionError(f"--{name} {getattr(options, name)}: the twin knows only {value}; leave the option out")
    if options.max_iters == 0:
        raise OptionError("--max_iters 0: without an update there is nothing to compare; take 1 or more")
    if find_spec("torch") is None:
        raise UserError('the comparison needs PyTorch, which is not installed: pip install -e ".[torch]"')
    return options


def report(
    options: CompareOptions,
    losses: dict[str, list[float]],
    seconds: dict[str, list[float]],
    final: dict[str, float],
) -> None:
    """Print where and what was compared, and the numbers of both sides."""
    apart = [abs(a - b) for a, b in zip(losses["ours"], losses["torch"], strict=True)]
    total = {name: sum(seconds[name]) for name in SIDES}
    median = {name: statistics.median(seconds[name]) * 1e3 for name in SIDES}
    versions = ", ".join(f"{name} {version(name)}" for name in ("numpy", "torch"))
    print(f"{cpu_model()}, {os.cpu_count()} cores, Python {platform.python_version()}, {versions}")
    print(f"threads: {options.threads or 'as many as each library takes'}")
    print(
        f"{options.n_layer} layers, {options.n_embd} wide, context {options.block_size}, batch {options.batch_size}, "
        f"{options.dtype}, {options.max_iters:,} steps"
    )
    print(f"{'':24}{'ours':>12}{'torch':>12}")

    def row(label: str, values: dict[str, float], digits: int, comparison: str) -> None:
        print(f"{label:24}{values['ours']:12.{digits}f}{values['torch']:12.{digits}f}   {comparison}")

    row("validation loss, nats", final, 5, f"ours - torch {final['ours'] - final['torch']:+.5f}")
    row("median of a step, ms", median, 1, f"ours / torch {median['ours'] / median['torch']:.2f}")
    row("all steps, s", total, 1, f"ours / torch {total['ours'] / total['torch']:.2f}")
    print(f"largest difference of the training losses: first 200 steps {max(apart[:200]):.2g}, all {max(apart):.2g}")


def cpu_model() -> str:
    """What the processor calls itself."""
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


# --- two processes --------------------------------------------------------------------------------------------


def start(side: str, argv: list[str], threads: int | None) -> subprocess.Popen:
    """A child process for one side; it answers one JSON line for each JSON line."""
    command = [sys.executable, "-m", "benchmarks.compare_torch", *argv, "--side", side]
    limits = {name: str(threads) for name in THREADS} if threads else {}
    pipe, environment = subprocess.PIPE, {**os.environ, **limits}
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, encoding="utf-8", env=environment)


def ask(process: subprocess.Popen, question: dict[str, Any]) -> dict[str, Any]:
    """Put one question to a side and wait for the answer."""
    with contextlib.suppress(BrokenPipeError):  # it has ended; then there is no answer either
        process.stdin.write(json.dumps(question) + "\n")
        process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        status = process.wait()
        if status > 0:
            sys.exit(status)  # it has said why
        raise UserError(f"one side was ended from outside (status {status}): is there enough memory for both?")
    return json.loads(line)


def serve(options: CompareOptions) -> int:
    """One side: make the model, then train and evaluate as asked until stdin ends."""
    if options.side == "ours":
        tune_memory()
    data = prepare(options)
    with random_key(options.seed):
        model = GPT(options.model_config(data.tokenizer.vocab_size))
    model.to("cpu", np.dtype(options.dtype))
    make = our_side if options.side == "ours" else torch_side
    update, evaluate = make(options, model)
    for line in sys.stdin:
        question = json.loads(line)
        answer: dict[str, Any] = {"losses": [], "seconds": []}
        for step in range(question.get("from", 0), question.get("to", 0)):
            (batch,) = data.micro_batches(step, options.batch_size, 1)
            began = time.perf_counter()
            answer["losses"].append(update(batch, options.learning_rate_at(step)))
            answer["seconds"].append(time.perf_counter() - began)
        if "evaluate" in question:
            batches = data.validation_batches(options.batch_size, options.eval_iters)
            parts = [(evaluate(batch), batch[1].numel()) for batch in batches]
            answer["loss"] = sum(loss * n for loss, n in parts) / sum(n for _, n in parts)
        print(json.dumps(answer), flush=True)
    return 0


# --- the two sides --------------------------------------------------------------------------------------------


def our_side(options: GPTOptions, model: GPT) -> tuple[Update, Evaluate]:
    """Functions that make one update and evaluate one batch, with our engine."""
    optimizer = options.make_optimizer(model)

    def update(batch: Batch, lr: float) -> float:
        optimizer.lr = lr
        optimizer.zero_grad()
        loss = model.loss(batch)
        loss.backward()
        optimizer.clip_grad_norm(options.grad_clip)
        optimizer.step()
        return loss.item()

    def evaluate(batch: Batch) -> float:
        model.eval()
        with no_grad():
            loss = model.loss(batch).item()
        model.train()
        return loss

    return update, evaluate


def torch_side(options: GPTOptions, model: GPT) -> tuple[Update, Evaluate]:
    """The same with PyTorch, starting from the weights of `model`."""
    import torch

    from benchmarks.torch_gpt import from_ours

    twin = from_ours(model)
    optimizer = twin.make_optimizer(options.learning_rate, (options.beta1, options.beta2), options.weight_decay)

    def update(batch: Batch, lr: float) -> float:
        for group in optimizer.param_groups:
            group["lr"] = lr
        optimizer.zero_grad()
        loss = twin.loss(*(torch.tensor(part.numpy()) for part in batch))
        loss.backward()
        if options.grad_clip:
            torch.nn.utils.clip_grad_norm_(twin.parameters(), options.grad_clip)
        optimizer.step()
        return loss.item()

    def evaluate(batch: Batch) -> float:
        twin.eval()
        with torch.no_grad():
            loss = twin.loss(*(torch.tensor(part.numpy()) for part in batch)).item()
        twin.train()
        return loss

    return update, evaluate


if __name__ == "__main__":
    run_command("compare_torch", main)
