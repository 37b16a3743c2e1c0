"""Solutions of chapter 13."""

import math
from collections.abc import Callable, Generator

from simulator import SYNC, Memory

# In each of 64 steps, 32 neighbours of 4 bytes are read, 4 pieces. At the end 32 neighbours are written, 4 more.
PIECES = 260


def over_warp(lane: int, shared: Memory, value: float, combine: Callable[[list], float]) -> Generator:
    """combine([the value of each lane]), in all 32 lanes: `result = yield from over_warp(lane, shared, value, sum)`."""
    yield shared.put(lane, value)
    yield SYNC
    values = []
    for other in range(32):
        values.append((yield shared[other]))
    yield SYNC  # nobody may write there again before all have read
    return combine(values)


def row_max(block: int, lane: int, shared: Memory, x: Memory, y: Memory, width: int) -> Generator:
    """y[r] = the largest number in row r of x (R, width), with a block of one warp for each row, coalesced."""
    largest = -math.inf
    for i in range(lane, width, 32):
        largest = max(largest, (yield x[block * width + i]))
    largest = yield from over_warp(lane, shared, largest, max)
    if lane == 0:
        yield y.put(block, largest)


def total(block: int, thread: int, shared: Memory, x: Memory, result: Memory, count: int) -> Generator:
    """result[0] = the sum of the first `count` numbers of x, with one block of 128 threads, without a race."""
    own = 0.0
    for i in range(thread, count, 128):
        own += yield x[i]
    yield shared.put(thread, own)
    yield SYNC
    for distance in (64, 32, 16, 8, 4, 2, 1):
        if thread < distance:
            own += yield shared[thread + distance]
            yield shared.put(thread, own)
        yield SYNC
    if thread == 0:
        yield result.put(0, own)


def softmax(block: int, lane: int, shared: Memory, x: Memory, y: Memory, width: int) -> Generator:
    """Row r of y = softmax of row r of x (R, width), a warp for each row; each number is read from x only once.

    e^x is math.exp(x), which fails above 709.
    """
    own = []
    for i in range(lane, width, 32):
        own.append((yield x[block * width + i]))
    largest = yield from over_warp(lane, shared, max(own, default=-math.inf), max)
    own = [math.exp(number - largest) for number in own]
    whole = yield from over_warp(lane, shared, sum(own), sum)
    for i, number in zip(range(lane, width, 32), own, strict=True):
        yield y.put(block * width + i, number / whole)
