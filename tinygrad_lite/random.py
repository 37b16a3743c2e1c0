"""Reproducible random numbers.

No generator is kept and nothing has to be saved: each draw makes a new generator from a key that says what the draw is
for. The same key gives the same numbers: after a resume, on another device, whether or not anything else was drawn in
between.
"""

import hashlib
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np


def keyed_rng(seed: int, stream: str, *key: int) -> np.random.Generator:
    """A generator for the draw called `stream` at position `key`; the same arguments give the same numbers.

    Args:
        seed: the run's seed, 0 or more.
        stream: the purpose of the numbers, such as "batch" or "dropout"; streams are independent.
        key: integers >= 0 such as step, micro-step, row.

    >>> float(keyed_rng(1, "batch", 7).random()) == float(keyed_rng(1, "batch", 7).random())
    True
    """
    # As spawn_key, because trailing zeros of the entropy are ignored: (7,) and (7, 0) would be the same key.
    sequence = np.random.SeedSequence([seed, zlib.crc32(stream.encode())], spawn_key=key)
    return np.random.Generator(np.random.SFC64(sequence))


# The position of the model's next draw in the run: a key, and the number of draws since it was set.
_position = SimpleNamespace(key=(0,), count=0)


def manual_seed(seed: int) -> None:
    """Restart the random numbers of `Tensor.rand`, `randn` and dropout from a seed."""
    global _position
    _position = SimpleNamespace(key=(seed,), count=0)


@contextmanager
def random_key(seed: int, *key: int, drawn: int = 0) -> Iterator[None]:
    """Inside, the n-th draw of the model has the key (seed, key, drawn + n).

    The training loop enters it with (seed, step, micro-step, rank), so the dropout masks of a step do not depend on
    earlier draws, and a step that is run again drops the same elements.
    """
    global _position
    outer, _position = _position, SimpleNamespace(key=(seed, *key), count=drawn)
    try:
        yield
    finally:
        _position = outer


def draw_position() -> tuple[tuple[int, ...], int]:
    """The current key, and the draws made with it: what `random_key` needs to repeat the draws that follow."""
    return _position.key, _position.count


def next_rng(stream: str) -> np.random.Generator:
    """The generator for the next draw at the current position (see `random_key`)."""
    seed, *key = _position.key
    _position.count += 1
    return keyed_rng(seed, stream, *key, _position.count)


def next_bits(stream: str) -> tuple[int, int]:
    """64 random bits for the next draw at the current position, as an integer, and the first number of its key.

    The bits are a hash of the rest of the key; making a generator would take more than ten times as long. The first
    number is the step, which a recorded step reads from the GPU's memory (cuda/dropout.py).
    """
    seed, *key = _position.key
    _position.count += 1
    what_for = repr((seed, stream, len(key), *key[1:], _position.count)).encode()
    return int.from_bytes(hashlib.blake2b(what_for, digest_size=8).digest(), "little"), key[0] if key else 0
