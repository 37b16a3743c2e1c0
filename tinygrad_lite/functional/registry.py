"""Twins: each heavy operation exists composed (clear) and fused (fast), and one switch chooses.

The composed twin is written with primitives and is valid on every device; it is the definition. A fused twin
computes the same in one node with a gradient derived by hand, and is registered for the devices it can run on.
Where none is registered for a device, the composed one runs. The tests walk through `REGISTRY`, so no fused
code exists that is not compared with its definition.

What is fused for a GPU lies beside its CUDA source, in tinygrad_lite/cuda/, and is imported when it is first needed.
"""

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tinygrad_lite.tensor import Tensor

REGISTRY: dict[str, "Twin"] = {}
_composed_only = False


class Twin:
    """An operation in two versions; calling it runs the one that fits the data and the switch."""

    def __init__(self, composed: Callable[..., Any], **fused: Callable[..., Any] | str) -> None:
        """Pair a composed version with fused ones by device, as in `Twin(layer_norm_composed, cpu=..., cuda=...)`.

        Instead of a function it may be the name of the module where the function is: for `layer_norm` and device cuda
        that is `layer_norm_cuda`.
        """
        self.name = composed.__name__.removesuffix("_composed")
        self.composed = composed
        self.fused = fused
        self.__doc__ = composed.__doc__
        REGISTRY[self.name] = self

    def __call__(self, *args: Any, **options: Any) -> Any:
        with np.errstate(all="ignore"):  # NaN and infinity without a warning, as from the primitives
            return self.version(*args, *options.values())(*args, **options)

    def version(self, *args: Any) -> Callable[..., Any]:
        """The version that a call with these arguments runs: that of the device on which its tensors are."""
        tensors = [arg for arg in args if isinstance(arg, Tensor)]
        if not tensors:
            raise TypeError(f"{self.name}: needs tensors; make them with Tensor(...)")
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
