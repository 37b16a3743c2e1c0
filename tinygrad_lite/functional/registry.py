"""Each heavy operation has a reference version and fused versions; they are registered here, and each call chooses one.

The reference version is composed of primitives and runs on every device: it is the definition. A fused version computes
the same result in one node, with a gradient derived by hand, and is registered for the device it is written for. On a
device without one, the reference version runs. The tests go through `REGISTRY`, so every fused version is compared with
its definition.

The fused versions for GPUs are in tinygrad_lite/cuda/, next to their CUDA sources, and are imported on first use.
"""

import functools
import importlib
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import MethodType
from typing import Any

import numpy as np

from tinygrad_lite.arguments import by_own_names
from tinygrad_lite.ops.common import as_tensor
from tinygrad_lite.tensor import Tensor, check_one_device, noted

REGISTRY: dict[str, "ReferenceAndFused"] = {}
_composed_only = False


class ReferenceAndFused:
    """An operation with its versions; a call runs the one for the device of its tensors, unless `composed` is on."""

    def __init__(self, composed: Callable[..., Any], **fused: Callable[..., Any] | str) -> None:
        """Register a reference version, and fused ones by device: `ReferenceAndFused(gelu_composed, cpu=gelu_fused)`.

        A fused version may also be given as the name of a module, which is imported on first use; its function has the
        name of the operation and the device, such as `layer_norm_cuda`.
        """
        functools.update_wrapper(self, composed)  # the docstring and signature of the definition
        self.name = self.__name__ = composed.__name__.removesuffix("_composed")
        self.composed = composed
        self.fused = fused
        parameters = inspect.signature(composed).parameters.values()
        # Whether each is a tensor; a list of tensors is not.
        self.names = {p.name: "Tensor" in str(p.annotation).split("[")[0] for p in parameters}
        by_position = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
        # How many arguments may be given by position, and how many tensors come first.
        self.positions, self.places = len(by_position), [*map(self.names.get, by_position), False].index(False)
        self.required = sum(self.names[p.name] and p.default is p.empty for p in parameters)
        REGISTRY[self.name] = self

    def __get__(self, x: Tensor | None, owner: type | None = None) -> Callable[..., Any]:
        """As an attribute of a class it becomes a method, like a function."""
        return self if x is None else MethodType(self, x)

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Call the version for the tensors' device; numbers, lists and arrays given with a tensor become tensors."""
        if len(args) > self.positions or (options and not self.names.keys() >= options.keys()):
            options = by_own_names(self.composed, args[self.positions :], options)
        tensors, is_complete = [], True
        for place, value in enumerate(args):
            if isinstance(value, Tensor):
                tensors.append(value)
            elif value is not None and place < self.places:
                is_complete = False
        for name, value in options.items():
            if isinstance(value, Tensor):
                tensors.append(value)
            elif value is not None and self.names[name]:
                is_complete = False
        if not is_complete or len(tensors) < max(self.required, 1):
            args, options, tensors = self._with_constants(args, options, tensors)
        noted(*tensors)
        device = tensors[0].device
        for tensor in tensors:
            if tensor.device != device:
                check_one_device(tensors, self.name)
        if device != "cpu":  # CuPy never warns
            return self.version_for(device)(*args, **options)
        with np.errstate(all="ignore"):  # NaN and infinity without a warning, as from the primitives
            return self.version_for(device)(*args, **options)

    def _with_constants(self, args: tuple, options: dict[str, Any], tensors: list[Tensor]) -> tuple:
        """The arguments of a call, its constants turned into tensors on the first tensor's device, and all tensors."""
        given = dict(zip(self.names, args, strict=False))  # any further arguments are not tensors
        for name, value in (given | options).items():
            if self.names[name] and not isinstance(value, Tensor) and value is not None and tensors:
                tensors.append(as_tensor(value, tensors[0]))
                (given if name in given else options)[name] = tensors[-1]
        if len(tensors) < self.required or not tensors:
            expected = ", ".join(list(self.names)[: self.required])
            raise TypeError(f"{self.name}: needs tensors as {expected}; make them with Tensor(...)")
        return (*given.values(), *args[len(given) :]), options, tensors

    def version_for(self, device: str) -> Callable[..., Any]:
        """The version for a device: the fused one, if there is one and `composed` is off."""
        if _composed_only:
            return self.composed
        version = self.fused.get(device, self.composed)
        if isinstance(version, str):
            version = self.fused[device] = getattr(importlib.import_module(version), f"{self.name}_{device}")
        return version


def set_composed(on: bool) -> None:
    """Choose whether every operation runs in its reference version from now on (`train.py --composed`)."""
    global _composed_only
    _composed_only = on


def is_composed() -> bool:
    """Whether every operation runs in its reference version."""
    return _composed_only


@contextmanager
def composed() -> Iterator[None]:
    """Inside this context, every operation runs in its reference version."""
    before = _composed_only
    set_composed(True)
    try:
        yield
    finally:
        set_composed(before)
