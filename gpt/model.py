"""The GPT: a decoder-only Transformer that predicts the next token at every position.

    ids (B, T) -> token embedding + position embedding -> n_layer blocks -> norm -> logits (B, T, V)

With rotary positions there is no position embedding: attention turns its queries and keys instead.

Attention is causal: position t sees positions 0..t only, so all T predictions of a training sequence are made, and
learned from, in one pass.

References: Radford et al. 2018 and 2019 (GPT, GPT-2); the sizes and names of nanoGPT.
"""

from typing import ClassVar

import numpy as np

from gpt.config import GPTConfig
from gpt.fast.step import FastStep
from gpt.fast.step_cuda import FastStepCuda
from tinygrad_lite import functional as F
from tinygrad_lite.flops import attention_flops, training_flops
from tinygrad_lite.generator import GenerationState, Generator, rows_of
from tinygrad_lite.nn import Dropout, Embedding, Linear
from tinygrad_lite.tensor import Tensor
from tinygrad_lite.transformer import MIXERS, POSITION_CODES, KVCache, block_of, init_gpt2, norm_of


class GPT(Generator):
    """A decoder-only Transformer with GPT-2's initialisation. `gpt/config.py` says which parts it has.

    The defaults are GPT-2's parts: layer norm, learned positions, GELU, an output matrix tied to the token embedding.
    """

    fast_versions: ClassVar = {"cpu": FastStep, "cuda": FastStepCuda}
    position_tables = frozenset({"position_embedding.weight"})  # cut to the first rows for a shorter context

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        self.is_endless = not MIXERS[config.mixer].attends and config.positions == "none"
        width = config.n_embd
        self.token_embedding = Embedding(config.vocab_size, width)
        if config.positions == "learned":
            self.position_embedding = Embedding(config.block_size, width)
        self.dropout = Dropout(config.dropout)
        self.blocks = [block_of(config) for _ in range(config.n_layer)]
        if config.norm_first:  # otherwise every block ends with a norm
            self.final_norm = norm_of(config)(width)
        self.lm_head = Linear(width, config.vocab_size, bias=False)
        if config.tie_weights:
            # The row that represents a token at the input also scores it at the output (Press, Wolf 2017).
            self.lm_head.weight = self.token_embedding.weight
        init_gpt2(self, config.n_layer, config.zero_init)

    def forward(self, ids: Tensor, caches: list[KVCache] | None = None, padding: np.ndarray | None = None) -> Tensor:
        """The logits of the token that follows each position: (B, T) integers -> (B, T, V).

        With caches (one per layer, from `new_caches`), ids are the tokens after those that the caches hold. With
        padding (B,), the first padding[b] positions of row b, of caches and ids together, are not text: nothing
        attends to them, and positions are counted from the first one after them. Their predictions mean nothing.

        Raises: ValueError if there are more positions than block_size.
        """
        past = caches[0].length if caches else 0
        length = past + ids.shape[1]
        if length > self.config.block_size and not self.is_endless:
            raise ValueError(f"GPT: {length} positions do not fit into block_size {self.config.block_size}")
        positions, mask = np.arange(past, length), None
        if padding is not None:
            positions, mask = without_padding(positions, padding, ids.device)
        x = self.dropout(self._embed(ids, positions))  # (B, T, C)
        options = {"mask": mask, "is_causal": True}
        if self.config.positions == "rotary":
            if padding is None:  # the device counts, so that nothing is sent to a GPU
                options["positions"] = Tensor.arange(past, length, device=ids.device)
            else:
                options["positions"] = Tensor(positions, device=ids.device)
        for layer, block in enumerate(self.blocks):
            x = block(x, cache=caches[layer] if caches else None, **options)
        return self.read(x)

    def read(self, x: Tensor) -> Tensor:
        """The logits computed from the output of the last block: (B, T, C) -> (B, T, V)."""
        return self.lm_head(self.final_norm(x) if self.config.norm_first else x)

    def _embed(self, ids: Tensor, positions: np.ndarray) -> Tensor:
        """What a token is, plus its position unless attention encodes that: (B, T) -> (B, T, C)."""
        tokens = self.token_embedding(ids)
        if self.config.positions == "learned":
            return tokens + rows_of(self.position_embedding.weight, positions)
        if self.config.positions in POSITION_CODES:
            # The codes have size 1; the embeddings are lifted to their scale (Vaswani et al. 2017, section 3.4).
            return tokens * self.config.n_embd**0.5 + self.position_codes(positions, tokens)
        return tokens

    def loss(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        """Mean nats per target token of a batch (ids, targets), both (B, T); targets are ids shifted by one.

        Targets can also be distributions over all tokens, (B, T, V): see extra/pairs/teachers.py.
        """
        ids, targets = batch
        return F.cross_entropy(self(ids).flatten(0, 1), targets.flatten(0, 1), overwrite=True)

    def flops_per_token(self) -> int:
        """Floating-point operations of the matrix products that training on one token takes (`flops.py`)."""
        return training_flops(self, attention_flops(self.config) if MIXERS[self.config.mixer].attends else 0)

    def new_caches(self, capacity: int | None = None) -> list[KVCache]:
        """For each layer, what its mixer keeps of a text, still empty: keys and values, or a recurrent state."""
        return [block.mixer.new_cache(capacity or self.config.block_size) for block in self.blocks]

    def predict(self, ids: Tensor, state: GenerationState) -> Tensor:
        """The logits after each of ids (B, n): see `tinygrad_lite/generator.py`."""
        return self(ids, state.caches, state.padding)


def without_padding(positions: np.ndarray, padding: np.ndarray, device: str) -> tuple[np.ndarray, Tensor]:
    """The positions (B, T) in rows whose first padding[b] places are not text, and the mask (B, 1, 1, S) of text.

    A position of padding does not matter, but must exist: it is 0.
    """
    is_text = np.arange(positions[-1] + 1) >= padding[:, None]
    return np.maximum(positions - padding[:, None], 0), Tensor(is_text[:, None, None], device=device)
