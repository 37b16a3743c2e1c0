"""What stands in brackets means what NumPy says; the parts that are read share one gradient array."""

from collections import UserList, namedtuple
from contextlib import nullcontext

import numpy as np
import pytest

from tinygrad_lite import Tensor, recompute
from tinygrad_lite.autograd import Piece
from tinygrad_lite.debug.anomaly import detect_anomaly
from tinygrad_lite.debug.gradcheck import gradcheck
from tinygrad_lite.functional import embedding, rms_norm
from tinygrad_lite.nn import Parameter
from tinygrad_lite.optim import SGD


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
    "NumPy": np.array,
    "int32": lambda numbers: np.array(numbers, np.int32),
    "tensor": lambda numbers: Tensor(np.array(numbers)),
    "tensors": lambda numbers: [Tensor(number) for number in numbers],
    "mixed": lambda numbers: [np.int64(numbers[0]), *map(np.array, numbers[1:2]), *numbers[2:]],
    "one more axis": lambda numbers: Tensor(np.array([numbers])),
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
    used = np.arange(b.size).reshape(b.shape[max(b.ndim - np.ndim(places), 0) :])
    np.add.at(dy, np.broadcast_to(used, np.shape(places)), dz.reshape(-1)[places])
    np.testing.assert_array_equal(x.grad.numpy(), dx.reshape(a.shape))
    np.testing.assert_allclose(y.grad.numpy(), dy.reshape(b.shape), rtol=1e-13, atol=1e-14)
    return True


@pytest.mark.parametrize("check", [check_reading, check_writing])
@pytest.mark.parametrize(("first", "count"), [(0, 200), pytest.param(200, 20_000, marks=pytest.mark.slow)])
def test_an_index_means_what_numpy_says(check, first, count):
    done = [check(np.random.default_rng(seed)) for seed in range(first, first + count)]
    assert sum(done) > count / 2


DEVICE_INDICES = [  # as functions of what makes a tensor on the device
    lambda t: ((0, 0, 1), (1, 1, 0)),
    lambda t: ([t(0), t(2), t(0)],),
    lambda t: (t([0, 0, 2]), np.array([1, 1, 3])),
    lambda t: (range(2), ..., Number(-1)),
    lambda t: (t(True), None, t([True, False, True])),
    lambda t: (True, [[0], [0]]),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("index", DEVICE_INDICES)
def test_each_device_reads_and_adds_at_the_same_positions(index, dtype, device):
    a = np.random.default_rng(0).standard_normal((3, 4, 2)).astype(dtype)
    theirs = index(np.array)
    x = Tensor(a, device=device, requires_grad=True)
    y = (x * 1.0)[index(lambda values: Tensor(np.array(values), device=device))]
    np.testing.assert_array_equal(y.numpy(), a[theirs])
    places, dx = np.arange(a.size).reshape(a.shape)[theirs], np.zeros(a.size)
    np.add.at(dx, places, 1.0)
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), dx.reshape(a.shape))


def test_an_index_or_a_condition_that_is_overwritten_later_changes_no_gradient():
    x = Tensor([1.0, 2.0, 3.0], requires_grad=True)
    i, ids, array_of_ids, condition = Tensor(0), Tensor([0]), np.array([0, 0]), Tensor([True, False, True])
    y = x[i] + x[ids].sum() + x[array_of_ids].sum() + x[(ids,)].sum() + condition.where(x, 0.0).sum()
    i += 1
    ids += 1
    array_of_ids += 1
    condition[:] = False
    y.backward()
    assert x.grad.tolist() == [6.0, 0.0, 1.0]


REFUSED = [{0}, {0: 1}, "ab", b"a", [[0], [1, 2]], 0.5, [0.5], np.float32(1), object(), [None], [slice(1)], Tensor([])]


@pytest.mark.parametrize("index", REFUSED, ids=lambda index: type(index).__name__)
def test_what_is_no_position_is_refused(index):
    for whole in (index, (0, index)):
        with pytest.raises(IndexError, match=r"^getitem: .* \(a tensor of shape \(3, 3\)\)$"):
            Tensor.ones(3, 3)[whole]
        with pytest.raises((IndexError, ValueError), match=r"^x\[i\] = y: .* \(a tensor of shape \(3, 3\)\)$"):
            Tensor.ones(3, 3)[whole] = 0


# --- pieces -----------------------------------------------------------------------------------------------------


def beside_the_whole(x):
    """dL/dy arrives at both summands first, as one array, into which no piece may be added."""
    y, z = x * 2.0, x.exp()
    first = y[0] * y[1] + z[1]
    return first.sum() + ((y + z) * 3.0).sum()


def in_a_loop(x):
    h = x[:, 0]
    for t in range(1, x.shape[1]):
        h = (h * x[:, t]).tanh()
    return h.sum()


def piece_of_a_piece(x):
    top, bottom = x.split((1, 2))
    return (top[:, :2] * bottom[:, 1:3] * top[:, :2]).sum() + bottom[0, 1] * bottom.unbind(1)[3][1]


def beside_a_norm(x):
    h = x * 1.0
    return (rms_norm(h) * h[:, :1] + h * h[1]).sum() + h[[0, 0, 2], [1, 1, 3]].exp().sum()


PROGRAMS = {
    "unbind": lambda x: sum((part * part.sum() for part in x.unbind()), start=x[0]).sum(),
    "rows": lambda x: sum(row.max() * row for row in x * x).sum(),
    "in a loop": in_a_loop,
    "a piece of a piece": piece_of_a_piece,
    "beside the whole": beside_the_whole,
    "beside a norm": beside_a_norm,
    "gather": lambda x: (x * 1.0).gather(1, Tensor([[1, 1], [0, 3], [2, 2]], device=x.device)).exp().sum(),
    "table": lambda x: embedding(Tensor([1, 1, 0], device=x.device), x * 1.0).exp().sum() + embedding([2], x).sum(),
    "a number": lambda x: (x.sum()[()] * x.sum()[None]).sum(),
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_pieces_of_a_tensor(program, device):
    a = np.random.default_rng(1).standard_normal((3, 4))
    gradcheck(program, [Tensor(a, device=device, requires_grad=True)])
    gradients = []
    for watch in (nullcontext, detect_anomaly):
        x = Tensor(a, device=device, requires_grad=True)
        program(x).backward()
        program(x * 1.0).backward()
        recompute(program, x * 1.0).backward()
        h = (x * 1.0).retain_grad()
        y = program(h)
        with watch():
            y.backward()
        gradients += [x.grad.numpy() / 4, h.grad.numpy()]
    for gradient in gradients[1:]:
        np.testing.assert_allclose(gradient, gradients[0], rtol=1e-13)


def test_pieces_of_a_parameter_are_added_where_its_optimizer_wants_them():
    w = Parameter(np.ones((3, 2)))
    optimizer = SGD([w], lr=1.0)
    for times in (1, 2):
        (w[0] * 2.0 + w[2] + w[[0, 0]].sum()).sum().backward()
        assert w.grad.tolist() == [[6.0 * times] * 2, [0.0, 0.0], [1.0 * times] * 2]
    optimizer.step()
    assert w.tolist() == [[-11.0, -11.0], [1.0, 1.0], [-1.0, -1.0]]


@pytest.mark.parametrize("kept", [False, True], ids=["result", "leaf"])
@pytest.mark.parametrize(
    "parts",
    [
        lambda x: x.unbind(),
        lambda x: x.split(1, 1),
        lambda x: [x[:, t] for t in range(40)],
        lambda x: [embedding(Tensor([t]), x) for t in range(40)],
    ],
)
def test_all_pieces_share_one_array(parts, kept, monkeypatch):
    """Otherwise n pieces would take the time of n whole arrays."""
    made, added = [], Piece.added
    monkeypatch.setattr(Piece, "added", lambda piece, total=None: made.append(total is None) or added(piece, total))
    x = Tensor(np.ones((40, 40)), requires_grad=True)
    sum(part.sum() for part in parts(x if kept else x * 1.0)).backward()
    assert (len(made), sum(made)) == (40, 1)
    assert x.grad.tolist() == np.ones((40, 40)).tolist()


def test_few_picks_from_a_large_table_do_not_pass_over_it(monkeypatch):
    made, zeros = [], np.zeros
    monkeypatch.setattr(np, "zeros", lambda *args, **more: made.append(zeros(*args, **more)) or made[-1])
    x = Tensor(zeros((100, 1000), np.float32), requires_grad=True)
    places = np.random.default_rng(0).integers(0, 1000, 100)
    (x[np.arange(100), places] + x.gather(1, Tensor(places[:, None]))[:, 0] + x[:, [3, 3]].sum(1)).sum().backward()
    assert sorted(array.size for array in made if array.dtype == np.float64) == [100, 100, 100]
    dx = zeros((100, 1000))
    dx[np.arange(100), places] = 2
    dx[:, 3] += 2
    assert (x.grad.numpy() == dx).all()
