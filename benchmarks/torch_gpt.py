"""The same GPT written in PyTorch: to check every gradient, and as the baseline of the timings.

It is the model of `gpt/model.py` in PyTorch's own idiom, with the parts of GPT-2 or of the preset `goethe`. `from_ours`
copies the weights by name, so both can start from the same point and train on the same batches.
"""

import functools
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from extra.gpt.config import GPTConfig
from gpt.model import GPT
from tinygrad_lite.config import ModelConfig
from tinygrad_lite.nn import Module
from tinygrad_lite.transformer import rotary_frequencies, sinusoidal_positions

ACTIVATIONS = {
    "gelu": F.gelu,
    "gelu_tanh": functools.partial(F.gelu, approximate="tanh"),
    "relu2": lambda x: F.relu(x).square(),
}
# The settings of which this model has only one version.
PARTS = {"mixer": "attention", "tie_weights": True, "n_kv_head": None, "head_dim": None, "window": None}
PARTS |= {"norm_first": True, "residual": True, "rope_scaling": None, "rope_theta": 10000.0}
Turned = tuple[torch.Tensor, torch.Tensor]


def norm_of(config: ModelConfig) -> nn.Module:
    """A norm of vectors with C numbers."""
    if config.norm == "rmsnorm":
        return nn.RMSNorm(config.n_embd, config.norm_eps, elementwise_affine=config.norm_weight)
    return nn.LayerNorm(config.n_embd, config.norm_eps, bias=config.bias)


class TorchBlock(nn.Module):
    """One layer: attention, then a feed-forward part; the norm is before each, or after it (BERT).

    Muon treats each matrix separately, so for it queries, keys and values have one each. AdamW does not care, and one
    product with all three is faster.
    """

    def __init__(self, config: ModelConfig, packed: bool = False, is_causal: bool = False) -> None:
        super().__init__()
        c, self.config, self.is_causal = config.n_embd, config, is_causal
        self.mixer_norm, self.mlp_norm = norm_of(config), norm_of(config)
        for name in ("qkv",) if packed else ("query", "key", "value"):
            setattr(self, name, nn.Linear(c, 3 * c if packed else c, bias=config.bias))
        self.packed = packed
        self.output = nn.Linear(c, c, bias=config.bias)
        self.up = nn.Linear(c, config.n_hidden, bias=config.bias)
        self.down = nn.Linear(config.n_hidden, c, bias=config.bias)
        self.activation = ACTIVATIONS[config.activation]

    def forward(self, x: torch.Tensor, turned: Turned | None = None, mask: torch.Tensor | None = None) -> torch.Tensor:
        """(B, T, C) -> (B, T, C).

        Args:
            turned: cos and sin (T, 1, D/2) of the angles by which queries and keys are rotated.
            mask: (B, 1, 1, T), True where there is text.
        """
        if self.config.norm_first:
            x = x + self.mix(self.mixer_norm(x), turned, mask)
            return x + self.feed_forward(self.mlp_norm(x))
        x = self.mixer_norm(x + self.mix(x, turned, mask))
        return self.mlp_norm(x + self.feed_forward(x))

    def mix(self, x: torch.Tensor, turned: Turned | None, mask: torch.Tensor | None) -> torch.Tensor:
        """Self-attention."""
        (b, t, c), config = x.shape, self.config
        parts = self.qkv(x).split(c, dim=2) if self.packed else (self.query(x), self.key(x), self.value(x))
        q, k, v = (part.view(b, t, config.n_head, c // config.n_head) for part in parts)
        if config.qk_norm:
            q, k = (F.rms_norm(part, part.shape[-1:], eps=config.norm_eps) for part in (q, k))
        if turned:
            q, k = turn(q, *turned), turn(k, *turned)
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        p, scale = config.dropout if self.training else 0.0, config.attention_scale
        heads = F.scaled_dot_product_attention(q, k, v, mask, p, self.is_causal, scale=scale)
        return F.dropout(self.output(heads.transpose(1, 2).reshape(b, t, c)), p)

    def feed_forward(self, x: torch.Tensor) -> torch.Tensor:
        """Two linear maps with the activation in between."""
        return F.dropout(self.down(self.activation(self.up(x))), self.config.dropout if self.training else 0.0)


def turn(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary positions: the pairs (x_i, x_(i + D/2)) of (B, T, H, D), rotated."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


class Rotary(nn.Module):
    """The angles of rotary positions."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        angles = torch.tensor(np.outer(np.arange(config.block_size), rotary_frequencies(config.head_width)))
        self.register_buffer("cos", angles.cos()[:, None], persistent=False)
        self.register_buffer("sin", angles.sin()[:, None], persistent=False)

    def forward(self, length: int) -> Turned:
        """cos and sin (T, 1, D/2) of the first positions."""
        return self.cos[:length], self.sin[:length]


class TorchGPT(nn.Module):
    """A decoder-only Transformer with a tied head, like `gpt.model.GPT`."""

    def __init__(self, config: GPTConfig, packed: bool = True) -> None:
        super().__init__()
        check(config, PARTS)
        self.config = config
        self.token_embedding = nn.Embedding(config.vocab_size, config.n_embd)
        if config.positions == "learned":
            self.position_embedding = nn.Embedding(config.block_size, config.n_embd)
        self.rotary = Rotary(config) if config.positions == "rotary" else None
        self.blocks = nn.ModuleList(TorchBlock(config, packed, is_causal=True) for _ in range(config.n_layer))
        self.final_norm = norm_of(config)

    def hidden(self, ids: torch.Tensor) -> torch.Tensor:
        """The input of the head: (B, T) integers -> (B, T, C)."""
        t, c = ids.shape[1], self.config.n_embd
        x = self.token_embedding(ids)
        if self.config.positions == "learned":
            x = x + self.position_embedding.weight[:t]
        elif self.config.positions == "sinusoidal":
            x = x * math.sqrt(c) + torch.tensor(sinusoidal_positions(t, c)).to(x)
        turned = self.rotary(t) if self.rotary else None
        x = F.dropout(x, self.config.dropout, self.training)
        for block in self.blocks:
            x = block(x, turned)
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


def check(config: ModelConfig, parts: dict[str, object]) -> None:
    """Raise ValueError if a setting differs from the PyTorch model's."""
    for name, value in parts.items():
        if getattr(config, name) != value:
            raise ValueError(f"the PyTorch model supports only {name} {value}, not {getattr(config, name)}")


def our_names(torch_model: nn.Module, model: Module) -> dict[str, tuple[str, ...]]:
    """Each parameter of the PyTorch model, and the names of ours that make it up.

    Queries, keys and values may be packed into one parameter.
    """
    ours = {name.replace("mixer.", "").replace("mlp.", ""): name for name, _ in model.named_parameters()}
    return {
        name: tuple(ours[name.replace("qkv", part)] for part in (("query", "key", "value") if "qkv" in name else ("",)))
        for name, _ in torch_model.named_parameters()
    }


def with_weights(torch_model: nn.Module, model: Module, names: dict[str, tuple[str, ...]]) -> nn.Module:
    """The PyTorch model with the weights and dtype of our model, whose parameters `names` maps to its."""
    state = model.state_dict()
    torch_model = torch_model.to(torch.tensor(next(iter(state.values()))).dtype)
    with torch.no_grad():
        for name, parameter in torch_model.named_parameters():
            parameter.copy_(torch.cat([torch.tensor(state[ours]) for ours in names[name]]))
    return torch_model


def from_ours(model: GPT, packed: bool = True) -> TorchGPT:
    """The PyTorch counterpart of one of our models, with the same weights and dtype."""
    torch_model = TorchGPT(model.config, packed)
    return with_weights(torch_model, model, our_names(torch_model, model))
