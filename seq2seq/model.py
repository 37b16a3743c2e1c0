"""The Transformer of 2017: an encoder reads a sentence, a decoder writes its translation token by token.

    source (B, S) -> embedding + positions -> n_layer blocks -> memory (B, S, C)
    target (B, T) -> embedding + positions -> n_layer blocks, each of which attends to the memory -> logits (B, T, V)

The encoder sees the whole sentence at once; the decoder is causal, like the GPT. In training it is given the correct
translation, shifted by one token, and so learns all T predictions in one pass ("teacher forcing").

One matrix serves three times: it embeds the tokens of either language, and it scores them at the output (Vaswani et
al. 2017, section 3.4; Press, Wolf 2017).

Reference: Vaswani et al. 2017, "Attention Is All You Need" (arXiv:1706.03762).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from seq2seq.config import Seq2SeqConfig
from tinygrad_lite import functional as F
from tinygrad_lite.autograd import no_grad
from tinygrad_lite.device import get_device
from tinygrad_lite.flops import training_flops
from tinygrad_lite.generator import GenerationState, Generator, pad_rows, select_caches
from tinygrad_lite.nn import Dropout, Embedding, Linear
from tinygrad_lite.tensor import Tensor
from tinygrad_lite.transformer import KVCache, block_of, init_gpt2, norm_of

Caches = list[KVCache] | None  # one for each layer, if keys and values are kept
Batch = tuple[Tensor, Tensor]  # source (B, S), and target (B, T + 1) from <bos> to <eos>; padded at the end


class Memory(NamedTuple):
    """What an encoder made of the source: (B, S, C), the mask of its text, its caches, or its last states."""

    values: Tensor
    mask: Tensor
    caches: Caches
    states: list[Tensor] | None = None

    def select(self, rows: np.ndarray) -> "Memory":
        """The memory of these rows, in this order."""
        here = get_device(self.values.device).from_host(rows)
        values, mask = Tensor.wrap(self.values.data[here]), Tensor.wrap(self.mask.data[here])
        states = [Tensor.wrap(state.data[here]) for state in self.states] if self.states else None
        return Memory(values, mask, select_caches(self.caches, rows), states)


class Seq2Seq(Generator):
    """An encoder-decoder Transformer with one embedding for source, target and output."""

    position_tables = frozenset({"source_positions.weight", "target_positions.weight"})

    def __init__(self, config: Seq2SeqConfig) -> None:
        super().__init__()
        self.config = config
        width = config.n_embd
        self.token_embedding = Embedding(config.vocab_size, width)
        if config.positions == "learned":
            self.source_positions = Embedding(config.block_size, width)
            self.target_positions = Embedding(config.block_size, width)
        self.dropout = Dropout(config.dropout)
        self.encoder = [block_of(config) for _ in range(config.n_layer)]
        self.decoder = [block_of(config, has_cross=True) for _ in range(config.n_layer)]
        if config.norm_first:  # otherwise every block ends with a norm
            self.encoder_norm, self.decoder_norm = norm_of(config)(width), norm_of(config)(width)
        self.lm_head = Linear(width, config.vocab_size, bias=False)
        self.lm_head.weight = self.token_embedding.weight
        init_gpt2(self, config.n_layer, config.zero_init)

    def encode(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """The memory (B, S, C) of padded sentences (B, S), and the mask (B, 1, 1, S) of its text.

        Raises: ValueError if a sentence is longer than block_size.
        """
        mask = (source != self.config.pad).reshape(source.shape[0], 1, 1, source.shape[1])
        x = self._embed(source, 0, "source_positions")
        for block in self.encoder:
            x = block(x, mask=mask)
        return (self.encoder_norm(x) if self.config.norm_first else x), mask

    def decode(
        self, target: Tensor, memory: Tensor, mask: Tensor, caches: Caches = None, memory_caches: Caches = None
    ) -> Tensor:
        """The logits of the token that follows each position: (B, T) integers -> (B, T, V).

        Padding is at the end of a target, where causality hides it from what comes before. With caches (two per layer,
        from `start`), target holds the tokens after those that the caches hold.

        Raises: ValueError if there are more positions than block_size.
        """
        past = caches[0].length if caches else 0
        x = self._embed(target, past, "target_positions")
        cross = {"memory": memory, "mask": mask}
        if self.config.positions == "rotary":  # queries come after those of the caches
            cross["positions"] = Tensor.arange(past, past + target.shape[1], device=target.device)
        for layer, block in enumerate(self.decoder):
            cross["cache"] = memory_caches[layer] if memory_caches else None
            x = block(x, cross, is_causal=True, cache=caches[layer] if caches else None)
        return self.lm_head(self.decoder_norm(x) if self.config.norm_first else x)

    def _embed(self, ids: Tensor, past: int, table: str = "") -> Tensor:
        """What a token is plus its position: (B, T) -> (B, T, C), scaled as in section 3.4 of the paper.

        With rotary positions nothing is added: attention encodes the position. Nor is it without the name of a table.
        """
        end, positions = past + ids.shape[1], self.config.positions if table else "none"
        if end > self.config.block_size:
            raise ValueError(f"Seq2Seq: {end} positions do not fit into block_size {self.config.block_size}")
        tokens = self.token_embedding(ids) * self.config.n_embd**0.5
        if positions == "learned":
            tokens = tokens + getattr(self, table).weight[past:end]
        elif positions == "sinusoidal":
            tokens = tokens + self.position_codes(np.arange(past, end), tokens)
        return self.dropout(tokens)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """The logits of the token that follows each token of the target: (B, S), (B, T) -> (B, T, V)."""
        memory, mask = self.encode(source)
        return self.decode(target, memory, mask)

    def loss(self, batch: Batch) -> Tensor:
        """Mean nats per target token, <eos> included and padding not; smoothed in training only."""
        source, target = batch
        smoothing = self.config.label_smoothing if self.training else 0.0
        settings = {"ignore_index": self.config.pad, "label_smoothing": smoothing, "overwrite": True}
        logits = self(source, target[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), **settings)

    def flops_per_token(self) -> int:
        """Floating-point operations of the matrix products that learning one target token takes.

        Counted as in `GPT.flops_per_token`, with a source token for every target token, and without the products
        of attention, which are small for sentences.
        """
        return training_flops(self)

    def start(self, sources: Sequence[Sequence[int]], use_cache: bool = True) -> tuple[np.ndarray, GenerationState]:
        """Read a sentence per row, of any lengths: log-probabilities (B, V) of the first token of its translation.

        Each row is translated as it would be alone, up to rounding: its padding is hidden from everything.

        Raises: ValueError if a sentence is empty.
        """
        if not all(len(source) for source in sources):
            raise ValueError("Seq2Seq: a sentence is empty, but a translation needs something to attend to")
        ids = Tensor(pad_rows(sources, self.config.pad), device=self.token_embedding.weight.device)
        with no_grad():
            memory = self.memory_of(ids, use_cache)
        return self._read([np.array([self.config.bos])] * len(sources), use_cache, memory)

    def memory_of(self, source: Tensor, use_cache: bool) -> Memory:
        """What the encoder makes of padded sentences (B, S), with room for its keys and values."""
        values, mask = self.encode(source)
        return Memory(values, mask, self.new_caches(values.shape[1]) if use_cache else None)

    def predict(self, ids: Tensor, state: GenerationState) -> Tensor:
        """The logits after each of ids (B, n): see `tinygrad_lite/generator.py`."""
        memory = state.memory
        return self.decode(ids, memory.values, memory.mask, state.caches, memory.caches)
