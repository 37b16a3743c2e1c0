"""The GPT: a decoder-only Transformer that predicts the next token at every position.

    ids (B, T) -> token embedding + position embedding -> n_layer blocks -> norm -> logits (B, T, V)

Attention is causal: position t sees positions 0..t only, so all T predictions of a training sequence are made, and
learned from, in one pass.

References: Radford et al. 2018 and 2019 (GPT, GPT-2); the sizes and names of nanoGPT.
"""

from __future__ import annotations

import numpy as np

from gpt.config import GPTConfig
from gpt.fast_step import FastStep
from tinygrad_lite import functional as F
from tinygrad_lite.decoding.state import GenerationState, Generator
from tinygrad_lite.device import get_device
from tinygrad_lite.nn import Dropout, Embedding, LayerNorm, Linear
from tinygrad_lite.tensor import Tensor
from tinygrad_lite.transformer import (
    Block,
    FeedForward,
    KVCache,
    MultiHeadAttention,
    init_gpt2,
    linear_flops,
    sinusoidal_positions,
)


class GPT(Generator):
    """A decoder-only Transformer with GPT-2's initialisation and an output matrix tied to the token embedding."""

    position_tables = frozenset({"position_embedding.weight"})  # of which a shorter context needs a part
    fast_version = FastStep

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        width = config.n_embd
        self.token_embedding = Embedding(config.vocab_size, width)
        if config.positions == "learned":
            self.position_embedding = Embedding(config.block_size, width)
        self.dropout = Dropout(config.dropout)
        self.blocks = [
            Block(
                MultiHeadAttention(width, config.n_head, config.dropout, config.bias),
                FeedForward(width, config.n_hidden, config.dropout, config.bias, config.activation),
                width,
                config.bias,
                eps=config.norm_eps,
            )
            for _ in range(config.n_layer)
        ]
        self.final_norm = LayerNorm(width, config.bias, config.norm_eps)
        self.lm_head = Linear(width, config.vocab_size, bias=False)
        # Tied: the row that stands for a token at the input also scores it at the output (Press, Wolf 2017).
        self.lm_head.weight = self.token_embedding.weight
        init_gpt2(self, config.n_layer)

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
        x = self.dropout(self._embed(ids, past, padding))  # (B, T, C)
        for layer, block in enumerate(self.blocks):
            x = block(x, mask=mask, is_causal=True, cache=caches[layer] if caches else None)
        return self.lm_head(self.final_norm(x))

    def _embed(self, ids: Tensor, past: int, padding: np.ndarray | None) -> Tensor:
        """What a token is plus where it stands: (B, T) -> (B, T, C)."""
        tokens, end = self.token_embedding(ids), past + ids.shape[1]
        # One row of positions for all, or one for each; those of padding do not matter, but must exist.
        places = slice(past, end) if padding is None else np.maximum(np.arange(past, end) - padding[:, None], 0)
        if self.config.positions == "learned":
            if padding is None:
                return tokens + self.position_embedding.weight[places]
            return tokens + self.position_embedding(Tensor(places, device=ids.device))
        # Fixed codes have size 1; the embeddings are lifted to their scale (Vaswani et al. 2017, section 3.4).
        codes = sinusoidal_positions(end, self.config.n_embd)[places].astype(tokens.dtype)
        return tokens * self.config.n_embd**0.5 + Tensor.wrap(get_device(ids.device).from_host(codes))

    def loss(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        """Mean nats per target token of a batch (ids, targets), both (B, T); targets are ids shifted by one."""
        ids, targets = batch
        return F.cross_entropy(self(ids), targets)

    def flops_per_token(self) -> int:
        """Floating-point operations of the matrix products with which one token is learned.

        Forward, attention takes 2 C T multiplications and as many additions per token and block (scores, and the
        weighted sum of values), beside the linear maps. Backward costs twice that: once for the gradient of the
        input, once for that of the weights. Norms, softmax, GELU and the optimizer are not counted.

        Reference: Chowdhery et al. 2022 (arXiv:2204.02311), appendix B.
        """
        config = self.config
        return 3 * (linear_flops(self) + config.n_layer * 4 * config.n_embd * config.block_size)

    def predict(self, ids: Tensor, state: GenerationState) -> Tensor:
        """The logits after each of ids (B, n): see `decoding/state.py`."""
        return self(ids, state.caches, state.padding)
