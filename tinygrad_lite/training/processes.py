"""The communicator, through which the training loop talks to other processes; here for a single process.

The loop in train.py is one program that every process runs, each on its own part of every batch ("single program,
multiple data"). Where the processes meet, the loop calls the communicator:

    sum_gradients    sum the losses and gradients of all parts
    clip             scale the gradients down to a global norm
    numbers          the loss and norm of the step, the same in all processes
    share_weights    give each process the slices of the weights that the others updated; agree on whether to stop
    gather           collect one value from each process

`OneProcess` is the communicator of a single process, `OneGPU` one that does not make the GPU wait, and
`WorkerProcesses` (workers.py) that of several processes on one machine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from tinygrad_lite.cuda.guard import Guard
from tinygrad_lite.optim import Optimizer
from tinygrad_lite.tensor import Tensor
from tinygrad_lite.training.run_folder import StopRequest


class Numbers(NamedTuple):
    """The numbers of a step.

    Attributes:
        step: number of the step.
        loss: mean nats per target token.
        norm: global norm of the gradients before clipping.
    """

    step: int
    loss: float
    norm: float

    @property
    def are_finite(self) -> bool:
        """Whether loss and norm are finite, so that the update may be made."""
        return math.isfinite(self.loss) and math.isfinite(self.norm)


class OneProcess:
    """The communicator of a single process.

    Args:
        stop: holds a request to stop.

    Attributes:
        rank: number of this process, from 0. Only process 0 writes files and messages.
        size: number of processes.
        should_stop: whether all processes must stop before the next step.
    """

    rank = 0
    size = 1

    def __init__(self, stop: StopRequest | None = None) -> None:
        self.stop = stop
        self.should_stop = False
        self.step, self.loss, self.norm = 0, 0.0, 0.0

    def gather(self, value: Any) -> list[Any]:
        """The values of all processes, in the order of their ranks; waits until all have called it."""
        return [value]

    def sum_gradients(self, optimizer: Optimizer, step: int, losses: Sequence[Tensor]) -> None:
        """Sum the gradients of all processes, and their parts of the loss."""
        self.step, self.loss = step, sum(loss.item() for loss in losses)

    @property
    def is_asked_to_stop(self) -> bool:
        """Whether this process has been asked to stop."""
        return self.stop is not None and self.stop.signal is not None

    def clip(self, optimizer: Optimizer, max_norm: float) -> None:
        """Scale the gradients down so that their global norm is at most max_norm; 0 only measures."""
        self.norm = optimizer.clip_grad_norm(max_norm)

    def numbers(self, wait: bool = True) -> Numbers | None:
        """The numbers of the latest step; None if they are not known yet and `wait` is False."""
        return Numbers(self.step, self.loss, self.norm)

    def share_weights(self, optimizer: Optimizer) -> None:
        """Give all processes the weights that each has updated, and agree on whether to stop."""
        self.should_stop = self.is_asked_to_stop


class OneGPU(OneProcess):
    """A single process with a GPU, which works asynchronously: only `numbers` waits for it.

    So Python does not see a NaN at once. The GPU itself does, and from then on changes no weight (see cuda/guard.py),
    so that the step can be run again from the weights that it started with.
    """

    def __init__(self, optimizer: Optimizer, stop: StopRequest | None = None) -> None:
        super().__init__(stop)
        self.guard = Guard(optimizer.values.data)
        optimizer.guard = self.guard.numbers

    def sum_gradients(self, optimizer: Optimizer, step: int, losses: Sequence[Tensor]) -> None:
        """Remember the losses; they stay on the GPU."""
        self.step, self.losses = step, losses

    def clip(self, optimizer: Optimizer, max_norm: float) -> None:
        """Queue the norm and the scaling on the GPU, which blocks the update if loss or norm is not finite."""
        self.guard.judge(self.losses, optimizer.gather_gradients(), max_norm, self.step)

    def numbers(self, wait: bool = True) -> Numbers | None:
        """The numbers of the latest step, or of the first whose numbers are not finite; None unless `wait`."""
        if not wait:
            return None
        loss, norm, broken = self.guard.read()
        return Numbers(self.step if broken is None else broken, loss, norm)
