"""What the training loop asks of the other processes: the communicator, for one process that has no others.

The loop in train.py is one program that every process runs, each on its own part of every batch ("single program,
multiple data"). Where they meet, the loop calls its communicator:

    sum_gradients    the losses and gradients of all parts are added up
    clip             the gradients are scaled down to a global norm
    numbers          loss and norm of the step, the same for all
    share_weights    each process has updated its slice of the weights; now all have all of them, and agree to stop
    averaged         the model is evaluated with the moving averages of its weights, if there are any
    gather           one value from each process, for everything else

`OneProcess` does what remains of this with a single process, `OneGPU` does it without making the GPU wait, and
`WorkerProcesses` (workers.py) lets the processes of one machine work side by side.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from tinygrad_lite.cuda.guard import Guard
from tinygrad_lite.optim import Optimizer
from tinygrad_lite.tensor import Tensor
from tinygrad_lite.training.run_folder import StopRequest


class Numbers(NamedTuple):
    """What a step has shown.

    Attributes:
        step: the step.
        loss: mean nats per target token.
        norm: of the gradients, before they were scaled down.
    """

    step: int
    loss: float
    norm: float

    @property
    def are_finite(self) -> bool:
        """Whether the update may be made."""
        return math.isfinite(self.loss) and math.isfinite(self.norm)


class OneProcess:
    """All work is done here.

    Args:
        stop: says whether someone has asked for an end.

    Attributes:
        rank: the number of this process, from 0. Process 0 alone writes files and speaks.
        size: how many processes there are.
        should_stop: whether all processes are to stop before the next step.
    """

    rank = 0
    size = 1

    def __init__(self, stop: StopRequest | None = None) -> None:
        self.stop = stop
        self.should_stop = False
        self.step, self.loss, self.norm = 0, 0.0, 0.0

    def gather(self, value: Any) -> list[Any]:
        """This value of every process, in the order of their ranks; returns when all have got here."""
        return [value]

    def sum_gradients(self, optimizer: Optimizer, step: int, losses: Sequence[Tensor]) -> None:
        """Add up the gradients of all processes, and their parts of the loss."""
        self.step, self.loss = step, sum(loss.item() for loss in losses)

    @property
    def is_asked_to_stop(self) -> bool:
        """Whether this process has been asked to stop."""
        return self.stop is not None and self.stop.signal is not None

    def clip(self, optimizer: Optimizer, max_norm: float) -> None:
        """Scale the gradients down so that their global norm is at most max_norm; 0 only measures."""
        self.norm = optimizer.clip_grad_norm(max_norm)

    def numbers(self, wait: bool = True) -> Numbers | None:
        """The numbers of the latest step; None if they are on their way and `wait` is False."""
        return Numbers(self.step, self.loss, self.norm)

    def share_weights(self, optimizer: Optimizer) -> None:
        """Make the weights that each process has updated known to all, and agree on whether to stop."""
        self.should_stop = self.is_asked_to_stop

    @contextmanager
    def averaged(self, optimizer: Optimizer) -> Iterator[None]:
        """Inside, the model has the moving averages of its weights, if the optimizer keeps any."""
        self.gather(None)  # until no process needs the weights any more: process 0 may still be saving them
        with optimizer.averaged():
            self.gather(None)  # until all have set their averages
            yield
            self.gather(None)  # until none needs these any more
        self.gather(None)  # until all have set their weights


class OneGPU(OneProcess):
    """One process whose GPU works through what it is given while Python goes ahead: only `numbers` waits for it.

    So Python does not see a NaN at once. The GPU itself does: from then on it changes no weight (see cuda/guard.py), so
    that later the step can be run again from the weights that it had.
    """

    def __init__(self, optimizer: Optimizer, stop: StopRequest | None = None) -> None:
        super().__init__(stop)
        self.guard = Guard(optimizer.values.data)
        optimizer.guard = self.guard.numbers

    def sum_gradients(self, optimizer: Optimizer, step: int, losses: Sequence[Tensor]) -> None:
        self.step, self.losses = step, losses

    def clip(self, optimizer: Optimizer, max_norm: float) -> None:
        self.guard.judge(self.losses, optimizer.gather_gradients(), max_norm, self.step)

    def numbers(self, wait: bool = True) -> Numbers | None:
        if not wait:
            return None
        loss, norm, broken = self.guard.look()
        return Numbers(self.step if broken is None else broken, loss, norm)
