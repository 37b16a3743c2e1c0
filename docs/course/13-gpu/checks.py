"""Checks of chapter 13."""

import numpy as np
from compare import same
from simulator import Memory, run

from tinygrad_lite import Tensor
from tinygrad_lite import functional as F
from tinygrad_lite.random import keyed_rng


def _columns(block, thread, shared, x, y):
    found = 0
    for row in range(64):
        found += yield x[row * 32 + thread]
    yield y.put(thread, found)


def PIECES(exercise):
    """In a step, 32 threads read 32 neighbours. How many pieces is that? There are 64 steps, and one more."""
    right = run(_columns, 1, 32, Memory(np.ones(64 * 32)), Memory(np.zeros(32)))
    assert right == exercise.PIECES, f"{exercise.PIECES} is not what the simulator counts"


def row_max(exercise):
    """Lane l takes the elements l, l + 32, ... of its row, as far as there are any, then `over_warp` with max."""
    for rows, width in ((3, 8), (4, 40), (2, 64)):
        x = np.sort(keyed_rng(width, "chapter 13").uniform(-9, -1, (rows, width)), 0)  # each row above the one before
        y = Memory(np.zeros(rows))
        count = run(exercise.row_max, rows, 32, Memory(x), y, width)
        same(y.values, x.max(1), f"of {rows} rows with {width} negative numbers, the maxima", rtol=0, atol=1e-6)
        most = rows * (width // 8 + 2)
        assert count <= most, f"for {rows} rows with {width} numbers it takes {count} transactions; {most} are enough"


def total(exercise):
    """Each thread adds its own numbers, writes the sum into `shared`, and waits. Then halve: 64 threads add the sums of
    the other 64, wait, 32 of them add ... All threads must reach each SYNC, even those that have nothing to add.
    """
    for count in (128, 300, 5):
        x = keyed_rng(count, "chapter 13").integers(1, 9, 400)
        for upwards in (True, False):
            result = Memory([0.0])
            transactions = run(exercise.total, 1, 128, Memory(x), result, count, upwards=upwards)
            found, right = result.values[0], x[:count].sum()
            order = "" if upwards else ", if the last warp runs first"
            assert found == right, f"the sum of {count} numbers{order}: yours is {found:g}, it must be {right:g}"
            most = -(-count // 8) + 8
            assert transactions <= most, f"for {count} numbers it takes {transactions} transactions; {most} are enough"


def softmax(exercise):
    """Keep the numbers of a lane in a list. Subtract the row's maximum before exp; divide by the row's sum."""
    for rows, width in ((2, 8), (3, 72)):
        x = keyed_rng(width, "chapter 13").normal(1000, 3, (rows, width)).astype(np.float32)
        y = Memory(np.zeros((rows, width)))
        count = run(exercise.softmax, rows, 32, Memory(x), y, width)
        right = F.softmax(Tensor(x)).numpy()
        same(y.values.reshape(rows, width), right, f"with {rows} rows of {width} numbers", rtol=0, atol=1e-5)
        most = rows * width // 4
        assert count <= most, f"for {rows} rows with {width} numbers it takes {count} transactions; {most} are enough"
