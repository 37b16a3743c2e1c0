"""The translation model around PyTorch's own `nn.Transformer`, with the weights of ours.

`nn.Transformer` is the encoder and the decoder; embedding, positions and tied head are added around it, as in
`seq2seq/model.py`. Its feed-forward part has one more dropout than ours, between the two maps, which is removed.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.torch_gpt import check, with_weights
from extra.seq2seq.config import Seq2SeqConfig
from seq2seq.model import Seq2Seq
from tinygrad_lite.transformer import sinusoidal_positions

# nn.Transformer offers a choice of the norms' position and of the activation, but of no other part.
PARTS = {"positions": "sinusoidal", "norm": "layernorm", "norm_eps": 1e-5, "qk_norm": False, "attention_scale": None}
PACKED = "in_proj_"
OURS = {  # parts of the names in nn.Transformer, and of ours
    "transformer.": "",
    "layers.": "",
    "coder.norm.": "coder_norm.",
    "self_attn": "mixer",
    "multihead_attn": "cross",
    "out_proj": "output",
    "linear1": "mlp.up",
    "linear2": "mlp.down",
    "norm1": "mixer_norm",
    "norm3": "mlp_norm",
}


class TorchSeq2Seq(nn.Module):
    """An encoder-decoder with one embedding for source, target and output, and sinusoidal positions."""

    def __init__(self, config: Seq2SeqConfig) -> None:
        super().__init__()
        check(config, PARTS)
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


def our_names(torch_model: TorchSeq2Seq) -> dict[str, tuple[str, ...]]:
    """Each parameter of the PyTorch model, and the names of ours that make it up.

    PyTorch packs queries, keys and values into one parameter.
    """
    names = {}
    for theirs, _ in torch_model.named_parameters():
        name = theirs.replace("norm2", "cross_norm" if "decoder" in theirs else "mlp_norm")
        for old, new in OURS.items():
            name = name.replace(old, new)
        parts = ("query", "key", "value") if PACKED in name else ("",)
        names[theirs] = tuple(name.replace(PACKED, f"{part}.") for part in parts)
    return names


def from_ours(model: Seq2Seq) -> TorchSeq2Seq:
    """The PyTorch counterpart of one of our models, with the same weights and dtype."""
    torch_model = TorchSeq2Seq(model.config)
    return with_weights(torch_model, model, our_names(torch_model))
