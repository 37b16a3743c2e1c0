"""A training step on any device, and its time.

Python only queues work for a GPU and continues at once. So the clock is read when the GPU has finished (`synchronize`),
and only after a group of steps, since training does not wait between steps either.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tinygrad_lite.nn import Module
from tinygrad_lite.optim import Optimizer
from tinygrad_lite.random import random_key
from tinygrad_lite.tensor import Tensor
from training.options import TrainOptions
from training.processes.processes import OneGPU, OneProcess

MAX_REPEATS = 200  # a GPU queues about 1,000 kernels; then Python waits

Step = Callable[[int], Any]  # does repeat number n of a task; on a GPU it only queues the work


def trainer(options: TrainOptions, model: Module, optimizer: Optimizer) -> Callable[[Any, int], Tensor]:
    """Make a function that trains on a batch: forward, backward, clipping, update, as train.py does on this device.

    It takes the batch and the number of the step, and returns the loss before the update, not yet fetched.
    """
    comm = OneGPU(optimizer) if optimizer.memory.values.device == "cuda" else OneProcess()

    def train(batch: Any, number: int) -> Tensor:
        optimizer.zero_grad()
        for _, (part, _) in comm.passes([(batch, 1.0)], optimizer, number):
            with comm.recorded(), random_key(options.seed, number):
                loss = model.loss(part)
                loss.backward()
                comm.losses.append(loss.detach())
        comm.sum_gradients(optimizer, number)
        comm.clip(optimizer, options.grad_clip)
        optimizer.step()
        return comm.losses[0]

    return train


def time_group(step: Step, synchronize: Callable[[], None], repeats: int, begin: int = 0) -> tuple[float, float, Any]:
    """Do `repeats` consecutive steps, numbered from `begin`.

    Returns: milliseconds of a step; those in which Python queued it; and the result of the last step.
    """
    synchronize()
    began = time.perf_counter()
    for number in range(begin, begin + repeats):
        result = step(number)
    asked = time.perf_counter()
    synchronize()
    done = time.perf_counter()
    return (done - began) * 1e3 / repeats, (asked - began) * 1e3 / repeats, result


def warm_up(
    step: Step, synchronize: Callable[[], None], seconds: float, max_repeats: int = MAX_REPEATS
) -> tuple[float, int]:
    """Do a few untimed steps: the first compiles kernels, the next allocates memory.

    Returns: milliseconds of the first step, and the number of steps that take about `seconds`.
    """
    first, _, _ = time_group(step, synchronize, 1)
    ms, _, _ = time_group(step, synchronize, 1, 1)
    if ms < 1e3 * seconds:  # a long step needs no others
        ms, _, _ = time_group(step, synchronize, 2, 2)
    return first, max(1, min(max_repeats, round(1e3 * seconds / ms)))
