"""Worker processes: several processes on one machine train one model through shared memory.

        process 0                             process 1
    1.  gradients of its part of the batch,   gradients of its part of the batch,
        into row 0 of an array (W, N)         into row 1
    2.  sums its half of the N columns        sums the other half
    3.  updates its half of the N weights     updates the other half

Each step needs the results of all processes in the step before, so between steps they wait for each other, in `gather`;
waiting uses no CPU. The N weights, the W rows of gradients and the optimizer's running means are in shared memory, so
none of them is ever sent. Frozen weights are in it too: all processes read the same ones.

Why is this faster, when matrix products use all cores anyway? The products of a small model are too short to be worth
splitting, and everything else in NumPy runs on one core. With processes, all of the work is split.

The memory has no name and no file that could be left behind, and a process ends when its pipe to process 0 closes:
whatever ends process 0, even SIGKILL, nothing remains. Process 0 in turn gets an error from the pipe of a process that
has ended. Therefore a process gets its job through this pipe too, once it runs: the pipe from which `spawn` reads has
no such error, so little is sent through it.

This is data parallelism as in Goyal et al. 2017 (arXiv:1706.02677), section 3; that each process updates only its own
part of the weights is the first stage of ZeRO (Rajbhandari et al. 2020, arXiv:1910.02054).
"""

import contextlib
import errno
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.heap import Arena
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from tinygrad_lite.errors import UserError
from tinygrad_lite.nn import Module
from tinygrad_lite.optim import AdamW, Muon, Optimizer
from training.cli.console import safe_path
from training.folder import STOPPING, StopRequest, release_memory
from training.options import TrainOptions
from training.processes.processes import Gone, Job, OneGPU, OneProcess, Program, SeveralProcesses, fixed
from training.task import Task

PATIENCE = 5  # seconds that the processes may take to end


class WorkerProcesses(SeveralProcesses):
    """The communicator of one of several processes.

    Args:
        gradients: (W, N), a row for each process.

    Attributes:
        pipes: in process 0, the pipes to all others, in order; in another process, the pipe to process 0.
        processes: in process 0, the others.
    """

    def __init__(self, rank: int, gradients: np.ndarray, optimizer: Optimizer, stop: StopRequest | None = None) -> None:
        super().__init__(stop, rank, len(gradients))
        self.gradients = gradients
        self.pipes: list[Connection] = []
        self.processes: list[multiprocessing.process.BaseProcess] = []
        optimizer.memory.part = optimizer.slice_of(rank, self.size)

    def gather(self, value: Any) -> list[Any]:
        """The values of all processes; see `OneProcess`.

        Raises: Gone if process 0 has ended; in process 0, UserError if another process has, or the error that it sent.
        """
        if self.rank:
            try:
                self.pipes[0].send((None, value))
                return self.pipes[0].recv()
            except (EOFError, OSError):
                raise Gone from None
        values = [value]
        for rank, pipe in enumerate(self.pipes, start=1):
            try:
                failure, other = pipe.recv()
            except (EOFError, OSError):
                self._raise_gone(rank)
            if failure:
                raise MemoryError if failure == "MemoryError" else RuntimeError(f"in process {rank}:\n{failure}")
            values.append(other)
        self.send(values)
        return values

    def send(self, value: Any) -> None:
        """Send a value from process 0 to all others. Raises: UserError if one of them has ended."""
        data = ForkingPickler.dumps(value)
        for rank, pipe in enumerate(self.pipes, start=1):
            try:
                pipe.send_bytes(data)
            except OSError:
                self._raise_gone(rank)

    def add_up(self, gradients: np.ndarray, own: slice) -> None:
        """Add the other rows of gradients to this process's, in its own slice."""
        for rank in range(self.size):
            if rank != self.rank:
                gradients[own] += self.gradients[rank, own]

    def _raise_gone(self, rank: int) -> None:
        process = self.processes[rank - 1]
        process.join(PATIENCE)
        status = process.exitcode
        reason = f"ended with status {status}" if status is None or status >= 0 else signal.Signals(-status).name
        advice = "earlier checkpoints are intact: --resume continues from there, --workers 1 needs less memory"
        ended = f"worker {rank} (process {process.pid}) has ended: {reason}"
        raise UserError(f"{ended}; perhaps memory ran out; {advice}")


@contextlib.contextmanager
def start_processes(
    program: Program,
    options: TrainOptions,
    task: Task,
    model: Module,
    optimizer: Optimizer,
    stop: StopRequest | None = None,
) -> Iterator[OneProcess]:
    """Start `options.workers` processes, this one included; yields the communicator of this one, process 0.

    The others call `program` with their own model, optimizer and communicator, on the same memory. Inside the block,
    this process must call it too.
    """
    if options.workers == 1:
        release_memory()  # the memory of the arrays that were moved into the flat ones
        can_wait = options.device == "cuda" and type(optimizer) in (AdamW, Muon) and not options.composed
        yield OneGPU(optimizer, stop) if can_wait else OneProcess(stop)
        return
    context = multiprocessing.get_context("spawn")  # a new Python, independent of threads and locks in this one
    rows = 1 + len(optimizer.memory.states) + options.workers
    frozen = sum(aligned(tensor.data.nbytes) for tensor in fixed(model, optimizer))
    with starting():
        memory = reserved(rows * optimizer.memory.values.data.nbytes + frozen)
    gradients = move_into(memory.buffer, model, optimizer, rank=0)
    release_memory()  # the memory of the arrays that have moved to the shared memory
    job = Job(program, options, task, model, optimizer)
    comm = WorkerProcesses(0, gradients, optimizer, stop)
    try:
        for rank in range(1, options.workers):
            with starting():
                here, there = context.Pipe()
                process = context.Process(target=work, args=(there, rank, memory), name=f"worker {rank}", daemon=True)
                process.start()
                comm.pipes.append(here)
                comm.processes.append(process)
            there.close()  # the process has its own; when it ends, reading and writing here must end too
        comm.send(job)
        comm.gather(None)  # until all are ready
        with threadpool_limits(1):
            yield comm
    finally:
        optimizer.memory.part = None
        for pipe in comm.pipes:
            pipe.close()  # a process ends when its pipe closes
        end = time.monotonic() + PATIENCE
        for process in comm.processes:
            process.join(max(0.0, end - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()


@contextlib.contextmanager
def starting() -> Iterator[None]:
    """Within this context a process can be started: it does not get the command line, and inherits blocked signals.

    It starts with a `safe_path`. Ctrl-C reaches all processes of a terminal, and SIGTERM often a whole group. Only
    process 0 reacts, and all processes agree to stop at the end of the step. A signal that arrives inside takes effect
    at the end of the block.

    Raises: UserError if the system refuses it.
    """
    words, mask = sys.argv, getattr(signal, "pthread_sigmask", None)  # Windows has none, and nothing is inherited there
    before = mask(signal.SIG_BLOCK, STOPPING) if mask else None
    try:
        sys.argv = words[:1]  # many file names might not fit into the pipe from which a new process reads
        with safe_path():
            if mask:
                resource_tracker.ensure_running()  # starting this helper of multiprocessing unblocks signals
                mask(signal.SIG_BLOCK, STOPPING)
            yield
    except OSError as error:
        if error.errno == errno.ENOMEM:
            raise
        refused = f"no more worker processes, or memory that they share ({error.strerror})"
        raise UserError(f"this system allows {refused}: use --workers 1, which needs neither") from None
    finally:
        sys.argv = words
        if mask:
            mask(signal.SIG_SETMASK, before)


def reserved(size: int) -> Arena:
    """Memory of this many bytes that processes share.

    If there is no room for all of its pages, that is an OSError here, where the system can reserve them (Linux). Later,
    at the first use of a page, it would be a signal (SIGBUS) that kills the process.
    """
    memory = Arena(size)
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(memory.fd, 0, size)
    return memory


def aligned(size: int) -> int:
    """A number of bytes, rounded up to a multiple of 8, so that numbers of any type can follow."""
    return -(-size // 8) * 8


def move_into(memory: Any, model: Module, optimizer: Optimizer, rank: int) -> np.ndarray:
    """Move the frozen weights and an optimizer's flat arrays into the shared memory.

    First in the memory are the frozen weights, each of its own type, then rows: the weights that learn, the optimizer's
    states, and the gradients of each process, (W, N), which are returned.

    Args:
        rank: of this process, whose row of gradients the optimizer uses. Process 0 copies its weights and states into
            the memory; the others adopt those in the memory.
    """
    values, start = optimizer.memory.values.data, 0
    for tensor in fixed(model, optimizer):
        place = np.frombuffer(memory, tensor.dtype, tensor.numel(), start).reshape(tensor.shape)
        if rank == 0:
            place[...] = tensor.data
        tensor.data = place
        start += aligned(place.nbytes)
    rows = np.frombuffer(memory, values.dtype, offset=start).reshape(-1, values.size)
    end = 1 + len(optimizer.memory.states)
    optimizer.move_into(rows[0], rows[end + rank], rows[1:end], rank == 0)
    return rows[end:]


def work(pipe: Connection, rank: int, memory: Arena) -> None:
    """The main function of a process other than process 0: make a model on the shared memory, and run the program."""
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)  # where the system could not block them
    try:
        with threadpool_limits(1):
            job = pipe.recv()
            model, optimizer = job.prepare()
            gradients = move_into(memory.buffer, model, optimizer, rank)
            release_memory()
            comm = WorkerProcesses(rank, gradients, optimizer)
            comm.pipes.append(pipe)
            comm.gather(None)
            job.program(job.options, job.task, model, optimizer, comm)
    except (Gone, EOFError, UserError):  # process 0 has ended, or reports the same error
        pass
    except Exception as error:
        failure = "MemoryError" if isinstance(error, MemoryError) else traceback.format_exc()
        with contextlib.suppress(OSError):  # process 0 may have ended
            pipe.send((failure, None))
