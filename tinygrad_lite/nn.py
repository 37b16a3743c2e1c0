"""Modules: what has parameters. The names are those of torch.nn.

A `Module` is any object whose attributes are parameters, other modules, or lists of modules. Walking through these
attributes in the order in which they were set gives every parameter a dotted name, such as `blocks.0.mlp.up.weight`;
checkpoints and optimizers go by these names.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tinygrad_lite import functional as F
from tinygrad_lite.device import get_device, next_rng
from tinygrad_lite.spelling import MODULES_INSTEAD, Listed, no_such_name, spelled, teach
from tinygrad_lite.tensor import Tensor


class Parameter(Tensor):
    """A tensor that is learned: a leaf that requires a gradient."""

    _is_parameter = True

    def __init__(self, data: Any, dtype: Any = None) -> None:
        super().__init__(data, dtype=dtype, requires_grad=True)


class Module(metaclass=Listed):
    """The base of everything that has parameters."""

    def __init__(self) -> None:
        self.training = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute; every module defines its own."""
        raise NotImplementedError(f"{type(self).__name__} has no forward()")

    def _parts(self) -> Iterator[tuple[str, Module]]:
        """The modules that are its attributes, or in lists that are."""
        for name, value in vars(self).items():
            numbered = enumerate(value) if isinstance(value, list) else [(None, value)]
            for number, part in numbered:
                if isinstance(part, Module):
                    yield name if number is None else f"{name}.{number}", part

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """This module and all inside it, with their dotted names."""
        yield prefix, self
        for path, part in self._parts():
            yield from part.named_modules(f"{prefix}.{path}" if prefix else path)

    def __repr__(self) -> str:
        """The parts as an indented tree, with the shapes of their parameters and how many numbers these have.

        >>> Linear(3, 2)
        Linear, 8 parameters: weight (2, 3), bias (2,)
        """
        return "\n".join(self._tree(set()))

    def _tree(self, seen: set[int]) -> list[str]:
        """A line on this module, then those on its parts; `seen` has the parameters of the lines before."""
        own = []
        for name, value in vars(self).items():
            if isinstance(value, Parameter):
                own.append(f"{name} {value.shape}{' tied' if id(value) in seen else ''}")
                seen.add(id(value))
        count = self.num_parameters()
        top = (
            type(self).__name__ + (f", {count:,} parameters" if count else "") + (": " + ", ".join(own) if own else "")
        )
        trees: list[list[Any]] = []  # the first and last name of neighbours that look alike, and their lines
        for path, part in self._parts():
            tree = part._tree(seen)
            if trees and tree == trees[-1][2] and path.rpartition(".")[0] == trees[-1][0].rpartition(".")[0] != "":
                trees[-1][1] = path
            else:
                trees.append([path, path, tree])
        lines = [top]
        for first, last, tree in trees:
            name = first if first == last else f"{first} to {last}, each"
            lines += [f"  {name}: {tree[0]}", *(f"  {line}" for line in tree[1:])]
        return lines

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """Each parameter once, with its name; a tied parameter goes by the first of its names."""
        seen: set[int] = set()
        for prefix, module in self.named_modules():
            for name, value in vars(module).items():
                if isinstance(value, Parameter) and id(value) not in seen:
                    seen.add(id(value))
                    yield (f"{prefix}.{name}" if prefix else name), value

    def parameters(self) -> list[Parameter]:
        """Each parameter once."""
        return [parameter for _, parameter in self.named_parameters()]

    def num_parameters(self) -> int:
        """How many numbers are learned, tied ones counted once."""
        return sum(parameter.numel() for parameter in self.parameters())

    def train(self, mode: bool = True) -> Module:
        """Switch to training (dropout works); `eval()` switches back."""
        for _, module in self.named_modules():
            module.training = mode
        return self

    def eval(self) -> Module:
        """Switch to using the model: dropout does nothing."""
        return self.train(False)

    def zero_grad(self) -> None:
        """Forget all gradients: `.grad` is None until the next backward pass."""
        for parameter in self.parameters():
            parameter.grad = None

    def to(self, device: str, dtype: Any = None) -> Module:
        """Move all parameters, with their gradients, to a device, and to another type if one is given."""
        for parameter in self.parameters():
            for tensor in [parameter] if parameter.grad is None else [parameter, parameter.grad]:
                tensor.data = tensor.detach().to(device).cast(dtype or tensor.dtype).data
        return self

    def state_dict(self) -> dict[str, np.ndarray]:
        """The values of all parameters by name, on the host; tied parameters once."""
        return {name: parameter.numpy() for name, parameter in self.named_parameters()}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Take over the values of all parameters; names and shapes must be exactly those of this module.

        Raises: ValueError that lists missing, unexpected and mis-shaped names; then nothing was changed.
        """
        own = dict(self.named_parameters())
        problems = []
        if missing := [name for name in own if name not in state]:
            problems.append(f"missing: {', '.join(missing)}")
        if unexpected := [name for name in state if name not in own]:
            problems.append(f"unexpected: {', '.join(unexpected)}")
        shapes = [
            f"{name} is {tuple(state[name].shape)}, the model has {parameter.shape}"
            for name, parameter in own.items()
            if name in state and tuple(state[name].shape) != parameter.shape
        ]
        if shapes:
            problems.append(f"mis-shaped: {', '.join(shapes)}")
        if problems:
            raise ValueError(f"the state does not fit {type(self).__name__}; {'; '.join(problems)}")
        for name, parameter in own.items():
            parameter.data[...] = get_device(parameter.device).from_host(np.ascontiguousarray(state[name]))
            parameter.mark_written()


teach(Module, {}, MODULES_INSTEAD)
Module.zero_grad = spelled(Module.zero_grad)


class Linear(Module):
    """y = x W^T + b. Starts as in torch: uniform in +-1/sqrt(in_features)."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        super().__init__()
        bound = 1 / math.sqrt(in_features)
        self.weight = Parameter(_uniform((out_features, in_features), bound))
        self.bias = Parameter(_uniform((out_features,), bound)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


class Embedding(Module):
    """A table of V vectors of width C, looked up by token. Starts normal with standard deviation 1, as in torch."""

    def __init__(self, num_embeddings: int, embedding_dim: int) -> None:
        super().__init__()
        self.weight = Parameter(next_rng("init").standard_normal((num_embeddings, embedding_dim), np.float32))

    def forward(self, ids: Tensor) -> Tensor:
        return F.embedding(self.weight, ids)


class LayerNorm(Module):
    """Layer normalisation over the last axis of width C, with a learned gain and, if asked for, a learned shift."""

    def __init__(self, width: int, bias: bool = True, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = Parameter(np.ones(width, np.float32))
        self.bias = Parameter(np.zeros(width, np.float32)) if bias else None
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.weight, self.bias, self.eps)


class Dropout(Module):
    """Dropout with probability p while training; nothing after `eval()`."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.p) if self.training and self.p else x


def __getattr__(name: str) -> Any:
    raise no_such_name(__name__, name, Tensor)


def _uniform(shape: tuple[int, ...], bound: float) -> np.ndarray:
    return next_rng("init").uniform(-bound, bound, shape).astype(np.float32)
