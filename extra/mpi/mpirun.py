"""Ranks and mpirun: how they find each other, and what happens to them when a connection or a machine is lost.

A rank in which an error occurs tells the others in the next `gather` (mpi.py), where all ranks meet; then all end, and
rank 0 prints why. mpirun itself ends a job of which a process was killed. Neither notices that another machine can no
longer be reached: the thread `Watchdog` ends a rank that has not heard from the others for a while.
"""

from __future__ import annotations

import contextlib
import os
import platform
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tinygrad_lite.errors import UserError
from training.cli.console import say

if TYPE_CHECKING:
    from mpi4py import MPI

# Each launcher, and where it writes the rank and the number of ranks: MPICH and Slurm's PMI-2, Open MPI, Slurm's PMIx,
# and Slurm without either, whose processes do not find each other.
LAUNCHERS = (
    ("mpirun", "PMI_RANK", "PMI_SIZE"),
    ("mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("srun", "PMIX_RANK", "SLURM_STEP_NUM_TASKS"),
    ("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)
TIMEOUT = "TINYGRAD_LITE_LINK_TIMEOUT"  # environment variable: seconds without a message after which a rank ends
DEFAULT_TIMEOUT = 30


def launched() -> tuple[int, int, str]:
    """The rank, the number of ranks, and the launcher that says so; (0, 1, "") if there is none."""
    for launcher, rank, size in LAUNCHERS:
        if os.environ.get(rank, "").isdecimal() and os.environ.get(size, "").isdecimal():
            return int(os.environ[rank]), int(os.environ[size]), launcher
    return 0, 1, ""


def on_all_ranks(main: Callable[[list[str]], int]) -> Callable[[list[str]], int]:
    """A command's main function, for a process that mpirun may have started: rank 0 runs it, the others wait for jobs.

    Without mpirun it is the function itself.
    """

    def run(argv: list[str]) -> int:
        from extra.mpi.mpi import serve, wait_for_all  # which only mpirun needs

        world = connect()
        with Watchdog(world.Dup(), world.allgather(platform.node())) as watchdog:
            if world.rank:
                serve(world)
                watchdog.end()
                return 0
            try:
                return main(argv)
            finally:
                wait_for_all(world)
                world.bcast(None)  # there are no more jobs
                watchdog.end()

    return run if launched()[1] > 1 else main


def connect() -> MPI.Comm:
    """The communicator of all ranks; a rank that cannot have it raises UserError, or ends: rank 0 says why."""
    rank, size, launcher = launched()
    try:
        import mpi4py

        mpi4py.rc.initialize, mpi4py.rc.finalize = False, True
        with warnings.catch_warnings(action="ignore"):  # about what is explained better below
            from mpi4py import MPI

        library = MPI.Get_library_version().replace("\n", ",").split(",")[0].strip()
        fits = "OMPI_COMM_WORLD_SIZE" not in os.environ or library.startswith("Open MPI")
        if fits and not MPI.Is_initialized():
            MPI.Init_thread()
        world, reason, limit = MPI.COMM_WORLD, "", os.environ.get(TIMEOUT, "0")
        if not limit.isdecimal():
            reason = f"the environment variable {TIMEOUT} is {limit!r}: use whole seconds, or 0 for no limit"
        if not fits or world.size != size:
            advice = "use srun --mpi=pmi2, or -n 1 for each of several runs"
            if launcher == "mpirun":
                own = os.path.join(sys.prefix, "bin", "mpirun")
                advice = f"use the mpirun of the same installation, probably {own}"
            known = f"Python's MPI ({' '.join(library.split())}) does not know them"
            reason = f"{launcher} started {size} processes, but {known}: {advice}"
    except ImportError:
        reason = 'several machines need mpi4py and an MPI: run pip install -e ".[mpi]" on each of them'
    except RuntimeError as error:  # mpi4py is there, its library is not
        reason = f'mpi4py finds no MPI ({str(error).splitlines()[0]}): run pip install -e ".[mpi]"'
    if not reason:
        return world
    if rank:
        sys.exit(1)
    raise UserError(reason)


class Watchdog(threading.Thread):
    """Inside its block, ends this process if rank 0, or any other as seen from rank 0, has been silent for too long.

    Every second each rank sends a message to rank 0 and rank 0 one to each, in a thread, so that a step or evaluation
    may take as long as it likes. What counts is how often this thread has found nothing: after a suspension (Ctrl-Z, a
    closed laptop) time has passed, but the thread has not looked.

    Args:
        line: a communicator for these messages alone.
        hosts: the name of each rank's machine.
    """

    def __init__(self, line: MPI.Comm, hosts: list[str]) -> None:
        super().__init__(daemon=True)
        self.line, self.hosts, self.has_ended = line, hosts, threading.Event()
        self.limit = int(os.environ.get(TIMEOUT, DEFAULT_TIMEOUT))
        self.sent, self.received = [0] * line.size, [0] * line.size  # messages to and from each rank

    def __enter__(self) -> Watchdog:
        if self.limit:
            self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.has_ended.set()
        if self.limit:
            self.join()

    def end(self) -> None:
        """End in all ranks, and receive what is still on its way: MPI would complain about it."""
        self.__exit__()
        for peer, count in enumerate(self.line.alltoall(self.sent)):
            for _ in range(count - self.received[peer]):
                self.line.Recv(bytearray(0), peer)

    def run(self) -> None:
        peers = [0] if self.line.rank else range(1, self.line.size)
        silent, last = dict.fromkeys(peers, 0), {}
        while not self.has_ended.wait(1):
            for peer in peers:
                if peer not in last or last[peer].Test():  # else the last message is still on its way
                    last[peer] = self.line.Isend(b"", peer)
                    self.sent[peer] += 1
                silent[peer] += 1
                while self.line.Iprobe(peer):
                    self.line.Recv(bytearray(0), peer)
                    self.received[peer] += 1
                    silent[peer] = 0
                if silent[peer] >= self.limit:
                    say(
                        f"stopped: rank {self.line.rank} has not heard from rank {peer} on {self.hosts[peer]} for "
                        f"{self.limit} s, so the connection or that machine is down; earlier checkpoints are intact: "
                        "--resume continues from there"
                    )
                    end_mpirun()
                    os._exit(1)


def end_mpirun() -> None:
    """Kill MPICH's mpirun if it is on this machine: it would pass on any other signal, and wait for an answer."""
    time.sleep(1)  # until it has printed our message
    with contextlib.suppress(OSError):
        proxy = Path(f"/proc/{os.getppid()}/stat").read_text(encoding="utf-8")
        mpirun = int(proxy.rpartition(")")[2].split()[1])  # its parent
        if Path(f"/proc/{mpirun}/comm").read_text(encoding="utf-8").startswith("mpi"):
            os.kill(mpirun, 9)  # SIGKILL; Windows, which has no /proc either, lacks the name
