"""The random words of philox.cuh in NumPy, and the masks of dropout that the kernels make from them."""

import math

import numpy as np

from tinygrad_lite.random import next_bits, random_key

WORD = 0xFFFFFFFF


def philox(count, key):
    """Philox4x32-7: four counter words (arrays of one shape) and two key words -> four random words.

    Reference: Salmon et al. 2011, section 3.3.
    """
    c0, c1, c2, c3 = (np.asarray(word, np.uint64) for word in count)
    k0, k1 = (np.uint64(word) for word in key)
    for _ in range(7):
        first, second = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0, c1, c2, c3 = (second >> 32) ^ c1 ^ k0, second & WORD, (first >> 32) ^ c3 ^ k1, first & WORD
        k0, k1 = (k0 + 0x9E3779B9) & WORD, (k1 + 0xBB67AE85) & WORD
    return c0, c1, c2, c3


def bits_of(elements, key, step=0):
    """The 16 random bits of each of these elements in a training step."""
    elements = np.asarray(elements, np.uint64)
    eight, place = elements // 8, (elements % 8).astype(np.int64)
    word = np.choose(place // 2, philox((eight & WORD, eight >> 32, step, 0), (key & WORD, key >> 32 & WORD)))
    return np.where(place % 2, word >> 16, word & 0xFFFF)


def key_of(*position):
    """The key of the first dropout call at a position of the run, and the step."""
    with random_key(*position):
        return next_bits("dropout")


def mask(shape, p, key):
    """Which elements are kept."""
    return (bits_of(np.arange(math.prod(shape)), *key) >= round(p * 2**16)).reshape(shape)
