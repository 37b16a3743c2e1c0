"""Launches the kernel that the fast kernels are compared with: nothing else uses it."""

from tinygrad_lite.cuda.launch import kernel, launch
from tinygrad_lite.device import Array, xp_of


def naive_attention(q: Array, k: Array, v: Array, scale: float) -> Array:
    """Causal attention (B, H, T, D) in float32, for contiguous arrays of float32."""
    (batch, heads, t, width), s = q.shape, k.shape[2]
    out = xp_of(q).empty(q.shape, q.dtype)
    blocks, threads = (-(-t // 128), batch * heads), (128,)
    launch(kernel("attention_naive", "attention_naive"), blocks, threads, q, k, v, out, t, s, width, s - t, scale)
    return out
