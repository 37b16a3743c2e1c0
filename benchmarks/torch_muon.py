"""PyTorch's optimizers for `--optimizer muon`, with the updates of ours."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any
from unittest import mock

import torch
from torch import nn

from tinygrad_lite.optim.muon import EPS, ROUNDS
from training.options import TrainOptions


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
