"""Train our GPT and its PyTorch counterpart from the same weights on the same batches, and compare losses and times.

    python -m benchmarks.compare_torch                      the default recipe, 2,000 steps
    python -m benchmarks.compare_torch --max_iters 200      the same with 200 steps

Each side runs in its own process, as its users would run it: ours with the memory settings of train.py, PyTorch with
the system's. They take turns, 50 steps each, and the one that waits sleeps; so a busy moment of the
machine affects both, and the ratio of the medians is meaningful. In one process the idle threads of one
library would take cores from the other.
"""

from __future__ import annotations

import contextlib
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import numpy as np

from benchmarks.children import ask, limits, serve, start
from benchmarks.machine import cpu_model
from extra.gpt.options import GPTOptions
from gpt.data import Batch, prepare
from gpt.model import GPT
from tinygrad_lite.autograd import no_grad
from tinygrad_lite.config import option
from tinygrad_lite.errors import OptionError, UserError
from tinygrad_lite.random import random_key
from training.cli.command_line import read_command
from training.cli.console import run_command, say
from training.folder import tune_memory

TURN = 50  # steps
SIDES = ("ours", "torch")
FIXED = {"optimizer": "adamw", "gradient_accumulation_steps": 1, "device": "cpu", "composed": False}

Update = Callable[[Batch, float], float]  # batch and learning rate -> loss before the update
Evaluate = Callable[[Batch], float]


@dataclass
class CompareOptions(GPTOptions):
    """The options of train.py, and which side a child process is."""

    threads: int | None = option(None, "threads of each side; none: its default", low=1, group="comparison")
    side: str = option("", "for the child processes: ours or torch", group="comparison", hidden=True)


def main(argv: list[str]) -> int:
    """Run both sides in turns and print the comparison."""
    options = read_options(argv)
    if options.side:
        return run_side(options)
    losses: dict[str, list[float]] = {name: [] for name in SIDES}
    seconds: dict[str, list[float]] = {name: [] for name in SIDES}
    with contextlib.ExitStack() as open_processes:  # at its end their stdin is closed, which ends them
        sides = {}
        for name in SIDES:
            command = [sys.executable, "-m", "benchmarks.compare_torch", *argv, "--side", name]
            sides[name] = open_processes.enter_context(start(command, limits(options.threads)))
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
    """The options, if both sides support them.

    Raises: OptionError or UserError if not.
    """
    common = "text max_iters batch_size learning_rate n_layer n_embd block_size threads".split()
    about = __doc__.split("\n")[0]
    options, _ = read_command(CompareOptions, argv, "python -m benchmarks.compare_torch", about, common=common)
    for name, value in FIXED.items():
        if getattr(options, name) != value:
            raise OptionError(
                f"--{name} {getattr(options, name)}: the PyTorch model supports only {value}; omit the option"
            )
    if options.max_iters == 0:
        raise OptionError("--max_iters 0: without an update there is nothing to compare; use 1 or more")
    if find_spec("torch") is None:
        raise UserError('the comparison needs PyTorch, which is not installed: pip install -e ".[torch]"')
    return options


def report(
    options: CompareOptions,
    losses: dict[str, list[float]],
    seconds: dict[str, list[float]],
    final: dict[str, float],
) -> None:
    """Print the machine, the settings, and the results of both sides."""
    apart = [abs(a - b) for a, b in zip(losses["ours"], losses["torch"], strict=True)]
    total = {name: sum(seconds[name]) for name in SIDES}
    median = {name: statistics.median(seconds[name]) * 1e3 for name in SIDES}
    versions = ", ".join(f"{name} {version(name)}" for name in ("numpy", "torch"))
    print(f"{cpu_model()}, {os.cpu_count()} cores, Python {platform.python_version()}, {versions}")
    print(f"threads: {options.threads or 'the default of each library'}")
    c = options.config
    print(
        f"{c.n_layer} layers, {c.n_embd} wide, context {c.block_size}, batch {options.batch_size}, "
        f"{options.dtype}, {options.max_iters:,} steps"
    )
    print(f"{'':24}{'ours':>12}{'torch':>12}")

    def row(label: str, values: dict[str, float], digits: int, comparison: str) -> None:
        print(f"{label:24}{values['ours']:12.{digits}f}{values['torch']:12.{digits}f}   {comparison}")

    row("validation loss, nats", final, 5, f"ours - torch {final['ours'] - final['torch']:+.5f}")
    row("median of a step, ms", median, 1, f"ours / torch {median['ours'] / median['torch']:.2f}")
    row("all steps, s", total, 1, f"ours / torch {total['ours'] / total['torch']:.2f}")
    print(f"largest difference of the training losses: first 200 steps {max(apart[:200]):.2g}, all {max(apart):.2g}")


# --- one of the two processes ----------------------------------------------------------------------------------


def run_side(options: CompareOptions) -> int:
    """One side: make the model, then train and evaluate as asked until stdin ends."""
    if options.side == "ours":
        tune_memory()
    data = prepare(options)
    with random_key(options.seed):
        model = GPT(options.model_config(data.tokenizer.vocab_size))
    model.to("cpu", np.dtype(options.dtype))
    make = our_side if options.side == "ours" else torch_side
    update, evaluate = make(options, model)

    def reply(question: dict[str, Any]) -> dict[str, Any]:
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
        return answer

    serve(reply)
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
    from benchmarks.torch_side import torch_optimizer, torch_update

    torch_model = from_ours(model)
    optimizer = torch_optimizer(options, torch_model)

    def update(batch: Batch, lr: float) -> float:
        for group in optimizer.param_groups:
            group["lr"] = lr
        return torch_update(options, torch_model, optimizer, [torch.tensor(part.numpy()) for part in batch])

    def evaluate(batch: Batch) -> float:
        torch_model.eval()
        with torch.no_grad():
            loss = torch_model.loss(*(torch.tensor(part.numpy()) for part in batch)).item()
        torch_model.train()
        return loss

    return update, evaluate


if __name__ == "__main__":
    run_command("compare_torch", main)
