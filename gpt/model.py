"""The GPT: a decoder-only Transformer that predicts the next token at every position.

    ids (B, T) -> token embedding + position embedding -> n_layer blocks -> norm -> logits (B, T, V)

Attention is causal: position t sees positions 0..t only, so all T predictions of a training sequence are made, and
learned from, in one pass.

References: Radford et al. 2018 and 2019 (GPT, GPT-2); the sizes and names of nanoGPT.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gpt.config import GPTConfig
from tinygrad_lite import functional as F
from tinygrad_lite.checkpoint import Checkpoint
from tinygrad_lite.device import get_device
from tinygrad_lite.errors import CheckpointError
from tinygrad_lite.nn import Dropout, Embedding, LayerNorm, Linear, Module
from tinygrad_lite.tensor import Tensor, no_grad
from tinygrad_lite.transformer import (
    Block,
    FeedForward,
    KVCache,
    MultiHeadAttention,
    init_gpt2,
    sinusoidal_positions,
)


class GPT(Module):
    """A decoder-only Transformer with GPT-2's initialisation and an output matrix tied to the token embedding."""

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
                FeedForward(width, 4 * width, config.dropout, config.bias),
                width,
                config.bias,
            )
            for _ in range(config.n_layer)
        ]
        self.final_norm = LayerNorm(width, config.bias)
        self.lm_head = Linear(width, config.vocab_size, bias=False)
        # Tied: the row that stands for a token at the input also scores it at the output (Press, Wolf 2017).
        self.lm_head.weight = self.token_embedding.weight
        init_gpt2(self, config.n_layer)

    @staticmethod
    def from_checkpoint(checkpoint: Checkpoint, device: str = "cpu", dropout: float = 0.0) -> GPT:
        """The trained model that a checkpoint holds, with this dropout if it is trained further.

        Raises: CheckpointError if its settings or weights do not describe a GPT.
        """
        if checkpoint.family != "gpt":
            raise CheckpointError(f"the checkpoint holds a model of the family {checkpoint.family!r}, not a GPT")
        config = GPTConfig.from_json(checkpoint.model)
        stored = sum(array.size for array in checkpoint.weights.values())
        if stored != config.num_parameters():  # before memory is taken for what the settings claim
            raise CheckpointError(
                f"the checkpoint's settings make a GPT of {config.num_parameters():,} parameters, it holds {stored:,}"
            )
        model = GPT(replace(config, dropout=dropout))
        model.to(device, next(iter(checkpoint.weights.values())).dtype)
        try:
            model.load_state_dict(checkpoint.weights)
        except ValueError as error:
            raise CheckpointError(f"the checkpoint does not fit its own settings: {error}") from None
        return model

    def forward(self, ids: Tensor, caches: list[KVCache] | None = None) -> Tensor:
        """The logits of the token that follows each position: (B, T) integers -> (B, T, V).

        With caches (one per layer, from `new_caches`), ids are the tokens after those that the caches hold.

        Raises: ValueError if there are more positions than block_size.
        """
        past = caches[0].length if caches else 0
        length = past + ids.shape[1]
        if length > self.config.block_size:
            raise ValueError(f"GPT: {length} positions do not fit into block_size {self.config.block_size}")
        x = self.dropout(self._embed(ids, past))  # (B, T, C)
        for layer, block in enumerate(self.blocks):
            x = block(x, is_causal=True, cache=caches[layer] if caches else None)
        return self.lm_head(self.final_norm(x))

    def _embed(self, ids: Tensor, past: int) -> Tensor:
        """What a token is plus where it stands: (B, T) -> (B, T, C)."""
        tokens, end = self.token_embedding(ids), past + ids.shape[1]
        if self.config.positions == "learned":
            return tokens + self.position_embedding.weight[past:end]
        # Fixed codes have size 1; the embeddings are lifted to their scale (Vaswani et al. 2017, section 3.4).
        codes = sinusoidal_positions(end, self.config.n_embd)[past:].astype(tokens.dtype)
        return tokens * self.config.n_embd**0.5 + Tensor.wrap(get_device(ids.device).from_host(codes))

    def loss(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        """Mean nats per target token of a batch (ids, targets), both (B, T); targets are ids moved on by one."""
        ids, targets = batch
        return F.cross_entropy(self(ids), targets)

    # --- generating: the step function that the decoding algorithms call --------------------------------------

    def new_caches(self) -> list[KVCache]:
        """An empty key-value cache for each layer."""
        return [KVCache(self.config.block_size) for _ in self.blocks]

    def start(self, ids: np.ndarray, use_cache: bool = True) -> tuple[np.ndarray, GPTState]:
        """Read a prompt (B, T), T >= 1: log-probabilities (B, V) of what follows, and the state to go on from."""
        window = ids[:, -self.config.block_size :]
        state = GPTState(window, self.new_caches() if use_cache else None)
        return self._log_probs(window, state.caches), state

    def step(self, tokens: np.ndarray, state: GPTState) -> tuple[np.ndarray, GPTState]:
        """Append one token per row (B,): log-probabilities (B, V) of what follows, and the new state.

        When the context is full, go on from its last half: the positions start anew at 0, so everything about
        those tokens has to be computed again, but then block_size / 2 tokens follow without such a break.
        """
        window = np.concatenate([state.window, tokens[:, None]], axis=1)
        caches, new = state.caches, tokens[:, None]
        if window.shape[1] > self.config.block_size:
            window = new = window[:, -max(1, self.config.block_size // 2) :]
            caches = self.new_caches() if caches is not None else None
        state = GPTState(window, caches)
        return self._log_probs(new if caches is not None else window, caches), state

    def _log_probs(self, ids: np.ndarray, caches: list[KVCache] | None) -> np.ndarray:
        device = self.token_embedding.weight.device
        with no_grad():
            logits = self(Tensor(ids, device=device), caches)[:, -1]
            return logits.log_softmax().numpy()


@dataclass
class GPTState:
    """What generation has read so far: the tokens (B, n) within the context, and their keys and values."""

    window: np.ndarray
    caches: list[KVCache] | None

    def select(self, rows: np.ndarray) -> GPTState:
        """The state of these rows, in this order; a row may be taken several times."""
        caches = None if self.caches is None else [cache.select(rows) for cache in self.caches]
        return GPTState(self.window[rows], caches)
