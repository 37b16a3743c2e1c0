"""The communicator through which the training loop talks to other processes; here for a single process.

The loop in train.py is one program that every process runs, each on its own part of every batch ("single program,
multiple data"). Where the processes meet, the loop calls the communicator:

    passes           the micro-batches of a step; on a GPU, what is launched for them is recorded and repeated
    sum_gradients    sum the losses and gradients of all parts
    clip             scale the gradients down to a global norm
    numbers          the loss and norm of the step, the same in all processes
    share_weights    give each process the slices of the weights that the others updated; agree on whether to stop
    collect_states   give process 0 the optimizer's running means, which it saves
    gather           collect one value from each process

`OneProcess` is the communicator of a single process, `OneGPU` one that does not make the GPU wait. Of several processes
(`SeveralProcesses`), those on one machine share memory (`WorkerProcesses`, workers.py), and those that mpirun starts on
many machines send each other messages (`Ranks`, mpi.py).
"""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np

from tinygrad_lite.device import device_of
from tinygrad_lite.functional.registry import set_composed
from tinygrad_lite.nn import Module, shapes_only
from tinygrad_lite.optim import Optimizer
from tinygrad_lite.tensor import Tensor
from training.folder import StopRequest, tune_memory
from training.options import TrainOptions
from training.task import Task

Part = tuple[Any, float]  # a micro-batch, and its share of the loss


class Gone(Exception):
    """Process 0 has ended, so this process ends too."""


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


class OneProcess:
    """The communicator of a process, here of a single one.

    Args:
        stop: holds a request to stop.
        rank: number of this process, from 0. Only process 0 writes files and messages.
        size: number of processes.

    Attributes:
        should_stop: whether all processes must stop before the next step.
        losses: the losses of this process's micro-batches in the current step.
    """

    def __init__(self, stop: StopRequest | None = None, rank: int = 0, size: int = 1) -> None:
        self.stop, self.rank, self.size = stop, rank, size
        self.should_stop = False
        self.step, self.loss, self.norm = 0, 0.0, 0.0
        self.losses: list[Tensor] = []

    def gather(self, value: Any) -> list[Any]:
        """The values of all processes, in the order of their ranks; waits until all have called it."""
        return [value]

    def passes(self, parts: Iterable[Part], optimizer: Optimizer, step: int) -> Iterator[tuple[int, Part]]:
        """The micro-batches of a step, numbered, for each of which the loop makes a forward and a backward pass."""
        self.losses = []
        return enumerate(parts)

    def recorded(self) -> AbstractContextManager:
        """The context of a pass, which may be recorded: see `OneGPU`."""
        return nullcontext()

    def sum_gradients(self, optimizer: Optimizer, step: int) -> None:
        """Sum the gradients of all processes, and their parts of the loss."""
        self.step, self.loss = step, sum(loss.item() for loss in self.losses)

    def clip(self, optimizer: Optimizer, max_norm: float) -> None:
        """Scale the gradients down so that their global norm is at most max_norm; 0 only measures."""
        self.norm = optimizer.clip_grad_norm(max_norm)

    def numbers(self, wait: bool = True) -> Numbers | None:
        """The numbers of the latest step; None if they are not known yet and `wait` is False."""
        return Numbers(self.step, self.loss, self.norm)

    def share_weights(self, optimizer: Optimizer) -> None:
        """Give all processes the weights that each has updated, and agree on whether to stop."""
        self.should_stop = any(self.gather(self.stop is not None and self.stop.signal is not None))

    def collect_states(self, optimizer: Optimizer) -> None:
        """Give process 0 the optimizer's states; where the processes share memory, it has them."""


class OneGPU(OneProcess):
    """A single process with a GPU, which works asynchronously: only `numbers` waits for it.

    So Python does not see a NaN at once. The GPU itself does, and from then on changes no weight (see cuda/guard.py),
    so that the step can be run again from the weights that it started with.
    """

    def __init__(self, optimizer: Optimizer, stop: StopRequest | None = None) -> None:
        super().__init__(stop)
        place = device_of(values := optimizer.memory.values.data)
        self.guard, self.repeated = place.module("guard").Guard(values), place.module("graph").Repeated()
        optimizer.guard = self.guard.numbers

    def passes(self, parts: Iterable[Part], optimizer: Optimizer, step: int) -> Iterator[tuple[int, Part]]:
        """The micro-batches, or none if their passes can be replayed (cuda/graph.py)."""
        self.losses = []
        return self.repeated.passes(parts, optimizer, step, self.losses)

    def recorded(self) -> AbstractContextManager:
        """The context of a pass: if it cannot be recorded, `passes` gives all micro-batches again."""
        return self.repeated.recorded()

    def sum_gradients(self, optimizer: Optimizer, step: int) -> None:
        """Nothing to sum; the losses stay on the GPU."""
        self.step = step

    def clip(self, optimizer: Optimizer, max_norm: float) -> None:
        """Queue the norm and the scaling on the GPU, which blocks the update if loss or norm is not finite."""
        self.guard.judge(self.losses, optimizer.gather_gradients(), max_norm, self.step)

    def numbers(self, wait: bool = True) -> Numbers | None:
        """The numbers of the latest step, or of the first whose numbers are not finite; None unless `wait`."""
        if not wait:
            return None
        loss, norm, broken = self.guard.read()
        return Numbers(self.step if broken is None else broken, loss, norm)


Program = Callable[[TrainOptions, Task, Module, Optimizer, OneProcess], Any]  # what every process runs


class Job:
    """Everything that another process needs to run the same program as process 0, except the values of parameters.

    Args:
        model, optimizer: those of process 0.

    Attributes:
        learned: the names of the parameters that require a gradient, and are in the optimizer's flat arrays.
        progress: number of updates made so far, and for each parameter the number that skipped it.
    """

    def __init__(
        self, program: Program, options: TrainOptions, task: Task, model: Module, optimizer: Optimizer
    ) -> None:
        self.program, self.options, self.task = program, options, task
        self.model_class, self.config = type(model), model.config
        self.learned = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
        self.progress = optimizer.steps, optimizer.skipped

    def prepare(self) -> tuple[Module, Optimizer]:
        """Set this process up like process 0; returns a model and an optimizer for the flat arrays of process 0.

        The model has no values yet: what learns will be in the flat arrays, and the rest is `fixed`.
        """
        tune_memory()
        np.seterr(all="ignore")
        set_composed(self.options.composed)
        with shapes_only():
            model = self.options.built(self.model_class, self.config)
        for name, parameter in model.named_parameters():
            parameter.requires_grad = name in self.learned
        optimizer = self.options.make_optimizer(model)
        optimizer.steps, optimizer.skipped = self.progress
        return model, optimizer


def fixed(model: Module, optimizer: Optimizer) -> list[Tensor]:
    """What has no place in the optimizer's flat arrays: parameters frozen from the beginning, and quantized weights."""
    frozen = [parameter for name, parameter in model.named_parameters() if name not in optimizer.memory.places]
    return frozen + model.buffers()


class SeveralProcesses(OneProcess):
    """The communicator of one of several processes, each of which updates its own slice of the weights.

    How numbers get from one process to another is defined by its two subclasses. Their `add_up(gradients, own)` adds
    the gradients (n,) of all other processes to this one's, in its own slice.
    """

    def sum_gradients(self, optimizer: Optimizer, step: int) -> None:
        """Sum this process's slice of the gradients over all processes."""
        unreached, gradients = optimizer.unreached(), optimizer.gather_gradients()
        parts, unreached_by_each = zip(*self.gather((sum(loss.item() for loss in self.losses), unreached)), strict=True)
        self.step, self.loss = step, sum(parts)
        optimizer.adopt_gradients(unreached - set.intersection(*unreached_by_each))
        self.add_up(gradients, optimizer.memory.part)

    def clip(self, optimizer: Optimizer, max_norm: float) -> None:
        """Scale the slice down; the squared norms of all slices are summed in the order of the ranks."""
        own = optimizer.gather_gradients()[optimizer.memory.part]
        self.norm = math.sqrt(sum(self.gather(float(own @ own))))
        if 0 < max_norm < self.norm:
            own *= max_norm / self.norm
