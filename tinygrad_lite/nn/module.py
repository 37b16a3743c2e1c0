"""Modules: the objects that have parameters.

A `Module` is any object whose attributes are parameters, other modules, or lists, tuples and dicts of them. Walking
through these attributes in the order in which they were set gives every parameter a dotted name, such as
`blocks.0.mlp.up.weight`; checkpoints and optimizers use these names.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import NoneType
from typing import Any, NamedTuple, Self

import numpy as np

from tinygrad_lite.device import get_device, is_float
from tinygrad_lite.errors import CheckpointError, counted
from tinygrad_lite.tensor import Listed, Tensor, check_fits, respelled

_only_shapes = False


@contextmanager
def shapes_only() -> Iterator[None]:
    """Inside, parameters have shapes but no values, so that a model of any size can be examined without allocating it.

    >>> from tinygrad_lite.nn import Linear
    >>> with shapes_only():
    ...     Linear(1_000_000, 1_000_000).num_parameters()
    1000001000000
    """
    global _only_shapes
    before, _only_shapes = _only_shapes, True
    try:
        yield
    finally:
        _only_shapes = before


class Parameter(Tensor):
    """A trainable tensor: a leaf that requires a gradient."""

    _is_parameter = True

    def __init__(self, data: Any, *more, dtype: Any = None, requires_grad: bool = True, **names) -> None:
        respelled(Parameter.__init__, more, names)
        super().__init__(data.data if isinstance(data, Tensor) else data, dtype=dtype, requires_grad=requires_grad)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "data" and isinstance(value, Tensor):
            raise TypeError("parameter.data is an array: write p -= y under no_grad(), or p.data -= y.data")
        super().__setattr__(name, value)

    @classmethod
    def create(cls, shape: tuple[int, ...], values: Callable[[tuple[int, ...]], np.ndarray]) -> Parameter:
        """A parameter with the initial values(shape), which inside `shapes_only` are never computed."""
        if odd := [size for size in shape if not isinstance(size, (int, np.integer)) or size < 0]:
            raise TypeError(f"a width or another size is one whole number, not {odd[0]!r}")
        if not _only_shapes:
            return cls(values(shape))
        parameter = cls(0.0)
        parameter.data = np.broadcast_to(np.float32(0), shape)  # a single 0 in memory, broadcast to the shape
        return parameter

    def reset(self, values: Callable[[tuple[int, ...]], np.ndarray]) -> None:
        """Replace the values by values(shape); inside `shapes_only` there are none to replace."""
        if not _only_shapes:
            self.data[...] = get_device(self.device).from_host(values(self.shape))
            self.mark_written()


class Module(metaclass=Listed):
    """The base class of everything that has parameters.

    A subclass may call `super().__init__()`, as torch's must, but nothing depends on it.
    """

    training = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute; every module defines its own."""
        raise NotImplementedError(f"{type(self).__name__} has no forward()")

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(vars(self).get(name), Parameter) and not isinstance(value, (Parameter, NoneType)):
            what = f"{type(self).__name__}.{name} is a parameter, and a {type(value).__name__} would not be learned"
            raise TypeError(f"{what}: write {name}[...] = values under no_grad(), or {name} = Parameter(values)")
        super().__setattr__(name, value)

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Make a constant an attribute that moves with `to` and, if persistent, is saved in `state_dict`."""
        if tensor is not None and (not isinstance(tensor, Tensor) or tensor.requires_grad):
            raise TypeError(f"register_buffer: {name} must be a tensor that requires no gradient")
        vars(self).setdefault("_persistent", {})[name] = persistent
        setattr(self, name, tensor)

    def _held(self) -> Iterator[tuple[str, Module | Tensor]]:
        """The modules and tensors among its attributes, or in lists, tuples and dicts among them."""
        for name, value in vars(self).items():
            yield from _found(name, value)

    def named_modules(self, prefix: str = "", memo: set[int] | None = None) -> Iterator[tuple[str, Module]]:
        """This module and all inside it, each once, with their dotted names; `memo` holds those already visited."""
        memo = set() if memo is None else memo
        if id(self) not in memo:
            memo.add(id(self))
            yield prefix, self
            for path, part in self._held():
                if isinstance(part, Module):
                    yield from part.named_modules(f"{prefix}.{path}" if prefix else path, memo)

    def __repr__(self) -> str:
        """The parts as an indented tree, with the shapes and sizes of their parameters.

        >>> from tinygrad_lite.nn import Linear
        >>> Linear(3, 2)
        Linear, 8 parameters: weight (2, 3), bias (2,)
        """
        return "\n".join(self._tree(set()))

    def _tree(self, seen: set[int]) -> list[str]:
        """A line for this module, then those of its parts; `seen` holds the parameters of earlier lines."""
        own = []
        seen.add(id(self))
        for name, value in self._held():
            if isinstance(value, Parameter):
                own.append(f"{name} {value.shape}{' tied' if id(value) in seen else ''}")
                seen.add(id(value))
        size = f", {counted(count, 'parameter')}" if (count := self.num_parameters()) else ""
        top = type(self).__name__ + size + (": " + ", ".join(own) if own else "")
        trees: list[list[Any]] = []  # the first and last name of neighbours that look alike, and their lines
        for path, part in self._held():
            if id(part) in seen or not isinstance(part, Module):  # shown already, or it refers to its owner
                continue
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
        """Each parameter once, with its name; a tied parameter comes under the first of its names."""
        seen: set[int] = set()
        for prefix, module in self.named_modules():
            for name, value in module._held():
                if isinstance(value, Parameter) and id(value) not in seen:
                    seen.add(id(value))
                    yield (f"{prefix}.{name}" if prefix else name), value

    def parameters(self) -> list[Parameter]:
        """Each parameter once."""
        return [parameter for _, parameter in self.named_parameters()]

    def buffers(self) -> list[Tensor]:
        """The tensors that are not parameters, such as the codes of quantized weights: no optimizer changes them."""
        values = (value for _, module in self.named_modules() for _, value in module._held())
        return [value for value in values if isinstance(value, Tensor) and not isinstance(value, Parameter)]

    def named_buffers(self) -> Iterator[tuple[str, Tensor, bool]]:
        """The constants given to `register_buffer`, with their dotted names, and whether each is saved."""
        for prefix, module in self.named_modules():
            for name, persistent in vars(module).get("_persistent", {}).items():
                if (value := getattr(module, name)) is not None:
                    yield (f"{prefix}.{name}" if prefix else name), value, persistent

    def num_parameters(self) -> int:
        """The number of trainable numbers; tied ones count once."""
        return sum(parameter.numel() for parameter in self.parameters())

    @classmethod
    def blueprint(cls, *args: Any) -> Self:
        """The module with shapes only: it knows its size, takes no memory, and cannot compute."""
        with shapes_only():
            return cls(*args)

    @classmethod
    def from_weights(cls, config: Any, weights: dict[str, np.ndarray], device: str = "cpu", take: bool = False) -> Self:
        """The module cls(config) with these weights, all of the type of the first.

        No memory is taken before names and shapes are known to be right, whatever size the settings claim.

        Args:
            take: empty `weights`: on a CPU its arrays become the module's own, so that there is no second copy.
        Raises: CheckpointError if they are not the weights of such a module.
        """
        model = cls.blueprint(config)
        needed, stored = model.num_parameters(), sum(array.size for array in weights.values())
        if stored != needed:
            raise CheckpointError(
                f"the settings describe a {cls.__name__} of {needed:,} parameters, but the weights have {stored:,}"
            )
        if problems := misfits(dict(model.named_parameters()), weights):
            raise CheckpointError(f"the weights do not fit the model's settings: {problems}")
        dtype = next(iter(weights.values())).dtype
        for name, parameter in model.named_parameters():
            array = weights.pop(name) if take else np.array(weights[name], dtype, order="C")
            parameter.data = get_device(device).from_host(np.require(array, dtype, ["C", "WRITEABLE"]))
        return model

    def train(self, mode: bool = True) -> Module:
        """Switch to training (dropout is active); `eval()` switches back."""
        for _, module in self.named_modules():
            module.training = mode
        return self

    def eval(self) -> Module:
        """Switch to evaluation (no dropout)."""
        return self.train(False)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Inside, everything is in evaluation; afterwards each part is again in the mode in which it was before."""
        modes = [(part, part.training) for _, part in self.named_modules()]
        self.eval()
        try:
            yield
        finally:
            self.train(modes[0][1])
            for part, mode in modes:
                part.training = mode

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Remove all gradients: `.grad` is None until the next backward pass (or 0, if set_to_none is False)."""
        clear_gradients(self.parameters(), set_to_none)

    def to(self, device: str, dtype: Any = None) -> Module:
        """Move all parameters, with their gradients, and buffers to a device, and floats to a type if one is given."""
        tensors = [buffer for _, buffer, _ in self.named_buffers()]
        for parameter in self.parameters():
            tensors += [parameter] if parameter.grad is None else [parameter, parameter.grad]
        for tensor in tensors:
            kind = dtype if dtype is not None and is_float(tensor.dtype) else tensor.dtype
            tensor.data = tensor.detach().to(device).cast(kind).data
        return self

    def _state(self) -> dict[str, Tensor]:
        """What `state_dict` saves, by name: all parameters, tied ones once, then the persistent buffers."""
        saved = {name: buffer for name, buffer, persistent in self.named_buffers() if persistent}
        return dict(self.named_parameters()) | saved

    def state_dict(self) -> dict[str, np.ndarray]:
        """The values of all parameters and persistent buffers by name, on the host; tied parameters once."""
        return {name: tensor.numpy() for name, tensor in self._state().items()}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Load the values of all parameters and persistent buffers; names and shapes must match exactly.

        Raises: ValueError that lists missing, unexpected and mis-shaped names; nothing is changed then.
        """
        load_values(self._state(), state, type(self).__name__)


def clear_gradients(parameters: Iterable[Tensor], set_to_none: bool) -> None:
    """Set each `.grad` to None, or to 0 where there is one and set_to_none is False."""
    for parameter in parameters:
        parameter.grad = None if set_to_none or parameter.grad is None else parameter.grad.zeros_like()


def replace(model: Module, name: str, part: Module) -> Module:
    """Replace the part of a model that has this dotted name; returns the new part."""
    *path, last = name.split(".")
    owner: Any = model
    for key in path:
        owner = vars(owner)[key] if isinstance(owner, Module) else owner[key if isinstance(owner, dict) else int(key)]
    if isinstance(owner, Module):
        setattr(owner, last, part)
    else:
        owner[last if isinstance(owner, dict) else int(last)] = part
    return part


def load_values(own: Mapping[str, Tensor], state: Mapping[str, np.ndarray], whose: str) -> None:
    """Write a state into the tensors of the same names. Raises: ValueError, before anything is changed."""
    if problems := misfits(own, state):
        raise ValueError(f"the state does not match {whose}; {problems}")
    for name, tensor in own.items():
        check_fits(np.asarray(state[name]), tensor.dtype, f"{whose}.{name}")
    for name, tensor in own.items():
        tensor.data[...] = get_device(tensor.device).from_host(np.ascontiguousarray(state[name]))
        tensor.mark_written()


def _found(path: str, value: Any) -> Iterator[tuple[str, Module | Tensor]]:
    """A module or tensor with its name, or those in a list, tuple or dict, however deep."""
    if isinstance(value, (Module, Tensor)):
        yield path, value
    elif isinstance(value, (list, tuple, dict)):
        for name, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _found(f"{path}.{name}", part)


def misfits(own: Mapping[str, Tensor], state: Mapping[str, np.ndarray]) -> str:
    """The names that are missing, unexpected, or of another shape in a state; empty if it matches these parameters."""
    shapes = [
        f"{name} is {tuple(state[name].shape)}, the model has {parameter.shape}"
        for name, parameter in own.items()
        if name in state and tuple(state[name].shape) != parameter.shape
    ]
    problems = {
        "missing": [name for name in own if name not in state],
        "unexpected": [name for name in state if name not in own],
        "mis-shaped": shapes,
    }
    return "; ".join(f"{kind}: {', '.join(names)}" for kind, names in problems.items() if names)


class Call(NamedTuple):
    """One call of a module: its dotted name in the model, the module, the arguments, and what it returned."""

    name: str
    module: Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any


@contextmanager
def recorded(model: Module, *kinds: type[Module]) -> Iterator[list[Call]]:
    """Inside, every call of a module of these kinds is recorded, in the order in which the calls end.

    >>> from tinygrad_lite.nn import Linear
    >>> model = Linear(3, 2)
    >>> with recorded(model, Linear) as calls:
    ...     y = model(Tensor.zeros(5, 3))
    >>> calls[0].result.shape
    (5, 2)
    """
    calls: list[Call] = []

    def forward(name: str, module: Module, /, *args: Any, **kwargs: Any) -> Any:
        result = type(module).forward(module, *args, **kwargs)
        calls.append(Call(name, module, args, kwargs, result))
        return result

    watched = [(name, module) for name, module in model.named_modules() if isinstance(module, kinds)]
    try:
        for name, module in watched:
            # An attribute of this one object, found before that of its class.
            module.forward = functools.partial(forward, name, module)
        yield calls
    finally:
        for _, module in watched:
            vars(module).pop("forward", None)
