"""The encoders in PyTorch: the models of the presets `bert-goethe` and `vit-fashion`, with the weights of ours.

Patches are cut by a reshape; a convolution over the picture, which computes the same, takes longer on a CPU.
"""

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.torch_gpt import Rotary, TorchBlock, check, our_names, with_weights
from extra.encoders.bert import Bert
from extra.encoders.config import BertConfig
from extra.encoders.vit import ViT, ViTConfig

BERT_PARTS = {"norm_first": False, "positions": "rotary", "objective": "words", "next_sentence": False}
VIT_PARTS = {"positions": "2d", "pooling": "mean"}


class TorchBert(nn.Module):
    """An encoder that predicts hidden words, like `extra.encoders.bert.Bert` with the settings `BERT_PARTS`."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        check(config, BERT_PARTS)
        self.config, c = config, config.n_embd
        self.token_embedding = nn.Embedding(config.vocab_size, c)
        self.segment_embedding = nn.Embedding(config.segments, c)
        self.embedding_norm = nn.LayerNorm(c, config.norm_eps)
        self.blocks = nn.ModuleList(TorchBlock(config) for _ in range(config.n_layer))
        self.rotary = Rotary(config)
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
        turned = self.rotary(ids.shape[1])
        is_text = ids != self.config.pad
        mask = None if is_text.all() else is_text[:, None, None, :]  # attention without a mask is faster
        for block in self.blocks:
            x = block(x, turned, mask)
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
        self.blocks = nn.ModuleList(TorchBlock(config) for _ in range(config.n_layer))
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


def from_ours(model: Bert | ViT) -> TorchBert | TorchViT:
    """The PyTorch counterpart of one of our models, with the same weights and dtype."""
    torch_model = (TorchBert if isinstance(model, Bert) else TorchViT)(model.config)
    return with_weights(torch_model, model, our_names(torch_model, model))
