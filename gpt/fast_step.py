"""One token through the GPT, in plain NumPy: what `GPT.forward` computes, with nothing around it.

While text is generated, the model sees a single new position at a time. The arrays are tiny, so most of the time of
`GPT.forward` goes into bookkeeping: tensors, checks, a graph that nobody will use. Here the same formulas stand without
it, and what does not depend on the text is computed once:

- The gain g and shift b of a layer norm go into the linear map behind it: with n = (x - mean) / deviation,
  (n * g + b) W^T + c = n (W * g)^T + (W b + c).
- Every layer norm takes the mean off x, and nothing else ever reads x. So the mean is taken off beforehand from all
  that is added up in x: the embeddings, and what attention and feed-forward give. Then x has mean 0 by itself, and
  all that is left of the norm is a division by the deviation, sqrt(sum(x^2) / C + eps). As sqrt(C) can go into the
  linear map too, it becomes a division by sqrt(sum(x^2) + C eps).
- Queries, keys and values come from one product with the three matrices side by side, the query's divided by sqrt(D).
- Weights lie as (in, out), the way in which a row vector times a matrix reads them fastest.

`GPT.forward` is the definition; the tests hold the two together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tinygrad_lite.functional.gelu import gelu_array
from tinygrad_lite.nn import LayerNorm, Linear, Module
from tinygrad_lite.transformer import Block, FeedForward, KVCache, MultiHeadAttention, sinusoidal_positions

MOST_PARAMETERS = 40_000_000  # beyond, reading the weights takes the time, and a copy of them much memory

Affine = tuple[np.ndarray, np.ndarray | None]  # matrix (in, out) and shift (out,): x -> x @ matrix + shift


class FastStep:
    """The weights of a GPT, laid out for single steps; as they are now, so it is of no use after an update."""

    def __init__(self, model: Module) -> None:
        self.made_of = [(parameter.data, parameter.version) for parameter in model.parameters()]
        config = model.config
        self.heads = config.n_head
        tokens = model.token_embedding.weight.data
        if config.positions == "learned":
            positions = model.position_embedding.weight.data
        else:
            tokens = tokens * tokens.dtype.type(config.n_embd**0.5)
            positions = sinusoidal_positions(config.block_size, config.n_embd).astype(tokens.dtype)
        self.tokens, self.positions = centred(tokens), centred(positions)
        # An array without axes: NumPy would need a microsecond to make it of Python's number, each time.
        self.smallest = np.array(config.n_embd * config.norm_eps, tokens.dtype)
        self.layers = [Layer(block, config.n_embd // config.n_head) for block in model.blocks]
        self.head = fold(model.final_norm, [model.lm_head])

    @staticmethod
    def fits(model: Module) -> bool:
        """Whether these formulas are the model's, and worth it: on a CPU, not too large, made of blocks as here."""
        config = model.config
        numbers = model.num_parameters()
        if config.positions == "sinusoidal":  # which are kept for every position of the context
            numbers += config.block_size * config.n_embd
        known = all(
            type(block.mixer) is MultiHeadAttention and type(block.mlp) is FeedForward and block.norm_first
            for block in model.blocks
        )
        return known and numbers <= MOST_PARAMETERS and model.token_embedding.weight.device == "cpu"

    def is_up_to_date(self, model: Module) -> bool:
        """Whether the model still has the weights that this was made of."""
        pairs = zip(model.parameters(), self.made_of, strict=True)
        return all(now.data is data and now.version == version for now, (data, version) in pairs)

    def __call__(self, tokens: np.ndarray, caches: list[KVCache]) -> np.ndarray:
        """Append a token per row (B,) to the caches: log-probabilities (B, V) of what follows."""
        with np.errstate(all="ignore"):
            x = self.tokens[tokens] + self.positions[caches[0].length]  # (B, C)
            for layer, cache in zip(self.layers, caches, strict=True):
                x += layer.attend(normalise(x, self.smallest), cache, self.heads)
                x += layer.feed_forward(normalise(x, self.smallest))
            logits = apply(self.head, normalise(x, self.smallest))
            logits -= logits.max(axis=-1, keepdims=True)
            return logits - np.log(np.add.reduce(np.exp(logits), axis=-1, keepdims=True))


class Layer:
    """The matrices of one block."""

    def __init__(self, block: Block, width_of_head: int) -> None:
        attention, mlp = block.mixer, block.mlp
        self.query_key_value = fold(block.mixer_norm, [attention.query, attention.key, attention.value])
        queries = slice(0, len(attention.query.weight.data))
        for part in self.query_key_value:
            if part is not None:
                part[..., queries] /= math.sqrt(width_of_head)
        self.output = centred_output(attention.output)
        self.up = fold(block.mlp_norm, [mlp.up])
        self.down = centred_output(mlp.down)
        self.activation = mlp.activation

    def attend(self, x: np.ndarray, cache: KVCache, heads: int) -> np.ndarray:
        """Attend to everything so far: (B, C) -> (B, C)."""
        batch, width = x.shape
        joint = apply(self.query_key_value, x).reshape(batch, 3, heads, 1, width // heads)
        now, end = cache.length, cache.length + 1
        if cache.both is None:
            cache.make_room(x, batch, heads, width // heads)
        cache.both[:, :, :, now:end] = joint[:, 1:]
        cache.length = end
        keys_values = cache.both[:, :, :, :end]
        scores = joint[:, 0] @ keys_values[:, 0].swapaxes(-1, -2)  # (B, H, 1, S)
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= np.add.reduce(scores, axis=-1, keepdims=True)
        return apply(self.output, (scores @ keys_values[:, 1]).reshape(batch, width))

    def feed_forward(self, x: np.ndarray) -> np.ndarray:
        """(B, C) -> (B, C)."""
        return apply(self.down, activate(apply(self.up, x), self.activation))


def activate(x: np.ndarray, activation: str) -> np.ndarray:
    """The non-linearity of a feed-forward part, as in `FeedForward.hidden`."""
    if activation == "relu":
        return np.maximum(x, 0, out=x)
    return gelu_array(x, "tanh" if activation == "gelu_tanh" else "none")


def normalise(x: np.ndarray, smallest: np.ndarray) -> np.ndarray:
    """Each row, of mean 0, divided by sqrt(C) times its deviation; `smallest` is C eps."""
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


def centred_output(linear: Linear) -> Affine:
    """A linear map whose results have mean 0."""
    matrix = np.ascontiguousarray(centred(linear.weight.data.T))
    return matrix, None if linear.bias is None else centred(linear.bias.data)


def fold(norm: LayerNorm, linears: Sequence[Linear]) -> Affine:
    """Linear maps side by side, behind a norm: with its gain and shift, and sqrt(C) times what `normalise` leaves."""
    weights = np.concatenate([linear.weight.data for linear in linears])  # (out, in)
    shift = None
    if linears[0].bias is not None:
        shift = np.concatenate([linear.bias.data for linear in linears])
    if norm.bias is not None:
        shift = weights @ norm.bias.data + (0 if shift is None else shift)
    gain = norm.weight.data * math.sqrt(weights.shape[1])
    return np.ascontiguousarray((weights * gain).T), shift
