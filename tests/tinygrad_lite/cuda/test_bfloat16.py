"""Every operation on bfloat16 tensors, such as a model's activations; CuPy supports them only in part."""

import numpy as np
import pytest

from tests.tinygrad_lite.op_cases import CASES, each_of
from tinygrad_lite import Tensor
from tinygrad_lite.debug.anomaly import NonFiniteError, detect_anomaly
from tinygrad_lite.precision import bfloat16, precision

FLOATS = [case for case in CASES if case.gradient and all(x.dtype.kind == "f" for xs in case.samples for x in xs)]


@each_of(FLOATS)
def test_values_and_gradients_are_those_of_rounded_inputs(case, cuda):
    for arrays in case.samples:
        leaves = [Tensor(x.astype(np.float32), device=cuda, requires_grad=True) for x in arrays]
        y = case.fn(*(x.cast(bfloat16()) for x in leaves))
        assert y.dtype in (bfloat16(), np.float32)
        y.cast(np.float32).sum().backward()
        assert [x.grad.dtype for x in leaves] == [np.float32] * len(leaves)
        rounded = [x.astype(np.float32).astype(bfloat16()).astype(np.float64) for x in arrays]
        expected = np.asarray(case.ref(*rounded))
        np.testing.assert_allclose(y.cast(np.float32).numpy(), expected, rtol=0.05, atol=0.05)


KEEPING = {
    "relu": lambda x: x.relu(),
    "where": lambda x: (x > 0).where(x, 0.0),
    "maximum": lambda x: x.maximum(1.0),
    "getitem": lambda x: x[[1, 1]],
    "masked_fill": lambda x: x.masked_fill(x < 0, 1.0),
    "gather": lambda x: x.gather(1, Tensor([[1, 0], [0, 0]], device=x.device)),
}


@pytest.mark.parametrize("operation", KEEPING.values(), ids=KEEPING)
def test_bfloat16_stays_bfloat16(operation, cuda):
    x = Tensor([[1.5, -2.0], [0.0, 3.0]], device=cuda).cast(bfloat16())
    assert operation(x).dtype == bfloat16()


def test_gradients_of_indexed_rows_are_summed_in_float32(cuda):
    x = Tensor([[1.0], [2.0]], device=cuda, requires_grad=True)
    x.cast(bfloat16())[[0] * 1000].cast(np.float32).sum().backward()
    assert x.grad.tolist() == [[1000.0], [0.0]]  # a sum of ones in bfloat16 stops at 256


def test_the_checking_mode_checks_bfloat16_too(cuda):
    weight = Tensor([[1.0, 0.0]], device=cuda)
    with precision("bfloat16"), detect_anomaly(), pytest.raises(NonFiniteError, match="linear produced an infinity"):
        Tensor([[3e38, 1.0]], device=cuda).linear(weight * 2)
