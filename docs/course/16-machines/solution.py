"""Solutions of chapter 16."""

import numpy as np
from ranks import Network, slices


def reduce_scatter(network: Network, gradients: np.ndarray) -> list[np.ndarray]:
    """For each of the W ranks, the sum of its slice of the gradients (W, N).

    Each rank sends slice r to rank r, once, for all r. Rank r adds what it has and what arrives in rank order: first
    the slice of rank 0, then that of rank 1, and so on.
    """
    sums = []
    for receiver, part in enumerate(slices(gradients.shape[1], network.size)):
        total = network.send(0, receiver, gradients[0, part])
        for sender in range(1, network.size):
            total += network.send(sender, receiver, gradients[sender, part])
        sums.append(total)
    return sums


def efficiency(
    n: int, ranks: int, bytes_each: int, rate: float, seconds: float, micro_steps: int = 1, per_machine: int = 1
) -> float:
    """The share of an update's time in which a rank computes.

    Args:
        n: number of parameters.
        bytes_each: of a number that is sent.
        rate: what a machine can send, in bytes per second; it receives at the same time.
        seconds: of computing a micro-step.
        micro_steps: whose gradients are summed before they are exchanged.
        per_machine: ranks on a machine, which share its link; what they send each other does not need it.
    """
    computing = micro_steps * seconds
    others = ranks - per_machine  # the ranks on other machines
    sent = 2 * per_machine * n * others / ranks * bytes_each  # gradients, and weights
    return computing / (computing + sent / rate)


def to_bfloat16(x: np.ndarray) -> np.ndarray:
    """float32 numbers, each rounded to the nearest whose lower 16 bits are 0 (float32 again; a tie may go either way).

    x.view(np.uint32) has the bits of each number, sign and exponent first, as integers that can be added.
    """
    bits = x.view(np.uint32) + np.uint32(0x8000)  # half of the last bit that stays
    return (bits & np.uint32(0xFFFF0000)).view(np.float32)
