"""One token through the GPT, in plain NumPy: the computation of `GPT.forward` without its overhead.

While text is generated, the model sees a single new position at a time. The arrays are tiny, so `GPT.forward` would
spend most of its time on bookkeeping: tensors, checks, a graph that is not needed. This version computes the same
formulas without it, and whatever does not depend on the text only once:

- The gain g and shift b of a layer norm become part of the linear map that follows: with n = (x - mean) / deviation,
  (n * g + b) W^T + c = n (W * g)^T + (W b + c).
- Every layer norm subtracts the mean of x, and nothing else reads x. So the mean is subtracted in advance from
  everything that is added to x: the embeddings and the outputs of attention and feed-forward. Then x always has mean 0,
  and of the norm there remains a division by the deviation, sqrt(sum(x^2) / C + eps), as in an RMS norm. The factor
  sqrt(C) becomes part of the linear map as well, which leaves a division by sqrt(sum(x^2) + C eps).
- Queries, keys and values come from one product with the three matrices side by side. The query's matrix contains the
  division by sqrt(D); if queries and keys have a norm of their own, its gain does.
- Weights are stored as (in, out), the order in which a row vector times a matrix reads them fastest.

`GPT.forward` is the definition, and tests compare the two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from tinygrad_lite.functional.gelu import gelu_array
from tinygrad_lite.functional.rotary import rotary_factors, turn
from tinygrad_lite.nn import LayerNorm, Linear, Module, RMSNorm
from tinygrad_lite.transformer import Block, FeedForward, KVCache, MultiHeadAttention, sinusoidal_positions

MAX_PARAMETERS = 200_000_000  # beyond, a copy of the weights takes much memory
MAX_TABLE = 10_000_000  # numbers in a table of positions, which a small file can claim to need
ROWS = 256  # transposed at a time: together they fit into a processor's cache

Affine = tuple[np.ndarray, np.ndarray | None]  # matrix (in, out) and shift (out,): x -> x @ matrix + shift


class FastStep:
    """The weights of a GPT, laid out for single steps; as they are now, so it is of no use after an update."""

    def __init__(self, model: Module) -> None:
        self.made_of = [(parameter.data, parameter.version) for parameter in model.parameters()]
        config = model.config
        tokens = model.token_embedding.weight.data
        positions = None
        if config.positions == "learned":
            positions = model.position_embedding.weight.data
        elif config.positions == "sinusoidal":
            tokens = tokens * tokens.dtype.type(config.n_embd**0.5)
            positions = sinusoidal_positions(config.block_size, config.n_embd).astype(tokens.dtype)
        balanced = centred if config.norm == "layernorm" else np.asarray
        self.tokens, self.positions = balanced(tokens), None if positions is None else balanced(positions)
        self.turns = None
        if config.positions == "rotary":
            self.turns = rotary_factors(config.block_size, model.blocks[0].mixer.frequencies, tokens.dtype)
        # An array without axes: NumPy would need a microsecond to make it of Python's number, each time.
        self.smallest = np.array(config.n_embd * config.norm_eps, tokens.dtype)
        self.layers = [Layer(block, balanced) for block in model.blocks]
        self.head = fold(model.final_norm, [model.lm_head])

    @staticmethod
    def fits(model: Module) -> bool:
        """Whether these formulas are the model's, and worth it: on a CPU, not too large, made of blocks as here."""
        config = model.config
        # What is kept for every position of the context.
        widths = {"none": 0, "learned": 0, "sinusoidal": config.n_embd, "rotary": 2 * config.head_width}
        table = config.block_size * widths[config.positions]
        known = all(
            type(block.mixer) is MultiHeadAttention
            and type(block.mlp) is FeedForward
            and (block.norm_first and block.residual)
            for block in model.blocks
        )
        is_small = model.num_parameters() <= MAX_PARAMETERS and table <= MAX_TABLE
        return known and is_small and model.token_embedding.weight.device == "cpu"

    def is_up_to_date(self, model: Module) -> bool:
        """Whether the model still has the weights that this was made of."""
        pairs = zip(model.parameters(), self.made_of, strict=True)
        return all(now.data is data and now.version == version for now, (data, version) in pairs)

    def __call__(self, tokens: np.ndarray, caches: list[KVCache]) -> np.ndarray:
        """Append a token per row (B,) to the caches: log-probabilities (B, V) of what follows."""
        with np.errstate(all="ignore"):
            x, now = self.tokens[tokens], caches[0].length  # (B, C)
            if self.positions is not None:
                x += self.positions[now]
            factors = None if self.turns is None else self.turns[:, now]
            for layer, cache in zip(self.layers, caches, strict=True):
                x += layer.attend(normalise(x, self.smallest), cache, factors)
                x += layer.feed_forward(normalise(x, self.smallest))
            logits = apply(self.head, normalise(x, self.smallest))
            logits -= logits.max(axis=-1, keepdims=True)
            return logits - np.log(np.add.reduce(np.exp(logits), axis=-1, keepdims=True))


class Layer:
    """The matrices of one block."""

    def __init__(self, block: Block, balanced: Callable[[np.ndarray], np.ndarray]) -> None:
        attention, mlp = block.mixer, block.mlp
        self.heads, self.kv_heads, self.width = attention.n_head, attention.n_kv_head, attention.head_dim
        self.query_key_value = fold(block.mixer_norm, [attention.query, attention.key, attention.value])
        divisor = math.sqrt(self.width) if attention.scale is None else 1 / attention.scale
        self.gains = None
        if attention.query_norm is None:
            queries = slice(0, len(attention.query.weight.data))
            for part in self.query_key_value:
                if part is not None:
                    part[..., queries] /= divisor
        else:
            norms = [attention.query_norm] * self.heads + [attention.key_norm] * self.kv_heads
            dtype = attention.query.weight.dtype
            self.gains = np.stack([gain(norm, self.width) * np.ones(self.width, dtype) for norm in norms])
            self.gains[: self.heads] /= divisor
            self.smallest = np.array(self.width * attention.query_norm.eps, dtype)
        self.output = balanced_output(attention.output, balanced)
        self.up = fold(block.mlp_norm, [mlp.gate, mlp.up] if mlp.activation == "swiglu" else [mlp.up])
        self.down = balanced_output(mlp.down, balanced)
        self.activation = mlp.activation

    def attend(self, x: np.ndarray, cache: KVCache, factors: np.ndarray | None) -> np.ndarray:
        """Attend to everything so far: (B, C) -> (B, C).

        Args:
            factors: those of this position's rotation, if there is one.
        """
        batch, heads, kv_heads, width = len(x), self.heads, self.kv_heads, self.width
        joint = apply(self.query_key_value, x).reshape(batch, heads + 2 * kv_heads, width)
        queries_keys = joint[:, : heads + kv_heads]
        if self.gains is not None:
            queries_keys[...] = normalise(queries_keys, self.smallest) * self.gains
        if factors is not None:
            queries_keys[...] = turn(queries_keys, *factors)
        now, end = cache.length, cache.length + 1
        if cache.both is None:
            cache.make_room(x, batch, kv_heads, width)
        cache.both[:, :, :, now:end] = joint[:, heads:].reshape(batch, 2, kv_heads, 1, width)
        cache.length = end
        keys_values = cache.both[:, :, :, :end]
        queries = joint[:, :heads].reshape(batch, kv_heads, heads // kv_heads, width)
        scores = queries @ keys_values[:, 0].swapaxes(-1, -2)  # (B, n_kv_head, queries of a group, S)
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= np.add.reduce(scores, axis=-1, keepdims=True)
        return apply(self.output, (scores @ keys_values[:, 1]).reshape(batch, heads * width))

    def feed_forward(self, x: np.ndarray) -> np.ndarray:
        """(B, C) -> (B, C)."""
        return apply(self.down, activate(apply(self.up, x), self.activation))


def activate(x: np.ndarray, activation: str) -> np.ndarray:
    """The non-linearity of a feed-forward part, as in `FeedForward.hidden`; of a gated one, x is gate and up."""
    if activation == "swiglu":
        gate, up = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
        return gate / (1 + np.exp(-gate)) * up
    if activation == "linear":
        return x
    if activation in ("relu", "relu2"):
        np.maximum(x, 0, out=x)
        return x if activation == "relu" else np.multiply(x, x, out=x)
    return gelu_array(x, "tanh" if activation == "gelu_tanh" else "none")


def normalise(x: np.ndarray, smallest: np.ndarray) -> np.ndarray:
    """Each row divided by its length, which is sqrt(C) times its root mean square; `smallest` is C eps."""
    return x / np.sqrt(np.vecdot(x, x)[..., None] + smallest)


def centred(x: np.ndarray) -> np.ndarray:
    """Each row less its mean."""
    return x - x.mean(axis=-1, keepdims=True)


def apply(affine: Affine, x: np.ndarray) -> np.ndarray:
    """x @ matrix + shift."""
    matrix, shift = affine
    y = x @ matrix
    if shift is not None:
        y += shift
    return y


def balanced_output(linear: Linear, balanced: Callable[[np.ndarray], np.ndarray]) -> Affine:
    """A linear map whose results are what `balanced` makes of them: of mean 0, or as they are."""
    matrix = np.ascontiguousarray(balanced(linear.weight.data.T))
    return matrix, None if linear.bias is None else balanced(linear.bias.data)


def gain(norm: LayerNorm | RMSNorm, width: int) -> np.ndarray | float:
    """What a norm multiplies with, and sqrt(C) times what `normalise` leaves."""
    return math.sqrt(width) if norm.weight is None else norm.weight.data * math.sqrt(width)


def fold(norm: LayerNorm | RMSNorm, linears: Sequence[Linear]) -> Affine:
    """Linear maps side by side, behind a norm: with its gain, and its shift if it has one."""
    weights = [linear.weight.data for linear in linears]  # (out, in) each
    factor = np.reshape(gain(norm, weights[0].shape[1]), (-1, 1)).astype(weights[0].dtype)
    matrix = np.empty((weights[0].shape[1], sum(map(len, weights))), weights[0].dtype)
    done = 0
    for weight in weights:
        # A few rows at a time: transposed at once, a large matrix would be read or written across the whole memory.
        for rows in np.split(weight, range(ROWS, len(weight), ROWS)):
            np.multiply(rows.T, factor, out=matrix[:, done : done + len(rows)])
            done += len(rows)
    shift = None
    if linears[0].bias is not None:
        shift = np.concatenate([linear.bias.data for linear in linears])
    if isinstance(norm, LayerNorm) and norm.bias is not None:
        moved = np.concatenate([weight @ norm.bias.data for weight in weights])
        shift = moved if shift is None else shift + moved
    return matrix, shift
