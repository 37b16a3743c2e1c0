"""Tensors: how they are made, shown and converted, and when they may be written."""

import operator
from contextlib import nullcontext

import numpy as np
import pytest

from tests.places import here
from tinygrad_lite import Tensor, manual_seed
from tinygrad_lite.device import get_device
from tinygrad_lite.random import random_key

pytestmark = [pytest.mark.every_device, pytest.mark.emulated_by_default]

# --- creation ---------------------------------------------------------------------------------------------------


DATA = [
    (1.5, "float32", ()),
    (True, "bool", ()),
    ([1, 2.5], "float32", (2,)),
    ([True, False], "bool", (2,)),
    ([], "float32", (0,)),
    (range(3), "int64", (3,)),
    (np.float64(1.5), "float64", ()),
    (np.ones(2, np.uint8), "uint8", (2,)),
    (np.ones(2, np.float16), "float16", (2,)),
]


@pytest.mark.parametrize(("data", "dtype", "shape"), DATA)
def test_a_tensor_has_the_dtype_and_shape_of_its_data(data, dtype, shape):
    x = Tensor(data)
    assert (x.dtype, x.shape, x.device) == (np.dtype(dtype), shape, here())
    assert (x.ndim, x.numel(), x.xp) == (len(shape), int(np.prod(shape)), get_device(here()).xp)
    assert x.tolist() == np.asarray(data).tolist()
    assert not x.requires_grad
    assert x.grad is None


@pytest.mark.cpu_only("memory of the host")
def test_data_is_copied_and_wrap_does_not_copy():
    array = np.zeros(2)
    copy, same = Tensor(array), Tensor.wrap(array)
    array[0] = 7
    assert copy.tolist() == [0, 0]
    assert same.tolist() == [7, 0]
    assert same.data is array
    assert same.version == 0


@pytest.mark.parametrize("ask", [Tensor.requires_grad_, lambda x, on: setattr(x, "requires_grad", on)])
def test_only_leaves_of_floats_may_require_a_gradient(ask):
    x = Tensor([1.0])
    ask(x, True)
    (x * 3).sum().backward()
    assert x.grad.tolist() == [3.0]
    with pytest.raises(RuntimeError, match="only for leaves, not for results"):
        ask(x * 3, False)
    ask(x, False)
    assert not (x * 3).requires_grad
    for dtype in ("int64", "bool", "float16"):
        other = Tensor([1], dtype=dtype)
        ask(other, False)
        with pytest.raises(TypeError, match=f"only float32 and float64 have gradients, not {dtype}"):
            ask(other, True)
        assert not other.requires_grad


LIKE = Tensor([[1, 2]], dtype="float64")
CONSTRUCTED = [  # a constructor with its arguments, and the values and the type that it gives
    (Tensor.zeros, (2, 1), [[0], [0]], "float32"),
    (Tensor.zeros, ((2, 1),), [[0], [0]], "float32"),
    (Tensor.ones, ([2],), [1, 1], "float32"),
    (Tensor.full, ((2,), 2.5), [2.5, 2.5], "float32"),
    (Tensor.arange, (3,), [0, 1, 2], "int64"),
    (Tensor.arange, (1, 6, 2), [1, 3, 5], "int64"),
    (Tensor.arange, (0.5, 2), [0.5, 1.5], "float32"),
    (Tensor.arange, (3, 0, -1), [3, 2, 1], "int64"),
    (Tensor.eye, (2, 3), [[1, 0, 0], [0, 1, 0]], "float32"),
    *((Tensor.zeros_like, (LIKE,), [[0, 0]], "float64"), (Tensor.ones_like, (LIKE,), [[1, 1]], "float64")),
    *((Tensor.full_like, (LIKE, 3), [[3, 3]], "float64"), (Tensor.rand, (2, 3), None, "float32")),
    (Tensor.randn, ((4,),), None, "float32"),
]


@pytest.mark.parametrize(("make", "arguments", "values", "dtype"), CONSTRUCTED)
def test_constructors_give_values_dtypes_and_devices(make, arguments, values, dtype, device):
    """Each accepts a type and whether a gradient is required."""
    is_like = make.__name__.endswith("_like")
    arguments = (LIKE.to(device), *arguments[1:]) if is_like else arguments
    where = {} if is_like else {"device": device}
    x = make(*arguments, **where)
    assert (x.dtype, x.device, x.requires_grad) == (dtype, device, False)
    for kind in ["float64", "float32", *["int64", "bool"] * (make in (Tensor.zeros, Tensor.ones, Tensor.ones_like))]:
        y = make(*arguments, **where, dtype=kind, requires_grad=kind == "float64")
        assert (y.shape, y.dtype, y.device, y.requires_grad) == (x.shape, kind, device, kind == "float64")
        assert values is None or y.tolist() == x.tolist() == values


def test_random_numbers_repeat_with_the_seed(device):
    def draws(seed):
        manual_seed(seed)
        return [make.tolist() for make in (Tensor.rand(2, 3, device=device), Tensor.randn((4,), device=device))]

    first, again, other = draws(7), draws(7), draws(8)
    assert first == again
    assert first[0] != other[0]
    manual_seed(7)
    assert first[0] == Tensor.rand(2, 3).tolist()  # drawn on the host, the same on every device


def test_random_numbers_have_the_right_distribution():
    with random_key(1, 2):
        uniform, normal = Tensor.rand(20000, dtype="float64"), Tensor.randn(20000, dtype="float64")
    assert uniform.min().item() >= 0
    assert uniform.max().item() < 1
    assert abs(uniform.mean().item() - 1 / 2) < 4 * (1 / 12 / 20000) ** 0.5  # four standard errors
    assert abs(uniform.var().item() - 1 / 12) < 0.003
    assert abs(normal.mean().item()) < 4 / 20000**0.5
    assert abs(normal.var().item() - 1) < 0.04


# --- representation, conversion ---------------------------------------------------------------------------------


def test_repr_shows_values_shape_dtype_device_and_op():
    x = Tensor([[1.0, 2.5]], requires_grad=True)
    assert repr(x) == f"Tensor([[1.  2.5]], shape=(1, 2), dtype=float32, device={here()}, requires_grad=True)"
    assert repr(x * 2) == f"Tensor([[2. 5.]], shape=(1, 2), dtype=float32, device={here()}, op=mul)"
    assert repr(x.detach()) == f"Tensor([[1.  2.5]], shape=(1, 2), dtype=float32, device={here()})"
    assert len(repr(Tensor.zeros(1000, 1000))) < 1000


def test_a_single_element_converts_to_a_python_number():
    converted = [Tensor([[2.5]]).item(), Tensor(2).item(), Tensor(True).item(), float(Tensor(2)), int(Tensor([2.9]))]
    assert [repr(number) for number in converted] == ["2.5", "2", "True", "2.0", "2"]
    assert (bool(Tensor([1.0])), bool(Tensor(0))) == (True, False)
    assert f"{Tensor(0.25):.1%} {Tensor([[2]]):03d} {Tensor(0.5) * 2:.4f}" == "25.0% 002 1.0000"
    assert f"{Tensor([1.0, 2.0])}" == str(Tensor([1.0, 2.0]))


def test_a_tensor_has_a_length_and_can_be_iterated():
    x = Tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    assert len(x) == 2
    rows = list(x)
    assert [row.tolist() for row in rows] == [[1.0, 2.0], [3.0, 4.0]]
    (rows[0] * rows[1]).sum().backward()
    assert x.grad.tolist() == [[3.0, 4.0], [1.0, 2.0]]
    assert 4.0 in Tensor([3.0, 4.0])


def test_a_tensor_can_be_in_sets_and_dicts():
    x, y = Tensor([1.0, 2.0]), Tensor([1.0, 2.0])
    assert len({x, y, x}) == 2
    assert {x: "x", y: "y"}[y] == "y"


@pytest.mark.cpu_only("a view of the CPU's memory; from a GPU it is a copy")
def test_numpy_is_a_read_only_view():
    x = Tensor([1.0, 2.0])
    view = x.numpy()
    assert np.shares_memory(view, x.data)
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 5
    x[0] = 5  # the tensor itself stays writable
    assert view.tolist() == [5.0, 2.0]


def test_tensors_on_two_devices_do_not_mix(device):
    def written():
        x.detach()[0] = y
        return x

    x, y = Tensor([[1.0]], requires_grad=True), Tensor([[1.0]], device=device)
    refused = pytest.raises(ValueError, match=rf"tensors on (cpu and {device}|{device} and cpu) cannot be combined")
    for fn in (lambda: x + y, lambda: y * x, lambda: x @ y, lambda: x.cat(y), lambda: (y > 0).where(x, 0.0), written):
        with refused if device != "cpu" else nullcontext():
            assert fn().device == "cpu"


# --- between NumPy and the tensor -------------------------------------------------------------------------------


@pytest.mark.cpu_only("memory of the host")
def test_numpy_accepts_a_tensor_as_an_array():
    x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    assert not np.asarray(x).flags.writeable  # like x.numpy()
    copy = np.array(x)
    copy[0, 0] = 9
    assert x.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert np.asarray(x, np.float64).dtype == np.float64
    assert (np.array([x, x]).dtype, np.array([x, x]).shape) == (np.float32, (2, 2, 2))
    assert np.concatenate([np.zeros((1, 2), np.float32), x]).tolist() == [[0, 0], [1, 2], [3, 4]]
    assert Tensor([x[0], x[1]]).tolist() == x.tolist()
    with pytest.raises(ValueError, match="copy"):
        np.asarray(x, np.float64, copy=False)


@pytest.mark.cpu_only("memory of the host")
def test_conversion_to_numpy_never_drops_a_gradient_silently():
    x = Tensor([1.0, 2.0], requires_grad=True)
    for call in (np.asarray, np.array, lambda x: np.array([x, x]), lambda x: np.concatenate([[0.0], x * 2])):
        with pytest.raises(RuntimeError, match=r"use x.numpy\(\) or x.detach\(\).numpy\(\)"):
            call(x)
    with pytest.raises(RuntimeError, match=r"stack\(\) or cat\(\) to join tensors"):
        Tensor([x, x])
    assert np.sum(x).requires_grad  # np.sum, np.mean and np.max call the method
    assert (np.sum(x).item(), np.mean(x, axis=0).item(), np.max(x).item()) == (3.0, 1.5, 2.0)


def test_a_gpu_tensor_is_never_copied_to_numpy_implicitly(device):
    x = Tensor([1.0], device=device)
    if device != "cpu":
        with pytest.raises(TypeError, match=rf"a tensor on {device} does not become a NumPy array .*numpy\(\) copies"):
            np.asarray(x)
        assert Tensor(x.data).device == device
    assert (x.__array_ufunc__ is None) == (device != "cpu")  # which sends CuPy to x.__radd__
    assert type(x.numpy()) is np.ndarray
    assert x.numpy().flags.writeable is False
    assert x.numpy().tolist() == x.tolist() == [1.0]


def test_lists_and_numbers_beside_a_tensor_become_constants(device):
    x = Tensor([[1.0, 2.0], [3.0, 4.0]], device=device, requires_grad=True)
    mask = x > 1.5
    for y, expected in [
        (x * [10, 100], [[10, 200], [30, 400]]),
        (x @ [1.0, 10.0], [21, 43]),
        (x.masked_fill([[True, False]], 0), [[0, 2], [0, 4]]),
        (mask.where(x, [7, 8]), [[7, 2], [3, 4]]),
        (x.cat([[5, 6]]), [[1, 2], [3, 4], [5, 6]]),
        (x[0].stack([5.0, 6.0], [7, 8]), [[1, 2], [5, 6], [7, 8]]),
        (x.gather(1, [[1], [0]]), [[2], [3]]),
    ]:
        assert y.tolist() == expected
        assert (y.device, y.dtype, y.requires_grad) == (device, np.float32, True)


@pytest.mark.cpu_only("NumPy's arrays do not mix with a GPU's")
def test_arrays_beside_a_tensor_become_constants():
    x = Tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    array = np.array([[1.0, 10.0], [100.0, 1000.0]], np.float32)
    assert (x @ array).tolist() == (x @ Tensor(array)).tolist()
    for calculate in (operator.add, operator.sub, operator.mul, operator.truediv, operator.lt):
        assert calculate(array, x).tolist() == calculate(Tensor(array), x).tolist()
    y = array @ x
    assert y.tolist() == (Tensor(array) @ x).tolist()
    assert x.cat(array, axis=1).shape == (2, 4)
    assert x.masked_fill(array > 5, 0.0).tolist() == [[1, 0], [0, 0]]
    assert (x * np.float64(2)).dtype == (np.float64(3) - x).dtype == (x @ array).dtype == np.float32
    assert (x @ array.astype(np.float64)).dtype == np.float64  # an array keeps its dtype
    array[...] = 0  # the tensor made from it is a copy
    y.sum().backward()
    assert x.grad.tolist() == [[101.0, 101.0], [1010.0, 1010.0]]


@pytest.mark.parametrize("number", [np.int64(0), np.int8(0), 0])
def test_an_axis_may_be_any_whole_number(number):
    x = Tensor([[1.0, 2.0], [3.0, 5.0]])
    assert x.sum(number).tolist() == [4.0, 7.0]
    assert x.amax((number, -1)).item() == 5.0
    assert x.argmin(number).tolist() == [0, 0]
    assert x.unsqueeze(number).shape == (1, 2, 2)


# --- writing ----------------------------------------------------------------------------------------------------


def test_writing_into_a_copy_leaves_the_original_unchanged():
    x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    for copy in (x.T.reshape(4), x[Tensor(0)], x[[0]], x[True], x.clone()):
        copy[0] = 9
        assert copy.version == 1
    assert x.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert x.version == 0
    x.reshape(4)[0] = x.T.unsqueeze(0)[0, 1, 1] = 9  # while these share its memory
    assert x.version == 2
