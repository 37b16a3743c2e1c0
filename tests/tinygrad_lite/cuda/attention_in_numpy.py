"""Attention and its gradients written out in NumPy and float64, with the dropout masks of the GPU's kernels."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from tests.tinygrad_lite.cuda.random_bits import key_of
from tests.tinygrad_lite.cuda.random_bits import mask as mask_of_weights
from tinygrad_lite import Tensor
from tinygrad_lite import functional as F
from tinygrad_lite.precision import bfloat16
from tinygrad_lite.random import random_key


def attention(
    query, key, value, dy, mask=None, is_causal=False, dropout_p=0.0, seed=7, scale=None
) -> dict[str, np.ndarray]:
    """The result and the three gradients, by the formulas of functional/attention.py, for arrays of any float type."""
    q, k, v, dy = (np.asarray(x, np.float64) for x in (query, key, value, dy))
    t, s, scale = q.shape[2], k.shape[2], 1 / np.sqrt(q.shape[3]) if scale is None else scale
    allowed = np.ones((*q.shape[:3], s), bool) if mask is None else np.broadcast_to(mask, (*q.shape[:3], s))
    if is_causal:
        allowed = allowed & np.tril(np.ones((t, s), bool), s - t)
    scores = np.where(allowed, q @ k.swapaxes(2, 3) * scale, -np.inf)
    largest = np.max(scores, -1, keepdims=True, initial=-1e300)
    e = np.exp(scores - largest)
    total = e.sum(-1, keepdims=True)
    p = e / np.where(total == 0, 1, total)
    m = mask_of_weights(p.shape, dropout_p, key_of(seed)) / (1 - dropout_p) if dropout_p else 1.0
    dp = dy @ v.swapaxes(2, 3) * m
    ds = p * (dp - (dp * p).sum(-1, keepdims=True)) * scale
    gradients = {"query": ds @ k, "key": ds.swapaxes(2, 3) @ q, "value": (p * m).swapaxes(2, 3) @ dy}
    return {"result": (p * m) @ v} | gradients


def inputs(
    batch: int, heads: int, t: int, s: int, width: int, kind: str, of_heads: bool = False, seed: int = 0
) -> SimpleNamespace:
    """Random q, k, v and upstream gradient, rounded to a type; sliced from (B, T, C) as in a model if `of_heads`."""
    rng, dtype = np.random.default_rng(seed), bfloat16() if kind == "bfloat16" else np.dtype(kind)

    def random(length: int) -> np.ndarray:
        if of_heads:
            return rng.standard_normal((batch, length, heads, width)).astype(dtype).swapaxes(1, 2)
        return rng.standard_normal((batch, heads, length, width)).astype(dtype)

    return SimpleNamespace(query=random(t), key=random(s), value=random(s), dy=random(t))


def outcome(
    version, arrays: SimpleNamespace, device: str, mask=None, seed: int = 7, **options
) -> dict[str, np.ndarray]:
    """The same four arrays from a version of the operation."""
    made = {name: leaf(array, device) for name, array in vars(arrays).items() if name != "dy"}
    given = [x.cast(array.dtype) for x, array in zip(made.values(), vars(arrays).values(), strict=False)]
    with random_key(seed):
        y = version(*given, None if mask is None else on_device(mask, device), **options)
    y.backward(on_device(arrays.dy, device).cast(y.dtype))
    return {"result": y.numpy()} | {name: x.grad.numpy() for name, x in made.items()}


def leaf(array: np.ndarray, device: str) -> Tensor:
    """A leaf tensor that requires a gradient; float32 if the array is bfloat16, which cannot be a leaf's type."""
    return on_device(array if array.dtype.kind == "f" else array.astype(np.float32), device).requires_grad_()


def on_device(array: np.ndarray, device: str) -> Tensor:
    """A tensor whose array has the same strides (`to` would make a contiguous copy)."""
    order = sorted(range(array.ndim), key=lambda axis: -array.strides[axis])
    moved = Tensor.wrap(np.ascontiguousarray(array.transpose(order))).to(device)
    return Tensor.wrap(moved.data.transpose(*np.argsort(order).tolist()))


def relative_error(actual: np.ndarray, expected: np.ndarray, of_terms: float = 1.0) -> float:
    """|actual - expected| / |expected|, with the norms of the whole arrays; relative to `of_terms` if expected is 0.

    With a single key, the gradients of queries and keys are differences of equal numbers, which rounding makes unequal.
    """
    size = np.linalg.norm(expected)
    error = np.linalg.norm(np.asarray(actual, np.float64) - expected)
    return float(error / (size if size > 1e-9 * of_terms else of_terms))


def assert_right(arrays: SimpleNamespace, device: str, tolerance: float, **options) -> None:
    """The operation has the result and the gradients of the formulas, and the result the type of the queries."""
    actual = outcome(F.scaled_dot_product_attention, arrays, device, **options)
    assert actual["result"].dtype == arrays.query.dtype
    for name, array in attention(**vars(arrays), **options).items():
        assert actual[name].shape == array.shape
        assert relative_error(actual[name], array, np.linalg.norm(arrays.dy.astype(float))) < tolerance, name
