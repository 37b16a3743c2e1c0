"""Ranks: processes on one or many machines, started by mpirun, train one model by sending each other messages.

    mpirun -n 4 python train.py

All ranks run train.py. Rank 0 reads the command line, makes data and model, and writes all files and messages; the
others wait until it sends them the job, and then run the same loop. Each has all weights, and in a step (N numbers, W
ranks, slice r of about N / W numbers for rank r)

    1.  computes the gradients of its part of the batch
    2.  sends slice r of them to rank r, for all r, and receives W versions of its own slice   (all-to-all)
    3.  adds these up in the order of the ranks, and updates its slice of the weights          (ZeRO, stage 1)
    4.  sends it to all others                                                                 (all-gather)

Steps 2 and 4 send (W - 1) / W N numbers from each rank, like ring all-reduce (Patarasuk, Yuan 2009, section 3). MPI's
own `Allreduce` would add in an order that depends on the library, the number of ranks and the length of the array, and
so change the last bits. Here the order is fixed: the same number of ranks always produces the same bytes, and two ranks
produce those of two worker processes.

**16 bits.** With `--exchange bfloat16`, steps 2 and 4 send half the bytes: gradients, and instead of the new weights
their changes, both rounded to bfloat16 (the upper half of a float32: all of its exponent, 8 bits of precision). Sums
and weights stay in float32, and each rank applies the same rounded changes to the same weights, so all stay equal.
"""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import signal
import time
import traceback
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

from tinygrad_lite.errors import UserError
from tinygrad_lite.nn import Module
from tinygrad_lite.optim import Optimizer
from training.cli.console import say
from training.folder import STOPPING, StopRequest, available_cores
from training.processes.processes import Gone, Job, SeveralProcesses, fixed

if TYPE_CHECKING:
    from mpi4py import MPI

PIECE = 1 << 20  # numbers that a rank sends to another at once: a message of the watchdog waits for one piece at most


def wait_for_all(world: MPI.Comm) -> None:
    """Wait until all ranks have called this, without keeping a core busy, as MPI's own waiting does."""
    request = world.Ibarrier()
    while not request.Test():
        time.sleep(0.01)


def serve(world: MPI.Comm) -> None:
    """The work of the other ranks: the jobs that rank 0 sends."""
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)  # only rank 0 reacts, and all agree to stop after a step
    while True:
        wait_for_all(world)
        job = world.bcast(None)
        if job is None:
            return
        comm = Ranks(world, job.options.exchange)
        with comm.ending_together(), threadpool_limits(threads_for(world)):
            model, optimizer = job.prepare()
            comm.begin(model, optimizer)
            job.program(job.options, job.task, model, optimizer, comm)


@contextlib.contextmanager
def start_ranks(job: Job, model: Module, optimizer: Optimizer, stop: StopRequest | None = None) -> Iterator[Ranks]:
    """Send the job to the other ranks; yields the communicator of rank 0, inside whose block it does the same job."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    comm = Ranks(world, job.options.exchange, stop)
    try:
        with comm.ending_together():
            wait_for_all(world)
            world.bcast(job)
            with threadpool_limits(threads_for(world)):
                comm.begin(model, optimizer)
                yield comm
    finally:
        optimizer.memory.part = None


def threads_for(world: MPI.Comm) -> int:
    """The threads that this rank may use for a matrix product: its share of the cores that it may use."""
    from mpi4py import MPI

    affinity = getattr(os, "sched_getaffinity", lambda process: ())  # Linux has it
    own = set(affinity(0))
    sharing = [not own or own & set(other) for other in world.Split_type(MPI.COMM_TYPE_SHARED).allgather([*own])]
    limits = [library["num_threads"] for library in threadpool_info()]  # such as OPENBLAS_NUM_THREADS
    return max(1, min(available_cores() // sum(map(bool, sharing)), *limits))


class Ranks(SeveralProcesses):
    """The communicator of one rank.

    Args:
        exchange: the type in which gradients and changes of weights are sent.
    """

    def __init__(self, world: MPI.Comm, exchange: str, stop: StopRequest | None = None) -> None:
        super().__init__(stop, world.rank, world.size)
        self.world, self.is_short = world, exchange == "bfloat16"
        self.has_ended = False  # whether a rank has left, with or without an error
        self.is_sending = False

    # --- meeting ------------------------------------------------------------------------------------------------

    def gather(self, value: Any, farewell: str | None = None) -> list[Any]:
        """The values of all ranks.

        Args:
            farewell: None while this rank works; when it leaves, the reason, which is empty at the regular end.
        Raises: Gone if a rank has left; in rank 0, UserError if it has failed.
        """
        farewells, values = zip(*self.world.allgather((farewell, value)), strict=True)
        self.has_ended = any(text is not None for text in farewells)
        failed = [(rank, reason) for rank, reason in enumerate(farewells) if reason]
        if failed and self.rank == 0 and not farewell:
            rank, reason = failed[0]
            if reason == "MemoryError":
                raise MemoryError
            advice = "earlier checkpoints are intact: --resume continues from there"
            raise UserError(f"rank {rank} has failed: {reason}; {advice}")
        if self.has_ended and farewell is None:
            raise Gone
        return list(values)

    @contextlib.contextmanager
    def ending_together(self) -> Iterator[None]:
        """Within this context all ranks do a job; an error in one of them ends it in all, and is raised in rank 0."""
        from mpi4py import MPI

        try:
            yield
            self.gather(None, "")
        except Gone:
            pass
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            if self.is_sending or isinstance(error, (KeyboardInterrupt, MPI.Exception)):  # the others wait for numbers
                say(f"stopped: {described(error)}")
                self.world.Abort(130 if isinstance(error, KeyboardInterrupt) else 1)
            if not self.has_ended:
                self.gather(None, described(error))
            if self.rank == 0:
                raise

    # --- messages -----------------------------------------------------------------------------------------------

    def begin(self, model: Module, optimizer: Optimizer) -> None:
        """Wait until all are ready; then receive the weights from rank 0, and this rank's slice of the states."""
        self.gather(None)
        self.parts = [optimizer.slice_of(rank, self.size) for rank in range(self.size)]
        optimizer.memory.part = self.parts[self.rank]
        for cuts, counts, starts in self._pieces():
            for state in optimizer.memory.states.values():
                own = state.data[cuts[self.rank]]
                self.world.Scatterv([state.data, (counts, starts)], own if self.rank else own.copy())
        for tensor in fixed(model, optimizer):  # the frozen weights, which stay as they are from now on
            if self.rank:
                tensor.data = np.empty(tensor.shape, tensor.dtype)
            self._broadcast(tensor.data.reshape(-1))
        values = optimizer.memory.values
        self._broadcast(values.data)
        values.mark_written()
        if self.is_short:
            self.before = values.data[optimizer.memory.part].copy()

    def add_up(self, gradients: np.ndarray, own: slice) -> None:
        """Add the gradients of all ranks in their order, in this rank's slice."""
        for cuts, counts, starts in self._pieces():
            sent = [gradients, (counts, starts)]
            if self.is_short:
                sent = [np.concatenate([to_bfloat16(gradients[cut]) for cut in cuts]), counts]
            rows = np.empty((self.size, counts[self.rank]), sent[0].dtype)
            self.world.Alltoallv(sent, [rows, [counts[self.rank]] * self.size])
            gradients[cuts[self.rank]] = functools.reduce(np.add, map(from_bfloat16, rows) if self.is_short else rows)

    def share_weights(self, optimizer: Optimizer) -> None:
        """Send this rank's slice of the weights to all others, and agree on whether to stop."""
        super().share_weights(optimizer)
        values = optimizer.memory.values.data
        for cuts, counts, starts in self._pieces():
            own = cuts[self.rank]
            if not self.is_short:
                self.world.Allgatherv(values[own].copy(), [values, (counts, starts)])
                continue
            before = self.before[own.start - optimizer.memory.part.start : own.stop - optimizer.memory.part.start]
            changes = np.empty(sum(counts), np.uint16)
            self.world.Allgatherv(to_bfloat16(values[own] - before), [changes, counts])
            values[own] = before
            for cut, end in zip(cuts, np.cumsum(counts), strict=True):
                values[cut] += from_bfloat16(changes[end - (cut.stop - cut.start) : end])
            before[...] = values[own]
        optimizer.memory.values.mark_written()

    def collect_states(self, optimizer: Optimizer) -> None:
        """Send each rank's slice of the optimizer's states to rank 0."""
        for cuts, counts, starts in self._pieces():
            for state in optimizer.memory.states.values():
                self.world.Gatherv(state.data[cuts[self.rank]].copy(), [state.data, (counts, starts)])

    def _broadcast(self, values: np.ndarray) -> None:
        """Send an array (n,) of rank 0 to all others, a piece at a time."""
        self.is_sending = True
        for start in range(0, values.size, PIECE):
            self.world.Bcast(values[start : start + PIECE])
        self.is_sending = False

    def _pieces(self) -> Iterator[tuple[list[slice], list[int], list[int]]]:
        """The slices of all ranks, a piece at a time: the piece of each, their lengths, and where they begin."""
        self.is_sending = True
        for start in range(0, max(part.stop - part.start for part in self.parts), PIECE):
            places = [(min(p.start + start, p.stop), min(p.start + start + PIECE, p.stop)) for p in self.parts]
            yield [slice(*place) for place in places], [end - begin for begin, end in places], [b for b, _ in places]
        self.is_sending = False


def described(error: BaseException) -> str:
    """An error of this rank for the message of rank 0: what, on which machine, and where in the program."""
    if isinstance(error, MemoryError):
        return "MemoryError"
    if isinstance(error, UserError):
        return str(error)
    place = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{os.path.basename(place.filename)}, line {place.lineno}, on {platform.node()}"
    return f"{type(error).__name__}: {' '.join(str(error).split())} ({where})"


def to_bfloat16(x: np.ndarray) -> np.ndarray:
    """The upper halves of float32 numbers, rounded to the nearest, as uint16."""
    return ((x.view(np.uint32) + np.uint32(0x8000)) >> np.uint32(16)).astype(np.uint16)


def from_bfloat16(x: np.ndarray) -> np.ndarray:
    """The float32 numbers whose upper halves these are.

    >>> from_bfloat16(to_bfloat16(np.float32([1, -2.5, 1 / 3]))).tolist()
    [1.0, -2.5, 0.333984375]
    """
    return (x.astype(np.uint32) << np.uint32(16)).view(np.float32)
