"""The kernels of one position, each compared with its formula in float64: odd widths, many rows, long caches."""

import itertools
import math

import numpy as np
import pytest

from tinygrad_lite import Tensor
from tinygrad_lite import functional as F
from tinygrad_lite.cuda import decode
from tinygrad_lite.cuda.decode import ACTIVATIONS, attention, linear, log_softmax
from tinygrad_lite.device import get_device
from tinygrad_lite.functional.rotary import rotary_factors
from tinygrad_lite.precision import bfloat16

rng = np.random.default_rng(5)
TOLERANCE = {"float32": 2e-5, "float64": 1e-12, "bfloat16": 2e-5}  # inputs are rounded, results are not


def numbers(*shape, dtype="float32"):
    """Random numbers that this type can hold."""
    kind = bfloat16() if dtype == "bfloat16" else np.dtype(dtype)
    return rng.standard_normal(shape).astype(kind)


def wide(dtype):
    """The type of everything but weights and caches."""
    return "float64" if dtype == "float64" else "float32"


def activated(y, activation):
    """The reference version, of (B, N), or of (B, 2 N) for swiglu."""
    if activation == "swiglu":
        gate, up = np.split(y, 2, axis=1)
        return F.swiglu(Tensor(gate), Tensor(up)).numpy()
    if activation.startswith("gelu"):
        return F.gelu.composed(Tensor(y), approximate="tanh" if activation == "gelu_tanh" else "none").numpy()
    y = y if activation == "linear" else np.maximum(y, 0)
    return y * y if activation == "relu2" else y


def check_linear(rows, results, width, dtype, activation, cuda):
    """With a shift, after a norm, and added to what is there."""
    device, kind = get_device(cuda), wide(dtype)
    x, start = numbers(rows, width, dtype=kind), numbers(rows, results, dtype=kind)
    outputs = 2 * results if activation == "swiglu" else results
    weight, shift = numbers(outputs, width, dtype=dtype), numbers(outputs, dtype=kind)
    normed = x / np.sqrt((x.astype(np.float64) ** 2).mean(1, keepdims=True) + 0.01)
    for eps, has_shift, add in ((None, True, False), (0.01, False, False), (0.01, True, True)):
        y = (x if eps is None else normed).astype(np.float64) @ weight.astype(np.float64).T
        expected = activated(y + shift * has_shift, activation) + start * add
        out = device.from_host(start.copy())
        given = device.from_host(shift) if has_shift else None
        linear(device.from_host(x), device.from_host(weight), given, out, eps, activation, add)()
        bound = TOLERANCE[dtype] * max(1.0, np.abs(expected).max())
        np.testing.assert_allclose(device.to_host(out), expected, rtol=0, atol=bound)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("rows", "results", "width"), [(1, 5, 7), (1, 6, 1112), (4, 3, 1050), (9, 2, 12)])
def test_a_linear_map_with_what_stands_around_it(rows, results, width, dtype, activation, cuda):
    """1,112 numbers are more than a warp requests at once, in any type."""
    check_linear(rows, results, width, dtype, activation, cuda)


TILED = [  # a tile; texts, results and columns: not all tiles are full, and not all pieces of 32 columns
    ((1, 1), [(5, 16, 8), (8, 17, 16), (9, 3, 96), (33, 8, 24)]),
    ((2, 1), [(8, 40, 48), (9, 33, 1112)]),
    ((1, 2), [(9, 16, 96), (32, 20, 40), (33, 7, 1112)]),
    ((4, 4), [(33, 65, 16), (26, 17, 536)]),
    *(pytest.param(tile, [(8, 40, 48), (33, 70, 1112)], marks=pytest.mark.slow) for tile in ((2, 4), (2, 2), (4, 2))),
]


@pytest.mark.parametrize(("tile", "products"), TILED)
def test_a_linear_map_of_many_texts_on_tensor_cores(tile, products, cuda, monkeypatch):
    """As exact as one that reads the numbers of the texts in float32; only the weights are rounded."""
    requested, kernel = [], decode.kernel
    monkeypatch.setattr(decode, "TILES", (tile,))
    monkeypatch.setattr(decode, "kernel", lambda *names, **types: requested.append(names) or kernel(*names, **types))
    for (rows, results, width), activation in itertools.product(products, ("linear", "gelu_tanh", "swiglu")):
        check_linear(rows, results, width, "bfloat16", activation, cuda)
    assert {*requested} == {("decode_tiles", "decode_linear_tiles")}


CASES = {  # heads, heads of keys and values, width
    "gpt-2": (2, 2, 64),
    "groups": (6, 2, 16),
    "odd width": (1, 1, 7),
    "widest": (1, 1, 256),
}


def normed(x, gains, eps=0.01):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * gains


def turned(x, factors):
    half = x.shape[-1] // 2
    return x * factors[0] + np.concatenate([x[..., half:], x[..., :half]], -1) * factors[1]


ATTENTIONS = [(case, 40, "normed" if case == "odd width" else "normed, turned") for case in CASES]
ATTENTIONS += [("gpt-2", position, "bare") for position in (0, 300)]


@pytest.mark.parametrize(
    ("case", "position", "parts", "dtype"),
    [
        # Compiling a kernel for a width and a type takes longer than all else.
        pytest.param(*attention, dtype, marks=() if dtype == "float64" or attention[0] == "gpt-2" else pytest.mark.slow)
        for attention in ATTENTIONS
        for dtype in TOLERANCE
    ],
)
def test_attention_of_one_position(case, position, parts, dtype, cuda):
    """Nothing is read from behind that position, and nothing else written."""
    heads, kv_heads, width = CASES[case]
    device, kind, capacity = get_device(cuda), wide(dtype), position + 3
    joint = numbers(2, heads + 2 * kv_heads, width, dtype=kind)
    both = numbers(2, 2, kv_heads, capacity, width, dtype=dtype)
    both[:, :, :, position:] = np.nan
    gains = numbers(2, width, dtype=kind) if "normed" in parts else None
    turns = None
    if "turned" in parts:
        frequencies = tuple(1 / (i + 1) for i in range(width // 2))
        turns = np.ascontiguousarray(rotary_factors(np.arange(capacity), frequencies, np.dtype(kind)).swapaxes(0, 1))

    query, key, value = np.split(joint.astype(np.float64), [heads, heads + kv_heads], axis=1)
    if gains is not None:
        query, key = normed(query, gains[0]), normed(key, gains[1])
    if turns is not None:
        query, key = turned(query, turns[position]), turned(key, turns[position])
    filled = both.copy()
    filled[:, 0, :, position], filled[:, 1, :, position] = key, value
    keys, values = (filled[:, i, :, : position + 1].astype(np.float64) for i in (0, 1))
    query = query.reshape(2, kv_heads, heads // kv_heads, width)
    scores = 0.3 * query @ keys.swapaxes(2, 3)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = (weights / weights.sum(-1, keepdims=True) @ values).reshape(2, heads, width)

    cache, out = device.from_host(both), device.from_host(np.full((2, heads, width), np.nan, kind))
    given = [None if array is None else device.from_host(array) for array in (gains, turns)]
    inputs = device.from_host(np.array([position, -1]))
    attention(device.from_host(joint), 0.3, given[0], 0.01, given[1], out, inputs, cache.dtype, cache.shape)(cache)
    np.testing.assert_allclose(device.to_host(out), expected, rtol=0, atol=TOLERANCE[dtype] * 10)
    after = device.to_host(cache)
    written = np.zeros(after.shape, bool)
    written[:, :, :, position] = True
    assert after[~written].tobytes() == both[~written].tobytes()
    step = 2**-7 if dtype == "bfloat16" else 1e-6  # a rounding that may go either way
    np.testing.assert_allclose(after[written].astype(float), filled[written].astype(float), rtol=step, atol=1e-6)


@pytest.mark.parametrize("alone", [1, 3])
def test_attention_of_many_texts_takes_smaller_blocks(alone, cuda, monkeypatch):
    """Here four blocks count as many: they have 4 or 8 warps instead of 16."""
    monkeypatch.setattr(decode, "ALONE", alone)
    test_attention_of_one_position("gpt-2", 300, "normed", "bfloat16", cuda)


@pytest.mark.parametrize("scale", [1e4, -1e4])
def test_no_score_is_too_large(scale, cuda):
    """The largest score decides alone; its exponential would overflow."""
    device = get_device(cuda)
    joint, both = np.ones((1, 3, 8), np.float32), np.ones((1, 2, 1, 41, 8), np.float32)
    both[0, 0, 0, :, :] = np.linspace(0, 0.5, 41)[:, None]
    both[0, 1, 0, :, :] = np.arange(41)[:, None]
    joint[0, 2] = 99
    out = device.from_host(np.zeros((1, 1, 8), np.float32))
    inputs = device.from_host(np.array([40, -1]))
    launch = attention(device.from_host(joint), scale, None, 0.0, None, out, inputs, np.dtype("float32"), both.shape)
    launch(device.from_host(both))
    assert device.to_host(out).ravel().tolist() == [99 if scale > 0 else 0] * 8


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("width", [1, 33, 2500])
def test_log_softmax_of_rows(width, dtype, cuda):
    device, logits = get_device(cuda), 100 * numbers(3, width, dtype=dtype)
    logits[1] += 1e4  # where float32 has steps of 1e-3
    logits[2, : width // 2] = -math.inf
    expected = F.log_softmax(Tensor(logits.astype(np.float64))).numpy()
    here = device.from_host(logits)
    log_softmax(here)()
    np.testing.assert_allclose(device.to_host(here), expected, rtol=0, atol=1e-12 if dtype == "float64" else 1e-3)
