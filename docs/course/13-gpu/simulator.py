"""A very small GPU: it runs kernels that are Python generators, and counts the pieces of memory that they fetch."""

from contextlib import suppress

import numpy as np

LANES, PIECE = 32, 32  # threads of a warp; bytes of a transaction
SYNC = "wait for all threads of the block"


class Memory:
    """Numbers that threads read with `yield x[i]` and write with `yield x.put(i, value)`; float32."""

    def __init__(self, values, is_on_chip=False):
        self.values, self.is_on_chip = np.array(values, np.float32).reshape(-1), is_on_chip

    def __getitem__(self, index):
        return self, index, None

    def put(self, index, value):
        return self, index, value


def advance(warp, answers):
    """Let the threads of a warp run in lockstep until all wait or have ended; return transactions and who waits."""
    moving, waiting, count = list(warp), [], 0
    while moving:
        requests = {}
        for thread in moving:
            with suppress(StopIteration):
                requests[thread] = thread.send(answers.pop(thread, None))
        waiting += [thread for thread, request in requests.items() if request == SYNC]
        moving = [thread for thread in requests if requests[thread] != SYNC]
        accesses = [requests[thread] for thread in moving]
        answers |= {t: m.values[i] for t, (m, i, value) in zip(moving, accesses, strict=True) if value is None}
        for memory, index, value in accesses:  # all have read before the first writes
            if value is not None:
                memory.values[index] = value
        count += len({(id(m), i * 4 // PIECE, v is None) for m, i, v in accesses if not m.is_on_chip})
    return count, waiting


def run(kernel, blocks, threads, *arguments, upwards=True):
    """Run `kernel(block, thread, shared, *arguments)` in all threads; return the number of transactions.

    Each warp runs as far as it can before the next one, upwards or downwards: a kernel whose result depends on
    this order lacks a SYNC. `shared` begins as NaN in each block.
    """
    count = 0
    for block in range(blocks):
        shared, answers = Memory([np.nan] * 1024, is_on_chip=True), {}
        started = [kernel(block, thread, shared, *arguments) for thread in range(threads)]
        warps = [started[first : first + LANES] for first in range(0, threads, LANES)]
        while any(warps):
            for warp in range(len(warps))[:: 1 if upwards else -1]:
                more, warps[warp] = advance(warps[warp], answers)
                count += more
            if 0 < sum(map(len, warps)) < threads:
                raise RuntimeError("some threads wait at a SYNC that others never reach")
    return count
