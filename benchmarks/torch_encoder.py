"""The encoders in PyTorch: the models of the presets `bert-goethe` and `vit-fashion`, with the weights of ours.

Queries, keys and values have a matrix each, because Muon treats each matrix separately (see `torch_modern.py`). Patches
are cut by a reshape; a convolution over the picture, which computes the same, takes longer on a CPU.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.torch_gpt import with_weights
from benchmarks.torch_modern import turn
from extra.encoders.bert import Bert
from extra.encoders.config import BertConfig
from extra.encoders.vit import ViT, ViTConfig
from tinygrad_lite.transformer import rotary_frequencies

BERT_PARTS = {"norm_first": False, "positions": "rotary", "activation": "gelu", "objective": "words"}
BERT_PARTS |= {"next_sentence": False}
Turned = tuple[torch.Tensor, torch.Tensor]
VIT_PARTS = {"positions": "2d", "pooling": "mean"}


class EncoderBlock(nn.Module):
    """Attention that sees both sides, then a feed-forward part; the norm is before each (ViT) or after it (BERT)."""

    def __init__(self, config: BertConfig | ViTConfig) -> None:
        super().__init__()
        c, eps = config.n_embd, config.norm_eps
        self.n_head, self.dropout = config.n_head, config.dropout
        self.norm_first = isinstance(config, ViTConfig)
        self.mixer_norm = nn.LayerNorm(c, eps)
        self.query = nn.Linear(c, c)
        self.key = nn.Linear(c, c)
        self.value = nn.Linear(c, c)
        self.output = nn.Linear(c, c)
        self.mlp_norm = nn.LayerNorm(c, eps)
        self.up = nn.Linear(c, config.n_hidden)
        self.down = nn.Linear(config.n_hidden, c)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None, turned: Turned | None = None) -> torch.Tensor:
        """(B, T, C) -> (B, T, C).

        Args:
            mask: (B, 1, 1, T), True where there is text.
            turned: cos and sin (T, 1, D/2) of the angles by which queries and keys are rotated.
        """
        if self.norm_first:
            x = x + self.mix(self.mixer_norm(x), mask, turned)
            return x + self.feed_forward(self.mlp_norm(x))
        x = self.mixer_norm(x + self.mix(x, mask, turned))
        return self.mlp_norm(x + self.feed_forward(x))

    def mix(self, x: torch.Tensor, mask: torch.Tensor | None, turned: Turned | None) -> torch.Tensor:
        """Self-attention."""
        b, t, c = x.shape
        p = self.dropout if self.training else 0.0
        q, k, v = (part(x).view(b, t, self.n_head, c // self.n_head) for part in (self.query, self.key, self.value))
        if turned:
            q, k = turn(q, *turned), turn(k, *turned)
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        heads = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=p)
        return F.dropout(self.output(heads.transpose(1, 2).reshape(b, t, c)), p)

    def feed_forward(self, x: torch.Tensor) -> torch.Tensor:
        """Two linear maps with GELU in between."""
        return F.dropout(self.down(F.gelu(self.up(x))), self.dropout if self.training else 0.0)


class TorchBert(nn.Module):
    """An encoder that predicts hidden words, like `extra.encoders.bert.Bert` with the settings `BERT_PARTS`."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        check(config, BERT_PARTS)
        self.config, c = config, config.n_embd
        self.token_embedding = nn.Embedding(config.vocab_size, c)
        self.segment_embedding = nn.Embedding(config.segments, c)
        self.embedding_norm = nn.LayerNorm(c, config.norm_eps)
        self.blocks = nn.ModuleList(EncoderBlock(config) for _ in range(config.n_layer))
        angles = torch.tensor(np.outer(np.arange(config.block_size), rotary_frequencies(config.head_width)))
        self.register_buffer("cos", angles.cos()[:, None], persistent=False)
        self.register_buffer("sin", angles.sin()[:, None], persistent=False)
        self.transform = nn.Linear(c, c)
        self.transform_norm = nn.LayerNorm(c, config.norm_eps)
        self.lm_head = nn.Linear(c, config.vocab_size)
        self.lm_head.weight = self.token_embedding.weight

    def loss(
        self, ids: torch.Tensor, segments: torch.Tensor, places: torch.Tensor, targets: torch.Tensor
    ) -> torch.Tensor:
        """Mean nats per hidden token; the arguments are the parts of a `MaskedBatch`."""
        x = self.embedding_norm(self.token_embedding(ids) + self.segment_embedding(segments))
        x = F.dropout(x, self.config.dropout, self.training)
        turned = self.cos[: ids.shape[1]], self.sin[: ids.shape[1]]
        is_text = ids != self.config.pad
        mask = None if is_text.all() else is_text[:, None, None, :]  # attention without a mask is faster
        for block in self.blocks:
            x = block(x, mask, turned)
        hidden = x.flatten(0, 1)[places]  # (N, C)
        return F.cross_entropy(self.lm_head(self.transform_norm(F.gelu(self.transform(hidden)))), targets)


class TorchViT(nn.Module):
    """A Vision Transformer like `extra.encoders.vit.ViT` with the settings `VIT_PARTS`."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        check(config, VIT_PARTS)
        self.config, c = config, config.n_embd
        self.patch_embedding = nn.Linear(config.channels * config.patch_size**2, c)
        self.row_embedding = nn.Embedding(config.rows, c)
        self.column_embedding = nn.Embedding(config.rows, c)
        self.blocks = nn.ModuleList(EncoderBlock(config) for _ in range(config.n_layer))
        self.final_norm = nn.LayerNorm(c, config.norm_eps)
        self.head = nn.Linear(c, config.vocab_size)

    def loss(self, pictures: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Mean nats per picture: (B, H, W, channels), (B,) -> ()."""
        rows, size, channels = self.config.rows, self.config.patch_size, self.config.channels
        cut = pictures.view(-1, rows, size, rows, size, channels).permute(0, 1, 3, 5, 2, 4)
        x = self.patch_embedding(cut.reshape(-1, rows * rows, channels * size * size))  # (B, N, C)
        x = x + (self.row_embedding.weight[:, None] + self.column_embedding.weight).flatten(0, 1)
        x = F.dropout(x, self.config.dropout, self.training)
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.final_norm(x).mean(1)), labels)


def check(config: BertConfig | ViTConfig, parts: dict[str, object]) -> None:
    """Raise ValueError if a setting differs from the PyTorch model's."""
    for name, value in parts.items():
        if getattr(config, name) != value:
            raise ValueError(f"the PyTorch model supports only {name} {value}, not {getattr(config, name)}")


def our_names(model: Bert | ViT) -> dict[str, tuple[str, ...]]:
    """Each parameter of the PyTorch model, and the name of ours."""
    names = {name.replace("mixer.", "").replace("mlp.", ""): (name,) for name, _ in model.named_parameters()}
    return names | ({"lm_head.weight": ("token_embedding.weight",)} if isinstance(model, Bert) else {})


def from_ours(model: Bert | ViT) -> TorchBert | TorchViT:
    """The PyTorch counterpart of one of our models, with the same weights and dtype."""
    torch_model = (TorchBert if isinstance(model, Bert) else TorchViT)(model.config)
    return with_weights(torch_model, model, our_names(model))
