"""A GPT with modern parts in PyTorch: the model of the preset `goethe`, and its optimizers.

RMS norm without weights, rotary positions, a norm of queries and keys, squared ReLU, no biases. Muon treats each matrix
separately, so queries, keys and values have one each: packed into one, as in `torch_gpt.py`, they would be updated
differently. (One product with all three, concatenated for it, is no faster.)
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any
from unittest import mock

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.torch_gpt import with_weights
from extra.gpt.config import GPTConfig
from gpt.model import GPT
from tinygrad_lite.optim.muon import EPS, ROUNDS
from training.options import TrainOptions

PARTS = {"norm": "rmsnorm", "norm_weight": False, "positions": "rotary", "qk_norm": True, "activation": "relu2"}
PARTS |= {"bias": False, "tie_weights": True}
PARTS |= {"n_kv_head": None, "head_dim": None}


class ModernBlock(nn.Module):
    """One pre-norm layer: x + attention(norm(x)), then x + feed-forward(norm(x))."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        c = config.n_embd
        self.n_head, self.dropout = config.n_head, config.dropout
        self.scale, self.eps = config.attention_scale, config.norm_eps
        self.query = nn.Linear(c, c, bias=False)
        self.key = nn.Linear(c, c, bias=False)
        self.value = nn.Linear(c, c, bias=False)
        self.output = nn.Linear(c, c, bias=False)
        self.up = nn.Linear(c, config.n_hidden, bias=False)
        self.down = nn.Linear(config.n_hidden, c, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """(B, T, C) -> (B, T, C); cos and sin (T, 1, D/2) rotate queries and keys."""
        b, t, c = x.shape
        p = self.dropout if self.training else 0.0
        h = F.rms_norm(x, (c,), eps=self.eps)
        q, k, v = (part(h).view(b, t, self.n_head, c // self.n_head) for part in (self.query, self.key, self.value))
        q, k = (turn(F.rms_norm(part, part.shape[-1:], eps=self.eps), cos, sin) for part in (q, k))
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=p, scale=self.scale)
        x = x + F.dropout(self.output(heads.transpose(1, 2).reshape(b, t, c)), p)
        h = self.up(F.rms_norm(x, (c,), eps=self.eps))
        return x + F.dropout(self.down(F.relu(h).square()), p)


def turn(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary positions: the pairs (x_i, x_(i + D/2)) of (B, T, H, D), rotated."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


class ModernGPT(nn.Module):
    """A decoder-only Transformer with a tied head, like `gpt.model.GPT` with the settings `PARTS`."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        for name, value in PARTS.items():
            if getattr(config, name) != value:
                raise ValueError(f"the PyTorch model supports only {name} {value}, not {getattr(config, name)}")
        self.config = config
        self.token_embedding = nn.Embedding(config.vocab_size, config.n_embd)
        self.blocks = nn.ModuleList(ModernBlock(config) for _ in range(config.n_layer))
        angles = torch.tensor(np.outer(np.arange(config.block_size), config.frequencies))
        self.register_buffer("cos", angles.cos()[:, None], persistent=False)
        self.register_buffer("sin", angles.sin()[:, None], persistent=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """(B, T) integers -> logits (B, T, V)."""
        cos, sin = self.cos[: ids.shape[1]], self.sin[: ids.shape[1]]
        x = F.dropout(self.token_embedding(ids), self.config.dropout, self.training)
        for block in self.blocks:
            x = block(x, cos, sin)
        x = F.rms_norm(x, x.shape[-1:], eps=self.config.norm_eps)
        return F.linear(x, self.token_embedding.weight)

    def loss(self, ids: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Mean nats per target token."""
        return F.cross_entropy(self(ids).flatten(0, 1), targets.flatten())


class MuonAndAdamW:
    """The optimizers of `--optimizer muon`: Muon for the matrices of the blocks, AdamW for the rest.

    Muon is PyTorch's, except for the polynomials of its rounds, which are ours (`orthogonal`): with its own, it would
    take five rounds instead of three. Its other defaults are ours too. PyTorch always orthogonalises in bfloat16: about
    as fast as float32, or faster, with AVX512-BF16, and many times slower without. The first update alone is not
    rounded, since after it the losses of both sides are compared. AdamW is the fused one: it is faster.
    """

    def __init__(self, options: TrainOptions, model: nn.Module) -> None:
        lr, decay = options.learning_rate, options.weight_decay
        muon = {"lr": options.muon_lr_factor * lr, "momentum": options.muon_momentum, "weight_decay": decay}
        adamw = {"lr": lr, "betas": (options.beta1, options.beta2), "fused": True}
        matrices = [p for p in model.blocks.parameters() if p.ndim == 2]
        chosen = set(matrices)
        rest = [p for p in model.parameters() if p not in chosen]
        self.both = torch.optim.Muon(matrices, **muon), torch.optim.AdamW(decay_groups(rest, decay), **adamw)
        self.is_rounded = False

    def zero_grad(self) -> None:
        """Remove all gradients."""
        for optimizer in self.both:
            optimizer.zero_grad()

    def step(self) -> None:
        """Update all weights."""
        rounds = functools.partial(orthogonal, is_rounded=self.is_rounded)
        with mock.patch("torch.optim._muon._zeropower_via_newtonschulz", rounds):
            for optimizer in self.both:
                optimizer.step()
        self.is_rounded = True


def orthogonal(matrix: torch.Tensor, *_: Any, is_rounded: bool = True) -> torch.Tensor:
    """What PyTorch's function of the same purpose computes, in the same way, with a polynomial for each round."""
    is_tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if is_tall else matrix
    x = x.bfloat16() if is_rounded else x
    x = x / x.norm().clamp(min=EPS)
    for a, b, c in ROUNDS:
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if is_tall else x


def decay_groups(parameters: Iterable[nn.Parameter], weight_decay: float) -> list[dict[str, Any]]:
    """nanoGPT's groups: parameters with two or more axes decay, the others do not."""
    parameters = list(parameters)
    return [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]


def our_names(model: GPT) -> dict[str, tuple[str, ...]]:
    """Each parameter of the PyTorch model, and the name of ours."""
    return {name.replace("mixer.", "").replace("mlp.", ""): (name,) for name, _ in model.named_parameters()}


def from_ours(model: GPT) -> ModernGPT:
    """The PyTorch counterpart of one of our models, with the same weights and dtype."""
    return with_weights(ModernGPT(model.config), model, our_names(model))
