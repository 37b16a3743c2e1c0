"""Checks of chapter 16."""

import numpy as np
from compare import same
from ranks import Network, slices

from tinygrad_lite.random import keyed_rng


def reduce_scatter(exercise):
    """Two loops: over the receivers with their slices, and over the senders. network.send gives what arrives.

    The first term of each sum is that of rank 0, whoever adds.
    """
    rng = keyed_rng(0, "chapter 16")
    for size, n in ((2, 6), (4, 30), (3, 10)):
        gradients = rng.normal(0, 1, (size, n)).astype(np.float32)
        network, before = Network(size), gradients.copy()
        found = exercise.reduce_scatter(network, gradients)
        parts = slices(n, size)
        assert np.array_equal(gradients, before), "the gradients of the ranks have been changed: send gives a copy"
        shapes = [np.shape(total) for total in found]
        assert shapes == [(part.stop - part.start,) for part in parts], f"the slices have the shapes {shapes}"
        for rank, part in enumerate(parts):
            right = gradients[0, part].copy()
            for row in gradients[1:]:
                right += row[part]
            same(found[rank], right, f"with {size} ranks, the sum of rank {rank}", rtol=0, atol=1e-5)
            assert np.array_equal(found[rank], right), (
                f"with {size} ranks, the sum of rank {rank} is right, but its last bits are not: which order is it?"
            )
        for rank, part in enumerate(parts):
            expected = 4 * (n - (part.stop - part.start))
            assert network.sent[rank] == expected, (
                f"with {size} ranks and N = {n}, rank {rank}: yours sends {network.sent[rank]} bytes, "
                f"it must be {expected}"
            )


def efficiency(exercise):
    """The time to send is bytes / rate. A rank sends N (W - 1) / W gradients, and then as many weights.

    With several ranks on a machine, all of them send over its link, but only to the ranks elsewhere.
    """
    close = lambda found, right: abs(found - right) < 1e-9 * right  # noqa: E731
    cases = (
        ({}, 0.5, "two ranks, where sending takes as long as computing"),
        ({"micro_steps": 3}, 0.75, "three micro-steps in an update"),
        ({"bytes_each": 2}, 2 / 3, "half the bytes"),
        ({"ranks": 4}, 0.4, "four machines: each sends N · 3/4 numbers twice"),
        ({"ranks": 4, "per_machine": 2}, 1 / 3, "two ranks on each of two machines: a rank sends half of its numbers"),
        ({"ranks": 4, "per_machine": 4}, 1.0, "all ranks on one machine"),
    )
    for changes, right, words in cases:
        case = {"n": 1_000_000, "ranks": 2, "bytes_each": 4, "rate": 4e6, "seconds": 1.0} | changes
        found = exercise.efficiency(**case)
        assert close(found, right), f"{words}: yours is {found:.3f}, it must be {right:.3f}"


def to_bfloat16(exercise):
    """Clearing the lower 16 bits rounds towards 0. What must be added before, so that it rounds to the nearest?"""
    x = keyed_rng(1, "chapter 16").normal(0, 1, 1000).astype(np.float32)
    before = x.copy()
    found = exercise.to_bfloat16(x)
    assert np.array_equal(x, before), "x has been changed"
    assert getattr(found, "dtype", None) == np.float32, f"the result is {getattr(found, 'dtype', type(found))}"
    left = np.count_nonzero(found.view(np.uint32) & 0xFFFF)
    assert left == 0, f"{left} of 1000 numbers have lower bits that are not 0"
    # The neighbours of x with 16 bits: towards 0, and away from it.
    low = x.view(np.uint32) & np.uint32(0xFFFF0000)
    near = [bits.view(np.float32) for bits in (low, low + np.uint32(0x10000))]
    right = np.minimum(*(np.abs(other - x) for other in near))
    wrong = np.count_nonzero(np.abs(found - x) > right)
    assert wrong == 0, f"for {wrong} of 1000 numbers, another is nearer; the first is {x[np.abs(found - x) > right][0]}"
