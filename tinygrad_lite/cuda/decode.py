"""One position of a Transformer on a GPU: the kernels for generating text, where each token is a separate pass.

Nearly all of such a pass is spent on launching kernels and fetching weights. So a linear map is one kernel, together
with the norm before it and the bias, activation or residual connection after it. And since the same kernels get the
same arrays for every token, a function here only prepares a launch, with all arguments converted to C types. It returns
a function that launches the kernel without waiting for it to finish. What changes from token to token, the position and
the tokens, is in the GPU's memory, so that all launches can be one graph (graph.py).

    B texts    C width of the model    N results    H heads    D width of a head    T positions    V tokens
"""

import functools
from collections.abc import Callable

import numpy as np

from tinygrad_lite.cuda.launch import blocks_of_rows, kernel
from tinygrad_lite.device import Array

ACTIVATIONS = ("linear", "relu", "relu2", "gelu", "gelu_tanh", "swiglu")  # in the order of decode.cuh
BATCH = 4  # texts whose results a warp of decode.cu computes together; a fifth would double the reading
TILES = ((4, 4), (2, 4), (2, 2), (1, 2), (1, 1))  # what a block of decode_tiles.cu takes: 16 rows, 8 texts each
BLOCKS = 64  # the fewest that keep enough multiprocessors busy
WARPS = 8  # per block of decode_tiles.cu
ALONE = 128  # blocks of attention that run at the same time, each on a multiprocessor of its own
MAX_HEAD_WIDTH = 256  # for wider heads, a block has too little shared memory


def embedding(
    tokens: Array, factor: float, positions: Array | None, centred: bool, out: Array, inputs: Array
) -> Callable:
    """out = tokens[ids] * factor + positions[position], minus the mean of each row if `centred`.

    Args:
        tokens: (V, C).
        positions: (T, C), or None.
        out: (B, C).
        inputs: (1 + B,) integers: the position, and the ids; an id that is not in the table yields NaN.
    Returns: the launch().
    """
    function = kernel("decode", "decode_embedding", X=tokens.dtype, PACK=1, BATCH=1)
    arguments = function.in_c(len(out), *tokens.shape, tokens, factor, positions, centred, out, inputs)
    return functools.partial(function.run, *blocks_of_rows(len(out)), arguments)


def linear(
    x: Array,
    weight: Array,
    shift: Array | None,
    out: Array,
    eps: float | None = None,
    activation: str = "linear",
    add: bool = False,
) -> Callable:
    """out = activation(norm(x) @ weight.T + shift); with `add`, this is added to `out`.

    Args:
        x: (B, C).
        weight: (N, C); for swiglu (2 N, C), the gate's rows first. It must begin at a multiple of 16 bytes.
        shift: as long as `weight`, or None.
        out: (B, N); must not be x.
        eps: norm(x) = x / sqrt(mean(x^2) + eps); without it, x itself.
        activation: one of ACTIVATIONS.
    Returns: the launch().
    """
    (batch, width), results, form = x.shape, out.shape[1], ACTIVATIONS.index(activation)
    packed = pack_of(width, weight.dtype)
    arguments = (batch, results, width, x, weight, shift, eps is not None, eps or 0.0, form, add, out)
    if batch > BATCH and packed == 8:  # 8 numbers are 16 bytes only in bfloat16
        (rows, texts), blocks = tiles_of(len(weight), batch)
        tiled = {"PACK": 4, "ROW_TILES": rows, "TEXT_TILES": texts, "WARPS": WARPS}
        function = kernel("decode_tiles", "decode_linear_tiles", **tiled)
        return functools.partial(function.run, blocks, (32, WARPS), function.in_c(*arguments))
    together = 1 if batch == 1 else BATCH
    function = kernel("decode", "decode_linear", X=weight.dtype, PACK=packed, BATCH=together)
    count = results * -(-batch // together)
    return functools.partial(function.run, *blocks_of_rows(count), function.in_c(count, *arguments))


def tiles_of(rows: int, batch: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """How many tiles of 16 rows of a matrix and of 8 texts a block takes, and the blocks for texts and for rows.

    The fewer blocks there are, the less is read again by others. So it is the first of TILES that gives enough of them,
    without tiles in which there would be no text.
    """
    for high, wide in TILES:
        texts = min(wide, 1 << (-(-batch // 8) - 1).bit_length())
        blocks = -(-batch // (8 * texts)), -(-rows // (16 * high))
        if blocks[0] * blocks[1] >= BLOCKS:
            break
    return (high, texts), blocks


def attention(
    joint: Array,
    scale: float,
    gains: Array | None,
    eps: float,
    turns: Array | None,
    out: Array,
    inputs: Array,
    cache_type: np.dtype,
    cache_shape: tuple[int, ...],
) -> Callable:
    """Append keys and values to a cache, and attend to everything in it with the queries.

    Args:
        joint: (B, H + 2 n_kv_head, D): queries, keys, and values.
        scale: the factor of the scores.
        gains: (2, D), the gains of an RMS norm of queries and keys; None: no norm.
        eps: that of the norm.
        turns: (T, 2, D), the factors of the rotation of queries and keys (`functional/rotary.py`); None: no rotation.
        out: (B, H, D).
        inputs: as in `embedding`; the first `position` positions of the cache are in use.
        cache_type, cache_shape: those of the cache (B, 2, n_kv_head, capacity, D).
    Returns: the launch(both), where `both` is the cache.
    Raises: ValueError if the cache has a different number of rows.
    """
    (batch, heads, width), (rows, _, kv_heads, capacity, _) = out.shape, cache_shape
    if rows != batch:
        raise ValueError(f"attention: there are {batch} rows, but the cache has {rows}")
    packed = pack_of(width, cache_type)
    lanes = min(32, 1 << (width // packed - 1).bit_length())
    # A block takes a head of a text. While they are few, many warps share its positions; later smaller blocks run side
    # by side on a multiprocessor, instead of one after the other.
    warps = 16 >> min(2, (batch * heads - 1) // ALONE)
    types = {"X": cache_type, "WIDTH": width, "PACK": packed, "LANES": lanes, "WARPS": warps}
    function = kernel("decode_attention", "decode_attention", **types)
    known = function.in_c(heads, kv_heads, capacity, joint, scale, gains, eps, turns, out, inputs, None)[:-1]
    blocks, threads = (batch * heads,), (32 * warps,)
    return lambda both: function.run(blocks, threads, (*known, both))


def log_softmax(logits: Array) -> Callable:
    """Turn logits (B, V) into log-probabilities, in place. Returns: the launch()."""
    count, width = logits.shape
    function = kernel("decode", "decode_log_softmax", X=logits.dtype, PACK=1, BATCH=1)
    return functools.partial(function.run, (count,), (min(1024, -(-width // 32) * 32),), function.in_c(width, logits))


def pack_of(width: int, dtype: np.dtype) -> int:
    """How many neighbouring numbers a thread fetches at once from rows of this width: at most 16 bytes."""
    return next(n for n in (8, 4, 2, 1) if n * dtype.itemsize <= 16 and width % n == 0)
