"""The translation model around PyTorch's own `nn.Transformer`, with the weights of ours.

`nn.Transformer` is the encoder and the decoder; embedding, positions and tied head are added around it, as in
`seq2seq/model.py`. Its feed-forward part has one more dropout than ours, between the two maps, which is removed.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.torch_gpt import with_weights
from seq2seq.config import Seq2SeqConfig
from seq2seq.model import Seq2Seq
from tinygrad_lite.transformer import sinusoidal_positions

# nn.Transformer offers a choice of the norms' position and of the activation, but of no other part.
PARTS: dict[str, object] = {
    "positions": "sinusoidal",
    "norm": "layernorm",
    "norm_eps": 1e-5,
    "qk_norm": False,
    "attention_scale": None,
}


class TorchSeq2Seq(nn.Module):
    """An encoder-decoder with one embedding for source, target and output, and sinusoidal positions."""

    def __init__(self, config: Seq2SeqConfig) -> None:
        super().__init__()
        for name, value in PARTS.items():
            if getattr(config, name) != value:
                raise ValueError(f"the PyTorch model supports only {name} {value}, not {getattr(config, name)}")
        self.config = config
        width, bias = config.n_embd, config.bias
        settings = {"dropout": config.dropout, "activation": config.activation, "bias": bias}
        settings |= {"batch_first": True, "norm_first": config.norm_first}
        # Both stacks are made by hand: by itself, nn.Transformer warns that its fast path for padding is for post-norm,
        # and ends the stacks with a norm even where every layer ends with one.
        sizes = (width, config.n_head, config.n_hidden)
        norms = [nn.LayerNorm(width, bias=bias) if config.norm_first else None for _ in range(2)]
        layer = nn.TransformerEncoderLayer(*sizes, **settings)
        encoder = nn.TransformerEncoder(layer, config.n_layer, norms[0], enable_nested_tensor=False)
        decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(*sizes, **settings), config.n_layer, norms[1])
        stacks = {"custom_encoder": encoder, "custom_decoder": decoder}
        self.transformer = nn.Transformer(width, config.n_head, **stacks, **settings)
        for layer in (*self.transformer.encoder.layers, *self.transformer.decoder.layers):
            layer.dropout = nn.Identity()
        self.token_embedding = nn.Embedding(config.vocab_size, width)
        positions = torch.tensor(sinusoidal_positions(config.block_size, width))
        self.register_buffer("positions", positions, persistent=False)

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        """(B, T) integers -> (B, T, C)."""
        x = self.token_embedding(ids) * math.sqrt(self.config.n_embd) + self.positions[: ids.shape[1]]
        return F.dropout(x, self.config.dropout, self.training)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """(B, S), (B, T) integers -> logits (B, T, V)."""
        padding = source == self.config.pad
        causal = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool, device=target.device).triu(1)
        x = self.transformer(
            self.embed(source),
            self.embed(target),
            tgt_mask=causal,
            tgt_is_causal=True,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )
        return F.linear(x, self.token_embedding.weight)

    def loss(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Mean nats per target token, smoothed in training; target (B, T + 1) from <bos> to <eos>."""
        logits, wanted = self(source, target[:, :-1]).flatten(0, 1), target[:, 1:].flatten()
        smoothing = self.config.label_smoothing if self.training else 0.0
        return F.cross_entropy(logits, wanted, ignore_index=self.config.pad, label_smoothing=smoothing)


def our_names(config: Seq2SeqConfig) -> dict[str, tuple[str, ...]]:
    """Each parameter of the PyTorch model, and the names of ours that make it up.

    PyTorch packs queries, keys and values into one parameter.
    """
    names = {"token_embedding.weight": ("token_embedding.weight",)}
    for kind in ("weight", "bias") if config.bias else ("weight",):
        for stack in ("encoder", "decoder"):
            if config.norm_first:
                names[f"transformer.{stack}.norm.{kind}"] = (f"{stack}_norm.{kind}",)
            for i in range(config.n_layer):
                theirs, ours = f"transformer.{stack}.layers.{i}", f"{stack}.{i}"
                attentions, norms = {"self_attn": "mixer"}, ("mixer_norm", "mlp_norm")
                if stack == "decoder":
                    attentions["multihead_attn"], norms = "cross", ("mixer_norm", "cross_norm", "mlp_norm")
                for their_part, part in attentions.items():
                    packed = tuple(f"{ours}.{part}.{name}.{kind}" for name in ("query", "key", "value"))
                    names[f"{theirs}.{their_part}.in_proj_{kind}"] = packed
                    names[f"{theirs}.{their_part}.out_proj.{kind}"] = (f"{ours}.{part}.output.{kind}",)
                for number, part in enumerate(("up", "down"), start=1):
                    names[f"{theirs}.linear{number}.{kind}"] = (f"{ours}.mlp.{part}.{kind}",)
                for number, part in enumerate(norms, start=1):
                    names[f"{theirs}.norm{number}.{kind}"] = (f"{ours}.{part}.{kind}",)
    return names


def from_ours(model: Seq2Seq) -> TorchSeq2Seq:
    """The PyTorch counterpart of one of our models, with the same weights and dtype."""
    return with_weights(TorchSeq2Seq(model.config), model, our_names(model.config))
