"""The layers, under torch.nn's names."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tinygrad_lite import functional as F
from tinygrad_lite.functional.conv import Pair, conv2d, pair
from tinygrad_lite.functional.linear import linears
from tinygrad_lite.nn.module import Module, Parameter
from tinygrad_lite.random import next_rng
from tinygrad_lite.tensor import Tensor, respelled


class Linear(Module):
    """y = x W^T + b. Initialised as in torch: uniform in +-1/sqrt(in_features)."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True, *more, **names) -> None:
        respelled(Linear.__init__, more, names)
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter.create((out_features, in_features), uniform(in_features))
        self.bias = Parameter.create((out_features,), uniform(in_features)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """x (..., in) -> (..., out)."""
        return F.linear(x, self.weight, self.bias)


def linear_maps(x: Tensor, maps: Sequence[Module]) -> list[Tensor]:
    """[f(x) for f in maps]; on a GPU in one product, if all are `Linear`, which saves time if they are small."""
    if not all(map(is_plain, maps)):
        return [f(x) for f in maps]
    return linears(x, [f.weight for f in maps], [f.bias for f in maps])


def is_plain(f: Module) -> bool:
    """Whether a module is a `Linear` and nothing more: not an adapter, for example, nor `recorded`."""
    return type(f) is Linear and "forward" not in vars(f)


def uniform(count: int) -> Callable[[tuple[int, ...]], np.ndarray]:
    """Initial values for a layer whose results are sums over N inputs: uniform in +-1/sqrt(N)."""
    bound = 1 / math.sqrt(max(count, 1))
    return lambda shape: next_rng("init").uniform(-bound, bound, shape).astype(np.float32)


class Conv2d(Module):
    """Filters of k x l pixels, applied at every position in a picture. Initialised as in torch, like Linear.

    Each result is a sum over in_channels / groups * k * l inputs. `stride` to `groups` are those of
    `functional.conv2d`, in torch's order.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Pair,
        stride: int | Pair = 1,
        padding: int | Pair = 0,
        dilation: int | Pair = 1,
        groups: int = 1,
        bias: bool = True,
        **names,
    ) -> None:
        respelled(Conv2d.__init__, (), names)
        if in_channels % groups or out_channels % groups:
            raise ValueError(f"Conv2d: groups={groups} must divide {in_channels=} and {out_channels=}")
        shape = (out_channels, in_channels // groups, *pair("Conv2d", "kernel_size", kernel_size, 1))
        values = uniform(math.prod(shape[1:]))
        self.weight = Parameter.create(shape, values)
        self.bias = Parameter.create(shape[:1], values) if bias else None
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups

    def forward(self, x: Tensor) -> Tensor:
        """x (B, C, H, W) -> (B, C_out, H', W')."""
        settings = {"stride": self.stride, "padding": self.padding, "dilation": self.dilation, "groups": self.groups}
        return conv2d(x, self.weight, self.bias, **settings)


class Embedding(Module):
    """A table of V vectors of width C, looked up by token. Initialised as in torch: normal, deviation 1."""

    def __init__(self, num_embeddings: int, embedding_dim: int, *more, **names) -> None:
        respelled(Embedding.__init__, more, names)
        self.weight = Parameter.create(
            (num_embeddings, embedding_dim), lambda shape: next_rng("init").standard_normal(shape, np.float32)
        )

    def forward(self, ids: Tensor) -> Tensor:
        """Integers (...) -> (..., C)."""
        return F.embedding(ids, self.weight)


class LayerNorm(Module):
    """Layer normalisation over the last axis of width C, with a learned gain and, optionally, a learned shift."""

    def __init__(self, width: int, *more, bias: bool = True, eps: float = 1e-5, **names) -> None:
        respelled(LayerNorm.__init__, more, names)
        self.weight = Parameter.create((width,), lambda shape: np.ones(shape, np.float32))
        self.bias = Parameter.create((width,), lambda shape: np.zeros(shape, np.float32)) if bias else None
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """x (..., C) -> (..., C)."""
        return F.layer_norm(x, weight=self.weight, bias=self.bias, eps=self.eps)


class RMSNorm(Module):
    """Each vector of width C divided by its root mean square; then, unless weight=False, a learned gain."""

    def __init__(self, width: int, *more, weight: bool = True, eps: float = 1e-5, **names) -> None:
        respelled(RMSNorm.__init__, more, names)
        self.weight = Parameter.create((width,), lambda shape: np.ones(shape, np.float32)) if weight else None
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, weight=self.weight, eps=self.eps)


class Dropout(Module):
    """Dropout with probability p while training; nothing after `eval()`."""

    def __init__(self, p: float = 0.5, *more, **names) -> None:
        respelled(Dropout.__init__, more, names)
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """x, with elements dropped in training."""
        return F.dropout(x, self.p) if self.training and self.p else x


class Identity(Module):
    """Returns its input: takes the place of a part that is left out."""

    def forward(self, x: Tensor) -> Tensor:
        return x


class Sequential(Module):
    """Modules or functions that are called one after the other, each with the result of the previous one."""

    def __init__(self, *modules: Module | Callable[[Tensor], Tensor]) -> None:
        vars(self).update({str(number): module for number, module in enumerate(modules)})  # torch's names

    def forward(self, x: Tensor) -> Tensor:
        for module in self:
            x = module(x)
        return x

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __iter__(self) -> Iterator[Any]:
        return iter([part for name, part in vars(self).items() if name.isdigit()])

    def __getitem__(self, index: int | slice) -> Any:
        """One of its modules, or a `Sequential` of some of them, which stay the same objects."""
        parts = [*self][index]
        return Sequential(*parts) if isinstance(index, slice) else parts


class ModuleList(list):
    """torch's list of modules; a plain list does the same."""


class ParameterList(list):
    """torch's list of parameters; a plain list does the same."""


class ModuleDict(dict):
    """torch's dict of modules; a plain dict does the same."""
