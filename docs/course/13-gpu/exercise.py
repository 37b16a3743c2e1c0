"""Exercises of chapter 13: every ... is a blank to fill in."""

import math
from collections.abc import Callable, Generator

from simulator import SYNC, Memory

# A matrix of 64 rows and 32 columns, row after row in memory, is summed by one warp: thread j reads column j from top
# to bottom, and writes its sum to y[j]. How many transactions does that take, reads and writes?
PIECES = ...


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
    ...


def total(block: int, thread: int, shared: Memory, x: Memory, result: Memory, count: int) -> Generator:
    """result[0] = the sum of the first `count` numbers of x, with one block of 128 threads, without a race."""
    ...


def softmax(block: int, lane: int, shared: Memory, x: Memory, y: Memory, width: int) -> Generator:
    """Row r of y = softmax of row r of x (R, width), a warp for each row; each number is read from x only once.

    e^x is math.exp(x), which fails above 709.
    """
    ...
