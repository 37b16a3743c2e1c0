"""Many machines without any: the ranks of a training run are rows of an array, and a network counts what they send."""

import numpy as np


class Network:
    """Carries arrays from rank to rank.

    Attributes:
        sent, received: bytes, by rank. What a rank keeps for itself is not counted.
    """

    def __init__(self, size: int) -> None:
        self.size, self.sent, self.received = size, [0] * size, [0] * size

    def send(self, sender: int, receiver: int, array: np.ndarray) -> np.ndarray:
        """The array as it arrives."""
        if sender != receiver:
            self.sent[sender] += array.nbytes
            self.received[receiver] += array.nbytes
        return array.copy()


def slices(n: int, size: int) -> list[slice]:
    """The slice of n numbers for which each rank is responsible."""
    return [slice(n * rank // size, n * (rank + 1) // size) for rank in range(size)]


def sum_at_one(network: Network, gradients: np.ndarray) -> np.ndarray:
    """The sum of (W, N) gradients in every rank, (W, N): all send theirs to rank 0, which sends the sum to all."""
    total = network.send(0, 0, gradients[0])
    for rank in range(1, network.size):
        total += network.send(rank, 0, gradients[rank])
    return np.stack([network.send(0, rank, total) for rank in range(network.size)])


def reduce_scatter_in_a_ring(network: Network, gradients: np.ndarray) -> list[np.ndarray]:
    """For each rank, the sum of its slice of (W, N) gradients.

    The slice of rank r begins at rank r + 1. Each adds its own and passes the sum on to the next, until it reaches r.
    """
    sums = []
    for owner, part in enumerate(slices(gradients.shape[1], network.size)):
        total = gradients[(owner + 1) % network.size, part]
        for step in range(1, network.size):
            receiver = (owner + 1 + step) % network.size
            total = network.send((receiver - 1) % network.size, receiver, total) + gradients[receiver, part]
        sums.append(total)
    return sums


def all_gather(network: Network, parts: list[np.ndarray]) -> np.ndarray:
    """The parts of all ranks, joined, in every rank: (W, N)."""
    ranks = range(network.size)
    return np.stack([np.concatenate([network.send(r, receiver, parts[r]) for r in ranks]) for receiver in ranks])
