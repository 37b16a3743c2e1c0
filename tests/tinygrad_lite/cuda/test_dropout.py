"""Dropout on a GPU: the random numbers bit for bit, and the masks made from them."""

import numpy as np
import pytest

from tests.tinygrad_lite.cuda.random_bits import bits_of, key_of, mask, philox
from tinygrad_lite import Tensor
from tinygrad_lite import functional as F
from tinygrad_lite.cuda.dropout import round_keys
from tinygrad_lite.cuda.launch import Kernel, definitions, launch_elements, parameters_of, source
from tinygrad_lite.device import get_device
from tinygrad_lite.functional.registry import composed
from tinygrad_lite.precision import bfloat16
from tinygrad_lite.random import random_key

KNOWN = [  # published with the generator: counter and key words, and the random words they give
    (0x00000000, [0x5F6FB709, 0x0D893F64, 0x4F121F81, 0x4F730A48]),
    (0xFFFFFFFF, [0x5207DDC2, 0x45165E59, 0x4D8EE751, 0x8C52F662]),
]
KERNEL = """
extern "C" __global__ void bits_of(long long count, RoundKeys round_keys, long long first, long long* out) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < count) out[i] = random_bits(round_keys, first + i);
}
"""


@pytest.mark.parametrize("first", [3, 2**32 - 2, 2**40 + 1])
def test_random_bits_are_the_published_ones_and_depend_on_the_element_alone(cuda, first):
    import cupy

    for word, expected in KNOWN:
        assert [int(x) for x in philox([word] * 4, [word] * 2)] == expected
    code, options = source("dropout") + KERNEL, ("-std=c++17", *definitions(X=np.dtype("float32"), PACK=4))
    run = cupy.RawModule(code=code, options=options).get_function("bits_of")
    out, key = get_device(cuda).xp.empty(300, np.int64), 0x8000_0001_DEAD_BEEF
    kernel = Kernel("bits_of", run, parameters_of(code, "bits_of", "float"))
    launch_elements(kernel, 300, round_keys(key), first, out)
    assert out.tolist() == bits_of(first + np.arange(300), key).tolist()


@pytest.mark.parametrize("shape", [(), (3,), (7, 9), (257, 4), (0, 3)])
@pytest.mark.parametrize(("dtype", "p"), [("float32", 0.3), ("float64", 0.5)])
def test_the_mask_is_right_bit_for_bit(cuda, shape, dtype, p):
    """The same elements are dropped whether four or one are computed at a time."""
    numbers = np.random.default_rng(1).standard_normal(shape).astype(dtype)
    x = Tensor(numbers, device=cuda, requires_grad=True)
    with random_key(5, 2):
        y = F.dropout(x, p)
    kept = mask(shape, p, key_of(5, 2))
    scale = np.dtype(dtype).type(1 / (1 - p))
    np.testing.assert_array_equal(y.numpy(), numbers * kept * scale)
    dy = np.random.default_rng(2).standard_normal(shape).astype(dtype)
    y.backward(Tensor(dy, device=cuda))
    np.testing.assert_array_equal(x.grad.numpy(), dy * kept * scale)
    assert (y.dtype, x.grad.shape) == (np.dtype(dtype), shape)


def test_all_other_random_numbers_equal_those_of_the_cpu(cuda):
    """Those that are drawn after a dropout, and the mask of the reference version."""
    drawn = []
    for device in ("cpu", cuda):
        with random_key(4):
            F.dropout(Tensor.ones(10, device=device), 0.5)
            drawn.append([Tensor.randn(5).tolist()])
        with random_key(3), composed():
            drawn[-1].append(F.dropout(Tensor.ones(100, device=device), 0.5).tolist())
    assert drawn[0] == drawn[1]


def test_a_view_and_a_stretched_gradient_are_accepted(cuda):
    whole = Tensor(np.arange(1.0, 35.0, dtype=np.float32), device=cuda)
    kept = mask((16,), 0.5, key_of(8))
    for part in (whole.data[1:17], whole.data[::2][:16]):  # between packs; with gaps
        x = Tensor.wrap(part).requires_grad_()
        with random_key(8):
            y = F.dropout(x, 0.5)
        np.testing.assert_array_equal(y.numpy(), x.numpy() * kept * 2)
        y.sum().backward()
        np.testing.assert_array_equal(x.grad.numpy(), kept * 2.0)


def test_bfloat16_stays_bfloat16(cuda):
    x = Tensor.wrap(Tensor(np.linspace(1, 2, 40, dtype=np.float32), device=cuda).data.astype(bfloat16()))
    with random_key(9):
        y = F.dropout(x, 0.2)
    assert y.dtype == bfloat16()
    exact = x.numpy().astype(np.float32) * mask((40,), 0.2, key_of(9)) * np.float32(1.25)
    np.testing.assert_array_equal(y.numpy(), exact.astype(bfloat16()))
