"""Exercises of chapter 16: every ... is a blank to fill in."""

import numpy as np
from ranks import Network


def reduce_scatter(network: Network, gradients: np.ndarray) -> list[np.ndarray]:
    """For each of the W ranks, the sum of its slice of the gradients (W, N).

    Each rank sends slice r to rank r, once, for all r. Rank r adds what it has and what arrives in rank order: first
    the slice of rank 0, then that of rank 1, and so on.
    """
    ...


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
    ...


def to_bfloat16(x: np.ndarray) -> np.ndarray:
    """float32 numbers, each rounded to the nearest whose lower 16 bits are 0 (float32 again; a tie may go either way).

    x.view(np.uint32) has the bits of each number, sign and exponent first, as integers that can be added.
    """
    ...
