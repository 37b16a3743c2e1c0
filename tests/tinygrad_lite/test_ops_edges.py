"""Where operations are easily wrong: kinks, ties, infinities, NaN, dtypes, and calls that must be refused.

Warnings are errors in this test suite, so each test here also shows that there is no warning.
"""

import functools
import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tinygrad_lite import Tensor, nn, ops, optim
from tinygrad_lite.transformer import ACTIVATIONS, FeedForward, MultiHeadAttention

pytestmark = pytest.mark.every_device

inf, nan, R = math.inf, math.nan, math.sqrt(0.5)


@dataclass(frozen=True)
class Edge:
    """An operation at difficult values: its result, and the gradient of each input if dL/dy is 1."""

    label: str
    fn: Callable[..., Any]
    inputs: list[list]
    y: Any
    gradients: list[list]


EDGES = [
    Edge("clip with bounds crossed", lambda x: x.clip(1, -1), [[-2, 0, 2]], [-1, -1, -1], [[0, 0, 0]]),
    Edge("sigmoid far from 0", lambda x: x.sigmoid(), [[1e4, -1e4, inf, -inf]], [1, 0, 1, 0], [[0, 0, 0, 0]]),
    Edge("silu far from 0", lambda x: x.silu(), [[1e4, -1e4, inf]], [1e4, 0, inf], [[1, 0, nan]]),
    Edge("logsumexp far from 0", lambda x: x.logsumexp(), [[1e4, -1e4, 1e4]], 1e4 + math.log(2), [[0.5, 0, 0.5]]),
    Edge("logsumexp of nothing", lambda x: x.logsumexp(1), [[[], []]], [-inf, -inf], [[[], []]]),
    Edge("std of equals", lambda x: x.std(), [[2, 2, 2]], 0, [[0, 0, 0]]),
    Edge("std of equals along an axis", lambda x: x.std(-1), [[[2, 2], [0, 2]]], [0, 2 * R], [[[0, 0], [-R, R]]]),
    Edge("var of one number", lambda x: x.var(), [[2]], nan, [[nan]]),
    Edge("mean of an empty array", lambda x: x.mean(), [[]], nan, [[]]),
    Edge("mask with -inf", lambda x: x.masked_fill(x > 1, -inf), [[1, 2]], [1, -inf], [[1, 0]]),
    Edge("where ignores the side not chosen", lambda x: (x > 0).where(x.log(), 0.0), [[1, -1]], [0, 0], [[1, 0]]),
]


@pytest.mark.parametrize("edge", EDGES, ids=lambda edge: edge.label)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_values_and_gradients_are_as_listed(edge, dtype):
    inputs = [Tensor(x, dtype=dtype, requires_grad=True) for x in edge.inputs]
    y = edge.fn(*inputs)
    tolerance = {"rtol": 1e-14, "atol": 1e-15} if dtype == np.float64 else {"rtol": 1e-6, "atol": 1e-7}
    np.testing.assert_allclose(y.numpy(), np.array(edge.y, dtype), **tolerance)
    y.backward(Tensor(np.ones(y.shape, dtype)))
    for x, dx in zip(inputs, edge.gradients, strict=True):
        np.testing.assert_allclose(x.grad.numpy(), np.array(dx, dtype), **tolerance)


def test_comparisons_with_nan_are_false_except_unequal():
    x = Tensor([1.0, nan, 2.0])
    assert [one.tolist()[1] for one in (x < 9, x == x, x != x)] == [False, False, True]


def test_overflow_is_infinity_without_a_warning():
    big = Tensor([3e38, 3e38])
    for y in (big + big, big * 10, big - -big, big**2, big.sum(), big @ big):
        assert (y == inf).all()
    assert Tensor([1e300], dtype="float64").cast("float32").tolist() == [inf]
    assert np.isnan((Tensor([[inf, 0.0]]) @ Tensor([[0.0], [1.0]])).item())
    assert Tensor([nan]).cast("int64").shape == (1,)


# --- dtypes -----------------------------------------------------------------------------------------------------

CATEGORY_WINS = "float32 int64 float32, float32 bool float32, float32 float64 float64, int32 int64 int64"
CATEGORY_WINS += ", int32 bool int32, uint8 int8 int16, int64 float64 float64, bool bool bool"


@pytest.mark.parametrize(("a", "b", "expected"), [row.split() for row in CATEGORY_WINS.split(", ")])
def test_types_combine_by_category(a, b, expected):
    x, y, expected = Tensor.ones(2, dtype=a), Tensor.ones(2, dtype=b), np.dtype(expected)
    assert (x + y).dtype == (y + x).dtype == expected
    assert (x * y).dtype == x.maximum(y).dtype == (x @ y).dtype == x.cat(y).dtype == expected
    assert a == "bool" or Tensor([True, False]).where(x, y).dtype == expected
    assert (x / y).dtype == (expected if expected.kind == "f" else np.float32)
    assert (x == y).dtype == bool


NUMBERS = [
    ("float32", "float32", [2, 2.5, math.pi, np.float64(2.5), np.int64(2), np.array(2.5)]),
    ("float32", "float64", [np.array([2.5, 1.0])]),
    ("int64", "int64", [2, True, np.array(True)]),
    ("int64", "float32", [2.5, 2**70]),
    ("bool", "int64", [2]),
    ("bool", "float32", [2.5]),
]


@pytest.mark.cpu_only("NumPy's arrays do not mix with a GPU's")
@pytest.mark.parametrize(("dtype", "expected", "numbers"), NUMBERS)
def test_numbers_take_the_tensors_type_if_they_can(dtype, expected, numbers):
    x = Tensor.ones(2, dtype=dtype)
    for number in numbers:
        assert (x + number).dtype == (number + x).dtype == expected
        np.testing.assert_allclose((x * number).numpy(), np.ones(2) * number, rtol=1e-7)


@pytest.mark.parametrize("op", [ops.add, ops.sub, ops.mul, ops.div])
def test_no_gradient_is_computed_for_a_number(op):
    """It would be a needless sum over a whole array."""
    x, dy = Tensor.ones(3, 2).requires_grad_(), Tensor.ones(3, 2).data
    assert [dx is None for dx in op(x, 2.0)._node.backward(dy)] == [False, True]
    assert [dx is None for dx in op(2.0, x)._node.backward(dy)] == [True, False]


@pytest.mark.parametrize("n", [-4, -3, -2, -1, 2, 3, 4, 5, 6, 7, 8])
def test_small_whole_powers_are_products(n):
    x = Tensor(np.random.default_rng(0).uniform(0.1, 3, 1000))
    product = functools.reduce(operator.mul, [x] * abs(n))
    assert (x**n).tolist() == (product if n > 0 else 1 / product).tolist()


def test_integers_become_float32_where_results_are_fractions():
    x = Tensor([1, 2])
    fractions = [x.exp(), x.log(), x.sqrt(), x.tanh(), x.sin(), x.cos(), x.erf(), x.sigmoid(), x.mean(), x.std()]
    for y in (*fractions, x / 2, x.softmax()):
        assert y.dtype == np.float32
    assert (x / 0).tolist() == [inf, inf]
    whole = [x + 1, x * x, -x, x**2, x.abs(), x.relu(), x.sum(), x.max(), x.min(), x.clip(1, 2), x @ x]
    for y in (*whole, x.reshape(2, 1).tril()):
        assert y.dtype == np.int64
    assert (x**0).tolist() == [1, 1]
    assert (x.clip(0.5, 1.5).dtype, x.clip(0.5, 1.5).tolist()) == (np.float32, [1.0, 1.5])
    assert x.clip(high=1).tolist() == [1, 1]
    assert Tensor([True, True]).sum().item() == 2


def test_small_integers_and_truth_values_keep_their_type():
    small = Tensor(np.array([[0, 1], [255, 7]], np.uint8))
    assert (small.min().item(), small.max().item()) == (0, 255)
    mask = Tensor.ones(2, 2, dtype=bool)
    for x in (small, mask):
        for y in (x.tril(), x.triu(), x.max(), x.min(), x[0], x.T, x.relu(), x.pad([(1, 1), (0, 0)])):
            assert y.dtype == x.dtype
    assert (~mask.tril()).tolist() == [[False, True], [False, False]]


def test_float16_is_for_storage_only():
    x = Tensor([1.5, 2.5], requires_grad=True)
    half = x.cast("float16")
    assert (half.dtype, half.tolist()) == (np.float16, [1.5, 2.5])
    (half.cast("float32") * 2).sum().backward()
    assert (x.grad.dtype, x.grad.tolist()) == (np.float32, [2.0, 2.0])
    for fn in (lambda h: h + h, lambda h: h * 2, Tensor.exp, Tensor.erf, Tensor.sum, lambda h: h.T):
        with pytest.raises(TypeError, match=r"^\w+: float16 is for storage only; use .cast\('float32'\) first$"):
            fn(Tensor.ones(2, 2, dtype="float16"))
    with pytest.raises(TypeError, match="only float32 and float64 have gradients, not float16"):
        Tensor([1.0], dtype="float16", requires_grad=True)


# --- calls that must be refused, and the messages ---------------------------------------------------------------


def ones(*shape):
    return Tensor.ones(*shape)


class Buffer(nn.Module):
    """A module whose state is a byte."""

    def __init__(self):
        super().__init__()
        self.register_buffer("count", Tensor(np.uint8([1])))


UNLIKE = "the axes before the last two do not broadcast"
EVERY_AXIS = "is every axis in torch and none in NumPy: name the axes, or leave it out"
NO_CHOICE = "{}: nothing to choose from in a tensor of shape {} over axes {}"
VALUE_ERRORS = [
    (lambda: ones(3, 4) @ ones(5, 6), "matmul: (3, 4) @ (5, 6): inner sizes 4 and 5 differ"),
    (lambda: ones(2, 3, 4) @ ones(3, 4, 2), f"matmul: (2, 3, 4) @ (3, 4, 2): {UNLIKE}"),
    (lambda: ones(2) @ ones(), "matmul: (2,) @ (): a single number has no axis to multiply over"),
    (lambda: ones(2, 3) + ones(4), "add: shapes (2, 3) and (4,) do not broadcast against each other"),
    (
        lambda: (ones(2) > 0).where(ones(3), 0),
        "where: a condition of shape (2,) does not broadcast against (3,) and ()",
    ),
    (lambda: ones(2).clip(), "clip: give low, high or both"),
    (lambda: ones(2, 3, 4).flatten(2, 1), "flatten: the first axis, 2, comes after the last, 1"),
    (lambda: ones(2, 3).sum(()), f"sum: an empty axis=() {EVERY_AXIS}"),
    (lambda: ones(5).split(0), "split: pieces of size 0 never fill an axis of 5: use a size of 1 or more"),
    (lambda: ones(5).split((6, -1)), "split: no piece may have a negative size, as in [6, -1]"),
    (lambda: ones(5).chunk(), "chunk: there cannot be 0 pieces: use a count of 1 or more"),
    (lambda: ones(2, 3).repeat(2), "repeat: needs a number of at least 0 for each of 2 axes, not (2,)"),
    (lambda: ones(3).tril(), "tril: a tensor of shape (3,) has no triangle: two axes are needed"),
    (lambda: ones(2).one_hot(3), "one_hot: needs integers, not float32"),
    (lambda: Tensor([[1], [2, 3]]), "Tensor: the nested lists differ in length, so they have no shape"),
    (lambda: f"{ones(2):.2f}", "format '.2f': a tensor of shape (2,) is not one number: format its elements"),
    (lambda: ones(2, 3).reshape(4, -1), "reshape: 6 elements of shape (2, 3) cannot fill (4, -1)"),
    (lambda: ones(2, 3).permute(0, 0), "permute: (0, 0) does not name each axis of a tensor of 2 axes once"),
    (lambda: ones(3).transpose(), "transpose: name two of 1 axis, as in x.transpose(0, 1); x.T reverses all of them"),
    (lambda: ones().flatten(1), "flatten: there is no axis 1 in a tensor of 1 axis"),
    (lambda: ones(2).unsqueeze(3), "unsqueeze: there is no axis 3 in a tensor of 2 axes"),
    (lambda: ones(2).sum(1), "sum: there is no axis 1 in a tensor of 1 axis"),
    (lambda: ones(2, 3).expand(4, 3), "expand: a tensor of shape (2, 3) cannot be stretched to (4, 3)"),
    (lambda: ones(2).expand(-1, 2), "expand: a tensor of shape (2,) cannot be stretched to (-1, 2)"),
    (lambda: ones(2).pad([(1, -1)]), "pad: needs a pair of numbers >= 0 for each of 1 axis, not [(1, -1)]"),
    (lambda: ones(2, 3).cat(ones(2, 4)), "cat: shapes (2, 3), (2, 4) differ in more than axis 0"),
    (lambda: ones(2).cat(ones(2, 1)), "cat: shapes (2,), (2, 1) differ in more than axis 0"),
    (lambda: ones(5).split((2, 2)), "split: sizes [2, 2] add up to 4, the axis has 5"),
    (lambda: ones(2, 2).gather(0, Tensor([0])), "gather: index has 1 axis, the tensor has 2"),
    (lambda: ones(0, 3).amax(0), NO_CHOICE.format("max", (0, 3), (0,))),
    (lambda: ones(3, 0).argmax(1), NO_CHOICE.format("argmax", (3, 0), (1,))),
    (lambda: ones(2, 3).item(), "item: the tensor of shape (2, 3) has 6 elements, not 1"),
    (lambda: bool(ones(2)), "a tensor of shape (2,) is neither true nor false: use .any() or .all()"),
]
KNOWN, PAIR = ", ".join(ACTIVATIONS), "a whole number of at least 1, or a pair (down, across)"
EYE = nn.Parameter(np.eye(2))
FOR_ADAMW = (
    "put it into a group with 'use_muon': False, for AdamW; muon_groups(model, weight_decay) makes the usual groups"
)
VALUE_ERRORS += [  # settings of layers and optimizers
    (lambda: nn.Conv2d(4, 6, 3, groups=3), "Conv2d: groups=3 must divide in_channels=4 and out_channels=6"),
    (lambda: nn.Conv2d(4, 6, 0), f"Conv2d: kernel_size must be {PAIR}, not 0"),
    (lambda: MultiHeadAttention(10, 3), "n_embd 10 cannot be cut into n_head 3 heads of one size"),
    (lambda: FeedForward(4, 8, activation="x"), f"FeedForward: there is no activation 'x', only {KNOWN}"),
    (lambda: optim.Muon([ones(4).requires_grad_()]), f"Muon: 0 is not a matrix, its shape is (4,): {FOR_ADAMW}"),
    (lambda: optim.Muon([EYE], adjust_lr_fn="x"), "Muon: adjust_lr_fn is one of original, match_rms_adamw, not x"),
]
# What an integer type, or that of truth values, cannot hold is refused wherever numbers enter.
INT, BYTE, MASK = (lambda: Tensor([1, 2]), lambda: Tensor(np.uint8([1, 2])), lambda: Tensor([True, False]))
NO_FIT = "{} does not fit into a tensor of uint8: write x.cast('int64') first"
VALUE_ERRORS += [
    (lambda: INT().__setitem__(0, nan), "x[i] = y: int64 cannot hold nan"),
    (lambda: INT().__setitem__(slice(None), [1.0, inf]), "x[i] = y: int64 cannot hold inf"),
    (lambda: BYTE().__setitem__(0, 256), NO_FIT.format(256)),
    (lambda: MASK().__setitem__(0, 2), "x[i] = y: bool cannot hold 2"),
    (lambda: BYTE() + np.int64(-1), NO_FIT.format(-1)),
    (lambda: BYTE().masked_fill(MASK(), np.int64(-1)), NO_FIT.format(-1)),
    (lambda: MASK().where(BYTE(), np.int64(300)), NO_FIT.format(300)),
    (lambda: Buffer().load_state_dict({"count": np.array([300])}), "Buffer.count: uint8 cannot hold 300"),
    (lambda: BYTE().pad([(1, 1)], value=-1), "pad: uint8 cannot hold -1"),
    (lambda: BYTE().clip(-1), "clip: uint8 cannot hold -1"),
    (lambda: Tensor.full(2, nan, dtype="int64"), "full: int64 cannot hold nan"),
    (lambda: BYTE().full_like(-1), "full: uint8 cannot hold -1"),
    (lambda: Tensor([1.0, nan], dtype="int64"), "Tensor: int64 cannot hold nan"),
    (lambda: Tensor([0, 300], dtype="uint8"), "Tensor: uint8 cannot hold 300"),
    (lambda: Tensor(2**70, dtype="int64"), f"Tensor: int64 cannot hold {2**70}"),
    (lambda: Tensor([2], dtype=bool), "Tensor: bool cannot hold 2"),
    (lambda: Tensor.arange(300, dtype="uint8"), "arange: uint8 cannot hold 299"),
    (lambda: Tensor.arange(2**63 - 1, 2**63 + 1), f"arange: int64 cannot hold {2**63 + 1}"),
]
HOST_ERRORS = [  # on a GPU, numbers that are already there are not read
    (lambda: INT().__setitem__(0, Tensor(nan)), "x[i] = y: int64 cannot hold nan"),
    (lambda: BYTE().__setitem__(0, Tensor([300])), "x[i] = y: uint8 cannot hold 300"),
    (lambda: BYTE().__iadd__(Tensor([300, 0])), "x += y: uint8 cannot hold 301"),
    (lambda: Tensor([0, -1]).one_hot(3), "one_hot: -1 is not one of 3 classes, 0 to 2"),
    (lambda: Tensor([0, 3]).one_hot(3), "one_hot: 3 is not one of 3 classes, 0 to 2"),
]
NO_NUMBERS = [("abc", "<U3"), (["a"], "<U1"), (1j, "complex128"), ([None], "object"), ([{}], "object")]
TYPE_ERRORS = [
    *((lambda x=x: Tensor(x), f"Tensor: elements of type {kind} are not numbers") for x, kind in NO_NUMBERS),
    (lambda: Tensor(ones(1)), "Tensor(tensor): use tensor.detach(), tensor.cast(dtype) or tensor.to(device)"),
    (lambda: ones(2) + None, "a NoneType cannot be combined with a tensor: use a number, a list or an array"),
    (
        lambda: ones(2) & (ones(2) > 0),
        "&, | and ^ combine truth values, not float32: compare first, as in (x > 0) & (y > 0)",
    ),
    (lambda: ones(2).clip(ones(2)), "clip: low and high are numbers; for tensors use x.maximum(low).minimum(high)"),
    (lambda: ones(2).amax(0.0), "max: an axis is a whole number, not 0.0"),
    (lambda: Tensor.cat([1], [2]), "cat: needs tensors; make them with Tensor(...)"),
    (lambda: Tensor.rand(2, dtype=bool), "rand: draws fractions, which bool cannot hold: use a float dtype"),
    (lambda: len(Tensor(1.0)), "len() of a 0-d tensor"),
    (lambda: MASK() - MASK(), "sub: truth values have no sign: write ~x, x ^ y, or x.cast('int64')"),
    (lambda: ops.where([True], ones(1), 0), "where: the condition must be a tensor, not a list"),
]


@pytest.mark.cpu_only("numbers on a GPU are not read")
@pytest.mark.parametrize(("call", "message"), HOST_ERRORS)
def test_numbers_of_a_tensor_that_do_not_fit_are_refused(call, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        call()


def test_what_fits_is_taken():
    x = Tensor(np.uint8([1, 2]))
    x[0], x[1] = 255, np.int64(0)
    assert x.tolist() == Tensor([255.0, 0.0], dtype="uint8").tolist() == [255, 0]
    assert x.pad([(0, 1)], value=255).tolist() == [255, 0, 255]
    assert x.clip(0, np.float32(2.5)).dtype == np.float32
    assert Tensor.arange(256, dtype="uint8").tolist() == [*range(256)]
    assert Tensor.arange(3, 3, dtype="uint8").tolist() == []
    assert Tensor.full(1, 2.0**62, dtype="int64").tolist() == [2**62]


REFUSED = [(NotImplementedError, nn.Module(), "Module has no forward()")]
REFUSED += [(error, *row) for error, rows in ((ValueError, VALUE_ERRORS), (TypeError, TYPE_ERRORS)) for row in rows]


@pytest.mark.parametrize(("error", "call", "message"), REFUSED)
def test_invalid_calls_are_refused_with_a_clear_sentence(error, call, message):
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value) == message
