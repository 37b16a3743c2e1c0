"""The encoders in PyTorch: the models of the presets `bert-goethe` and `vit-fashion`, with the weights of ours.

Queries, keys and values have a matrix each, because Muon treats each matrix by itself (see `torch_modern.py`). Patches
are cut by a reshape; a convolution over the picture, which computes the same, takes longer on a CPU.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.torch_gpt import with_weights
from encoder.bert import Bert
from encoder.config import BertConfig
from encoder.vit import ViT, ViTConfig

BERT_PARTS = {"norm_first": True, "activation": "gelu", "objective": "words", "next_sentence": False}
VIT_PARTS = {"positions": "2d", "pooling": "mean"}


class EncoderBlock(nn.Module):
    """One pre-norm layer: x + attention(norm(x)), then x + feed-forward(norm(x)); attention sees both sides."""

    def __init__(self, config: BertConfig | ViTConfig) -> None:
        super().__init__()
        c, eps = config.n_embd, config.norm_eps
        self.n_head, self.dropout = config.n_head, config.dropout
        self.mixer_norm = nn.LayerNorm(c, eps)
        self.query = nn.Linear(c, c)
        self.key = nn.Linear(c, c)
        self.value = nn.Linear(c, c)
        self.output = nn.Linear(c, c)
        self.mlp_norm = nn.LayerNorm(c, eps)
        self.up = nn.Linear(c, config.n_hidden)
        self.down = nn.Linear(config.n_hidden, c)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """(B, T, C) -> (B, T, C); mask (B, 1, 1, T) is True where there is text."""
        b, t, c = x.shape
        p = self.dropout if self.training else 0.0
        h = self.mixer_norm(x)
        q, k, v = (
            part(h).view(b, t, self.n_head, c // self.n_head).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        heads = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=p)
        x = x + F.dropout(self.output(heads.transpose(1, 2).reshape(b, t, c)), p)
        return x + F.dropout(self.down(F.gelu(self.up(self.mlp_norm(x)))), p)


class TorchBert(nn.Module):
    """An encoder that predicts hidden words, like `encoder.bert.Bert` with the settings `BERT_PARTS`."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        check(config, BERT_PARTS)
        self.config, c = config, config.n_embd
        self.token_embedding = nn.Embedding(config.vocab_size, c)
        self.position_embedding = nn.Embedding(config.block_size, c)
        self.segment_embedding = nn.Embedding(config.segments, c)
        self.blocks = nn.ModuleList(EncoderBlock(config) for _ in range(config.n_layer))
        self.final_norm = nn.LayerNorm(c, config.norm_eps)
        self.transform = nn.Linear(c, c)
        self.transform_norm = nn.LayerNorm(c, config.norm_eps)
        self.lm_head = nn.Linear(c, config.vocab_size)
        self.lm_head.weight = self.token_embedding.weight

    def loss(
        self, ids: torch.Tensor, segments: torch.Tensor, places: torch.Tensor, targets: torch.Tensor
    ) -> torch.Tensor:
        """Mean nats per hidden token; the arguments are the parts of a `MaskedBatch`."""
        x = (
            self.token_embedding(ids)
            + self.position_embedding.weight[: ids.shape[1]]
            + self.segment_embedding(segments)
        )
        x = F.dropout(x, self.config.dropout, self.training)
        is_text = ids != self.config.pad
        mask = None if is_text.all() else is_text[:, None, None, :]  # attention without a mask is faster
        for block in self.blocks:
            x = block(x, mask)
        hidden = self.final_norm(x).flatten(0, 1)[places]  # (N, C)
        return F.cross_entropy(self.lm_head(self.transform_norm(F.gelu(self.transform(hidden)))), targets)


class TorchViT(nn.Module):
    """A Vision Transformer like `encoder.vit.ViT` with the settings `VIT_PARTS`."""

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
    """Raise ValueError if a setting is not that of the PyTorch model."""
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
