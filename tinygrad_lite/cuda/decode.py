"""One position of a Transformer on a GPU: the kernels for generating a text, in which each token is a pass of its own.

Nearly all the time of such a pass goes into starting kernels and fetching weights. So a linear map is one kernel,
together with the norm before it and the bias, activation or residual connection behind it. Every function here starts
one kernel, writes into an array that exists, and waits for nothing.

    B texts    C width of the model    N results    H heads    D width of a head    V tokens of the vocabulary
"""

from __future__ import annotations

import numpy as np

from tinygrad_lite.cuda.launch import kernel, launch, launch_rows
from tinygrad_lite.device import Array

ACTIVATIONS = ("linear", "relu", "relu2", "gelu", "gelu_tanh", "swiglu")  # in the order of decode.cu
BATCH = 4  # texts whose results a warp computes together
ATTENTION_THREADS = 512  # of a block, that is of a head
MAX_HEAD_WIDTH = 256  # what the memory on the chip is enough for


def embed(
    ids: Array, tokens: Array, factor: float, positions: Array | None, position: int, centred: bool, out: Array
) -> None:
    """out = tokens[ids] * factor + positions[position], less the mean of each row if `centred`.

    Args:
        ids: (B,) integers; one that is not in the table gives NaN.
        tokens: (V, C).
        positions: (T, C), or None.
        out: (B, C).
    """
    function = kernel("decode", "decode_embedding", X=tokens.dtype, PACK=1, BATCH=1)
    launch_rows(function, len(ids), *tokens.shape, ids, tokens, factor, positions, position, centred, out)


def linear(
    x: Array,
    weight: Array,
    shift: Array | None,
    out: Array,
    eps: float | None = None,
    activation: str = "linear",
    add: bool = False,
) -> None:
    """out = activation(norm(x) @ weight.T + shift), with `add` added to `out`.

    Args:
        x: (B, C).
        weight: (N, C); for swiglu (2 N, C), the gate's rows first. It must begin at a multiple of 16 bytes.
        shift: as long as `weight`, or None.
        out: (B, N); not x.
        eps: norm(x) = x / sqrt(mean(x^2) + eps); without it, x itself.
        activation: one of ACTIVATIONS.
    """
    (batch, width), results = x.shape, out.shape[1]
    together = 1 if batch == 1 else BATCH
    function = kernel("decode", "decode_linear", X=weight.dtype, PACK=pack_of(width, weight.dtype), BATCH=together)
    launch_rows(
        function, results * -(-batch // together), batch, results, width, x, weight, shift, eps is not None, eps or 0.0,
        ACTIVATIONS.index(activation), add, out,
    )  # fmt: skip


def attend(
    joint: Array,
    both: Array,
    position: int,
    scale: float,
    out: Array,
    gains: Array | None = None,
    eps: float = 0.0,
    turns: Array | None = None,
) -> None:
    """Append keys and values to a cache, and attend to all in it with the queries.

    Args:
        joint: (B, H + 2 n_kv_head, D): queries, keys, and values.
        both: the cache (B, 2, n_kv_head, capacity, D), whose first `position` positions are in use.
        scale: the factor of the scores.
        out: (B, H, D).
        gains: (2, D), those of an RMS norm of queries and keys; None: no norm.
        eps: of that norm.
        turns: (T, 2, D), the factors of the rotation of queries and keys; None: no rotation.
    """
    batch, heads, width = out.shape
    _, _, kv_heads, capacity, _ = both.shape
    packed = pack_of(width, both.dtype)
    lanes = min(32, 1 << (width // packed - 1).bit_length())
    function = kernel("decode_attention", "decode_attention", X=both.dtype, WIDTH=width, PACK=packed, LANES=lanes)
    launch(
        function, (batch * heads,), (ATTENTION_THREADS,), heads, kv_heads, capacity, position, joint, gains, eps, turns,
        scale, both, out,
    )  # fmt: skip


def log_softmax(logits: Array) -> None:
    """Turn logits (B, V) into log-probabilities, in place."""
    function = kernel("decode", "decode_log_softmax", X=logits.dtype, PACK=1, BATCH=1)
    launch(function, (len(logits),), (min(1024, -(-logits.shape[1] // 32) * 32),), logits.shape[1], logits)


def pack_of(width: int, dtype: np.dtype) -> int:
    """How many neighbours a thread fetches at once from rows of this width: up to 16 bytes."""
    return next(n for n in (8, 4, 2, 1) if n * dtype.itemsize <= 16 and width % n == 0)
