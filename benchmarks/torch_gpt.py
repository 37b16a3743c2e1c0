"""The same GPT written in PyTorch: to check every gradient, and as the baseline of the timings.

It is the model of `gpt/model.py` in PyTorch's own idiom. `from_ours` copies the weights by name, so both can start
from the same point and train on the same batches.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from extra.gpt.config import GPTConfig
from gpt.model import GPT
from tinygrad_lite.nn import Module
from tinygrad_lite.transformer import sinusoidal_positions


class TorchBlock(nn.Module):
    """One pre-norm layer: x + attention(norm(x)), then x + feed-forward(norm(x))."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        c, bias, eps = config.n_embd, config.bias, config.norm_eps
        self.n_head, self.dropout = config.n_head, config.dropout
        self.gelu = nn.GELU("tanh" if config.activation == "gelu_tanh" else "none")
        self.mixer_norm = nn.LayerNorm(c, eps, bias=bias)
        self.qkv = nn.Linear(c, 3 * c, bias=bias)
        self.output = nn.Linear(c, c, bias=bias)
        self.mlp_norm = nn.LayerNorm(c, eps, bias=bias)
        self.up = nn.Linear(c, config.n_hidden, bias=bias)
        self.down = nn.Linear(config.n_hidden, c, bias=bias)

    def forward(self, x: torch.Tensor, cache: TorchCache | None = None) -> torch.Tensor:
        """(B, T, C) -> (B, T, C); with a cache, x follows the positions in it."""
        b, t, c = x.shape
        p = self.dropout if self.training else 0.0
        q, k, v = (
            part.view(b, t, self.n_head, c // self.n_head).transpose(1, 2)
            for part in self.qkv(self.mixer_norm(x)).split(c, dim=2)
        )
        if cache is not None:
            k, v = cache.extend(k, v)
        # A single new token may attend to all cached positions.
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=cache is None or t > 1, dropout_p=p)
        x = x + F.dropout(self.output(heads.transpose(1, 2).reshape(b, t, c)), p)
        return x + F.dropout(self.down(self.gelu(self.up(self.mlp_norm(x)))), p)


class TorchCache:
    """The keys and values of the positions already seen, of one layer, in memory allocated once."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self.length = capacity, 0

    def extend(self, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Append (B, H, t, D) keys and values, and return all so far."""
        start, self.length = self.length, self.length + k.shape[2]
        if start == 0:
            self.both = k.new_empty(2, *k.shape[:2], self.capacity, k.shape[3])
        self.both[0, :, :, start : self.length] = k
        self.both[1, :, :, start : self.length] = v
        return tuple(self.both[:, :, :, : self.length])


class TorchGPT(nn.Module):
    """A decoder-only Transformer with a tied head, like `gpt.model.GPT`."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        self.token_embedding = nn.Embedding(config.vocab_size, config.n_embd)
        if config.positions == "learned":
            self.position_embedding = nn.Embedding(config.block_size, config.n_embd)
        self.blocks = nn.ModuleList(TorchBlock(config) for _ in range(config.n_layer))
        self.final_norm = nn.LayerNorm(config.n_embd, config.norm_eps, bias=config.bias)

    def hidden(self, ids: torch.Tensor, caches: list[TorchCache] | None = None) -> torch.Tensor:
        """The input of the head: (B, T) integers -> (B, T, C). With caches, the ids follow the tokens in them."""
        past, c = caches[0].length if caches else 0, self.config.n_embd
        end = past + ids.shape[1]
        x = self.token_embedding(ids)
        if self.config.positions == "learned":
            x = x + self.position_embedding.weight[past:end]
        else:
            x = x * math.sqrt(c) + torch.tensor(sinusoidal_positions(end, c)[past:]).to(x)
        x = F.dropout(x, self.config.dropout if self.training else 0.0)
        for number, block in enumerate(self.blocks):
            x = block(x, caches[number] if caches else None)
        return self.final_norm(x)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """(B, T) integers -> logits (B, T, V)."""
        return F.linear(self.hidden(ids), self.token_embedding.weight)

    def loss(self, ids: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Mean nats per target token."""
        return F.cross_entropy(self(ids).flatten(0, 1), targets.flatten())

    @torch.no_grad()
    def generate(self, ids: torch.Tensor, new_tokens: int) -> torch.Tensor:
        """Greedily append tokens to ids (B, n) as nanoGPT's sample.py does: without a cache.

        For each token the whole text is read again, but logits are computed only for its last position.
        """
        for _ in range(new_tokens):
            x = self.hidden(ids[:, -self.config.block_size :])
            logits = F.linear(x[:, -1], self.token_embedding.weight)
            ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], dim=1)
        return ids


def our_names(config: GPTConfig) -> dict[str, tuple[str, ...]]:
    """Each parameter of the PyTorch model, and the names of ours that make it up.

    PyTorch packs queries, keys and values into one parameter.
    """
    kinds = ("weight", "bias") if config.bias else ("weight",)
    names = {"token_embedding.weight": ("token_embedding.weight",)}
    if config.positions == "learned":
        names["position_embedding.weight"] = ("position_embedding.weight",)
    for kind in kinds:
        names[f"final_norm.{kind}"] = (f"final_norm.{kind}",)
        for i in range(config.n_layer):
            block = f"blocks.{i}"
            names[f"{block}.qkv.{kind}"] = tuple(f"{block}.mixer.{n}.{kind}" for n in ("query", "key", "value"))
            names[f"{block}.output.{kind}"] = (f"{block}.mixer.output.{kind}",)
            for part in ("up", "down"):
                names[f"{block}.{part}.{kind}"] = (f"{block}.mlp.{part}.{kind}",)
            for part in ("mixer_norm", "mlp_norm"):
                names[f"{block}.{part}.{kind}"] = (f"{block}.{part}.{kind}",)
    return names


def with_weights(torch_model: nn.Module, model: Module, names: dict[str, tuple[str, ...]]) -> nn.Module:
    """The PyTorch model with the weights and dtype of our model, whose parameters `names` maps to its."""
    state = model.state_dict()
    packed = {name: torch.cat([torch.tensor(state[ours]) for ours in parts]) for name, parts in names.items()}
    torch_model = torch_model.to(next(iter(packed.values())).dtype)
    torch_model.load_state_dict(packed)
    return torch_model


def from_ours(model: GPT) -> TorchGPT:
    """The PyTorch counterpart of one of our models, with the same weights and dtype."""
    return with_weights(TorchGPT(model.config), model, our_names(model.config))
