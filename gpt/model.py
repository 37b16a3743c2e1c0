"""The GPT: a decoder-only Transformer that predicts the next token at every position.

    ids (B, T) -> token embedding + position embedding -> n_layer blocks -> norm -> logits (B, T, V)

With rotary positions there is no position embedding: attention turns its queries and keys instead.

Attention is causal: position t sees positions 0..t only, so all T predictions of a training sequence are made, and
learned from, in one pass.

References: Radford et al. 2018 and 2019 (GPT, GPT-2); the sizes and names of nanoGPT.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from gpt.config import GPTConfig
from tinygrad_lite import functional as F
from tinygrad_lite.decoding.state import GenerationState, Generator
from tinygrad_lite.device import get_device
from tinygrad_lite.flops import training_flops
from tinygrad_lite.nn import Dropout, Embedding, LayerNorm, Linear, Module, RMSNorm
from tinygrad_lite.tensor import Tensor
from tinygrad_lite.transformer import (
    Block,
    FeedForward,
    KVCache,
    MultiHeadAttention,
    init_gpt2,
    rotary_frequencies,
    sinusoidal_positions,
)


class GPT(Generator):
    """A decoder-only Transformer with GPT-2's initialisation. Which parts it has, `gpt/config.py` says.

    The defaults are GPT-2's parts: layer norm, learned positions, GELU, an output matrix tied to the token embedding.
    """

    position_tables = frozenset({"position_embedding.weight"})  # cut to the first rows for a shorter context

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        width = config.n_embd
        self.token_embedding = Embedding(config.vocab_size, width)
        if config.positions == "learned":
            self.position_embedding = Embedding(config.block_size, width)
        self.dropout = Dropout(config.dropout)
        self.blocks = [self._block() for _ in range(config.n_layer)]
        if config.norm_first:  # otherwise every block ends with a norm
            self.final_norm = self._norm(width)
        self.lm_head = Linear(width, config.vocab_size, bias=False)
        if config.tie_weights:
            # The row that stands for a token at the input also scores it at the output (Press, Wolf 2017).
            self.lm_head.weight = self.token_embedding.weight
        init_gpt2(self, config.n_layer, config.zero_init)

    def _block(self) -> Block:
        c = self.config
        attention = MultiHeadAttention(
            c.n_embd,
            c.n_head,
            c.dropout,
            c.bias,
            n_kv_head=c.n_kv_head,
            head_dim=c.head_dim,
            qk_norm=functools.partial(RMSNorm, weight=c.norm_weight, eps=c.norm_eps) if c.qk_norm else None,
            frequencies=frequencies_of(c) if c.positions == "rotary" else None,
            scale=c.attention_scale,
        )
        mlp = FeedForward(c.n_embd, c.n_hidden, c.dropout, c.bias, c.activation)
        return Block(
            attention,
            mlp,
            c.n_embd,
            norm_first=c.norm_first,
            norm=self._norm,
            residual=c.residual,
            recompute=c.recompute,
        )

    def _norm(self, width: int) -> Module:
        c = self.config
        if c.norm == "rmsnorm":
            return RMSNorm(width, weight=c.norm_weight, eps=c.norm_eps)
        return LayerNorm(width, bias=c.bias, eps=c.norm_eps)

    def forward(self, ids: Tensor, caches: list[KVCache] | None = None, padding: np.ndarray | None = None) -> Tensor:
        """The logits of the token that follows each position: (B, T) integers -> (B, T, V).

        With caches (one per layer, from `new_caches`), ids are the tokens after those that the caches hold. With
        padding (B,), the first padding[b] positions of row b, of caches and ids together, are not text: nothing
        attends to them, and positions are counted from behind them. What they predict means nothing.

        Raises: ValueError if there are more positions than block_size.
        """
        past = caches[0].length if caches else 0
        length = past + ids.shape[1]
        if length > self.config.block_size:
            raise ValueError(f"GPT: {length} positions do not fit into block_size {self.config.block_size}")
        mask = None
        if padding is not None:
            is_text = np.arange(length) >= padding[:, None]  # (B, S)
            mask = Tensor(is_text[:, None, None], device=ids.device)  # for all heads and queries
        # One row of positions for all, or one for each; those of padding do not matter, but must exist.
        places = slice(past, length)
        if padding is not None:
            places = np.maximum(np.arange(past, length) - padding[:, None], 0)
        mixer = {"mask": mask, "is_causal": True}
        if self.config.positions == "rotary":
            mixer["positions"] = Tensor(np.arange(length)[places], device=ids.device)
        x = self.dropout(self._embed(ids, places, length))  # (B, T, C)
        for layer, block in enumerate(self.blocks):
            x = block(x, cache=caches[layer] if caches else None, **mixer)
        return self.read(x)

    def read(self, x: Tensor) -> Tensor:
        """The logits that the output of the last block stands for: (B, T, C) -> (B, T, V)."""
        return self.lm_head(self.final_norm(x) if self.config.norm_first else x)

    def _embed(self, ids: Tensor, places: slice | np.ndarray, length: int) -> Tensor:
        """What a token is, plus where it stands unless attention says that: (B, T) -> (B, T, C)."""
        tokens = self.token_embedding(ids)
        if self.config.positions in ("rotary", "none"):
            return tokens
        if self.config.positions == "learned":
            if isinstance(places, slice):
                return tokens + self.position_embedding.weight[places]
            return tokens + self.position_embedding(Tensor(places, device=ids.device))
        # Fixed codes have size 1; the embeddings are lifted to their scale (Vaswani et al. 2017, section 3.4).
        codes = sinusoidal_positions(length, self.config.n_embd)[places].astype(tokens.dtype)
        return tokens * self.config.n_embd**0.5 + Tensor.wrap(get_device(ids.device).from_host(codes))

    def loss(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        """Mean nats per target token of a batch (ids, targets), both (B, T); targets are ids shifted by one."""
        ids, targets = batch
        return F.cross_entropy(self(ids).flatten(0, 1), targets.flatten(), overwrite=True)

    def flops_per_token(self) -> int:
        """Floating-point operations of the matrix products that training on one token takes.

        Forward, attention takes 2 H D T multiplications and as many additions per token and block (scores, and the
        weighted sum of values), beside the linear maps; H D is C unless heads have a width of their own. Backward costs
        twice that, less where weights are frozen (`training_flops`). Norms, softmax, activations and the optimizer are
        not counted.

        Reference: Chowdhery et al. 2022 (arXiv:2204.02311), appendix B.
        """
        config = self.config
        attention = 4 * config.n_head * config.head_width * config.block_size
        return training_flops(self, config.n_layer * attention)

    def predict(self, ids: Tensor, state: GenerationState) -> Tensor:
        """The logits after each of ids (B, n): see `decoding/state.py`."""
        return self(ids, state.caches, state.padding)


def frequencies_of(config: GPTConfig) -> tuple[float, ...]:
    """The frequencies of a model's rotary positions.

    With `rope_scaling` they are lowered as in Llama 3, whose context was extended from LENGTH tokens to a multiple of
    it: pairs that turned at most LOW times within LENGTH now turn FACTOR times slower; those that turned at least HIGH
    times, and so distinguish neighbours, are unchanged; in between, the two are interpolated.

    Reference: `_compute_llama3_parameters` of transformers.
    """
    frequencies = list(rotary_frequencies(config.head_width, config.rope_theta))
    if config.rope_scaling is not None:
        factor, low, high, length = config.rope_scaling_numbers
        for i, frequency in enumerate(frequencies):
            turns = length * frequency / (2 * math.pi)
            kept = min(1.0, max(0.0, (turns - low) / (high - low)))
            frequencies[i] = kept * frequency + (1 - kept) * frequency / factor
    return tuple(frequencies)
