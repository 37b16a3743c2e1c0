"""BERT: an encoder-only Transformer that reads a text from both sides, and predicts the words hidden in it.

    ids (B, T) -> token + position + segment embedding -> n_layer blocks -> x (B, T, C)

With rotary positions there is no position embedding: attention turns its queries and keys instead. That is not in the
paper, but a small model finds its neighbours far sooner, and they are all that reveals the word at [MASK].

Its blocks are the GPT's, without the causal mask: every position attends to every other. So it cannot be trained to
predict the next token, which it would see. Instead some tokens are hidden behind [MASK], and predicted from all others
("cloze"). What it has learned from this serves other tasks: a small head on top reads x.

    words      x of the hidden positions -> logits (N, V)                the objective of pretraining
    follows    x of [CLS] -> pooler -> logits (B, 2)                     does the second segment follow the first?
    labels     x of [CLS], or the mean -> pooler -> logits (B, labels)   the objective of fine-tuning

Reference: Devlin, Chang, Lee, Toutanova 2018, "BERT: Pre-training of Deep Bidirectional Transformers for Language
Understanding" (arXiv:1810.04805). It normalises after each part of a block (`norm_first=False`); by default the norm
comes before here, which trains without a long warm-up.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from extra.encoders.config import MASK_SHARE, BertConfig
from tinygrad_lite import functional as F
from tinygrad_lite.flops import attention_flops, linear_flops, training_flops
from tinygrad_lite.nn import Dropout, Embedding, Linear, Module
from tinygrad_lite.tensor import Tensor
from tinygrad_lite.transformer import ACTIVATIONS, GATED, block_of, init_gpt2, norm_of


class MaskedBatch(NamedTuple):
    """Sequences with hidden tokens.

    Attributes:
        ids: (B, T), padded at the end.
        segments: (B, T), 0 in the first segment and 1 in the second.
        places: (N,), the hidden positions, numbered through the whole batch: row * T + position.
        targets: (N,), the tokens that were there.
        follows: (B,), 1 where the second segment continues the first; None if that is not asked. follows_share: weight
        of that question's loss. It is 1, unless the batch is one process's part of a larger one:
            then the rows' share of that batch divided by the targets' share, by which the loop multiplies the loss.
    """

    ids: Tensor
    segments: Tensor
    places: Tensor
    targets: Tensor
    follows: Tensor | None = None
    follows_share: float = 1.0


class LabelledBatch(NamedTuple):
    """Sequences (B, T) with their segments (B, T), as in `MaskedBatch`, and the numbers of their labels (B,)."""

    ids: Tensor
    segments: Tensor
    labels: Tensor


class Bert(Module):
    """An encoder for text with the head that its objective needs."""

    position_tables = frozenset({"position_embedding.weight"})  # cut to the first rows for a shorter context

    def __init__(self, config: BertConfig) -> None:
        self.config = config
        width, norm = config.n_embd, norm_of(config)
        self.token_embedding = Embedding(config.vocab_size, width)
        if config.positions == "learned":
            self.position_embedding = Embedding(config.block_size, width)
        self.segment_embedding = Embedding(config.segments, width)
        if not config.norm_first:
            self.embedding_norm = norm(width)
        self.dropout = Dropout(config.dropout)
        self.blocks = [block_of(config) for _ in range(config.n_layer)]
        if config.norm_first:  # otherwise every block ends with a norm
            self.final_norm = norm(width)
        if config.has_pooler:
            self.pooler = Linear(width, width)
        if config.objective == "words":
            self.transform = Linear(width, width)
            self.transform_norm = norm(width)
            self.lm_head = Linear(width, config.vocab_size)
            self.lm_head.weight = self.token_embedding.weight  # the row that represents a token also scores it
            if config.next_sentence:
                self.next_head = Linear(width, 2)
        elif config.objective == "labels":
            self.label_head = Linear(width, len(config.label_names) or 2)
        init_gpt2(self, config.n_layer)

    @property
    def device(self) -> str:
        """Where the model computes."""
        return self.token_embedding.weight.device

    def forward(self, ids: Tensor, segments: Tensor | None = None) -> Tensor:
        """The vector of each token in its sentence: (B, T) integers -> (B, T, C).

        Args:
            segments: (B, T) integers; None: all tokens are in the first segment.
        Raises: ValueError if a sequence is longer than block_size.
        """
        length = ids.shape[1]
        if length > self.config.block_size:
            raise ValueError(f"Bert: {length} positions do not fit into block_size {self.config.block_size}")
        x = self.token_embedding(ids)
        if self.config.positions == "learned":
            x = x + self.position_embedding.weight[:length]
        x = x + (self.segment_embedding.weight[0] if segments is None else self.segment_embedding(segments))
        x = self.dropout(x if self.config.norm_first else self.embedding_norm(x))
        is_text = (ids != self.config.pad).reshape(ids.shape[0], 1, 1, length)  # for all heads and queries
        for block in self.blocks:
            x = block(x, mask=is_text)
        return self.final_norm(x) if self.config.norm_first else x

    def words(self, x: Tensor) -> Tensor:
        """The logits of the words at the positions of these vectors: (N, C) -> (N, V)."""
        name = "gelu" if self.config.activation in GATED else self.config.activation  # of one linear map
        return self.lm_head(self.transform_norm(ACTIVATIONS[name](self.transform(x))))

    def pooled(self, x: Tensor, ids: Tensor) -> Tensor:
        """One vector for each sequence: (B, T, C) -> (B, C)."""
        whole = mean_of_text(x, ids, self.config.pad) if self.config.pooling == "mean" else x[:, 0]
        return self.pooler(whole).tanh()

    def label_logits(self, ids: Tensor, segments: Tensor | None = None) -> Tensor:
        """The logits of each label: (B, T) -> (B, labels)."""
        return self.label_head(self.dropout(self.pooled(self(ids, segments), ids)))

    def loss(self, batch: MaskedBatch | LabelledBatch) -> Tensor:
        """Mean nats per hidden token, plus those per question about what follows; or per label."""
        if isinstance(batch, LabelledBatch):
            return F.cross_entropy(self.label_logits(batch.ids, batch.segments), batch.labels)
        x = self(batch.ids, batch.segments)
        hidden = F.embedding(batch.places, x.reshape(-1, self.config.n_embd))  # rows, looked up by number: (N, C)
        loss = F.cross_entropy(self.words(hidden), batch.targets)
        if batch.follows is None:
            return loss
        logits = self.next_head(self.pooled(x, batch.ids))
        return loss + F.cross_entropy(logits, batch.follows) * batch.follows_share

    def flops_per_token(self) -> int:
        """Floating-point operations of the matrix products that training on one token takes.

        Attention reads all T keys, and the head for words sees only the hidden positions.
        """
        forward = attention_flops(self.config)
        if self.config.objective == "words":
            forward -= round((1 - MASK_SHARE) * (linear_flops(self.transform) + linear_flops(self.lm_head)))
        return training_flops(self, forward)


def mean_of_text(x: Tensor, ids: Tensor, pad: int) -> Tensor:
    """The mean of the vectors of a sequence, padding left out: (B, T, C), (B, T) -> (B, C)."""
    is_text = (ids != pad).cast(x.dtype).reshape(*ids.shape, 1)
    return (x * is_text).sum(axis=1) / is_text.sum(axis=1)


def without_head(weights: Mapping[str, np.ndarray], config: BertConfig) -> dict[str, np.ndarray]:
    """The weights for a model with these settings: those of a trained one, and random ones for a head that it lacks.

    So a model that has learned to predict words begins to learn labels. What is no longer needed is left out.
    """
    fresh = Bert(config).state_dict() if config.objective == "labels" else {}
    found = {**fresh, **weights}
    return {name: found[name] for name, _ in Bert.blueprint(config).named_parameters() if name in found}
