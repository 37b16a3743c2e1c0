"""One token through the GPT on a GPU: the computation of `GPT.forward` in five kernels per layer.

Each token is a separate pass, and its arrays are tiny. `GPT.forward` would launch about 28 kernels per layer, and a
launch takes Python longer than the kernel takes the GPU; and if the precision is bfloat16, it would round all weights
again for every token. Here the weights are laid out and rounded once, and a layer computes, for x (B, C),

    q, k, v = norm(x) W_qkv^T + b_qkv                                     one product for all three
    x = x + attention(q, all k, all v) W_o^T + b_o                        attention also normalises and rotates q and k
    x = x + activation(norm(x) W_up^T + b_up) W_down^T + b_down           W_up includes the gate, if there is one

where each product is a kernel, and so is attention. As in `weights.py`, the gain and shift of a norm are part of the
product that follows; and if the norms are layer norms, the mean is subtracted in advance from everything that is added
to x, so that all that remains of the norm is a division by the root mean square. The product after it computes that
from the numbers that it reads anyway.

From the second token in the same caches on, all these launches are one graph (cuda/graph.py).

In bfloat16, only the weights and the cache have that type: x, and everything between two products, stays float32. From
five texts on, the tensor cores compute these products, without rounding x (cuda/decode_tiles.cu).

`GPT.forward` is the definition, and tests compare the two.
"""

import functools
from collections.abc import Sequence

import numpy as np

from gpt.fast.step import WeightsAsTheyAre, has_known_parts
from gpt.fast.weights import joint_shift
from tinygrad_lite.device import Array, device_of, get_device, xp_of
from tinygrad_lite.nn import LayerNorm, Linear, Module, RMSNorm
from tinygrad_lite.precision import activation_type
from tinygrad_lite.transformer import Block, KVCache

MEMORY_SHARE = 0.25  # of the GPU's memory: the most that a copy of the weights may take

Affine = tuple[Array, Array | None]  # matrix (out, in) and shift (out,): x -> x @ matrix.T + shift


class FastStepCuda(WeightsAsTheyAre):
    """The weights of a GPT, laid out for single steps on a GPU, in the type of the precision in use."""

    def __init__(self, model: Module) -> None:
        super().__init__(model)
        config, table = model.config, model.token_embedding.weight
        self.device, self.dtype = device_of(table.data), activation_type(table.dtype)
        xp = self.device.xp
        self.block_size, self.eps, self.centred = config.block_size, config.norm_eps, config.norm == "layernorm"
        self.tokens = xp.ascontiguousarray(table.data)
        if self.positions is not None:
            self.positions = xp.ascontiguousarray(self.positions)
        if self.turns is not None:
            self.turns = self.device.from_host(np.ascontiguousarray(self.turns.swapaxes(0, 1)))  # (T, 2, D)
        self.layers = [Layer(block, self.dtype) for block in model.blocks]
        self.head = folded(model.final_norm, [model.lm_head], self.dtype)
        self.prepared_for: tuple | None = None

    @staticmethod
    def fits(model: Module) -> bool:
        """Whether these formulas describe the model, on a GPU with enough memory for a copy of the weights."""
        weight = model.token_embedding.weight
        if weight.device != "cuda" or weight.dtype not in (np.float32, np.float64) or not has_known_parts(model):
            return False
        gpu, copy = get_device("cuda"), model.num_parameters() * activation_type(weight.dtype).itemsize
        is_narrow = model.config.head_width <= gpu.module("decode").MAX_HEAD_WIDTH
        return is_narrow and copy <= MEMORY_SHARE * gpu.memory()[1]

    def is_up_to_date(self, model: Module) -> bool:
        """Whether the model still has the weights that this was made from, and the precision is the same."""
        return self.dtype == activation_type(self.tokens.dtype) and super().is_up_to_date(model)

    def prepare(self, batch: int, cache: KVCache) -> None:
        """Prepare the launches of all kernels, for this number of rows and caches like this one.

        All layers share the arrays between the kernels, since each layer finishes before the next begins.
        """
        first, xp, decode = self.layers[0], self.device.xp, self.device.module("decode")
        layout = cache.both.dtype, cache.both.shape
        self.prepared_for = batch, *layout

        def room(width: int) -> Array:
            return xp.empty((batch, width), self.tokens.dtype)

        x, self.logits = room(self.tokens.shape[1]), room(len(self.head[0]))
        joint, mixed, hidden = room(len(first.joint[0])), room(first.output[0].shape[1]), room(first.down[0].shape[1])
        queries, heads = (y.reshape(batch, -1, first.width) for y in (joint, mixed))
        self.inputs = xp.empty(1 + batch, np.int64)  # the position, and a token for each row
        self.embed = decode.embedding(self.tokens, self.factor, self.positions, self.centred, x, self.inputs)
        self.launches = [
            (
                decode.linear(x, *layer.joint, joint, self.eps),
                decode.attention(queries, layer.scale, layer.gains, layer.eps, self.turns, heads, self.inputs, *layout),
                decode.linear(mixed, *layer.output, x, add=True),
                decode.linear(x, *layer.up, hidden, self.eps, layer.activation),
                decode.linear(hidden, *layer.down, x, add=True),
            )
            for layer in self.layers
        ]
        self.last = decode.linear(x, *self.head, self.logits, self.eps), decode.log_softmax(self.logits)
        self.latest, self.graph = None, None  # where the latest token's caches are, and a graph of all launches

    def __call__(self, tokens: np.ndarray, caches: list[KVCache]) -> Array:
        """Append a token per row (B,) to the caches; returns the log-probabilities (B, V) of what follows.

        They stay on the GPU, until those of the next token take their place; only who reads them waits for it.

        Raises: ValueError if there is no room for it in the context or the caches.
        """
        now, batch, room = caches[0].length, len(tokens), min(caches[0].capacity, self.block_size)
        if now >= room:
            raise ValueError(f"GPT: {now + 1} positions do not fit into {room}")
        for layer, cache in zip(self.layers, caches, strict=True):
            if cache.both is None:
                cache.make_room(layer.output[0], batch, layer.kv_heads, layer.width)
        if self.prepared_for != (batch, caches[0].both.dtype, caches[0].both.shape):
            self.prepare(batch, caches[0])
        self.inputs.set(np.array([now, *tokens], np.int64))
        places = [cache.both.data.ptr for cache in caches]
        if places != self.latest:  # other caches; in a beam search they serve for only one token
            self.latest, self.graph = places, None
            self.launch(caches)
        else:
            if self.graph is None:
                self.graph = self.device.module("graph").captured(functools.partial(self.launch, caches))
            self.graph()
        for cache in caches:
            cache.length = now + 1
        return self.logits

    def launch(self, caches: list[KVCache]) -> None:
        """Launch all kernels of a token."""
        self.embed()
        for (project, attend, put_out, widen, narrow), cache in zip(self.launches, caches, strict=True):
            project()
            attend(cache.both)
            put_out()
            widen()
            narrow()
        for launch in self.last:
            launch()


class Layer:
    """The matrices of one block, and whatever else attention needs."""

    def __init__(self, block: Block, dtype: np.dtype) -> None:
        attention, mlp = block.mixer, block.mlp
        self.kv_heads, self.width = attention.n_kv_head, attention.head_dim
        self.scale = self.width**-0.5 if attention.scale is None else attention.scale
        self.gains, self.eps = None, 0.0  # of the norms of queries and keys
        if attention.query_norm is not None:
            xp, kind = xp_of(attention.query.weight.data), attention.query.weight.dtype
            norms = (attention.query_norm, attention.key_norm)
            gains = [xp.ones(self.width, kind) if norm.weight is None else norm.weight.data for norm in norms]
            self.gains, self.eps = xp.stack(gains), attention.query_norm.eps
        self.joint = folded(block.mixer_norm, [attention.query, attention.key, attention.value], dtype)
        self.output = balanced(attention.output, block.mixer_norm, dtype)
        self.activation = mlp.activation
        self.up = folded(block.mlp_norm, [mlp.gate, mlp.up] if mlp.activation == "swiglu" else [mlp.up], dtype)
        self.down = balanced(mlp.down, block.mlp_norm, dtype)


def folded(norm: LayerNorm | RMSNorm, linears: Sequence[Linear], dtype: np.dtype) -> Affine:
    """Linear maps side by side, after a norm: with its gain, and its shift if it has one."""
    matrix = xp_of(linears[0].weight.data).concatenate([linear.weight.data for linear in linears])
    if norm.weight is not None:
        matrix *= norm.weight.data
    return matrix.astype(dtype, copy=False), joint_shift(norm, linears)


def balanced(linear: Linear, norm: LayerNorm | RMSNorm, dtype: np.dtype) -> Affine:
    """A linear map whose results are added to x: of mean 0 if the norms are layer norms."""
    matrix, shift = linear.weight.data, None if linear.bias is None else linear.bias.data
    if isinstance(norm, LayerNorm):
        matrix = matrix - matrix.mean(0)
        shift = None if shift is None else shift - shift.mean()
    return matrix.astype(dtype), shift  # a copy, so it begins at a multiple of 16 bytes
