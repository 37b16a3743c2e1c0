"""One token through the GPT, in plain NumPy: the computation of `GPT.forward` without its overhead.

While text is generated, the model sees a single new position at a time. The arrays are tiny, so `GPT.forward` would
spend most of its time on bookkeeping: tensors, checks, a graph that is not needed. This version computes the same
formulas without it, in as few NumPy calls as possible, since each takes 0.3 to 1 microseconds:

- `weights.py` computes whatever does not depend on the text, and moves factors to where they cost nothing.
- The arrays for results, and the views of their parts, are created once.
- A softmax subtracts the largest score only so that no exponential overflows. Here that is omitted. Should a sum be
  infinite, 0 or too small to be exact, the token is computed again with the subtraction, as are all later ones.
- `dot` starts twice as fast as `@`.

`GPT.forward` is the definition, and tests compare the two.
"""

import functools
import math
from collections.abc import Callable

import numpy as np

from gpt.fast.weights import Affine, balanced_output, centred, fold, gain, monic_polynomial, scale
from tinygrad_lite.device import get_device
from tinygrad_lite.functional.gelu import gelu_array
from tinygrad_lite.functional.rotary import rotary_factors
from tinygrad_lite.nn import Linear, Module
from tinygrad_lite.ops.common import silent
from tinygrad_lite.transformer import POSITION_CODES, Block, FeedForward, KVCache, MultiHeadAttention

MAX_PARAMETERS = 200_000_000  # beyond this, a copy of the weights takes much memory
MAX_TABLE = 10_000_000  # numbers in a table of positions: a small file can claim to need any number


class WeightsAsTheyAre:
    """What is derived from the current weights of a GPT, and so out of date after an update.

    Attributes:
        factor: what the embedding of a token is multiplied by.
        positions: what is added to it at each position, (T, C), or None.
        turns: the factors of the rotation at each position, (2, T, D), as `rotary_factors` returns them, or None.
    """

    def __init__(self, model: Module) -> None:
        self.made_of = [(parameter.data, parameter.version) for parameter in model.parameters()]
        config, table = model.config, model.token_embedding.weight
        self.factor, self.positions, self.turns = 1.0, None, None
        if config.positions == "learned":
            self.positions = model.position_embedding.weight.data
        elif config.positions in POSITION_CODES:
            self.factor = config.n_embd**0.5
            codes = POSITION_CODES[config.positions](config.block_size, config.n_embd).astype(table.dtype)
            self.positions = get_device(table.device).from_host(codes)
        elif config.positions == "rotary":
            self.turns = rotary_factors(np.arange(config.block_size), model.blocks[0].mixer.frequencies, table.dtype)

    def is_up_to_date(self, model: Module) -> bool:
        """Whether the model still has the weights that this was made from."""
        pairs = zip(model.parameters(), self.made_of, strict=True)
        return all(now.data is data and now.version == version for now, (data, version) in pairs)


def has_known_parts(model: Module) -> bool:
    """Whether these formulas describe the model and its table of positions is not too large."""
    config = model.config
    # What is kept for every position of the context.
    widths = {"none": 0, "learned": 0, "rotary": 2 * config.head_width} | dict.fromkeys(POSITION_CODES, config.n_embd)
    blocks = {(type(block.mixer), type(block.mlp), block.norm_first, block.residual) for block in model.blocks}
    linears = {type(part) for _, part in model.named_modules() if hasattr(part, "out_features")}
    known = blocks == {(MultiHeadAttention, FeedForward, True, True)} and linears == {Linear}
    known = known and config.activation in ACTIVATIONS and config.positions in widths
    return known and config.block_size * widths[config.positions] <= MAX_TABLE


class FastStep(WeightsAsTheyAre):
    """The weights of a GPT, laid out for single steps on a CPU."""

    def __init__(self, model: Module) -> None:
        super().__init__(model)
        config, tokens = model.config, model.token_embedding.weight.data
        balanced = centred if config.norm == "layernorm" else np.asarray
        self.tokens = balanced(tokens if self.factor == 1.0 else tokens * tokens.dtype.type(self.factor))
        if self.positions is not None:
            self.positions = balanced(self.positions)
        if self.turns is not None:
            self.turns = self.turns.reshape(2, config.block_size, 2, -1)
        self.smallest = config.n_embd * config.norm_eps
        self.layers = [Layer(block, balanced) for block in model.blocks]
        self.head = fold(model.final_norm, [model.lm_head])
        self.subtracts = False  # whether a softmax subtracts the largest score
        self.make_room(1)

    @staticmethod
    def fits(model: Module) -> bool:
        """Whether these formulas describe the model, and pay off: on a CPU, not too large, made of known blocks."""
        is_small = model.num_parameters() <= MAX_PARAMETERS
        return is_small and model.token_embedding.weight.device == "cpu" and has_known_parts(model)

    def make_room(self, batch: int) -> None:
        """Arrays for this number of rows: `sums` are those of all softmaxes, the last ones those for the logits."""
        self.sums = np.ones((len(self.layers) + 1, batch, self.layers[0].heads), self.tokens.dtype)
        for layer, sums in zip(self.layers, self.sums[:-1], strict=True):
            layer.make_room(batch, sums)

    @silent
    def __call__(self, tokens: np.ndarray, caches: list[KVCache]) -> np.ndarray:
        """Append a token per row (B,) to the caches; returns the log-probabilities (B, V) of what follows."""
        if len(tokens) != self.sums.shape[1]:
            self.make_room(len(tokens))
        x, now = self.tokens.take(tokens, 0), caches[0].length  # (B, C)
        if self.positions is not None:
            x += self.positions[now]
        factors = None if self.turns is None else self.turns[:, now]
        for layer, cache in zip(self.layers, caches, strict=True):
            x += layer.attend(normalise(x, self.smallest), cache, factors, self.subtracts)
            x += layer.feed_forward(normalise(x, self.smallest))
        logits = apply(self.head, normalise(x, self.smallest))
        if self.subtracts:
            logits -= np.maximum.reduce(logits, axis=-1, keepdims=True)
        logits -= np.log(np.add.reduce(np.exp(logits), -1, None, self.sums[-1, :, :1], True))
        sums = self.sums.ravel()
        if self.subtracts or math.isfinite(sums.dot(np.reciprocal(sums))):
            return logits
        self.subtracts = True
        for cache in caches:
            cache.length = now
        return self(tokens, caches)


class Layer:
    """The matrices of one block."""

    def __init__(self, block: Block, balanced: Callable[[np.ndarray], np.ndarray]) -> None:
        attention, mlp = block.mixer, block.mlp
        self.heads, self.kv_heads, self.width = attention.n_head, attention.n_kv_head, attention.head_dim
        self.query_key_value = fold(block.mixer_norm, [attention.query, attention.key, attention.value])
        divisor = math.sqrt(self.width) if attention.scale is None else 1 / attention.scale
        self.gains, dtype = None, attention.query.weight.dtype
        if attention.query_norm is None:
            scale(self.query_key_value, 1 / divisor, slice(self.heads * self.width))
        else:
            norms = [attention.query_norm] * self.heads + [attention.key_norm] * self.kv_heads
            self.gains = np.stack([gain(norm, self.width) * np.ones(self.width, dtype) for norm in norms])
            self.gains[: self.heads] /= divisor
            self.smallest = self.width * attention.query_norm.eps
        self.output = balanced_output(attention.output, balanced)
        self.up = fold(block.mlp_norm, [mlp.gate, mlp.up] if mlp.activation == "swiglu" else [mlp.up])
        self.down = balanced_output(mlp.down, balanced)
        self.activate = ACTIVATIONS[mlp.activation]
        if mlp.activation.startswith("gelu") and dtype == np.float32:
            polynomial, unit = monic_polynomial(mlp.activation)
            self.activate = functools.partial(scaled_gelu, polynomial=polynomial)
            scale(self.up, 1 / unit)
            scale((self.down[0], None), unit / 2)

    def make_room(self, batch: int, sums: np.ndarray) -> None:
        """Arrays for this number of rows, and views of their parts."""
        heads, kv_heads, width = self.heads, self.kv_heads, self.width
        parts = np.empty((batch, heads + 2 * kv_heads, width), sums.dtype)
        self.joint = parts.reshape(batch, -1)
        self.queries = parts[:, :heads].reshape(batch, kv_heads, heads // kv_heads, width)
        self.keys_values = parts[:, heads:].reshape(batch, 2, kv_heads, width)
        self.queries_keys = parts[:, : heads + kv_heads]
        if width % 2 == 0:
            self.halves = self.queries_keys.reshape(batch, heads + kv_heads, 2, width // 2)
            self.swapped = self.halves[:, :, ::-1]
        self.sums = sums.reshape(*self.queries.shape[:3], 1)
        self.mixed = np.empty(self.queries.shape, sums.dtype)
        self.joined = self.mixed.reshape(batch, heads * width)

    def attend(self, x: np.ndarray, cache: KVCache, factors: np.ndarray | None, subtracts: bool) -> np.ndarray:
        """Attend to everything so far: (B, C) -> (B, C); `factors` are those of this position's rotation, if any."""
        apply(self.query_key_value, x, self.joint)
        if self.gains is not None:
            np.multiply(normalise(self.queries_keys, self.smallest), self.gains, self.queries_keys)
        if factors is not None:
            cos, sin = factors
            np.add(self.halves * cos, self.swapped * sin, self.halves)
        if cache.both is None:
            cache.make_room(x, len(x), self.kv_heads, self.width)
        cache.both[:, :, :, cache.length] = self.keys_values
        cache.length += 1
        scores = self.queries @ cache.both[:, 0, :, : cache.length].mT  # (B, n_kv_head, queries of a group, S)
        if subtracts:
            scores -= np.maximum.reduce(scores, axis=-1, keepdims=True)
        np.exp(scores, scores)
        np.matmul(scores, cache.both[:, 1, :, : cache.length], self.mixed)
        np.divide(self.mixed, np.add.reduce(scores, -1, None, self.sums, True), self.mixed)
        return apply(self.output, self.joined)

    def feed_forward(self, x: np.ndarray) -> np.ndarray:
        """(B, C) -> (B, C)."""
        return apply(self.down, self.activate(apply(self.up, x)))


def scaled_gelu(x: np.ndarray, polynomial: list[np.ndarray]) -> np.ndarray:
    """GELU of scaled numbers: see `monic_polynomial`."""
    square = x * x
    u = square + polynomial[0]
    for coefficient in polynomial[1:]:
        u *= square
        u += coefficient
    u *= x
    np.tanh(u, u)
    u *= x
    u += x
    return u


def swiglu(x: np.ndarray) -> np.ndarray:
    """silu(gate) * up, for x = gate and up side by side."""
    gate, up = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return gate / (1 + np.exp(-gate)) * up


# The non-linearity of a feed-forward part, as in `FeedForward.hidden`; for a gated one, x is gate and up.
ACTIVATIONS = {
    "gelu": gelu_array,
    "gelu_tanh": functools.partial(gelu_array, approximate="tanh"),
    "relu": lambda x: np.maximum(x, 0, out=x),
    "relu2": lambda x: np.square(np.maximum(x, 0, out=x), out=x),
    "swiglu": swiglu,
    "linear": lambda x: x,
}


def normalise(x: np.ndarray, smallest: float) -> np.ndarray:
    """Each row divided by its length, which is sqrt(C) times its root mean square; `smallest` is C eps."""
    if x.size == x.shape[-1]:  # for one row, Python finds the length faster
        return x / math.sqrt(x.dot(x.T).item() + smallest)
    return x / np.sqrt(np.vecdot(x, x)[..., None] + smallest)


def apply(affine: Affine, x: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """x @ matrix + shift."""
    matrix, shift = affine
    y = x.dot(matrix, out)
    if shift is not None:
        y += shift
    return y
