"""What stands in brackets: random indices of every kind, reading and writing, against NumPy and PyTorch."""

import array
from collections import UserList, deque, namedtuple

import numpy as np
import pytest

from tinygrad_lite import Tensor


class Number:
    """A whole number of a class of its own."""

    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value


Pair = namedtuple("Pair", "first second")
SEQUENCES = {  # the ways to write a list of numbers
    "list": list,
    "tuple": tuple,
    "own class": UserList,
    "deque": deque,
    "array.array": lambda numbers: array.array("q", numbers),
    "NumPy": np.array,
    "int32": lambda numbers: np.array(numbers, np.int32),
    "tensor": lambda numbers: Tensor(np.array(numbers)),
    "tensors": lambda numbers: [Tensor(number) for number in numbers],
    "mixed": lambda numbers: [np.int64(numbers[0]), *map(np.array, numbers[1:2]), *numbers[2:]],
    "memory": lambda numbers: memoryview(np.array(numbers)),
    "pairs": lambda numbers: (tuple(numbers), numbers),
    "one more axis": lambda numbers: Tensor(np.array([numbers])),
    "column": lambda numbers: tuple((number,) for number in numbers),
}
NUMBERS = [int, np.int64, np.uint8, Number, lambda n: np.array(n), lambda n: Tensor(n)]
MASKS = [list, tuple, np.array, lambda mask: Tensor(np.array(mask)), lambda mask: [Tensor(np.array(m)) for m in mask]]
EXTRA = [None, ..., True, False, np.True_, np.array(True), Tensor(True), Tensor(False)]


def for_numpy(part):
    """A part of an index as NumPy understands it."""
    if isinstance(part, Tensor):
        return part.numpy()
    return [item.numpy() for item in part] if isinstance(part, list) and isinstance((*part, 0)[0], Tensor) else part


def random_index(rng, shape):
    """An index into an array of this shape, which is out of range now and then."""
    parts, axis = [], 0
    length = int(rng.integers(1, 4))
    while axis < len(shape) and rng.random() < 0.85:
        size, kind = shape[axis], rng.random()
        high = size + (rng.random() < 0.02)
        if kind < 0.2 and high:
            n = int(rng.integers(0, high))
            parts.append(NUMBERS[rng.integers(len(NUMBERS))](n) if rng.random() < 0.7 else n - size)
        elif kind < 0.45:
            ends = [None if rng.random() < 0.4 else int(rng.integers(-size - 1, size + 2)) for _ in range(2)]
            parts.append(slice(*ends, [None, 1, 2, -1, -2][rng.integers(5)]))
        elif kind < 0.8 and high:
            numbers = rng.integers(-size, high, 1 if rng.random() < 0.1 else length).tolist()
            parts.append(SEQUENCES[[*SEQUENCES][rng.integers(len(SEQUENCES))]](numbers))
        elif kind < 0.85 and size:
            parts.append(range(min(length, size)))
        elif kind < 0.88:
            parts.append([(), [], np.zeros(0, int), Tensor(np.zeros(0, int))][rng.integers(4)])
        else:
            axes = int(rng.integers(1, min(3, len(shape) - axis + 1)))
            mask = rng.random(shape[axis : axis + axes]) < 0.6
            parts.append(MASKS[rng.integers(len(MASKS))](mask.tolist()))
            axis += axes - 1
        axis += 1
        if rng.random() < 0.1:
            parts.append(EXTRA[rng.integers(len(EXTRA))])
    if rng.random() < 0.1:
        parts.insert(0, EXTRA[rng.integers(len(EXTRA))])
    if len(parts) == 1 and rng.random() < 0.7 and not isinstance(parts[0], tuple):
        return parts[0], for_numpy(parts[0])
    theirs = tuple(map(for_numpy, parts))
    return (Pair(*parts) if len(parts) == 2 and rng.random() < 0.2 else tuple(parts)), theirs


def random_array(rng):
    shape = tuple(int(n) for n in rng.choice([0, 1, 2, 3, 4], rng.integers(0, 5), p=[0.03, 0.17, 0.3, 0.3, 0.2]))
    return rng.standard_normal(shape)


def check_reading(rng):
    """x[index] and its gradient; returns whether NumPy has such an element."""
    a = random_array(rng)
    index, theirs = random_index(rng, a.shape)
    x = Tensor(a, requires_grad=True)
    try:
        places, expected = np.arange(a.size).reshape(a.shape)[theirs], a[theirs]
    except (IndexError, ValueError):
        with pytest.raises(IndexError, match=r"^getitem: .* \(a tensor of shape "):
            x[index]
        return False
    h = x * 1.0 if rng.random() < 0.5 else x
    y = h[index]
    np.testing.assert_array_equal(y.numpy(), expected)
    if np.ndim(expected):
        assert np.may_share_memory(y.data, h.data) == np.may_share_memory(expected, a)
    dy, dx = rng.standard_normal(y.shape), np.zeros(a.size)
    y.backward(Tensor(dy))
    np.add.at(dx, places, dy)
    np.testing.assert_allclose(x.grad.numpy(), dx.reshape(a.shape), rtol=1e-13, atol=1e-14)
    return True


def check_writing(rng):
    """x[index] = y and both gradients; y may lack axes, be stretched, or have further axes of size 1 in front."""
    a = random_array(rng)
    index, theirs = random_index(rng, a.shape)
    try:
        places = np.arange(a.size).reshape(a.shape)[theirs]
    except (IndexError, ValueError):
        with pytest.raises((IndexError, ValueError), match=r"^x\[i\] = y: .* \(a tensor of shape "):
            Tensor(a)[index] = 1
        return False
    shape = [1 if rng.random() < 0.2 else n for n in np.shape(places)][int(rng.random() < 0.2) :]
    b = rng.standard_normal((1,) * int(rng.integers(0, 2)) + tuple(shape))
    expected = a.copy()
    expected[theirs] = b.reshape(b.shape[1:]) if shape != [*b.shape] else b
    plain = Tensor(a)
    plain[index] = b
    np.testing.assert_array_equal(plain.numpy(), expected)
    x, y = Tensor(a, requires_grad=True), Tensor(b, requires_grad=True)
    z = x * 1.0
    if np.unique(places).size < np.size(places):
        with pytest.raises(ValueError, match=r"^x\[i\] = y: a position occurs twice in i, so y would lose gradients"):
            z[index] = y
        return False
    z[index] = y
    np.testing.assert_array_equal(z.numpy(), expected)
    dz = rng.standard_normal(a.shape)
    z.backward(Tensor(dz))
    dx, dy = dz.reshape(-1).copy(), np.zeros(b.size)
    dx[places] = 0
    np.add.at(
        dy,
        np.broadcast_to(np.arange(b.size).reshape(b.shape[max(b.ndim - np.ndim(places), 0) :]), np.shape(places)),
        dz.reshape(-1)[places],
    )
    np.testing.assert_array_equal(x.grad.numpy(), dx.reshape(a.shape))
    np.testing.assert_allclose(y.grad.numpy(), dy.reshape(b.shape), rtol=1e-13, atol=1e-14)
    return True


@pytest.mark.parametrize("check", [check_reading, check_writing])
@pytest.mark.parametrize(("first", "count"), [(0, 200), pytest.param(200, 20_000, marks=pytest.mark.slow)])
def test_an_index_means_what_numpy_says(check, first, count):
    done = [check(np.random.default_rng(seed)) for seed in range(first, first + count)]
    assert sum(done) > count / 2
