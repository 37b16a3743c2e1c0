"""Each heavy operation in two kinds of versions, a reference and fused ones, and the switch that chooses.

The reference version is composed of primitives and runs on every device: it is the definition. A fused version
computes the same in one node, with a gradient derived by hand, and is registered for the device it is written for.
Where none is registered for a device, the reference runs. The tests go through `REGISTRY`, so no fused version exists
that is not compared with its definition.

What is fused for a GPU lies beside its CUDA source, in tinygrad_lite/cuda/, and is imported when it is first needed.
"""

import functools
import importlib
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import MethodType
from typing import Any

import numpy as np

from tinygrad_lite.ops.common import as_tensor
from tinygrad_lite.spelling import respelled
from tinygrad_lite.tensor import Tensor

REGISTRY: dict[str, "ReferenceAndFused"] = {}
_composed_only = False


class ReferenceAndFused:
    """An operation in two versions; calling it runs the one that fits the data and the switch."""

    def __init__(self, composed: Callable[..., Any], **fused: Callable[..., Any] | str) -> None:
        """Register a reference version with fused ones by device: `ReferenceAndFused(gelu_composed, cpu=gelu_fused)`.

        Instead of a function it may be the name of the module where the function is: for `layer_norm` and device cuda
        that is `layer_norm_cuda`.
        """
        functools.update_wrapper(self, composed)  # the docstring and signature of the definition
        self.name = self.__name__ = composed.__name__.removesuffix("_composed")
        self.composed = composed
        self.fused = fused
        parameters = inspect.signature(composed).parameters.values()
        self.names = {p.name: "Tensor" in str(p.annotation) for p in parameters}  # and whether each is a tensor
        self.places = sum(self.names.values())  # tensors come first
        self.required = sum(self.names[p.name] and p.default is p.empty for p in parameters)
        REGISTRY[self.name] = self

    def __get__(self, x: Tensor | None, owner: type | None = None) -> Callable[..., Any]:
        """As a function would be, it is a method where it stands in a class."""
        return self if x is None else MethodType(self, x)

    def __call__(self, *args: Any, **options: Any) -> Any:
        for name in options:
            if name not in self.names:
                options = respelled(self.composed, self.name, options)
                break
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
        with np.errstate(all="ignore"):  # NaN and infinity without a warning, as from the primitives
            return self.version(tensors)(*args, **options)

    def _with_constants(self, args: tuple, options: dict[str, Any], tensors: list[Tensor]) -> tuple:
        """The arguments of a call, and all tensors among them: a number, list or array beside a tensor becomes one."""
        given = dict(zip(self.names, args, strict=False))  # further arguments are not of tensors
        for name, value in (given | options).items():
            if self.names[name] and not isinstance(value, Tensor) and value is not None and tensors:
                tensors.append(as_tensor(value, tensors[0]))
                (given if name in given else options)[name] = tensors[-1]
        if len(tensors) < self.required or not tensors:
            expected = ", ".join(list(self.names)[: self.required])
            raise TypeError(f"{self.name}: needs tensors as {expected}; make them with Tensor(...)")
        return (*given.values(), *args[len(given) :]), options, tensors

    def version(self, tensors: list[Tensor]) -> Callable[..., Any]:
        """The version that a call with these tensors runs: that of the device on which they are."""
        first = tensors[0]
        for other in tensors:
            if type(other.data) is not type(first.data):
                raise ValueError(
                    f"{self.name}: tensors on {first.device} and {other.device} cannot be combined; "
                    "move one with .to(device)"
                )
        return self.version_for(first.device)

    def version_for(self, device: str) -> Callable[..., Any]:
        """The version for a device: fused if there is one and the switch allows it."""
        if _composed_only:
            return self.composed
        version = self.fused.get(device, self.composed)
        if isinstance(version, str):
            version = self.fused[device] = getattr(importlib.import_module(version), f"{self.name}_{device}")
        return version


def set_composed(on: bool) -> None:
    """The switch: with True every operation runs in its composed version (`train.py --composed`)."""
    global _composed_only
    _composed_only = on


def is_composed() -> bool:
    """Whether the switch is set."""
    return _composed_only


@contextmanager
def composed() -> Iterator[None]:
    """Inside, every operation runs in its composed version."""
    before = _composed_only
    set_composed(True)
    try:
        yield
    finally:
        set_composed(before)
