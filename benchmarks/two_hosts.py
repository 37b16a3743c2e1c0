"""Training on two machines that one machine simulates: two network namespaces, and 1 Gbit/s between them.

    sudo python -m benchmarks.two_hosts                     three sizes, about eight minutes
    sudo python -m benchmarks.two_hosts --shapes small      one of them

Each rank computes whole batches of its own on one thread ("full work per rank"), so with a network that costs nothing
two ranks would learn from twice the tokens in the time of one. The efficiency is the share of that which remains:

    time of an update alone / time of an update of two ranks

Next to it is what the numbers of bytes predict: micro-steps and half an update, and the time that the link takes for
the gradients and the weights, each half of N numbers in both directions at once.

Needs Linux, root (for `ip netns`), and the extra `mpi`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import cpu_model, load
from benchmarks.our_side import make_model
from benchmarks.shapes import BATCHES, SHAPES, MadeUpTask
from extra.mpi.mpi import Ranks
from extra.mpi.mpirun import launched, on_all_ranks
from gpt.data import Batch
from tinygrad_lite.config import option
from tinygrad_lite.errors import UserError
from tinygrad_lite.nn import Module
from tinygrad_lite.optim import Optimizer
from tinygrad_lite.tensor import Tensor
from train import only_updates
from training.cli.command_line import read_command
from training.cli.console import run_command, say
from training.folder import tune_memory
from training.options import TrainOptions
from training.processes.workers import start_processes

ROOT = Path(__file__).parent.parent
HOSTS = {"hostA": "10.77.0.1", "hostB": "10.77.0.2"}
DEVICE = "veth"  # the name of the network device on each host
EXCHANGES = {"same": 4, "bfloat16": 2}  # --exchange, and the bytes of a number that is sent
MICRO_STEPS = (1, 4, 8)  # of an update
# Called like ssh, with options, a machine and a command, it runs the command in the namespace that represents the
# machine.
AGENT = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
case $1 in 10.77.0.1) host=hostA;; *) host=hostB;; esac
shift
exec ip netns exec $host unshare --uts sh -c "hostname $host; $*"
"""


@dataclass
class TwoHostsOptions:
    """The options of `python -m benchmarks.two_hosts`."""

    shapes: str = option("small,baby,gpt2", "models: the names of benchmarks/shapes.py, with commas")
    updates: int = option(3, "updates to measure for each row; the median counts", low=1)
    rate: str = option("1gbit", "rate of the link, as tc writes it")


class TwoHosts:
    """Within its block there are two hosts with a link between them."""

    def __init__(self, rate: str = "1gbit") -> None:
        self.rate = rate

    def __enter__(self) -> TwoHosts:
        if not shutil.which("ip"):
            raise UserError("two hosts are simulated with `ip netns`, which needs Linux, iproute2 and root")
        self.folder = tempfile.TemporaryDirectory()
        self.agent = Path(self.folder.name) / "agent"
        self.agent.write_text(AGENT, encoding="ascii", newline="\n")
        self.agent.chmod(0o755)
        first, second = HOSTS
        for host in HOSTS:
            subprocess.run(["ip", "netns", "del", host], stderr=subprocess.DEVNULL, check=False)  # left by a killed run
            ip("netns", "add", host)
        ip("link", "add", DEVICE, "netns", first, "type", "veth", "peer", "name", DEVICE, "netns", second)
        shaping = ["root", "tbf", "rate", self.rate, "burst", "64k", "latency", "50ms"]
        for host, address in HOSTS.items():
            ip("-n", host, "addr", "add", f"{address}/24", "dev", DEVICE)
            ip("-n", host, "link", "set", "lo", "up")
            ip("-n", host, "link", "set", DEVICE, "addrgenmode", "none")  # no IPv6, which needs seconds to be usable
            ip("-n", host, "link", "set", DEVICE, "up")
            ip("netns", "exec", host, "tc", "qdisc", "add", "dev", DEVICE, *shaping)
        while any("state UP" not in ip("-n", host, "link", "show", DEVICE) for host in HOSTS):
            time.sleep(0.1)  # before that, MPICH chooses another device, or fails
        return self

    def __exit__(self, *_: object) -> None:
        for host in HOSTS:
            subprocess.run(["ip", "netns", "del", host], check=False)
        self.folder.cleanup()

    def cut(self) -> None:
        """Cut the link: from now on nothing arrives, and neither side is told."""
        ip("-n", next(iter(HOSTS)), "link", "set", DEVICE, "down")

    def start(self, *words: str, **settings: Any) -> subprocess.Popen:
        """Start one rank of `python WORDS` on each host."""
        run = [sys.executable, *words]
        mpirun = [str(Path(sys.prefix, "bin", "mpirun")), "-launcher", "ssh", "-launcher-exec", str(self.agent)]
        where = ["-hosts", ",".join(f"{address}:1" for address in HOSTS.values()), "-n", "2"]
        network = {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp", "FI_TCP_IFACE": DEVICE}
        network["OPENBLAS_NUM_THREADS"] = "1"
        paths = {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        command = [str(self.agent), next(iter(HOSTS.values())), *mpirun, *where, *run]
        return subprocess.Popen(command, env=os.environ | network | paths, **settings)


def ip(*words: str) -> str:
    """Run the command `ip`; returns what it prints. Raises: UserError if it fails."""
    done = subprocess.run(["ip", *words], capture_output=True, encoding="utf-8", check=False)
    if done.returncode:
        raise UserError(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


# --- in the ranks -------------------------------------------------------------------------------------------------


class FullWork(MadeUpTask):
    """Whole batches for every rank, several of them for an update."""

    steps = 1

    def __init__(self, name: str) -> None:
        super().__init__(SHAPES[name])
        self.name = name

    def batches(self, step: int, rank: int = 0, size: int = 1) -> Iterator[tuple[Batch, float]]:
        for number in range(self.steps):
            first, second = self.arrays[(step + number + rank) % BATCHES]
            yield (Tensor(first), Tensor(second)), 1 / (self.steps * size)


def measure(options: TrainOptions, task: FullWork, model: Module, optimizer: Optimizer, comm: Ranks) -> None:
    """What both ranks do: measure computing alone, the link, and updates in all cases; rank 0 prints each result."""
    numbers = optimizer.memory.values.data.size
    micro_step, update = time_alone(options, task, model, optimizer, comm)
    rate = bytes_per_second(comm)
    if comm.rank == 0:
        say(
            f"{task.name}: {numbers:,} parameters, a micro-step {micro_step * 1e3:.1f} ms, an update "
            f"{update * 1e3:.1f} ms, the link {rate * 8 / 1e9:.2f} Gbit/s each way"
        )
    for exchange, size in EXCHANGES.items():
        comm.is_short = exchange == "bfloat16"
        comm.copy_weights(optimizer)
        for task.steps in MICRO_STEPS:
            took = []
            for _ in range(options.patience):
                began = time.perf_counter()
                only_updates(replace(options, max_iters=optimizer.steps + 1), task, model, optimizer, comm)
                took.append(time.perf_counter() - began)
            alone, together = task.steps * micro_step + update, float(np.median(took))
            predicted = alone - update / 2 + 2 * (numbers / 2) * size / rate
            if comm.rank == 0:
                print(
                    f"| {task.name} | {8 * size} bits | {task.steps} | {alone * 1e3:,.0f} | {together * 1e3:,.0f} | "
                    f"{alone / together:.0%} | {alone / predicted:.0%} |",
                    flush=True,
                )


def time_alone(
    options: TrainOptions, task: FullWork, model: Module, optimizer: Optimizer, comm: Ranks
) -> tuple[float, float]:
    """The seconds of a micro-step and of an update of all weights, without the other rank; medians."""
    own, optimizer.memory.part = optimizer.memory.part, None
    times = []
    for step in range(options.patience + 1):  # the first takes longer
        began = time.perf_counter()
        for batch, share in task.batches(step, comm.rank, comm.size):
            (model.loss(batch) * share).backward()
        computed = time.perf_counter()
        optimizer.step()
        times.append((computed - began, time.perf_counter() - computed))
        optimizer.zero_grad()
    optimizer.memory.part = own
    return tuple(np.median(times[1:], axis=0).tolist())


def bytes_per_second(comm: Ranks) -> float:
    """What the link carries in each direction while both send."""
    sent = np.zeros(1 << 23, np.uint8)
    took = []
    for _ in range(4):
        comm.gather(None)
        began = time.perf_counter()
        comm.world.Alltoall(sent, np.empty_like(sent))
        took.append(time.perf_counter() - began)
    return sent.size / 2 / min(took)


def rank(argv: list[str]) -> int:
    """The main function of rank 0."""
    tune_memory()
    task = FullWork(argv[0])
    options = replace(task.shape.options, workers=2, decay_lr=False, patience=int(argv[1]))
    model = make_model(task.shape)
    optimizer = options.make_optimizer(model)
    with start_processes(measure, options, task, model, optimizer) as comm:
        measure(options, task, model, optimizer, comm)
    return 0


def main(argv: list[str]) -> int:
    """Measure, and print the table."""
    options, _ = read_command(TwoHostsOptions, argv, "python -m benchmarks.two_hosts", __doc__.split("\n")[0])
    print(f"{cpu_model()}, load {load()}, link {options.rate}\n")
    print("| model | exchange | micro-steps | alone, ms | two ranks, ms | efficiency | predicted |")
    print("|---|---|---|---|---|---|---|", flush=True)
    with TwoHosts(options.rate) as hosts:
        for name in options.shapes.split(","):
            if hosts.start("-m", "benchmarks.two_hosts", name, str(options.updates)).wait():
                raise UserError(f"{name}: the ranks have failed")
    return 0


if __name__ == "__main__":
    run_command("python -m benchmarks.two_hosts", on_all_ranks(rank) if launched()[1] > 1 else main)
