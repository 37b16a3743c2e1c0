"""Passes over all items of a data set, each in a different order."""

import functools

import numpy as np

from tinygrad_lite.random import keyed_rng


def items_in_epochs(seed: int, first: int, wanted: int, count: int) -> np.ndarray:
    """Items first, first + 1, ... of passes over `count` items: (wanted,) integers below count.

    A pass visits each item once, in an order drawn with the key (seed, epoch).
    """
    epochs, places = np.divmod(first + np.arange(wanted), count)
    return np.concatenate([order_of_epoch(seed, e, count)[places[epochs == e]] for e in np.unique(epochs).tolist()])


@functools.lru_cache(maxsize=2)  # an update may need the end of one epoch and the beginning of the next
def order_of_epoch(seed: int, epoch: int, count: int) -> np.ndarray:
    """The order in which an epoch visits the items."""
    return keyed_rng(seed, "epoch", epoch).permutation(count)
