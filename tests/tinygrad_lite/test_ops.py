"""Every operation of a tensor: its values against NumPy, its gradients against central differences.

The tests go through the table of `op_cases.py`, so an operation that is added to `ops/` or to `Tensor` must get a
row there (a test checks this). Values at kinks, ties and infinities are in `test_ops_edges.py`.
"""

import gc
import inspect
import math
import weakref
from typing import Any

import numpy as np
import pytest

from tests.places import here
from tests.tinygrad_lite.op_cases import CASES, Arrays, each_of
from tinygrad_lite import Tensor, no_grad, ops
from tinygrad_lite.debug.gradcheck import gradcheck

pytestmark = [pytest.mark.every_device, pytest.mark.without_kernels]

# Not in the table; the tests named here check them differently.
APART = {"cast": "test_cast_converts_values_and_gradients", "to": "test_a_tensor_moves_to_another_device_and_back"}
HELPERS = {"erf_array", "raw_index"}  # in the files of the primitives, but not primitives
# Tested in other files: creation and conversion, the graph, and the operations of functional/.
TENSOR = "arange backward detach device dtype eye full full_like item mark_written ndim numel numpy ones ones_like rand"
TENSOR += " randn requires_grad requires_grad_ retain_grad shape tolist version wrap xp zeros zeros_like"
CHAPTERS = "avg_pool2d conv2d cross_entropy dropout gelu layer_norm linear max_pool2d scaled_dot_product_attention"

every_case = each_of(CASES)
every_gradient = each_of([case for case in CASES if case.gradient])


def leaves(arrays: Arrays, device: str | None = None, gradient: bool = True) -> list[Tensor]:
    """Tensors over the arrays themselves (so that views stay views), or over copies on another device."""
    device = device or here()
    tensors = [Tensor.wrap(x) if device == "cpu" else Tensor(x, device=device) for x in arrays]
    return [x.requires_grad_(gradient) for x in tensors]


def weights(shape: tuple[int, ...], dtype: Any = np.float64) -> np.ndarray:
    """Fixed numbers to start a backward pass with, different at every place."""
    return np.asarray(np.random.default_rng(1).uniform(0.5, 1.5, shape)).astype(dtype)


# --- completeness ----------------------------------------------------------------------------------------------


def test_every_operation_is_in_the_table():
    in_table = {case.op for case in CASES}
    defined = {
        name
        for file in (ops.arithmetic, ops.elementwise, ops.reductions, ops.shapes)
        for name, f in vars(file).items()
        if inspect.isfunction(f) and f.__module__ == file.__name__ and name[0] != "_"
    }
    assert defined - HELPERS | {"cast"} == set(ops.__all__)
    assert set(ops.__all__) - set(APART) - in_table == set()
    assert set(APART.values()) <= set(globals())


def test_every_method_of_a_tensor_is_in_the_table():
    in_table = {case.op for case in CASES}
    methods = {name for name in dir(Tensor) if name[0] != "_"}
    others = {*TENSOR.split(), *CHAPTERS.split()}
    assert methods - in_table - others == {"cast", "to"}
    assert others <= methods


# --- values and gradients ---------------------------------------------------------------------------------------


@every_case
def test_values_equal_numpys(case, device):
    for arrays in case.samples:
        inputs = leaves(arrays, device, gradient=False)
        y = case.fn(*inputs)
        expected = np.asarray(case.ref(*arrays))
        assert (y.shape, y.dtype, y.device) == (expected.shape, expected.dtype, device)
        np.testing.assert_allclose(y.numpy(), expected, rtol=1e-12, atol=1e-13)


@every_gradient
def test_gradients_equal_central_differences(case, device):
    for arrays in case.samples:
        gradcheck(case.fn, leaves(arrays, device), tolerance=1e-6, directions=0 if device == "cpu" else 1)


@every_gradient
def test_float32_stays_float32(case):
    for arrays in case.samples:
        results = {}
        for dtype in (np.float32, np.float64):
            inputs = leaves(tuple(x.astype(np.float32).astype(dtype) for x in arrays))
            y = case.fn(*inputs)
            assert y.dtype == dtype
            y.backward(Tensor(weights(y.shape, dtype)))
            assert all(x.grad.dtype == dtype and x.grad.shape == x.shape for x in inputs)
            results[dtype] = [y.numpy(), *(x.grad.numpy() for x in inputs)]
        for single, double in zip(*results.values(), strict=True):
            np.testing.assert_allclose(single, double, rtol=3e-5, atol=3e-5)


@pytest.mark.cpu_only("memory that cannot be written")
@every_gradient
def test_neither_inputs_nor_incoming_gradient_are_written(case):
    for arrays in case.samples:
        frozen = tuple(x.copy() for x in arrays)
        for x in frozen:
            x.flags.writeable = False  # a write would raise
        inputs = leaves(frozen)
        y = case.fn(*inputs)
        start = weights(y.shape)
        start.flags.writeable = False
        y.backward(start)
        assert all(x.grad is not None for x in inputs)


@every_gradient
def test_operations_leave_no_reference_cycles(case):
    """Memory must be freed at once, not when the garbage collector runs."""
    gc.disable()
    try:
        for walk in (False, True):
            inputs = leaves(tuple(x.copy() for x in case.samples[0]))
            y = case.fn(*inputs)
            if walk:
                y.backward(Tensor(weights(y.shape)))
            dead = [weakref.ref(y), weakref.ref(y.data), *(weakref.ref(x) for x in inputs)]
            del y, inputs
            assert [ref() for ref in dead] == [None] * len(dead)
    finally:
        gc.enable()


@every_gradient
def test_only_inputs_that_require_a_gradient_get_one(case):
    arrays = case.samples[0]
    for asked in range(len(arrays)):
        inputs = [Tensor(x).requires_grad_(i == asked) for i, x in enumerate(arrays)]
        y = case.fn(*inputs)
        y.backward(Tensor(weights(y.shape)))
        assert [x.grad is not None for x in inputs] == [i == asked for i in range(len(arrays))]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_erf_is_exact_to_the_last_digits(dtype):
    x = np.concatenate([np.linspace(-7, 7, 65_533), [1e-20, -1e-12, 1e-5]]).astype(dtype).reshape(2, -1)
    right = np.array([[math.erf(float(v)) for v in row] for row in x])
    y = Tensor(x).erf().numpy()
    units = np.abs(y - right) / np.maximum(np.abs(right), 1e-30) / np.finfo(dtype).eps
    assert units.max() < 8 if dtype == np.float64 else units.max() < 3
    assert np.abs(y).max() == 1


def test_cast_converts_values_and_gradients():
    x = Tensor([1.5, -2.5], dtype="float64", requires_grad=True)
    y = x.cast("float32")
    with no_grad():
        y[...] = 7.0  # which no derivative needs
    y.backward(Tensor([2.0, 3.0]))
    assert (y.dtype, x.grad.dtype, x.grad.tolist()) == (np.float32, np.float64, [2.0, 3.0])
    assert x.cast(np.float64) is x
    assert x.cast("int64").tolist() == [1, -2]
    assert not x.cast("int64").requires_grad
    assert Tensor([0.0, 2.0]).cast(bool).tolist() == [False, True]


def test_a_tensor_moves_to_another_device_and_back(device):
    for values, slopes in (([1.0, 2.0], [2.0, 4.0]), ([], []), (3.0, 6.0)):
        x = Tensor(values, requires_grad=True)
        y = x.to(device)
        assert (y is x) == (device == "cpu")
        z = (y * y).to("cpu")
        total = z.sum()
        with no_grad():
            z[...] = 7.0  # which no derivative needs
        total.backward()
        assert (y.device, z.device, x.grad.device, x.grad.tolist()) == (device, "cpu", "cpu", slopes)
