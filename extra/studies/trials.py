"""What train.py does instead of training: time the operations of a step (--profile), or estimate a run (--dry_run)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from extra.studies.costs import dry_run
from tinygrad_lite.debug.profiler import Profile
from tinygrad_lite.device import device_of
from tinygrad_lite.nn import Module
from tinygrad_lite.optim import Optimizer
from training.cli.console import show
from training.estimate import size_of
from training.family import Task
from training.folder import matmul_rate
from training.options import TrainOptions
from training.processes.processes import OneProcess, Program
from training.processes.workers import start_processes
from training.start import RunSetup

PROFILED, MEASURED = 10, 5  # training steps, for --profile and for --dry_run
WARM_UP = {"cpu": 1, "cuda": 5}  # steps; on a GPU the third or fourth is recorded (cuda/graph.py), the fifth replayed
LONG = 2.0  # seconds: if a step takes longer, --dry_run measures only one


def instead(setup: RunSetup, updates: Program, evaluate: Callable) -> int:
    """Estimate the run or profile it, with the updates and the evaluation of train.py; returns the exit status."""
    return (
        dry_run(setup, partial(measure, updates, evaluate)) if setup.options.dry_run else show_profile(setup, updates)
    )


def measure(updates: Program, evaluate: Callable, options: TrainOptions, *run: Any) -> tuple[float, float]:
    """Seconds per training step, averaged over a few steps, and seconds per evaluation, without its samples.

    Args:
        run: task, model, optimizer and communication, as for `updates`.
    """
    (task, model, _, comm), first = run, WARM_UP[options.device]
    started = time.perf_counter()
    updates(replace(options, max_iters=first), *run)
    began = time.perf_counter()
    steps = 1 if max(comm.gather(began - started)) > first * LONG else MEASURED  # all processes make as many
    updates(replace(options, max_iters=first + steps), *run)
    evaluated = time.perf_counter()
    evaluate(task, model, comm)
    return (evaluated - began) / steps, time.perf_counter() - evaluated


def profile(
    updates: Program, options: TrainOptions, task: Task, model: Module, optimizer: Optimizer, comm: OneProcess
) -> tuple[float, str]:
    """Time the operations of a training step; returns its seconds, and tables of the operations in process 0."""
    with Profile() as first:  # this step warms up: only its shapes count
        updates(replace(options, max_iters=1), task, model, optimizer, comm)
    with Profile(device_of(optimizer.memory.values.data).synchronize) as measured:
        updates(replace(options, max_iters=1 + PROFILED), task, model, optimizer, comm)
    return max(comm.gather(measured.seconds)) / PROFILED, f"{measured.table(PROFILED)}\n\n{first.shapes()}"


def show_profile(setup: RunSetup, updates: Program) -> int:
    """Print the time and memory of each operation of a training step, without training."""
    options, task, program = setup.options, setup.make_task(), partial(profile, updates)
    model = setup.make_model(task.tokenizer)
    optimizer, rate = options.make_optimizer(model), matmul_rate(options.device, options.dtype)
    with start_processes(program, options, task, model, optimizer) as comm:
        seconds, table = program(options, task, model, optimizer, comm)
    size = size_of(setup)
    count, operations = f"{size.tokens[0]:,} {options.COUNTED[1].split()[-1]}s", size.products
    show(f"operations of one training step in process 0 of {comm.size}:\n\n{table}\n")
    show(
        f"{seconds * 1e3:.1f} ms for {count}; its matrix products, {operations / 1e9:.2f} GFLOP,\n"
        f"would take {operations / rate * 1e3:.1f} ms at the {rate / 1e9:.0f} GFLOP/s that one large product reaches\n"
        f"here: {operations / rate / seconds:.0%} of the step"
    )
    return 0
