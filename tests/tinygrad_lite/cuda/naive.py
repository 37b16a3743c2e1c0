"""Launches the naive kernels, which nothing but the tests uses. All arrays must be contiguous."""

from typing import Any

from tinygrad_lite.cuda.launch import Kernel, kernel, launch
from tinygrad_lite.device import Array, xp_of


def layer_norm_naive(x: Array, weight: Array, bias: Array, eps: float) -> Array:
    """Layer norm of x (N, C), in float32."""
    y = xp_of(x).empty(x.shape, x.dtype)
    run(kernel("layer_norm_naive", "layer_norm_naive"), *x.shape, x, weight, bias, eps, y)
    return y


def softmax_naive(scores: Array, ahead: int) -> Array:
    """The softmax of scores (B, H, T, S) over the keys s <= t + ahead of each query t, in float32."""
    weights, (batch, heads, t, s) = xp_of(scores).empty(scores.shape, scores.dtype), scores.shape
    run(kernel("softmax_naive", "softmax_naive"), batch * heads * t, t, s, ahead, scores, weights)
    return weights


def attention_naive(q: Array, k: Array, v: Array, scale: float) -> Array:
    """Causal attention of q, k and v (B, H, T or S, D), in float32."""
    (batch, heads, t, width), s = q.shape, k.shape[2]
    out = xp_of(q).empty(q.shape, q.dtype)
    blocks, threads = (-(-t // 128), batch * heads), (128,)
    launch(kernel("attention_naive", "attention_naive"), blocks, threads, q, k, v, out, t, s, width, s - t, scale)
    return out


def run(function: Kernel, rows: int, *arguments: Any) -> None:
    """Launch a kernel with a thread for each row; their number is its first argument."""
    launch(function, (-(-rows // 128),), (128,), rows, *arguments)
