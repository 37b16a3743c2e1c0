"""The parts that every Transformer is built from: positions, multi-head attention, feed-forward, the block.

    B batch    T target length    S source length    C width (n_embd)    H heads    D head width, C / H by default

Vaswani et al. 2017, "Attention Is All You Need" (arXiv:1706.03762), sections 3.1 to 3.5.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tinygrad_lite import functional as F
from tinygrad_lite.device import Array, device_of
from tinygrad_lite.nn import Dropout, Embedding, LayerNorm, Linear, Module, RMSNorm, is_plain, linear_maps
from tinygrad_lite.random import next_rng
from tinygrad_lite.recomputing import recompute
from tinygrad_lite.tensor import Tensor

if TYPE_CHECKING:
    from tinygrad_lite.config import ModelConfig

Heads = tuple[Tensor, Tensor, Tensor]  # queries (B, H, T, D), keys and values (B, n_kv_head, S, D)


def sinusoidal_positions(length: int, width: int) -> np.ndarray:
    """The fixed position codes of the 2017 paper: each position is a point on circles that turn at different speeds.

    PE[pos, 2i] = sin(pos / 10000^(2i/C)),  PE[pos, 2i+1] = cos(pos / 10000^(2i/C))

    Moving by k positions turns every (sin, cos) pair by a fixed angle, so PE[pos + k] is a linear function of
    PE[pos]: relative distance is easy to read off. 10000 sets the longest wavelength; it does not limit the length of
    a text.

    Returns: (length, width) float32.
    Reference: Vaswani et al. 2017, section 3.5.
    """
    angles = np.arange(length)[:, None] * 10000.0 ** (-np.arange(0, width, 2) / width)
    codes = np.zeros((length, width), np.float32)
    codes[:, 0::2], codes[:, 1::2] = np.sin(angles), np.cos(angles)[:, : width // 2]
    return codes


def index_positions(length: int, width: int) -> np.ndarray:
    """The number of each position in the first component: (length, width). It grows without limit."""
    return np.arange(length, dtype=np.float32)[:, None] * np.eye(1, width, dtype=np.float32)


def binary_positions(length: int, width: int) -> np.ndarray:
    """The binary digits of each position's number, the last one first: (length, width).

    Neighbours can have few digits in common, like 7 and 8: closeness is hard to read off.
    """
    return (np.arange(length)[:, None] >> np.minimum(np.arange(width), 62) & 1).astype(np.float32)


# What is added to the embedding of a token, by name.
POSITION_CODES = {"sinusoidal": sinusoidal_positions, "index": index_positions, "binary": binary_positions}


def rotary_frequencies(width: int, theta: float = 10000.0) -> tuple[float, ...]:
    """The angle in radians by which each of the D/2 pairs of a head turns from one position to the next.

    f_i = theta^(-2i/D): from 1 down to about 1/theta. Fast pairs distinguish neighbours, slow ones distant words.

    Args:
        width: D, of a head.
    Reference: Su et al. 2021, section 3.2.2 (arXiv:2104.09864).
    """
    return tuple(theta ** (-2 * i / width) for i in range(width // 2))


class KVCache:
    """The keys and values of one attention layer for the positions already seen, while text is generated.

    A new token's query needs the keys and values of all earlier tokens, and these do not change. With a cache, norms,
    projections and feed-forward parts are computed for the new position alone; only attention still reads all keys
    and values, so the cost of a token still grows with the length of the text, but slowly.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity  # positions
        self.length = 0
        self.both = None  # keys and values side by side: (B, 2, H, capacity, D), made when the first arrive

    def extend(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Append (B, H, T, D) keys and values, and return all so far: (B, H, S, D) each.

        Raises: RuntimeError if gradients are recorded, which would not reach what computed the keys and values.
        """
        if key.requires_grad or value.requires_grad:
            raise RuntimeError("KVCache: gradients do not pass through a cache: use it under no_grad(), or none")
        batch, heads, new, width = key.shape
        start, end = self.length, self.length + new
        if end > self.capacity:
            raise ValueError(f"KVCache: {end} positions do not fit into a cache of {self.capacity}")
        if self.both is None:
            self.make_room(key.data, batch, heads, width)
        self.length = end
        self.both[:, 0, :, start:end] = key.data
        self.both[:, 1, :, start:end] = value.data
        return self.contents()

    def cut(self, length: int) -> None:
        """Forget all but the first positions."""
        self.length = length

    def make_room(self, like: Array, batch: int, heads: int, width: int) -> None:
        """Allocate memory for keys and values, of the type and on the device of an array."""
        self.both = device_of(like).xp.empty((batch, 2, heads, self.capacity, width), like.dtype)

    def contents(self) -> tuple[Tensor, Tensor]:
        """The keys and values of all positions so far: (B, H, S, D) each."""
        return Tensor.wrap(self.both[:, 0, :, : self.length]), Tensor.wrap(self.both[:, 1, :, : self.length])

    def select(self, rows: np.ndarray) -> KVCache:
        """A cache of these rows of the batch, in this order; a row may be taken several times (beam search)."""
        chosen = KVCache(self.capacity)
        chosen.length = self.length
        if self.both is not None:
            device = device_of(self.both)
            chosen.both = device.xp.empty((len(rows), *self.both.shape[1:]), self.both.dtype)
            now = slice(self.length)  # the rest is empty
            chosen.both[:, :, :, now] = self.both[:, :, :, now][device.from_host(rows)]
        return chosen


class MultiHeadAttention(Module):
    """H attentions side by side, each on its own D-wide projection of the input.

    head_h = attention(x Wq_h, memory Wk_h, memory Wv_h),   y = concat(head_1 .. head_H) Wo

    Self-attention if no memory is given, cross-attention if it is. The H small projections are one matrix each for
    queries, keys and values, C x C unless told otherwise, whose output is split into heads.

    Later additions, used only if requested, and not in `forward` but in the functions that it calls:

        n_kv_head    G = H / n_kv_head queries share one head of keys and values: a smaller cache, read faster
        qk_norm      queries and keys are normalised head by head, so that no score can grow without limit
        frequencies  queries and keys are turned by their positions (`functional/rotary.py`)
        relative     scores depend on how far a key is before a query (`relative.py`)

    References: Vaswani et al. 2017, section 3.2.2; Ainslie et al. 2023 (arXiv:2305.13245) on groups; Henry et al. 2020
    (arXiv:2010.04245) on the norm.
    """

    def __init__(
        self,
        n_embd: int,
        n_head: int,
        dropout: float = 0.0,
        bias: bool = True,
        *,
        n_kv_head: int | None = None,
        head_dim: int | None = None,
        qk_norm: Callable[[int], Module] | None = None,
        frequencies: tuple[float, ...] | None = None,
        relative: Module | None = None,
        scale: float | None = None,
    ) -> None:
        """A module with random weights.

        Args:
            n_kv_head: heads of keys and values, of which n_head is a multiple; None: n_head.
            head_dim: D; None: n_embd / n_head.
            qk_norm: makes the norm of vectors of this width; None: no norm.
            frequencies: D/2 angles per position; None: positions are not used here.
            relative: computes what is added to the scores, from queries and a number of keys: see `relative.py`.
            scale: the factor of the scores; None: 1 / sqrt(D).
        """
        if n_embd % n_head and head_dim is None:
            raise ValueError(f"n_embd {n_embd} cannot be cut into n_head {n_head} heads of one size")
        n_kv_head = n_kv_head or n_head
        if n_head % n_kv_head:
            raise ValueError(f"n_head {n_head} cannot be cut into n_kv_head {n_kv_head} groups of one size")
        self.n_head, self.n_kv_head, self.head_dim = n_head, n_kv_head, head_dim or n_embd // n_head
        self.query = Linear(n_embd, n_head * self.head_dim, bias)
        self.key = Linear(n_embd, n_kv_head * self.head_dim, bias)
        self.value = Linear(n_embd, n_kv_head * self.head_dim, bias)
        self.output = Linear(n_head * self.head_dim, n_embd, bias)
        self.query_norm = qk_norm(self.head_dim) if qk_norm else None
        self.key_norm = qk_norm(self.head_dim) if qk_norm else None
        self.frequencies, self.scale, self.relative = frequencies, scale, relative
        self.dropout = Dropout(dropout)

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        mask: Tensor | None = None,
        is_causal: bool = False,
        cache: KVCache | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        """(B, T, C) -> (B, T, C).

        Args:
            x: (B, T, C), where queries come from.
            memory: (B, S, C), where keys and values come from; x itself if None.
            mask: truth values that broadcast to (B, H, T, S), True where attention is allowed.
            is_causal: no attention to later positions.
            cache: the keys and values of earlier positions, to which those of x are added; with a memory, which
                stays the same while text is generated, those of the memory, computed the first time.
            positions: for frequencies: (T,) or (B, T) integers, the positions of x; if None, they continue after the
                cache, or, with a memory, start at 0. Those of a memory are 0 to S - 1.
        """
        query, key, value = self._projected(x, memory, cache, positions)
        p = self.dropout.p if self.training else 0.0
        heads = self._attend_in_groups(query, key, value, mask, is_causal, p)  # (B, H, T, D)
        joined = heads.transpose(1, 2).reshape(*x.shape[:2], self.n_head * self.head_dim)  # heads side by side again
        return self.dropout(self.output(joined))

    def weights(
        self, x: Tensor, memory: Tensor | None = None, mask: Tensor | None = None, is_causal: bool = False
    ) -> Tensor:
        """The attention weights, for display: (B, H, T, S); for a softmax each row adds up to 1.

        They are the P in P V, which `attend` does not return. With the columns of the identity matrix as values, D of
        them at a time, its results are P itself, whatever it computes.
        The arguments are those of `forward`: without is_causal, a causal model would appear to attend to the future.
        """
        query, key, _ = self._projected(x, memory)
        length, width = key.shape[2:]
        count = -(-length // width)  # of D columns each; those after the last position are 0
        columns = np.split(np.eye(length, count * width), count, axis=1)
        values = [Tensor(part, device=x.device).cast(key.dtype).expand(*key.shape) for part in columns]
        parts = [self._attend_in_groups(query, key, value, mask, is_causal) for value in values]
        return Tensor.cat(*parts, axis=-1)[..., :length]

    def new_cache(self, capacity: int) -> KVCache:
        """An empty cache for generation, with room for this many positions."""
        return KVCache(capacity)

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, is_causal: bool, dropout_p: float
    ) -> Tensor:
        """(B, H, T, D) queries, (B, H, S, D) keys and values -> (B, H, T, D); a subclass may compute something else.

        With a cache, the T queries are those of the last positions: is_causal lets query t see the keys s <= t + S - T.
        """
        return F.scaled_dot_product_attention(
            query, key, value, mask, is_causal=is_causal, dropout_p=dropout_p, scale=self.scale
        )

    def _attend_in_groups(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, is_causal: bool, dropout_p: float = 0.0
    ) -> Tensor:
        """`attend` with keys and values (B, n_kv_head, S, D), each for the queries of its group."""
        if self.relative is not None:
            added = self.relative(query, key.shape[2])
            mask = added if mask is None else added.masked_fill(~mask, -math.inf)
        if self.n_kv_head < self.n_head and query.shape[2] == 1 and mask is None:
            # One position sees all keys, so the queries of a group can be rows of one head, and nothing is copied.
            rows = query.reshape(query.shape[0], self.n_kv_head, -1, self.head_dim)
            return self.attend(rows, key, value, None, False, dropout_p).reshape(query.shape)
        return self.attend(query, self._grouped(key), self._grouped(value), mask, is_causal, dropout_p)

    def _projected(
        self, x: Tensor, memory: Tensor | None, cache: KVCache | None = None, positions: Tensor | None = None
    ) -> Heads:
        """Queries (B, H, T, D) of x; keys and values (B, n_kv_head, S, D) of x, after cached ones, or of a memory."""
        if positions is None:
            positions = self._places(x, cache.length if cache and memory is None else 0)
        if memory is None:
            query, key, value = linear_maps(x, [self.query, self.key, self.value])  # (B, T, H D) each
        elif cache and cache.length:
            return self._heads(self.query(x), self.query_norm, positions), *cache.contents()
        else:
            query, (key, value) = self.query(x), linear_maps(memory, [self.key, self.value])
        query = self._heads(query, self.query_norm, positions)
        key = self._heads(key, self.key_norm, positions if memory is None else self._places(memory))
        value = self._heads(value)
        return query, *(cache.extend(key, value) if cache else (key, value))

    def _places(self, x: Tensor, past: int = 0) -> Tensor | None:
        """The positions (T,) of x (B, T, ...), after `past` earlier ones; None if nothing is turned by them."""
        return Tensor.arange(past, past + x.shape[1], device=x.device) if self.frequencies else None

    def _heads(self, x: Tensor, norm: Module | None = None, positions: Tensor | None = None) -> Tensor:
        """(B, T, H D) -> (B, H, T, D); queries and keys normalised and turned, if that was requested."""
        heads = x.reshape(*x.shape[:2], x.shape[2] // self.head_dim, self.head_dim)
        if norm is not None:
            heads = norm(heads)
        if positions is not None and self.frequencies:
            heads = F.rotary(heads, positions, self.frequencies)
        return heads.transpose(1, 2)

    def _grouped(self, x: Tensor) -> Tensor:
        """Keys or values (B, n_kv_head, S, D), once for each query of the group: (B, H, S, D)."""
        if self.n_kv_head == self.n_head:
            return x
        batch, heads, length, width = x.shape
        copies = x.unsqueeze(2).expand(batch, heads, self.n_head // heads, length, width)
        return copies.reshape(batch, self.n_head, length, width)


ACTIVATIONS: dict[str, Callable[..., Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": functools.partial(F.gelu, approximate="tanh"),  # the form of GPT-2's weights
    "relu": Tensor.relu,
    "relu2": F.relu_squared,
    "swiglu": F.swiglu,  # of two linear maps, the first of which is the gate
    "linear": lambda x: x,  # none at all, to see what the non-linearity is good for
}
GATED = {"swiglu"}
WITH_LINEAR = {"gelu": F.linear_gelu, "gelu_tanh": functools.partial(F.linear_gelu, approximate="tanh")}


class FeedForward(Module):
    """Two linear maps with a non-linearity in between, applied to each position separately: C -> F -> C.

    y = activation(x W1 + b1) W2 + b2, with an activation from the table above. The 2017 paper uses ReLU, GPT uses GELU;
    F is 4 C in both. A gated one, such as Llama's "swiglu", has a third matrix: y = (silu(x Wg) * x W1) W2.

    Reference: Vaswani et al. 2017, section 3.3, eq. 2.
    """

    def __init__(
        self, n_embd: int, n_hidden: int, dropout: float = 0.0, bias: bool = True, activation: str = "gelu"
    ) -> None:
        if activation not in ACTIVATIONS:
            raise ValueError(f"FeedForward: there is no activation {activation!r}, only {', '.join(ACTIVATIONS)}")
        if activation in GATED:
            self.gate = Linear(n_embd, n_hidden, bias)
        self.up = Linear(n_embd, n_hidden, bias)
        self.down = Linear(n_hidden, n_embd, bias)
        self.dropout = Dropout(dropout)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.down(self.hidden(x)))

    def hidden(self, x: Tensor) -> Tensor:
        """activation(x W1 + b1): (..., C) -> (..., F)."""
        if self.activation in GATED:
            return ACTIVATIONS[self.activation](*linear_maps(x, [self.gate, self.up]))
        if self.activation in WITH_LINEAR and is_plain(self.up):
            return WITH_LINEAR[self.activation](x, self.up.weight, self.up.bias)
        return ACTIVATIONS[self.activation](self.up(x))


class Block(Module):
    """One layer: mix information across positions, then transform each position separately; add both to the input.

    Pre-norm  (norm_first=True):   x = x + mixer(norm(x)),   x = x + mlp(norm(x))     GPT-2; trains without warm-up
    Post-norm (norm_first=False):  x = norm(x + mixer(x)),   x = norm(x + mlp(x))     the 2017 paper

    The additions are the residual connections. With pre-norm, one path from the output to any layer consists of
    additions only, so a gradient arrives there undiminished, in addition to what comes through the parts. With
    post-norm, each norm above rescales it. Chapter 7 of the course derives what follows from this, and measures it.

    The mixer is any module from (B, T, C) to (B, T, C), such as attention. A decoder's block has a third part between
    the two, `cross`, which attends to the encoder's output.

    References: Vaswani et al. 2017, section 3.1; Xiong et al. 2020 (arXiv:2002.04745) on where to put the norm.
    """

    def __init__(
        self,
        mixer: Module,
        mlp: Module,
        n_embd: int,
        norm_first: bool = True,
        cross: Module | None = None,
        norm: Callable[[int], Module] = LayerNorm,
        residual: bool = True,
        recompute: bool = False,
    ) -> None:
        """A block of these parts.

        Args:
            norm: makes the norm of vectors of this width.
            residual: False leaves out the additions, to see what they are good for.
            recompute: keep only the input for the backward pass, which computes the block again (`recompute`).
        """
        self.mixer_norm = norm(n_embd)
        self.mixer = mixer
        if cross is not None:
            self.cross_norm = norm(n_embd)
        self.cross = cross
        self.mlp_norm = norm(n_embd)
        self.mlp = mlp
        self.norm_first = norm_first
        self.residual = residual
        self.recompute = recompute

    def __call__(self, *args: Any, **kwargs: Any) -> Tensor:
        return recompute(self.forward, *args, **kwargs) if self.recompute else self.forward(*args, **kwargs)

    def forward(self, x: Tensor, cross: dict[str, Any] | None = None, **options: Any) -> Tensor:
        """(B, T, C) -> (B, T, C).

        Args:
            cross: the keyword arguments (memory, mask, cache) of the cross-attention.
            options: those of the mixer (mask, is_causal, cache, positions).
        """
        x = self._add(x, self.mixer_norm, self.mixer, options)
        if self.cross is not None:
            x = self._add(x, self.cross_norm, self.cross, cross or {})
        return self._add(x, self.mlp_norm, self.mlp, {})

    def _add(self, x: Tensor, norm: Module, part: Module, arguments: dict[str, Any]) -> Tensor:
        """One part of the layer, with its norm and its residual connection."""
        y = part(norm(x) if self.norm_first else x, **arguments)
        if self.residual:
            y = F.residual(x, y)
        return y if self.norm_first else norm(y)


# --- from settings to a block ----------------------------------------------------------------------------------


class Mixer(NamedTuple):
    """What mixes positions in a block.

    Attributes:
        make: makes it, from a model's settings.
        kept: how many numbers it keeps of a position for the backward pass; of attention, without its weights.
        cached: how many it keeps of a text of block_size tokens while text is generated.
        reads: the settings that not every mixer reads. One of n_state is recurrent: that is the width of its state.
        attends: whether it is a kind of attention: only attention has rotary positions, or terms added to its scores.
    """

    make: Callable[[Any], Module]
    kept: Callable[[Any], int]
    cached: Callable[[Any], int]
    reads: tuple[str, ...]
    attends: bool = False


def attention_of(config: ModelConfig, kind: type = MultiHeadAttention, **more: Any) -> MultiHeadAttention:
    """Attention with these settings, of a class that may take more."""
    c = config
    norm = functools.partial(RMSNorm, weight=c.norm_weight, eps=c.norm_eps) if c.qk_norm else None
    frequencies = c.frequencies if c.positions == "rotary" else None
    more |= {"n_kv_head": c.n_kv_head, "head_dim": c.head_dim, "scale": c.attention_scale}
    return kind(c.n_embd, c.n_head, c.dropout, c.bias, qk_norm=norm, frequencies=frequencies, **more)


def self_attention(config: ModelConfig, *kind: type, **more: Any) -> MultiHeadAttention:
    """Attention of positions to each other; `kind` and `more` as in `attention_of`."""
    relative = POSITIONS.get(config.positions)
    return attention_of(config, *kind, relative=relative and relative(config), **more)


def kept_by_attention(config: ModelConfig) -> int:
    """Numbers per position: queries, keys, values and the joined heads, 4 H D.

    A norm keeps its result, which attention keeps anyway, unless rotary positions change it.
    """
    heads = config.n_head * config.head_width
    return 4 * heads + (heads + config.cached_width if config.qk_norm and config.positions == "rotary" else 0)


def cached_by_attention(config: ModelConfig) -> int:
    """Keys and values of all positions."""
    return 2 * config.CACHES * config.block_size * config.cached_width


OF_ATTENTION = ("n_head", "n_kv_head", "head_dim", "attention_scale", "qk_norm")
# By name. Whoever has another one enters it, as the layers in extra/mixers/ do; so for positions.
MIXERS = {"attention": Mixer(self_attention, kept_by_attention, cached_by_attention, OF_ATTENTION, attends=True)}
# How positions are encoded; and what makes the term that they add to attention's scores, if that is all they do.
POSITIONS: dict[str, Callable[[Any], Module] | None]
POSITIONS = dict.fromkeys(("learned", "sinusoidal", "rotary", "none", "index", "binary"))


def norm_of(config: ModelConfig) -> Callable[[int], Module]:
    """A function that makes the norm for vectors of a given width, in a model with these settings."""
    if config.norm == "rmsnorm":
        return functools.partial(RMSNorm, weight=config.norm_weight, eps=config.norm_eps)
    return functools.partial(LayerNorm, bias=config.bias, eps=config.norm_eps)


def block_of(config: ModelConfig, has_cross: bool = False) -> Block:
    """A block of a model with these settings.

    Args:
        has_cross: whether it also attends to an encoder's output.
    """
    c = config
    mixer, mlp = MIXERS[c.mixer].make(c), FeedForward(c.n_embd, c.n_hidden, c.dropout, c.bias, c.activation)
    cross = attention_of(c) if has_cross else None
    order = {"norm_first": c.norm_first, "residual": c.residual, "recompute": c.recompute}
    return Block(mixer, mlp, c.n_embd, cross=cross, norm=norm_of(c), **order)


def normal(deviation: float, shape: tuple[int, ...]) -> np.ndarray:
    """Random numbers with this standard deviation, to begin with."""
    return next_rng("init").standard_normal(shape).astype(np.float32) * deviation


def init_gpt2(model: Module, n_layer: int, zero: bool = False) -> None:
    """GPT-2's initialisation: normal weights with deviation 0.02, zero biases, and smaller residual projections.

    Each of the 2 * n_layer residual additions adds variance to x. Shrinking the last matrix of every branch by
    1/sqrt(2 n_layer) keeps the sum at the variance of one branch. With `zero` these matrices start at 0: at first every
    block passes its input through, and learns what to add.

    References: Radford et al. 2019, section 2.3; Zhang et al. 2019 (arXiv:1901.09321) on starting at 0.
    """
    for name, module in model.named_modules():
        if isinstance(module, (Linear, Embedding)):
            is_last = name.endswith((".output", ".down"))  # of its branch
            shrink = math.sqrt(2 * n_layer) if is_last else 1
            module.weight.reset(np.zeros if is_last and zero else functools.partial(normal, 0.02 / shrink))
        if isinstance(module, Linear) and module.bias is not None:
            module.bias.reset(np.zeros)
    for _, module in model.named_modules():
        if hasattr(module, "reset"):  # a recurrent layer has its own rule
            module.reset()
