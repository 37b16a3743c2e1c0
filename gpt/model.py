"""The GPT: a decoder-only Transformer that predicts the next token at every position.

    ids (B, T) -> token embedding + position embedding -> n_layer blocks -> norm -> logits (B, T, V)

Attention is causal: position t sees positions 0..t only, so all T predictions of a training sequence are made, and
learned from, in one pass.

References: Radford et al. 2018 and 2019 (GPT, GPT-2); the sizes and names of nanoGPT.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpt.config import GPTConfig
from gpt.fast_step import MOST_PARAMETERS, FastStep
from tinygrad_lite import functional as F
from tinygrad_lite.autograd import no_grad
from tinygrad_lite.device import get_device
from tinygrad_lite.functional.registry import is_composed
from tinygrad_lite.nn import Dropout, Embedding, LayerNorm, Linear, Module
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


class GPT(Module):
    """A decoder-only Transformer with GPT-2's initialisation and an output matrix tied to the token embedding."""

    position_tables = frozenset({"position_embedding.weight"})  # of which a shorter context needs a part

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
        self._fast: FastStep | None = None  # made when text is written, and anew after an update

    def train(self, mode: bool = True) -> Module:
        """As every module; and training needs no copy of the weights that is laid out for writing."""
        if mode:
            self._fast = None
        return super().train(mode)

    def forward(self, ids: Tensor, caches: list[KVCache] | None = None, padding: np.ndarray | None = None) -> Tensor:
        """The logits of the token that follows each position: (B, T) integers -> (B, T, V).

        With caches (one per layer, from `new_caches`), ids are the tokens after those that the caches hold. With
        padding (B,), each row begins with so many positions, of those in the caches and ids together, that are not
        text: nothing looks at them, and positions are counted from behind them. What they predict means nothing.

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
        """Mean nats per target token of a batch (ids, targets), both (B, T); targets are ids moved on by one."""
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

    # --- generating: the step function that the decoding algorithms call --------------------------------------

    def new_caches(self) -> list[KVCache]:
        """An empty key-value cache for each layer."""
        return [KVCache(self.config.block_size) for _ in self.blocks]

    def start(
        self, prompts: np.ndarray | Sequence[Sequence[int]], use_cache: bool = True
    ) -> tuple[np.ndarray, GPTState]:
        """Read a prompt per row: log-probabilities (B, V) of what follows, and the state to go on from.

        Args:
            prompts: (B, T) token ids, or a list of B prompts of any lengths of at least 1. Each row is predicted as
                it would be alone, up to rounding.
        Raises: ValueError if a prompt is empty.
        """
        if not all(len(prompt) for prompt in prompts):
            raise ValueError("GPT: a prompt is empty, but a prediction needs at least one token to start from")
        return self._read([np.asarray(prompt)[-self.config.block_size :] for prompt in prompts], use_cache)

    def step(self, tokens: np.ndarray, state: GPTState) -> tuple[np.ndarray, GPTState]:
        """Append one token per row (B,): log-probabilities (B, V) of what follows, and the new state.

        When the context of a row is full, go on from its last half: the positions start anew at 0, so everything
        about those tokens has to be computed again, but then block_size / 2 tokens follow without such a break.
        """
        window = np.concatenate([state.window, tokens[:, None]], axis=1)
        state = GPTState(window, state.caches, state.padding, state.fast)
        if window.shape[1] > self.config.block_size:
            half = max(1, self.config.block_size // 2)
            texts = [text[-half:] if len(text) > self.config.block_size else text for text in state.texts()]
            return self._read(texts, state.caches is not None)
        new = window if state.caches is None else tokens[:, None]
        return self._log_probs(new, state), state

    def _can_be_fast(self, state: GPTState) -> bool:
        """Whether single tokens can go the short way of `fast_step.py` from here on."""
        if state.caches is None or state.padding is not None or self.training or is_composed():
            return False
        numbers = self.num_parameters()
        if self.config.positions == "sinusoidal":  # which it keeps for every position of the context
            numbers += self.config.block_size * self.config.n_embd
        return self.token_embedding.weight.device == "cpu" and numbers <= MOST_PARAMETERS

    def _fast_step(self) -> FastStep:
        """The weights laid out for single tokens, anew if they have changed."""
        if self._fast is None or not self._fast.is_up_to_date(self):
            self._fast = FastStep(self)
        return self._fast

    def _read(self, texts: list[np.ndarray], use_cache: bool) -> tuple[np.ndarray, GPTState]:
        """Read a text per row from its beginning. Shorter ones are padded on the left, so that all end together."""
        width = max(map(len, texts))
        padding = np.array([width - len(text) for text in texts])
        window = np.stack([np.pad(text, (width - len(text), 0)) for text in texts])
        state = GPTState(window, self.new_caches() if use_cache else None, padding if padding.any() else None)
        return self._log_probs(window, state), state

    def _log_probs(self, ids: np.ndarray, state: GPTState) -> np.ndarray:
        """Of what follows ids (B, n), the tokens of the state that are not in its caches yet: (B, V)."""
        if ids.shape[1] == 1:
            if state.fast is None and self._can_be_fast(state):
                state.fast = self._fast_step()
            if state.fast is not None:
                return state.fast(ids[:, 0], state.caches)
        device = self.token_embedding.weight.device
        with no_grad():
            logits = self(Tensor(ids, device=device), state.caches, state.padding)[:, -1]
            # Where the products are bfloat16, the logits are too; but log-probabilities shall be exact.
            return logits.cast(self.token_embedding.weight.dtype).log_softmax().numpy()


@dataclass
class GPTState:
    """What generation has read so far: the tokens (B, n) within the context, and their keys and values.

    Where texts differ in length, the shorter rows begin with padding: so many positions (B,) that are not text.
    `fast` has the weights laid out for single tokens, from the first such on.
    """

    window: np.ndarray
    caches: list[KVCache] | None
    padding: np.ndarray | None = None
    fast: FastStep | None = None

    def texts(self) -> list[np.ndarray]:
        """The tokens of each row, without padding."""
        if self.padding is None:
            return list(self.window)
        return [row[start:] for row, start in zip(self.window, self.padding, strict=True)]

    def select(self, rows: np.ndarray) -> GPTState:
        """The state of these rows, in this order; a row may be taken several times."""
        caches = None if self.caches is None else [cache.select(rows) for cache in self.caches]
        padding = None if self.padding is None else self.padding[rows]
        return GPTState(self.window[rows], caches, padding, self.fast)
